"""Plots are markup that fits into a page: its colours, described, closed to the outside, whatever the numbers."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from genprm.report import plots

BINS = [(0.1, 0.2, 5), (0.9, 0.8, 20)]
CURVES = {"ours": ([0.4, 0.5, None], [0.3, 0.4, None], [0.5, 0.6, None]), "oracle": ([0.5, 0.6, 0.7], None, None)}
PLOTS = {
    "reliability": lambda name: plots.reliability({name: BINS, "after": BINS}),
    "score_histogram": lambda name: plots.score_histogram([0.9, 1.0, 0.8], [0.1, math.nan], names=(name, "wrong")),
    "line_with_band": lambda name: plots.line_with_band(
        name, [1, 2, 4], {**CURVES, name: CURVES["oracle"]}, name, "a", True
    ),
    "scatter": lambda name: plots.scatter(
        [(name, 100, 0.5, 0.4, 0.6), ("b", 900, 0.7, None, None)], name, "F1", log_x=True
    ),
    "bars": lambda name: plots.bars([(name, 0.5, 0.4, 0.6), ("b", 0.25, None, None), ("c", None, 0, 1)], name),
}
EMPTY = {
    "reliability": lambda: plots.reliability({"before": [], "after": [(0.0, math.nan, 3), (0.1, 0.1, 0)]}),
    "score_histogram": lambda: plots.score_histogram([], []),
    "line_with_band": lambda: plots.line_with_band("t", [1, 2], {"a": ([None, math.nan], None, None)}, "x", "y", True),
    "scatter": lambda: plots.scatter([("a", 1, None, None, None)], "x", "y"),
    "bars": lambda: plots.bars([("a", None, None, None)], "x"),
}
NAMES = ["plain", "$\\frac{", "_hidden", "<b>&\"'", "שלום 漢字", "a\x00b\ud800c\nd", "x" * 500]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("plot", PLOTS)
def test_any_name_is_drawn_as_text(plot, name):
    svg = PLOTS[plot](name)
    root = ElementTree.fromstring(svg.replace("xlink:", ""))
    assert root.attrib["role"] == "img"
    assert [child.tag for child in root][:2] == ["title", "desc"]
    shown = [element.text or "" for element in root.iter("text")]
    assert any(plots.label(name).replace("\\$", "$") in text or name[:20] in text for text in shown), shown


@pytest.mark.parametrize("plot", PLOTS)
def test_a_plot_has_no_styles_scripts_or_colours_of_its_own(plot):
    svg = PLOTS[plot]("ours")
    assert not re.search(r"style|<script|\son\w+=|http|url\((?!#)|metadata", svg)
    outside = re.sub(r"var\(--series-\d, #[0-9a-f]{6}\)", "", svg)
    assert re.findall(r"(?:fill|stroke)=\"#[0-9a-f]{6}\"", outside) == []
    assert "currentColor" in svg
    assert "var(--series-1" in svg


@pytest.mark.parametrize("plot", PLOTS)
def test_ids_differ_between_plots_and_every_reference_is_there(plot):
    first, second = PLOTS[plot]("one"), PLOTS[plot]("two")
    ids = set(re.findall(r'\bid="(.*?)"', first))
    assert ids.isdisjoint(re.findall(r'\bid="(.*?)"', second))
    assert set(re.findall(r'(?:url\(|href=")#([\w-]+)', first)) == ids
    assert PLOTS[plot]("one") == first


@pytest.mark.parametrize("plot", EMPTY)
def test_no_data_is_said(plot):
    assert ">no data</text>" in EMPTY[plot]()


def test_the_description_holds_the_numbers():
    assert "ours: 1: 0.4, 2: 0.5; oracle: 1: 0.5" in PLOTS["line_with_band"]("n")
    assert "before: 0.10 predicted, 0.20 right, n 5" in plots.reliability({"before": BINS})
    assert "right steps: n 2, mean 0.500" in plots.score_histogram([0.25, 0.75], [])


def test_ticks_of_a_power_axis_are_the_numbers_given():
    svg = plots.line_with_band("t", [1, 2, 4, 8], {"a": ([0.1, 0.2, 0.3, 0.4], None, None)}, "N", "accuracy", True)
    assert [text for text in re.findall(r">([\d.]+)</text>", svg) if "." not in text] == ["1", "2", "4", "8"]


def test_a_series_without_a_value_is_left_out():
    svg = plots.line_with_band(
        "t", [1, 2], {"a": ([0.1, 0.2], None, None), "gone": ([None, None], None, None)}, "x", "y"
    )
    assert "gone" not in svg


def test_one_series_without_a_name_has_no_legend_and_a_plot_without_a_title_is_named_by_its_axes():
    svg = plots.line_with_band("", [1, 2], {"": ([0.1, 0.2], None, None)}, "step", "F1")
    assert "<title>F1 by step</title><desc>1: 0.1, 2: 0.2</desc>" in svg
    assert ">F1<" in svg
