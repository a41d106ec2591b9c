"""The stream over Ray Data: driver -> ledger -> one reader -> a pool of workers -> driver.

A chunk is one row and one block of the dataset, so it is one task, and the unit that is judged again where a process
or a node is lost. Blocks on the way are few: the driver hands over no chunk while `window` chunks are unfinished, so
memory does not grow with the number of rows. The driver takes each chunk's outcome once, whatever was judged twice.

The ledger and the reader run on the driver's node: losing another node loses work under way and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from ..build import load
from ..config import Config
from ..errors import BackendUnavailable, GenPRMError
from ..types import Solution, VerificationResult
from .chunks import Failed, Outcome, chunked, dump_rows, error_of, load_rows
from .cluster import Say, check_room, connected, gpus_of
from .ledger import Ledger
from .worker import ChunkJudge, Load


class RayWorker:
    """The callable that Ray Data makes in each worker process."""

    def __init__(self, config: str, ledger: Any, load: Load):
        import ray

        def call(name: str, *arguments: Any) -> Any:
            answer = getattr(ledger, name).remote(*arguments)
            return None if name == "keep" else ray.get(answer)  # a result that is lost on the way is judged again

        self._judge: ChunkJudge | None = None
        self._broken: tuple[str, str] | None = None
        try:
            self._judge = ChunkJudge(Config.model_validate_json(config), load, call)
        except GenPRMError as error:
            # Told to the driver with the first chunk: a constructor that raises is tried again and again.
            self._broken = type(error).__name__, str(error)

    def __call__(self, batch: Any) -> Any:
        """Judge the chunks of a table with the columns `number` and `rows`, which has one row."""
        import pyarrow

        numbers, data = batch.column("number").to_pylist(), batch.column("rows").to_pylist()
        outcomes = [self._one(number, rows).dump() for number, rows in zip(numbers, data, strict=True)]
        return pyarrow.table({"number": pyarrow.array(numbers, pyarrow.int64()), "outcome": _binary(outcomes)})

    def _one(self, number: int, rows: bytes) -> Outcome:
        if self._judge is None:
            assert self._broken is not None
            return Outcome(fatal=self._broken)
        return self._judge.judge(number, load_rows(rows)) if rows else Outcome()


def ray_stream(
    solutions: Iterable[Solution],
    config: Config,
    *,
    on_failed: Callable[[Failed], None],
    say: Say = lambda _: None,
    load: Load = load,
) -> Iterator[VerificationResult]:
    """Judge a stream of solutions on a Ray cluster; results come chunk by chunk, in no order.

    Args:
        solutions: read in a thread, no further ahead than the cluster has work for.
        config: of each worker; `ray` says how many.
        on_failed: told each row that was given up.
        say: told in a few words what takes long.
        load: makes a worker's verifier.

    Raises:
        GenPRMError: what a worker could not go on with, or what reading raised after all before it was judged.
        BackendUnavailable: the cluster is gone; what is not judged is not given up, but not judged either.
    """
    with ExitStack() as stack:
        # Removed in reverse order: the thread stops before the ledger, and that before the cluster.
        ray = stack.enter_context(connected(config.ray, say))
        check_room(ray, config, say)
        window = 2 * config.ray.actors.max * config.ray.batches_in_flight + 2
        placed = {"num_cpus": 0, "max_concurrency": 1000, "scheduling_strategy": _here(ray)}
        ledger = ray.remote(Ledger).options(**placed).remote(window)
        stack.callback(lambda: ray.kill(ledger))
        feeder = _Feeder(ray, ledger, solutions, config.ray.batch_size)
        stack.callback(feeder.stop)
        yield from _collect(ray, ledger, _dataset(ray, ledger, config, load), on_failed)
        feeder.finish()
        _nothing_left(ray, ledger)


def _collect(ray: Any, ledger: Any, dataset: Any, on_failed: Callable[[Failed], None]) -> Iterator[VerificationResult]:
    """Results of each chunk once."""
    seen, low = set[int](), 0  # numbers at or above `low` that are finished: as many as are under way at most
    told: list[Any] = []
    batches = iter(dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1))
    while True:
        try:
            table = next(batches, None)
        except Exception as error:
            if isinstance(error, GenPRMError):
                raise
            why = " ".join(str(error).split())[-400:]
            raise BackendUnavailable(f"the Ray job ended: {type(error).__name__}: {why}") from error
        if table is None:
            ray.get(told)
            return
        for number, data in zip(table.column("number").to_pylist(), table.column("outcome").to_pylist(), strict=True):
            if number < low or number in seen:
                continue
            outcome = Outcome.load(data)
            if outcome.fatal is not None:
                raise error_of(*outcome.fatal)
            for result in outcome.results:
                yield VerificationResult.model_validate_json(result)
            for failed in outcome.failed:
                on_failed(failed)
            seen.add(number)
            while low in seen:
                seen.discard(low)
                low += 1
            told.append(ledger.finish.remote(number))
            if len(told) > 100:
                ray.get(told)
                told.clear()


def _nothing_left(ray: Any, ledger: Any) -> None:
    taken, unfinished = ray.get(ledger.state.remote())
    if unfinished:
        raise BackendUnavailable(
            f"{unfinished} of {taken} chunks came to nothing; run the same command again for what is missing"
        )


class _Feeder:
    """Hands the solutions over, in a thread of its own."""

    def __init__(self, ray: Any, ledger: Any, solutions: Iterable[Solution], size: int):
        self._ray, self._ledger, self._solutions, self._size = ray, ledger, solutions, size
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="genprm-feeder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for chunk in chunked(self._solutions, self._size):
                self._wait(self._ledger.put.remote(dump_rows(chunk)))
                if self._stopped.is_set():
                    return
        except BaseException as error:  # raised in the caller's thread, once all before it is judged
            self._error = error
        finally:
            if not self._stopped.is_set():
                self._wait(self._ledger.close.remote())

    def _wait(self, answer: Any) -> None:
        while not self._stopped.is_set():
            done, _ = self._ray.wait([answer], timeout=0.5)
            if done:
                self._ray.get(answer)
                return

    def finish(self) -> None:
        """Raise what reading the solutions raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the thread; it may still be reading a row."""
        self._stopped.set()
        self._thread.join(timeout=5)


def _dataset(ray: Any, ledger: Any, config: Config, load: Load) -> Any:
    settings = config.ray
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.target_max_block_size = 1  # a chunk is a block of its own
    context.max_consecutive_actor_init_deaths = 10
    with ray.data.DataContext.current(context):
        # Other requirements than the workers' also keep Ray Data from fusing the reader into one worker.
        here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
        rows = ray.data.read_datasource(_source(ledger), override_num_blocks=1, num_cpus=0, label_selector=here)
        return rows.map_batches(
            RayWorker,
            fn_constructor_kwargs={"config": config.model_dump_json(), "ledger": ledger, "load": load},
            batch_size=None,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(
                min_size=settings.actors.min,
                max_size=settings.actors.max,
                max_concurrent_calls_per_actor=settings.batches_in_flight,
                max_tasks_in_flight_per_actor=settings.batches_in_flight + 1,
                enable_true_multi_threading=True,
            ),
            num_cpus=settings.cpus,
            num_gpus=gpus_of(config),
        )


def _source(ledger: Any) -> Any:
    """The ledger's chunks as a datasource with one reader, which waits for each."""
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    def read() -> Iterator[Any]:
        import pyarrow
        import ray

        number = 0
        while (rows := ray.get(ledger.get.remote(number))) is not None:
            yield pyarrow.table({"number": pyarrow.array([number], pyarrow.int64()), "rows": _binary([rows])})
            number += 1

    class Chunks(Datasource):  # type: ignore[misc]  # Ray's classes are not followed
        """See `_source`."""

        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, **_: Any) -> list[ReadTask]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            return [ReadTask(read, unknown)]

    return Chunks()


def _binary(values: list[bytes]) -> Any:
    import pyarrow

    return pyarrow.array(values, pyarrow.large_binary())


def _here(ray: Any) -> Any:
    """Placement on the driver's own node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
