"""Many requests at once, impatient clients, full queues, deadlines, and the end."""

from __future__ import annotations

import asyncio
import json
import socket
import time

import httpx

import genprm
from genprm.records import parse_record

CALLS_OF_A_STEP = 3
"""The scripted judge is asked for a claim, for code and for a label."""


def numbered(number: int) -> dict:
    """A solution that differs from all others in id, problem, steps and their number."""
    wrong = number % 4
    steps = [f"{number} + {index} = {number + index + (index == wrong)}" for index in range(2 + number % 3)]
    return {"problem": f"Problem {number}", "steps": steps, "id": f"id-{number}"}


def expected(number: int) -> tuple[str, int]:
    return f"id-{number}", 2 + number % 3


def told(row: dict) -> tuple[str, int]:
    return row["id"], len(row["rewards"])


async def at_once(url: str, bodies: list[dict], **options) -> list[httpx.Response]:
    # Many small pools: one large one spends its time counting idle connections.
    limits = httpx.Limits(max_connections=25, max_keepalive_connections=25)
    clients = [httpx.AsyncClient(base_url=url, timeout=120, limits=limits) for _ in range(len(bodies) // 25 + 1)]
    try:
        posts = [
            clients[place % len(clients)].post("/v1/score", json=body, **options) for place, body in enumerate(bodies)
        ]
        return await asyncio.gather(*posts)
    finally:
        for client in clients:
            await client.aclose()


def test_500_requests_at_once_are_answered_each_with_its_own(start, capsys):
    latency, seats = 0.02, 64
    service = start(f"scripted.latency_seconds={latency}", f"backend.max_in_flight={seats}", "sandbox.kind=off")
    bodies = [numbered(number) for number in range(500)]
    begin = time.perf_counter()
    answers = asyncio.run(at_once(service.url, bodies))
    seconds = time.perf_counter() - begin
    assert [answer.status_code for answer in answers] == [200] * 500
    # The scripted judge's rewards hang on the prompt, so equal rewards mean the same problem and steps.
    with genprm.load("scripted", overrides=["sandbox.kind=off"]) as judge:
        local = {result.id: result for result in judge.verify_many(parse_record(body) for body in bodies)}
    for body, answer in zip(bodies, answers, strict=True):
        assert answer.json()["id"] == body["id"]
        assert answer.json()["rewards"] == [step.reward for step in local[body["id"]].steps]
    one_by_one = sum(len(body["steps"]) for body in bodies) * CALLS_OF_A_STEP * latency
    with capsys.disabled():
        print(f" [{seconds:.2f} s, {one_by_one / seats / seconds:.2f} of the limit]", end="")
    assert seconds < one_by_one / 3  # generous, since machines are shared
    assert service.waiting() == {"waiting": 0, "in_flight": 0, "places": 1024}


def test_a_full_queue_refuses_with_retry_after_and_loses_no_one(start):
    service = start("scripted.latency_seconds=0.05", "serve.queue=20", "backend.max_in_flight=4", "sandbox.kind=off")
    answers = asyncio.run(at_once(service.url, [numbered(number) for number in range(100)]))
    codes = [answer.status_code for answer in answers]
    assert set(codes) == {200, 429}
    assert codes.count(200) >= 20
    for number, answer in enumerate(answers):
        if answer.status_code == 200:
            assert told(answer.json()) == expected(number)
        else:
            assert answer.json()["error"]["type"] == "queue_full"
            assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert service.waiting()["waiting"] == 0
    assert service.post("/v1/score", numbered(1)).status_code == 200


def test_a_list_takes_as_many_places_as_it_has_solutions(start):
    service = start("serve.queue=3", "scripted.latency_seconds=0.5", "sandbox.kind=off")
    too_many = service.post("/v1/score", [numbered(n) for n in range(4)])
    assert (too_many.status_code, too_many.json()["error"]["type"]) == (413, "too_large")

    async def both():
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
            first = asyncio.create_task(client.post("/v1/score", json=[numbered(n) for n in range(3)]))
            while service.waiting()["in_flight"] < 3:
                await asyncio.sleep(0.02)
            second = await client.post("/v1/score", json=numbered(9))
            return await first, second

    first, second = asyncio.run(both())
    assert (first.status_code, second.status_code) == (200, 429)


def hang_up(url: str, path: str, body: dict) -> socket.socket:
    """A request on a bare connection, to be dropped in the middle."""
    host, port = url.removeprefix("http://").split(":")
    data = json.dumps(body).encode()
    connection = socket.create_connection((host, int(port)))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


def test_a_client_that_leaves_frees_its_places(start):
    service = start("scripted.latency_seconds=30", "backend.max_in_flight=2", "serve.queue=4", "sandbox.kind=off")
    connections = [hang_up(service.url, path, numbered(0)) for path in ("/v1/score", "/v1/verify", "/v1/stream")]
    service.until(lambda: service.waiting() == {"waiting": 1, "in_flight": 2, "places": 4})
    for connection in connections:
        connection.close()
    service.until(lambda: service.waiting() == {"waiting": 0, "in_flight": 0, "places": 4})
    assert service.figure("genprm_solutions_cancelled_total") == 3
    for route in ("/v1/score", "/v1/verify", "/v1/stream"):
        assert service.logged("request", route=route, status=499)


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error(start):
    service = start("sandbox.kind=off")
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    assert service.logged("request", route="/v1/score", status=499)
    assert not [line for line in service.log if line["level"] != "info"]


def test_a_deadline_ends_a_request_and_frees_its_place(start):
    service = start("scripted.latency_seconds=30", "serve.deadline_seconds=0.4", "sandbox.kind=off")
    begin = time.perf_counter()
    answer = service.post("/v1/verify", numbered(0))
    assert time.perf_counter() - begin < 5
    assert (answer.status_code, answer.json()["error"]["type"]) == (504, "deadline")
    assert "0.4 seconds" in answer.json()["error"]["message"]
    longer = service.post("/v1/verify", numbered(0), headers={"X-Request-Deadline": "1000"})
    assert longer.status_code == 504
    shorter = service.post("/v1/verify", numbered(0), headers={"X-Request-Deadline": "0.1"})
    assert "0.1 seconds" in shorter.json()["error"]["message"]
    assert service.waiting()["in_flight"] == 0


def test_sigterm_lets_work_under_way_finish_and_refuses_new_work(start):
    service = start("scripted.latency_seconds=0.6", "sandbox.kind=off")

    async def scene():
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
            under_way = [asyncio.create_task(client.post("/v1/score", json=numbered(n))) for n in range(5)]
            while service.waiting()["in_flight"] < 5:
                await asyncio.sleep(0.02)
            service.terminate()
            while (await client.get("/health/ready")).status_code == 200:
                await asyncio.sleep(0.02)
            late = await client.post("/v1/score", json=numbered(9))
            live = await client.get("/health/live")
            return await asyncio.gather(*under_way), late, live

    done, late, live = asyncio.run(scene())
    assert [told(answer.json()) for answer in done] == [expected(number) for number in range(5)]
    assert (late.status_code, late.json()["error"]["type"], late.headers["retry-after"]) == (503, "draining", "1")
    assert (live.status_code, live.headers["connection"]) == (200, "close")
    assert service.end() == 0
    assert service.log[-1]["event"] == "ended"


def test_what_does_not_finish_in_time_is_told_that_the_service_ends(start):
    service = start("scripted.latency_seconds=60", "serve.drain_seconds=0.5", "sandbox.kind=off")

    async def scene():
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
            under_way = asyncio.create_task(client.post("/v1/score", json=numbered(0)))
            while service.waiting()["in_flight"] < 1:
                await asyncio.sleep(0.02)
            service.terminate()
            return await under_way

    begin = time.perf_counter()
    answer = asyncio.run(scene())
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "draining")
    assert service.end() == 0
    assert time.perf_counter() - begin < 15


def test_an_idle_service_ends_at_once(start):
    service = start("sandbox.kind=off")
    begin = time.perf_counter()
    assert service.end() == 0
    assert time.perf_counter() - begin < 5


def test_a_second_signal_does_not_wait(start):
    service = start("scripted.latency_seconds=60", "serve.drain_seconds=60", "sandbox.kind=off")
    connection = hang_up(service.url, "/v1/score", numbered(0))
    service.until(lambda: service.waiting()["in_flight"] == 1)
    service.terminate()
    service.logged("draining")
    begin = time.perf_counter()
    service.terminate()
    service.process.wait(20)
    connection.close()
    assert time.perf_counter() - begin < 10
