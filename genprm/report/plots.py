"""The plots of a report, each a function from numbers to SVG markup.

Knows how a reliability diagram, a histogram, a curve, a scatter and bars are drawn; knows nothing about where the
numbers come from. Series differ by marker, dash or hatch as well as by colour. Missing values (None, NaN) are left
out; without any value the plot says "no data".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from .svg import SETTINGS, TEXT, label, series_colour, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (5.4, 3.5)
"""Width and height in inches; the page scales it."""
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
HATCHES = ("", "////", "....", "xx", "\\\\\\\\", "++")
HISTOGRAM_BINS = 20

Value = float | None
Bin = tuple[float, float, int]
"""A bin of a reliability diagram: mean predicted probability, fraction of positives, count."""
Band = tuple[Sequence[Value], Sequence[Value] | None, Sequence[Value] | None]
"""A series' values and the lower and upper ends of its band, or None for no band."""


def reliability(groups: Mapping[str, Sequence[Bin]], *, title: str = "Reliability") -> str:
    """Fraction of right steps against mean predicted probability, by bin, beside the diagonal of perfect calibration.

    Args:
        groups: bins of each group, such as before and after calibration; a mark's area grows with its bin's share.
        title: the accessible name.
    """
    kept = {
        name: [found for found in bins if found[2] > 0 and _known(found[0]) and _known(found[1])]
        for name, bins in groups.items()
    }
    kept = {name: bins for name, bins in kept.items() if bins}

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=TEXT, alpha=0.5, linewidth=1, linestyle=(0, (2, 2)))
        for place, (name, bins) in enumerate(kept.items()):
            total = sum(found[2] for found in bins)
            look = _look(place)
            x, y = [found[0] for found in bins], [found[1] for found in bins]
            axes.plot(x, y, linewidth=1.4, label=label(name), markersize=4, **look)
            sizes = [16 + 240 * found[2] / total for found in bins]
            axes.scatter(x, y, s=sizes, color=look["color"], marker=look["marker"], alpha=0.35, linewidths=0)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="mean predicted P(right)", ylabel="fraction right")
        axes.legend(loc="upper left")

    facts = {name: [f"{p:.2f} predicted, {q:.2f} right, n {n}" for p, q, n in bins] for name, bins in kept.items()}
    return _plot(title, draw if kept else None, facts)


def score_histogram(
    right: Sequence[float],
    wrong: Sequence[float],
    *,
    names: tuple[str, str] = ("right steps", "wrong steps"),
    title: str = "Step rewards",
) -> str:
    """How the rewards of right and of wrong steps spread over [0, 1]; each group's bars add up to 100 %.

    Args:
        right: rewards of steps known to be right.
        wrong: rewards of steps known to be wrong.
        names: what the two groups are called.
        title: the accessible name.
    """
    groups = {
        name: [value for value in values if _known(value)] for name, values in zip(names, (right, wrong), strict=True)
    }

    def draw(axes: Axes) -> None:
        edges = [place / HISTOGRAM_BINS for place in range(HISTOGRAM_BINS + 1)]
        for place, (name, values) in enumerate(groups.items()):
            if not values:
                continue
            axes.hist(
                [min(max(value, 0.0), 1.0) for value in values],
                bins=edges,
                weights=[100 / len(values)] * len(values),
                histtype="stepfilled",
                label=label(f"{name} (n = {len(values):,})"),
                facecolor=(series_colour(place), 0.35) if place == 0 else "none",
                edgecolor=series_colour(place),
                hatch=HATCHES[place] or None,
                linewidth=1.2,
            )
        axes.set(xlim=(0, 1), xlabel="reward", ylabel="share of the group, %")
        axes.legend(loc="upper center")

    facts = {
        name: [f"n {len(values)}", f"mean {sum(values) / len(values):.3f}"] for name, values in groups.items() if values
    }
    return _plot(title, draw if facts else None, facts)


def line_with_band(
    title: str,
    x: Sequence[float],
    series: Mapping[str, Band],
    xlabel: str,
    ylabel: str,
    log2_x: bool = False,
) -> str:
    """Curves over shared x values, each with the band of its uncertainty.

    Args:
        title: the accessible name; without one, made of the axes' names.
        x: at most 12 of them are ticks.
        series: `(y, low, high)` of each curve, as long as `x`, by the name in the legend; missing values make gaps.
        xlabel: name of the x axis.
        ylabel: name of the y axis.
        log2_x: x in powers of two, for numbers of candidates; x must be positive.
    """
    kept = {name: band for name, band in series.items() if any(map(_known, band[0]))}
    ticks = list(x) if len(x) <= 12 else list(x)[:: math.ceil(len(x) / 12)]

    def draw(axes: Axes) -> None:
        if log2_x:
            axes.set_xscale("log", base=2)
            axes.minorticks_off()
        for place, (name, (y, low, high)) in enumerate(kept.items()):
            look = _look(place)
            axes.plot(x, _gapped(y), linewidth=1.6, markersize=4, label=label(name), **look)
            if low is not None and high is not None:
                axes.fill_between(x, _gapped(low), _gapped(high), color=look["color"], alpha=0.18, linewidth=0)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set(xlabel=label(xlabel), ylabel=label(ylabel))
        _legend(axes, kept)

    facts = {
        name: [f"{at:g}: {value:.4g}" for at, value in zip(x, band[0], strict=True) if value is not None]
        for name, band in kept.items()
    }
    return _plot(title or f"{ylabel} by {xlabel}", draw if kept else None, facts)


def scatter(
    points: Sequence[tuple[str, float, Value, Value, Value]],
    xlabel: str,
    ylabel: str,
    *,
    title: str = "Cost and quality",
    log_x: bool = False,
) -> str:
    """Named points with the interval of their y value, such as F1 against tokens a solution.

    Args:
        points: `(label, x, y, y_low, y_high)`; the ends are values, not distances, and may be missing.
        xlabel: name of the x axis.
        ylabel: name of the y axis.
        title: the accessible name.
        log_x: x on a logarithmic axis; x must be positive.
    """
    kept = [(name, x, y, low, high) for name, x, y, low, high in points if _known(x) and _known(y)]

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter

        if log_x:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for place, (name, x, y, low, high) in enumerate(kept):
            look = {**_look(place), "linestyle": "none"}
            axes.plot([x], [y], markersize=8, label=label(name), **look)
            if _known(low) and _known(high):
                axes.vlines([x], [low], [high], colors=look["color"], linewidth=1.4)
        axes.margins(0.12)
        axes.set(xlabel=label(xlabel), ylabel=label(ylabel))
        axes.legend(loc="best")

    facts = {name: [f"{xlabel} {x:g}", f"{ylabel} {y:.4g}"] for name, x, y, _, _ in kept}
    return _plot(title, draw if kept else None, facts)


def bars(points: Sequence[tuple[str, Value, Value, Value]], xlabel: str, *, title: str = "By class") -> str:
    """Horizontal bars by class, each with its number and its interval.

    Args:
        points: `(label, value, low, high)`; the ends are values, not distances, and may be missing.
        xlabel: what the values are.
        title: the accessible name.
    """
    kept = [(name, value, low, high) for name, value, low, high in points if _known(value)]

    def draw(axes: Axes) -> None:
        colour = series_colour(0)
        drawn = axes.barh(
            range(len(kept)), [value for _, value, _, _ in kept], height=0.7, facecolor=(colour, 0.35), edgecolor=colour
        )
        for place, (_, _, low, high) in enumerate(kept):
            if _known(low) and _known(high):
                axes.hlines([place], [low], [high], colors=TEXT, linewidth=1.2)
        # Clear of the interval, which may reach beyond the bar.
        ends = [max(value for value in point[1:] if _known(value)) for point in kept]
        for place, (bar, end) in enumerate(zip(drawn, ends, strict=True)):
            axes.annotate(f"{bar.get_width():.3g}", (end, place), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(kept)), [label(name, 32) for name, *_ in kept])
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.grid(visible=False, axis="y")
        axes.set(xlabel=label(xlabel))

    facts = {xlabel: [f"{name} {value:.4g}" for name, value, _, _ in kept]} if kept else {}
    return _plot(title, draw if kept else None, facts, height=max(SIZE[1], 0.9 + 0.26 * len(kept)))


def _plot(
    title: str, draw: Callable[[Axes], None] | None, facts: Mapping[str, Sequence[str]], *, height: float = SIZE[1]
) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(SIZE[0], height if draw else 1.2), layout="constrained")
        axes = figure.add_subplot()
        if draw is None:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes, fontsize=12)
        else:
            axes.grid(axis="both")
            axes.set_axisbelow(True)
            draw(axes)
    text = "; ".join(f"{name}: {', '.join(values)}" if name else ", ".join(values) for name, values in facts.items())
    return to_svg(figure, title=title, description=text or "no data")


def _legend(axes: Axes, series: Mapping[str, object]) -> None:
    """A legend, unless the one series needs no name."""
    if any(series):
        axes.legend(loc="best")


def _look(place: int) -> dict[str, Any]:
    return {
        "color": series_colour(place),
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": DASHES[place % len(DASHES)],
    }


def _known(value: Value) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _gapped(values: Sequence[Value]) -> list[float]:
    return [value if value is not None else math.nan for value in values]
