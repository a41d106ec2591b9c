"""The verifier over layouts, votes, early stop, failures and streams, with the scripted backend."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import threading

import pytest

from genprm.backends.scripted import ScriptedBackend
from genprm.config import ScriptedConfig, load_config
from genprm.errors import BackendUnavailable, ConfigError
from genprm.prompting import load_protocol, shipped_protocols
from genprm.sandbox.base import OffSandbox, ScriptedSandbox
from genprm.types import CodeCheck, Outcome, Solution
from genprm.verifier import GenPRM


class ArithmeticSandbox(ScriptedSandbox):
    """Runs the scripted backend's own code lines, which hold nothing but arithmetic, and nothing else."""

    def open(self):
        sandbox = self

        class Session:
            def run_sync(self, source):
                sandbox.sources.append(source)
                lines = [line for line in source.splitlines() if line.startswith("print(abs(")]
                output = "\n".join(str(eval(line[6:-1], {"abs": abs, "__builtins__": {}})) for line in lines)
                return CodeCheck(source=source, status="ok", output=output, seconds=0.0)

            async def run(self, source):
                await asyncio.sleep(0)
                return self.run_sync(source)

            def close(self):
                pass

        return Session()


def make(protocol="compact", *overrides, backend=None, sandbox=None, **kwargs):
    config = load_config("scripted", [f"verify.protocol={protocol}", *overrides])
    backend = backend or ScriptedBackend(config.scripted, config.backend.max_context)
    return GenPRM(backend, load_protocol(protocol), sandbox or ArithmeticSandbox(), config, **kwargs)


JUDGES = [name for name in shipped_protocols() if name != "thinkprm" and load_protocol(name).manifest.judges]


@pytest.mark.parametrize("protocol", JUDGES)
def test_every_layout_finds_the_false_equality(protocol, trip):
    with make(protocol) as judge:
        result = judge.verify(trip)
    assert result.first_error == 1
    assert [step.verdict for step in result.steps][:2] == ["correct", "incorrect"]
    assert [step.index for step in result.steps] == [0, 1, 2]
    assert result.reward == min(step.reward for step in result.steps)
    assert (result.model, result.protocol.name, result.sandbox) == ("scripted", protocol, "scripted")
    assert result.usage.completion_tokens > 0


def test_thinkprm_gives_a_label_for_each_step_and_a_prefix_score(trip):
    with make("thinkprm", sandbox=OffSandbox()) as judge:
        result = judge.verify(trip)
    assert [step.verdict for step in result.steps] == ["correct"] * 3
    assert 0 <= result.prefix_score <= 1
    assert result.steps[1].votes[0].critique.endswith("\\boxed{correct}")
    assert [step.votes[0].shared for step in result.steps] == [False, True, True]


@pytest.mark.parametrize("protocol", shipped_protocols())
def test_early_stop_leaves_out_what_comes_after_the_first_error(protocol, trip):
    with make(protocol) as full, make(protocol, "verify.early_stop=true") as stopped:
        everything, early = full.verify(trip), stopped.verify(trip)
    assert early.first_error == everything.first_error
    assert [s.reward for s in early.steps] == [s.reward for s in everything.steps][: len(early.steps)]
    if everything.first_error >= 0:
        assert early.stopped_early
        assert len(early.steps) == everything.first_error + 1
    else:
        assert not early.stopped_early


@pytest.mark.parametrize("protocol", shipped_protocols())
def test_votes_have_seeds_of_their_own_and_the_reward_is_their_mean(protocol, trip):
    with make(protocol, "verify.votes=3") as judge:
        result = judge.verify(trip)
    for step in result.steps:
        assert len({vote.seed for vote in step.votes}) == 3
        assert step.reward == pytest.approx(sum(vote.p_yes for vote in step.votes) / 3)


def test_a_single_vote_is_greedy_and_a_seed_changes_the_votes(trip):
    with make() as judge:
        assert judge.verify(trip).steps[0].votes[0].seed is None
    seeds = []
    for seed in (0, 0, 1):
        with make("compact", "verify.votes=2", f"verify.seed={seed}") as judge:
            seeds.append([vote.seed for vote in judge.verify(trip).steps[0].votes])
    assert seeds[0] == seeds[1] != seeds[2]


def test_a_votes_seed_depends_on_the_prefix_alone(trip):
    longer = trip.model_copy(update={"id": "other", "steps": (*trip.steps, "One more step.")})
    with make("compact", "verify.votes=2") as judge:
        short, long = judge.verify(trip), judge.verify(longer)
    for one, other in zip(short.steps, long.steps, strict=False):
        assert [vote.seed for vote in one.votes] == [vote.seed for vote in other.votes]


def test_a_prompt_over_the_context_is_unscored_with_the_reason_and_so_is_all_behind_it():
    solution = Solution(id="0", problem="p", steps=tuple(f"step {i} " + "word " * 40 for i in range(30)))
    with make("compact", "backend.max_context=800") as judge:
        result = judge.verify(solution)
    scored = [step.reward is not None for step in result.steps]
    assert scored[0]
    assert not scored[-1]
    assert scored == sorted(scored, reverse=True)
    assert "800" in result.steps[-1].unscored_reason
    assert result.first_error is None
    assert result.reward is None


def test_ten_thousand_steps_are_judged_without_a_prompt_for_each_that_cannot_fit():
    backend = ScriptedBackend(ScriptedConfig(), 2000)
    solution = Solution(id="0", problem="p", steps=tuple(f"step number {i}" for i in range(10_000)))
    with make(backend=backend) as judge:
        result = judge.verify(solution)
    assert len(result.steps) == 10_000
    assert result.steps[-1].verdict == "unscored"
    assert backend.calls < 3_000


class LostSandbox(OffSandbox):
    level = "L1"


@pytest.mark.parametrize("protocol", ["compact", "genprm", "critic"])
def test_a_sandbox_that_fails_is_no_verdict_on_the_step(protocol, trip):
    with make(protocol, sandbox=LostSandbox()) as judge:
        result = judge.verify(trip)
    assert {step.verdict for step in result.steps} == {"unscored"}
    assert "sandbox failed" in result.steps[0].unscored_reason
    assert result.first_error is None


def test_a_sandbox_that_is_off_leaves_the_judge_to_its_words(trip):
    with make(sandbox=OffSandbox()) as judge:
        assert judge.verify(trip).steps[0].verdict == "correct"


def test_an_engine_that_dies_is_an_error_and_not_a_verdict_and_what_was_done_is_handed_over(trip):
    class Dying(ScriptedBackend):
        async def _die(self):
            raise BackendUnavailable("the engine is dead")

        def slot(self):
            if self.calls > 8:
                raise BackendUnavailable("the engine is dead")
            return super().slot()

    many = [trip.model_copy(update={"id": str(i)}) for i in range(20)]
    with make("compact", "backend.max_in_flight=1", backend=Dying(ScriptedConfig())) as judge:
        stream = judge.verify_many(many)
        done = [next(stream).id]
        with pytest.raises(BackendUnavailable, match="dead"):
            next(stream)
    assert done == ["0"]


def test_a_stream_is_read_no_further_ahead_than_can_be_in_flight(trip):
    read = []

    def source():
        for number in range(500):
            read.append(number)
            yield trip.model_copy(update={"id": str(number)})

    with make("compact", "backend.max_in_flight=4") as judge:
        stream = judge.verify_many(source())
        first = [next(stream) for _ in range(3)]
        stream.close()
    assert len({result.id for result in first}) == 3
    assert len(read) <= 30


def test_results_of_a_stream_carry_their_own_solutions():
    solutions = [Solution(id=str(i), problem=f"marker {i}", steps=(f"{i} + 1 = {i + 1 + i % 2}.",)) for i in range(200)]
    with make() as judge:
        results = {result.id: result for result in judge.verify_many(solutions)}
    assert len(results) == 200
    for i in range(200):
        assert results[str(i)].problem == f"marker {i}"
        assert results[str(i)].first_error == (0 if i % 2 else -1)


class Watching(ScriptedBackend):
    """Counts the critiques that are under way at once."""

    running, most = 0, 0

    def slot(self):
        watching, inner = self, super().slot()

        class Slot:
            async def __aenter__(self):
                watching.running += 1
                watching.most = max(watching.most, watching.running)
                return await inner.__aenter__()

            async def __aexit__(self, *error):
                watching.running -= 1
                return await inner.__aexit__(*error)

        return Slot()


def test_critiques_of_all_steps_votes_and_solutions_are_in_flight_at_once(trip):
    backend = Watching(ScriptedConfig(latency_seconds=0.01))
    with make("compact", "verify.votes=4", "backend.max_in_flight=20", backend=backend) as judge:
        list(judge.verify_many([trip, trip.model_copy(update={"id": "b"})]))
    assert backend.most == 20


def test_calls_that_run_side_by_side_share_one_bound_on_critiques(trip):
    backend = Watching(ScriptedConfig(latency_seconds=0.005))
    with make("compact", "backend.max_in_flight=5", backend=backend) as judge:

        async def many():
            return await asyncio.gather(*(judge.averify(trip) for _ in range(10)))

        results = asyncio.run(many())
    assert backend.most == 5
    assert {result.first_error for result in results} == {1}


def test_the_outcome_is_asked_for_only_with_a_reference_answer(trip):
    asked = []

    async def outcome(steps, reference):
        asked.append(reference)
        return Outcome(answer="110", correct=False)

    with make(outcome=outcome) as judge:
        assert judge.verify(trip).outcome is None
        assert judge.verify(trip.model_copy(update={"answer": "120"})).outcome == Outcome(answer="110", correct=False)
    assert asked == ["120"]


def test_blocks_of_the_host_are_in_the_critique_before_what_the_model_writes(trip):
    with make(blocks=lambda _, index: {"evidence": f"answer 120 in 5 of 6 (step {index})"}) as judge:
        result = judge.verify(trip)
    vote = result.steps[1].votes[0]
    assert vote.critique.startswith("Programs: answer 120 in 5 of 6 (step 1)\n")
    assert all(start >= len("Programs: answer 120 in 5 of 6 (step 1)\n") for start, _ in vote.written)


def test_it_works_inside_a_running_loop_and_from_threads(trip):
    with make() as judge:

        async def inside():
            return judge.verify(trip).first_error, (await judge.averify(trip)).first_error

        assert asyncio.run(inside()) == (1, 1)
        found = []
        threads = [threading.Thread(target=lambda: found.append(judge.verify(trip).first_error)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [1] * 8


def test_a_low_label_mass_is_flagged(trip):
    class Unsure(ScriptedBackend):
        def slot(self):
            inner = super().slot()

            class Slot:
                async def __aenter__(self):
                    slot = await inner.__aenter__()
                    read = slot.read_label

                    async def low(*args):
                        import dataclasses

                        return dataclasses.replace(await read(*args), mass=0.001)

                    slot.read_label = low
                    return slot

                async def __aexit__(self, *error):
                    return await inner.__aexit__(*error)

            return Slot()

    with make(backend=Unsure(ScriptedConfig())) as judge:
        assert judge.verify(trip).steps[0].votes[0].low_mass


def test_the_same_input_gives_the_same_result(trip):
    dumps = []
    for _ in range(2):
        with make("genprm", "verify.votes=3") as judge:
            result = judge.verify(trip).model_dump(mode="json")
        result["usage"].pop("seconds")
        dumps.append(result)
    assert dumps[0] == dumps[1]


class Noisy(ScriptedBackend):
    """P(Yes) near 0.9 or 0.1 by a rate that hangs on the step, and a draw that hangs on the critique's seed."""

    def slot(self):
        backend, inner = self, super().slot()

        class Slot:
            async def __aenter__(self):
                slot = await inner.__aenter__()
                seeds, generate, read = [], slot.generate, slot.read_label

                async def note(prompt, params):
                    seeds.append(params.seed)
                    return await generate(prompt, params)

                async def label(prompt, labels, boundary):
                    reading = await read(prompt, labels, boundary)
                    rate = random.Random(prompt.messages[-1].content).choice([0.02, 0.1, 0.5, 0.9, 0.98])
                    yes = random.Random(repr(seeds)).random() < rate
                    first, *others = labels
                    probs = {first: 0.9 if yes else 0.1, **dict.fromkeys(others, (0.1 if yes else 0.9) / len(others))}
                    return dataclasses.replace(reading, probs=probs)

                slot.generate, slot.read_label = note, label
                return slot

            async def __aexit__(self, *error):
                return await inner.__aexit__(*error)

        assert backend is self
        return Slot()


@pytest.mark.parametrize("protocol", ["compact", "genprm"])
def test_adaptive_votes_give_the_verdicts_of_all_votes_within_the_bound_for_fewer_tokens(protocol):
    solutions = [Solution(id=str(i), problem=f"p{i}", steps=tuple(f"s{i}.{k}" for k in range(5))) for i in range(100)]
    verdicts, tokens = [], []
    for extra in ([], ["verify.vote_bound=0.05"]):
        backend = Noisy(ScriptedConfig())
        with make(protocol, "verify.votes=8", *extra, backend=backend, sandbox=OffSandbox()) as judge:
            results = sorted(judge.verify_many(solutions), key=lambda result: int(result.id))
        verdicts.append([step.verdict for result in results for step in result.steps])
        tokens.append(sum(result.usage.completion_tokens for result in results))
    changed = sum(a != b for a, b in zip(*verdicts, strict=True)) / len(verdicts[0])
    assert changed <= 0.05
    assert tokens[1] < 0.8 * tokens[0]


def test_adaptive_votes_are_the_first_of_the_full_run(trip):
    with make("genprm", "verify.votes=8", backend=Noisy(ScriptedConfig()), sandbox=OffSandbox()) as judge:
        full = judge.verify(trip)
    adaptive_backend = Noisy(ScriptedConfig())
    with make(
        "genprm", "verify.votes=8", "verify.vote_bound=0.1", backend=adaptive_backend, sandbox=OffSandbox()
    ) as judge:
        fewer = judge.verify(trip)
    for some, every in zip(fewer.steps, full.steps, strict=True):
        assert some.votes == every.votes[: len(some.votes)]
    assert sum(len(step.votes) for step in fewer.steps) < 24


def test_a_cascade_writes_critiques_only_where_the_direct_judgement_is_unsure(trip):
    class Sure(ScriptedBackend):
        """Directly: sure of step 0, unsure of the others."""

        def slot(self):
            inner = super().slot()

            class Slot:
                async def __aenter__(self):
                    slot = await inner.__aenter__()
                    read = slot.read_label

                    async def label(prompt, labels, boundary):
                        reading = await read(prompt, labels, boundary)
                        if "```" in prompt.prefix:
                            return reading
                        sure = prompt.messages[-1].content.endswith("There are 24 pupils.")
                        first, second = labels
                        return dataclasses.replace(
                            reading, probs={first: 0.99, second: 0.01} if sure else {first: 0.6, second: 0.4}
                        )

                    slot.read_label = label
                    return slot

                async def __aexit__(self, *error):
                    return await inner.__aexit__(*error)

            return Slot()

    with make("compact", "verify.cascade=[0.05, 0.95]", "verify.votes=2", backend=Sure(ScriptedConfig())) as judge:
        result = judge.verify(trip)
    assert [len(step.votes) for step in result.steps] == [1, 2, 2]
    assert [step.votes[0].direct for step in result.steps] == [True, False, False]
    assert result.steps[0].reward == 0.99
    assert result.first_error == 1


def test_a_cascade_needs_a_protocol_that_judges_each_step_alone(trip):
    with make("genprm", "verify.cascade=[0.1, 0.9]") as judge, pytest.raises(ConfigError, match="each step alone"):
        judge.verify(trip)


@pytest.mark.parametrize("protocol", shipped_protocols())
@pytest.mark.parametrize("overrides", [(), ("verify.early_stop=true",), ("verify.votes=3",)])
def test_each_step_is_told_in_order_as_it_ends_up_in_the_result(protocol, overrides, trip):
    told = []
    with make(protocol, *overrides) as judge:
        result = asyncio.run(judge.averify(trip, told.append))
    assert tuple(told) == result.steps


def test_a_step_is_told_before_later_ones_are_judged(trip):
    backend = ScriptedBackend()
    calls = []
    with make("genprm", backend=backend) as judge:  # steps are judged one after another in this layout
        asyncio.run(judge.averify(trip, lambda step: calls.append(backend.calls)))
    assert calls == sorted(set(calls))
    assert calls[-1] == backend.calls


def test_threads_that_ask_for_the_first_time_at_once_share_one_loop(trip):
    from concurrent.futures import ThreadPoolExecutor

    before = set(threading.enumerate())  # a verifier of another test may still be alive
    with make("compact") as judge, ThreadPoolExecutor(16) as threads:
        results = list(threads.map(lambda _: judge.verify(trip), range(64)))
        loops = [thread for thread in set(threading.enumerate()) - before if thread.name == "genprm-loop"]
        assert len(loops) == 1
    assert {result.first_error for result in results} == {1}
    assert not loops[0].is_alive()
