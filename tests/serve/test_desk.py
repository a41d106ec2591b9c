"""The desk in one process: shared batches, engines that fail, and answers that carry their reason."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from genprm.baselines.scored import Scored, ScoredVerifier
from genprm.config import load_config
from genprm.errors import BackendUnavailable, Unscored
from genprm.serve import desk as desk_module
from genprm.serve.app import Service


class Lengths:
    """Scores each step by its length; notes what was judged together."""

    model, name = "lengths", "lengths"

    def __init__(self):
        self.batches: list[int] = []
        self.fail = False

    def settings_digest(self):
        return "0" * 64

    def score(self, batch):
        self.batches.append(len(batch))
        if self.fail:
            raise BackendUnavailable("the engine died: see its log")
        return [Scored(tuple(self._step(step) for step in solution.steps)) for solution in batch]

    def _step(self, step):
        return Unscored("a step of length 13") if len(step) == 13 else len(step) / 100

    def close(self):
        pass


@pytest.fixture
def scorer():
    return Lengths()


@pytest.fixture
def ask(scorer):
    """Sends requests to a service of this process, all at once."""
    config = load_config("scripted", ["verify.judge=outcome", "backend.max_batch=4"])
    with ScoredVerifier(scorer, config) as verifier:
        service = Service(verifier)

        def one_loop(scene):
            async def go():
                transport = httpx.ASGITransport(app=service.app)
                async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                    return await scene(client)

            return asyncio.run(go())

        yield one_loop


def body(length: int, id: str = "same") -> dict:
    return {"problem": "p", "steps": ["x" * length], "id": id}


def test_requests_that_come_together_are_judged_together_and_keep_apart(ask, scorer):
    async def scene(client):
        return await asyncio.gather(*(client.post("/v1/score", json=body(n)) for n in range(20, 33)))

    answers = ask(scene)
    assert [answer.json()["rewards"] for answer in answers] == [[n / 100] for n in range(20, 33)]
    assert {answer.json()["id"] for answer in answers} == {"same"}
    assert sum(scorer.batches) == 13
    assert len(scorer.batches) < 13
    assert max(scorer.batches) <= 4


def test_a_dead_engine_is_503_with_its_reason_and_the_service_is_not_ready_for_a_while(ask, scorer, monkeypatch):
    async def scene(client):
        scorer.fail = True
        answers = [await client.post("/v1/score", json=body(20)), await client.get("/health/ready")]
        stream = await client.post("/v1/stream", json=body(20))
        monkeypatch.setattr(desk_module, "FAULT_SECONDS", 0.0)
        answers.append(await client.get("/health/ready"))
        scorer.fail = False
        monkeypatch.setattr(desk_module, "FAULT_SECONDS", 1e9)
        answers.append(await client.post("/v1/score", json=body(20)))
        answers.append(await client.get("/health/ready"))
        return answers, stream

    (dead, unready, retry, judged, ready), stream = ask(scene)
    assert (dead.status_code, dead.json()["error"]["type"]) == (503, "unavailable")
    assert dead.json()["error"]["message"] == "the engine died: see its log"
    assert dead.headers["retry-after"] == "5"
    assert (unready.status_code, unready.json()) == (
        503,
        {"status": "unavailable", "reason": "the engine died: see its log"},
    )
    assert "event: error" in stream.text
    assert (retry.status_code, judged.status_code, ready.status_code) == (200, 200, 200)


def test_one_unscored_step_never_becomes_a_number(ask):
    async def scene(client):
        row = {"problem": "p", "steps": ["x" * 60, "x" * 13, "x" * 60]}
        text = "p\n\n" + "".join(f"{step}<extra_0>" for step in row["steps"])
        score = await client.post("/v1/score", json=row)
        pooled = await client.post("/pooling", json={"input": ["p\n\n" + "y" * 60 + "<extra_0>", text]})
        valued = await client.post("/worker_value_inference", json={"input_str": text})
        return score, pooled, valued

    score, pooled, valued = ask(scene)
    assert score.json()["rewards"] == [0.6, None, 0.6]
    assert score.json()["unscored_reasons"] == {"1": "a step of length 13"}
    for answer, place in ((pooled, 1), (valued, 0)):
        assert answer.status_code == 422
        assert answer.json()["error"] == {
            "type": "unscored",
            "message": f"step 1 of input {place} is unscored: a step of length 13",
            "input": place,
            "step": 1,
            "reason": "a step of length 13",
        }


def test_an_unexpected_error_is_json_without_its_text(ask, scorer, caplog):
    def broken(batch):
        raise ZeroDivisionError("secret step text")

    scorer.score = broken

    async def scene(client):
        return await client.post("/v1/score", json=body(20), headers={"X-Request-Id": "odd-1"})

    answer = ask(scene)
    assert answer.status_code == 500
    assert answer.json()["error"] == {
        "type": "internal",
        "message": "an unexpected ZeroDivisionError; the log names request odd-1",
    }
    (record,) = [record for record in caplog.records if record.getMessage() == "unexpected error"]
    assert record.fields["request"] == "odd-1"
    assert any("broken" in place for place in record.fields["where"])
    assert "secret" not in str(record.fields)
