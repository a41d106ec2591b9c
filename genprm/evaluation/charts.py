"""Tables and plots of a report, made from metrics. Knows figures and page parts; draws nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..report.parts import Plot, Section, Table
from ..report.plots import bars, line_with_band, reliability, scatter, score_histogram
from .processbench import f1
from .rows import Judged, labelled_steps
from .stats import bootstrap, reliability_bins

POSITIONS = 12
"""Positions and lengths from this one on are drawn as one."""
RESAMPLES = 300
MIN_ROWS = 5
"""Groups with fewer rows are not drawn."""


def percent(value: float | None, interval: Sequence[float | None] | None = None) -> str:
    """A share in percent with one decimal, and its interval."""
    if value is None:
        return "–"
    text = f"{100 * value:.1f}"
    if interval and interval[0] is not None and interval[1] is not None:
        text += f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
    return text


def processbench_table(found: Mapping[str, Any]) -> Table:
    """The summary of a ProcessBench run."""
    columns = ["subset", "n", "error acc.", "correct acc.", "F1 (95 % interval)", "AUROC", "Brier", "ECE"]
    columns += ["tokens", "code runs", "seconds", "unscored"]
    rows: list[list[str | int | float | None]] = []
    for name, subset in found["subsets"].items():
        rows.append(
            [
                name,
                subset["n"],
                percent(subset["error_accuracy"]),
                percent(subset["correct_accuracy"]),
                percent(subset["f1"], subset["f1_ci"]),
                subset["auroc"],
                subset["brier"],
                subset["ece"],
                f"{subset['completion_tokens_per_solution']:.0f}",
                f"{subset['code_runs_per_solution']:.1f}",
                f"{subset['seconds_per_solution']:.1f}",
                f"{subset['unscored_steps']} of {subset['steps']}",
            ]
        )
    n = sum(subset["n"] for subset in found["subsets"].values())
    if len(rows) > 1:
        average = percent(found["average_f1"], found["average_f1_ci"])
        rows.append(["average", n, "", "", average, "", "", "", "", "", "", ""])
    note = (
        "Error accuracy: rows with an error whose first error is found at its exact index. Correct accuracy: rows "
        f"without one in which none is found. F1: their harmonic mean in percent at threshold {found['threshold']:g}. "
        "Tokens, code runs and seconds are means a solution."
    )
    if any("oracle" in subset for subset in found["subsets"].values()):
        best = ", ".join(
            f"{name} {percent(subset['oracle']['f1'])} at {subset['oracle']['threshold']:.3f}"
            for name, subset in found["subsets"].items()
            if subset["oracle"]["threshold"] is not None
        )
        note += f" Oracle, thresholds chosen on these very labels and no result: {best}."
    return Table("ProcessBench", columns, rows, note)


def processbench_sections(found: Mapping[str, Any], rows: Sequence[Judged]) -> list[Section]:
    """Everything above the list of solutions."""
    _, scores, truths = labelled_steps(rows)
    right = [score for score, truth in zip(scores, truths, strict=True) if truth]
    wrong = [score for score, truth in zip(scores, truths, strict=True) if not truth]
    points = [
        (name, subset["completion_tokens_per_solution"], 100 * subset["f1"], *_ends(subset["f1_ci"], subset["f1"]))
        for name, subset in found["subsets"].items()
        if subset["f1"] is not None
    ]
    sections: list[Section] = [
        processbench_table(found),
        Plot(
            "Reliability",
            reliability({"steps": reliability_bins(truths, scores)}),
            "Share of right steps against the mean reward, by tenths of the reward; on the diagonal a reward is a "
            "probability.",
        ),
        Plot(
            "Step rewards",
            score_histogram(right, wrong),
            "Steps before the first error, and first errors. Later steps have no gold verdict.",
        ),
        Plot(
            "Error accuracy by position",
            _by(
                rows, lambda row: row.label if row.label is not None and row.label >= 0 else None, "first error", _error
            ),
            "Rows with an error, by where the first error stands (0-based).",
        ),
        Plot(
            "F1 by length",
            _by(rows, lambda row: row.steps, "steps in the solution", lambda inside: f1(inside)[2]),
            f"Lengths with at least {MIN_ROWS} rows.",
        ),
        Plot(
            "Cost against F1",
            scatter(points, "generated tokens a solution", "F1"),
            "Each subset with its 95 % interval.",
        ),
    ]
    return sections


def _error(rows: Sequence[Judged]) -> float | None:
    return f1(rows)[0]


def _ends(interval: Sequence[float | None], value: float) -> tuple[float, float]:
    low, high = interval
    return 100 * (value if low is None else low), 100 * (value if high is None else high)


def _by(
    rows: Sequence[Judged],
    key: Callable[[Judged], int | None],
    label: str,
    statistic: Callable[[Sequence[Judged]], float | None],
) -> str:
    """A statistic of groups of rows, with its interval."""
    groups: dict[int, list[Judged]] = {}
    for row in rows:
        value = key(row)
        if value is not None:
            groups.setdefault(min(value, POSITIONS), []).append(row)
    x: list[float] = []
    y: list[float] = []
    low: list[float] = []
    high: list[float] = []
    for value, inside in sorted(groups.items()):
        if len(inside) < MIN_ROWS:
            continue
        found = bootstrap(
            len(inside),
            lambda at, inside=inside: statistic([inside[i] for i in at]),  # type: ignore[misc]
            resamples=RESAMPLES,
        )
        if found.value is not None:
            x.append(value)
            y.append(100 * found.value)
            low.append(100 * (found.value if found.low is None else found.low))
            high.append(100 * (found.value if found.high is None else found.high))
    return line_with_band(f"By {label}", x, {"": (y, low, high)}, xlabel=label, ylabel="percent")


def prmbench_table(found: Mapping[str, Any]) -> Table:
    """The summary of a PRMBench run."""
    rows: list[list[str | int | float | None]] = []
    for name, entry in found["classes"].items():
        rows.append([f"{entry['short']} ({name})", entry["group"], *_prm_cells(entry)])
    for group, score in found["groups"].items():
        rows.append([group, "mean of classes", None, percent(score), None, None, None])
    rows.append(["all steps", "", *_prm_cells(found["prm_score"])])
    return Table(
        "PRMBench",
        ["class", "group", "n", "PRMScore (95 % interval)", "F1", "negative F1", "unscored"],
        rows,
        f"PRMScore = {found['negative_f1_weight']:g} negative F1 + {1 - found['negative_f1_weight']:g} F1, in percent, "
        f"at the threshold {found['threshold']:g}; a class without errors is scored by F1 alone.",
    )


def _prm_cells(entry: Mapping[str, Any]) -> list[str | int | float | None]:
    return [
        entry["n"],
        percent(entry["prm_score"], entry["prm_score_ci"]),
        percent(entry["f1"]),
        percent(entry["negative_f1"]),
        f"{entry['unscored_steps']} of {entry['steps']}",
    ]


def prmbench_sections(found: Mapping[str, Any]) -> list[Section]:
    """Everything above the list of solutions."""
    values = [
        (entry["short"], 100 * entry["prm_score"], *_ends(entry["prm_score_ci"], entry["prm_score"]))
        for entry in found["classes"].values()
        if entry["prm_score"] is not None
    ]
    return [prmbench_table(found), Plot("PRMScore by class", bars(values, "PRMScore"), "With 95 % intervals.")]


def best_of_n_tables(found: Mapping[str, Any]) -> list[Table]:
    """The summary of a best-of-N run, a table a pool."""
    tables = []
    for pool, metrics in found["pools"].items():
        sizes = list(next(iter(metrics["methods"].values()), {}))
        rows: list[list[str | int | float | None]] = []
        for name, entries in metrics["methods"].items():
            shares = [
                percent(entry["accuracy"], entry["ci"] if size == sizes[-1] else None)
                for size, entry in entries.items()
            ]
            rows.append([name, *shares])
        note = (
            f"{metrics['n_problems']} problems with {metrics['candidates']} candidates each. Accuracy of the pick in "
            "percent; for N below the pool's size the mean over subsets. 95 % intervals over problems."
        )
        tables.append(Table(f"Best of N: {pool}", ["pick", *(f"N = {size}" for size in sizes)], rows, note))
    return tables


def best_of_n_sections(found: Mapping[str, Any]) -> list[Section]:
    """Everything above the list of solutions."""
    plots = []
    for pool, metrics in found["pools"].items():
        methods = metrics["methods"]
        shown = ["oracle", "majority", "random"]
        for scorer in metrics.get("unscored_candidates", {}):
            mine = [name for name in methods if name.startswith(f"{scorer} (") and not name.endswith("vote)")]
            shown += mine if scorer == "genprm" else [name for name in mine if name.endswith("(min)")]
        series = {}
        for name in shown:
            entries = methods[name]
            series[name] = (
                [100 * entry["accuracy"] for entry in entries.values()],
                [100 * _or(entry["ci"][0], entry["accuracy"]) for entry in entries.values()],
                [100 * _or(entry["ci"][1], entry["accuracy"]) for entry in entries.values()],
            )
        x = [float(size) for size in methods["random"]] if methods else []
        svg = line_with_band(f"Best of N: {pool}", x, series, "N", "accuracy of the pick, percent", log2_x=True)
        plots.append(Plot(f"Best of N: {pool}", svg, "Bands are 95 % intervals over problems."))
    return [*best_of_n_tables(found), *plots]


def _or(value: float | None, other: float) -> float:
    return other if value is None else value
