"""Scales, ticks, places of nodes: what pictures are made of."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.pages import Read
from unspool._report.charts import Line, line_chart
from unspool._report.graph import program_picture
from unspool._report.layout import layers_of, order_of
from unspool._report.spectra import describe_cut
from unspool._report.svg import Scale, element, nice_step

FINITE = st.floats(-1e12, 1e12, allow_nan=False)


@settings(max_examples=200, deadline=None)
@given(FINITE, FINITE, st.integers(2, 9))
def test_ticks_lie_on_the_axis_in_order_and_are_few(low: float, high: float, most: int) -> None:
    scale = Scale(min(low, high), max(low, high), 0.0, 100.0)
    ticks = scale.ticks(most)
    assert 0 < len(ticks) <= most + 2
    places = [scale(value) for value, _ in ticks]
    assert all(-1e-3 <= place <= 100 + 1e-3 for place in places) and places == sorted(places)


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-200, 1e200), st.floats(1e-200, 1e200))
def test_ticks_of_a_logarithmic_axis_lie_on_it(one: float, other: float) -> None:
    scale = Scale(min(one, other), max(one, other), 0.0, 100.0, log=True)
    ticks = scale.ticks()
    assert ticks and all(-1e-3 <= scale(value) <= 100 + 1e-3 for value, _ in ticks)


def test_whole_ticks_are_whole() -> None:
    assert [label for _, label in Scale(1, 4, 0, 1).ticks(6, whole=True)] == ["1", "2", "3", "4"]


@given(st.floats(1e-300, 1e300))
def test_a_nice_step_is_no_smaller_and_at_most_some_times_larger(rough: float) -> None:
    step = nice_step(rough)
    assert rough * (1 - 1e-9) <= step <= 2.6 * rough
    mantissa = step / 10.0 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - nice) for nice in (1, 2, 5, 10)) < 1e-6


GRAPHS = st.integers(1, 24).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=60).map(
            lambda pairs: sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
        ),
    )
)


@settings(max_examples=200, deadline=None)
@given(GRAPHS)
def test_edges_lead_downwards_and_every_node_has_one_place(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    layers = layers_of(count, edges)
    assert all(layers[a] < layers[b] for a, b in edges)
    rows = order_of(count, edges, layers)
    assert sorted(node for row in rows for node in row) == list(range(count))
    depth = {node: i for i, row in enumerate(rows) for node in row}
    assert all(depth[a] < depth[b] for a, b in edges)
    assert all(len(row) <= 6 for row in rows)


@settings(max_examples=50, deadline=None)
@given(GRAPHS)
def test_boxes_of_a_picture_do_not_overlap(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    nodes = [{"kind": "op", "label": f"op {i}", "shape": [2], "bytes": 16, "line": ""} for i in range(count)]
    body = {"nodes": nodes, "edges": [list(edge) for edge in edges], "back": [[count - 1, 0]], "left_out": 0}
    loop = {"steps": 3, "kinds": 1, "mark": "", "shown": 1, "alike": 3, "body": body, "form": "plain"}
    outside = {"ops": 2, "most": [["add", 2]]}
    read = Read(program_picture({"loop": loop, "before": outside, "after": outside}, "1", {}))
    places = [
        tuple(map(float, str(given["transform"])[10:-1].split()))
        for tag, given in read.elements
        if tag == "g" and str(given.get("class")).startswith("node")
    ]
    assert len(places) == count
    for i, (x, y) in enumerate(places):
        assert all(abs(x - u) >= 126 or abs(y - v) >= 36 for u, v in places[i + 1 :])


def test_a_curve_goes_through_its_points_and_breaks_where_there_is_none() -> None:
    chart = line_chart([Line("y", 0, [0, 1, 2, 3, 4], [1.0, 2.0, math.nan, 3.0, 5.0])], x_label="x", label="y")
    curves = [given for tag, given in Read(chart.svg).elements if tag == "polyline"]
    assert len(curves) == 2
    heights = [float(point.split(",")[1]) for curve in curves for point in str(curve["points"]).split()]
    assert all(a > b for a, b in pairwise(heights))  # larger values stand higher


def test_a_chart_of_nothing_finite_says_so() -> None:
    chart = line_chart([Line("y", 0, [0, 1], [math.nan, math.inf])], x_label="x", label="y")
    assert "no finite values" in chart.svg and not chart.places


def test_an_element_escapes_its_attributes() -> None:
    assert element("p", "", title='"><b>') == '<p title="&quot;&gt;&lt;b&gt;"></p>'


def test_a_spectrum_of_zeros_has_no_margin_to_divide_by() -> None:
    import numpy as np

    cut = describe_cut(np.zeros(4), 2, 1e-8, vectors=True)
    assert cut["gap"] == 0.0 and cut["margin"] == 0.0 and cut["discarded_weight"] == 0.0
    assert describe_cut(np.ones(3), 3, 1e-8, vectors=False)["margin"] is None


@pytest.mark.parametrize("log", [True, False])
def test_charts_of_a_single_point_can_be_drawn(log: bool) -> None:
    chart = line_chart([Line("y", 0, [3], [2.0])], x_label="x", label="y", log=log)
    Read(chart.svg)
    assert chart.tips == [["step 3", "y: 2"]]
