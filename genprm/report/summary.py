"""What a page says about all of its solutions when nobody has computed more: where they come from, and counts."""

from __future__ import annotations

from ..types import VerificationResult
from .parts import Plot, Section, Table


class Summary:
    """Counts over results, taken one at a time. Memory grows by the steps' rewards only."""

    def __init__(self) -> None:
        self.solutions = 0
        self._sources: dict[str, dict[str, None]] = {}
        self._found = {"an error": 0, "no error": 0, "undecided": 0}
        self._steps = self._unscored = self._tokens = self._runs = 0
        self._labelled = self._agreeing = 0
        self._rewards: list[float] = []
        self._gold: tuple[list[float], list[float]] = ([], [])
        self._judged: tuple[list[float], list[float]] = ([], [])

    def add(self, result: VerificationResult) -> None:
        """Count one result."""
        self.solutions += 1
        for name, value in (
            ("Model", result.model),
            ("Protocol", f"{result.protocol.name} {result.protocol.sha256[:12]}"),
            ("Config", result.config_sha256[:12]),
            ("Sandbox", result.sandbox),
        ):
            self._sources.setdefault(name, {})[value] = None
        first = result.first_error
        self._found["undecided" if first is None else "no error" if first < 0 else "an error"] += 1
        self._steps += len(result.steps)
        self._unscored += sum(step.reward is None for step in result.steps)
        self._tokens += result.usage.completion_tokens
        self._runs += result.usage.code_runs
        if result.reward is not None:
            self._rewards.append(result.reward)
        if result.label is not None:
            self._labelled += 1
            self._agreeing += first == result.label
        self._sort_rewards(result)

    def _sort_rewards(self, result: VerificationResult) -> None:
        """Right and wrong steps' rewards; of steps after the first wrong one the label says nothing."""
        for step in result.steps:
            if step.reward is None:
                continue
            self._judged[step.verdict == "incorrect"].append(step.reward)
            if result.label is not None and (result.label < 0 or step.index <= result.label):
                self._gold[step.index == result.label].append(step.reward)

    def facts(self) -> list[tuple[str, str]]:
        """Where the results come from; several values stand side by side."""
        sources = [(name, ", ".join(values)) for name, values in self._sources.items()]
        return [("Solutions", f"{self.solutions:,}"), *sources]

    def sections(self) -> list[Section]:
        """The table of counts and the histogram of rewards."""
        return [self._table(), self._histogram()]

    def _table(self) -> Table:
        rows: list[tuple[str, str]] = [
            ("Solutions with an error found", _part(self._found["an error"], self.solutions)),
            ("Solutions without one", _part(self._found["no error"], self.solutions)),
            ("Undecided: a step is unscored", _part(self._found["undecided"], self.solutions)),
            ("Steps judged", f"{self._steps:,}"),
            ("Steps unscored", _part(self._unscored, self._steps)),
            ("Mean reward", f"{sum(self._rewards) / len(self._rewards):.3f}" if self._rewards else "–"),
            ("Generated tokens", f"{self._tokens:,}"),
            ("Code runs", f"{self._runs:,}"),
        ]
        if self._labelled:
            rows.insert(3, ("First error as in the gold label", _part(self._agreeing, self._labelled)))
        return Table("Summary", ("Count", "Value"), rows)

    def _histogram(self) -> Plot:
        from .plots import score_histogram

        if self._labelled:
            caption = "Steps before the gold first error count as right, that step as wrong; later steps are left out."
            return Plot("Step rewards", score_histogram(*self._gold), caption)
        names = ("judged correct", "judged incorrect")
        return Plot(
            "Step rewards", score_histogram(*self._judged, names=names), "By verdict: there are no gold labels."
        )


def _part(count: int, whole: int) -> str:
    return f"{count:,} ({100 * count / whole:.1f} %)" if whole else "0"
