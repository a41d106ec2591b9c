"""What the service counts, in Prometheus' terms.

Knows names and labels. Each service has a registry of its own, so that several can live in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ..backends.base import ServerState
from ..types import Ballot, VerificationResult

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Meters:
    """Counters, gauges and histograms of one service."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "genprm_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self.request_seconds = Histogram(
            "genprm_request_seconds",
            "Wall-clock seconds from a request's head to the end of its answer.",
            ["route"],
            registry=registry,
            buckets=SECONDS,
        )
        self.requests_in_flight = Gauge("genprm_requests_in_flight", "Requests under way.", registry=registry)
        self.solution_seconds = Histogram(
            "genprm_solution_seconds",
            "Wall-clock seconds of judging one solution, without the wait before it.",
            registry=registry,
            buckets=SECONDS,
        )
        self.wait_seconds = Histogram(
            "genprm_wait_seconds",
            "Seconds that a solution waited before it was judged.",
            registry=registry,
            buckets=SECONDS,
        )
        self.solutions = Counter("genprm_solutions", "Solutions judged.", registry=registry)
        self.cancelled = Counter("genprm_solutions_cancelled", "Solutions given up unfinished.", registry=registry)
        self.steps = Counter("genprm_steps", "Steps judged.", ["verdict"], registry=registry)
        self.tokens = Counter("genprm_tokens", "Tokens read and written.", ["kind"], registry=registry)
        self.code_runs = Counter("genprm_code_runs", "Blocks of code executed.", ["status"], registry=registry)
        self.cache_hits = Counter("genprm_cache_hits", "Critiques the verdict cache held.", registry=registry)
        self._queue = Gauge("genprm_queue_length", "Solutions that wait to be judged.", registry=registry)
        self._running = Gauge("genprm_solutions_in_flight", "Solutions being judged.", registry=registry)
        for kind in ("prompt", "completion"):
            self.tokens.labels(kind)
        for verdict in ("correct", "incorrect", "unscored"):
            self.steps.labels(verdict)

    def watch(self, waiting: Callable[[], float], running: Callable[[], float]) -> None:
        """Read the queue's state whenever the figures are asked for."""
        self._queue.set_function(waiting)
        self._running.set_function(running)

    def watch_servers(self, servers: Callable[[], Sequence[ServerState]]) -> None:
        """Read the servers' state whenever the figures are asked for."""
        self._registry.register(_Servers(servers))

    def judged(self, result: VerificationResult) -> None:
        """Count one judged solution."""
        self.solutions.inc()
        self.tokens.labels("prompt").inc(result.usage.prompt_tokens)
        self.tokens.labels("completion").inc(result.usage.completion_tokens)
        self.cache_hits.inc(result.usage.cache_hits)
        for step in result.steps:
            self.steps.labels(step.verdict).inc()
            ballots: tuple[Ballot, ...] = (*step.votes, *step.failed_votes)
            for ballot in ballots:
                for check in () if ballot.shared else ballot.checks:
                    self.code_runs.labels(check.status).inc()

    def text(self) -> bytes:
        """All figures in the text format."""
        return generate_latest(self._registry)


class _Servers(Collector):
    """Figures of the servers behind the engine, where there are some."""

    def __init__(self, servers: Callable[[], Sequence[ServerState]]):
        self._servers = servers

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        up = GaugeMetricFamily("genprm_server_up", "1 = the server answers, 0 = it is left out.", labels=["server"])
        busy = GaugeMetricFamily("genprm_server_in_flight", "Calls under way at the server.", labels=["server"])
        asked = CounterMetricFamily("genprm_server_requests", "Calls of the server.", labels=["server"])
        failed = CounterMetricFamily("genprm_server_failures", "Calls of the server that failed.", labels=["server"])
        servers = self._servers()
        for server in servers:
            up.add_metric([server.url], float(server.up))
            busy.add_metric([server.url], server.in_flight)
            asked.add_metric([server.url], server.requests)
            failed.add_metric([server.url], server.failures)
        if servers:
            yield from (up, busy, asked, failed)
