"""The geometry of the pictures: what stands where, and that it is what was counted."""

from __future__ import annotations

from types import SimpleNamespace

import nets
import numpy as np
import pytest

from nmpconv.exporters.html import charts, page
from nmpconv.exporters.html.graph_layout import BOX, HEIGHT, layout
from nmpconv.file import reader
from nmpconv.file.writer import to_bytes

EDGES = [(0, 1), (1, 2), (0, 3), (2, 3), (3, 4), (0, 4), (1, 5), (4, 6), (5, 6)]


def test_ops_stand_below_what_they_read_and_apart() -> None:
    plan = layout(7, EDGES)
    assert plan == layout(7, EDGES)
    for source, target in EDGES:
        assert plan.places[source][1] + HEIGHT < plan.places[target][1]
    for i, (x, y) in enumerate(plan.places):
        assert 0 <= x <= plan.width - BOX
        assert 0 <= y <= plan.height - HEIGHT
        for a, b in plan.places[:i]:
            assert abs(x - a) >= BOX or abs(y - b) >= HEIGHT


def test_lines_begin_and_end_at_their_ops() -> None:
    plan = layout(7, EDGES)
    for (source, target), path in zip(EDGES, plan.edges, strict=True):
        start = path[1:].split("C")[0].split()
        end = path.split()[-2:]
        assert float(start[0]) == pytest.approx(plan.places[source][0] + BOX / 2)
        assert float(end[0].split()[-1]) == pytest.approx(plan.places[target][0] + BOX / 2)
        assert float(end[1]) == pytest.approx(plan.places[target][1])


def test_a_long_line_passes_no_op() -> None:
    """0 -> 3 goes beside 1 and 2."""
    plan = layout(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    points = [float(part.split()[-2]) for part in plan.edges[3][1:].split("C")][1:-1]
    boxes = [plan.places[1][0], plan.places[2][0]]
    assert all(point < x or point > x + BOX for point, x in zip(points, boxes, strict=True))


def test_graphs_without_edges_or_ops() -> None:
    assert layout(0, []).places == ()
    assert len(layout(3, []).places) == 3


def test_no_value_is_lost_when_bins_are_joined() -> None:
    rng = np.random.default_rng(1)
    low = np.sort(rng.uniform(-3, 5, 400))
    weight = rng.integers(0, 9, 400).astype(float)
    bars = charts.rebinned(low, low + 0.01, weight, 17)
    assert bars is not None
    assert bars.counts.sum() == weight.sum() + 17
    assert bars.edges[[0, -1]] == pytest.approx([low[0], low[-1] + 0.01])
    zero = np.searchsorted(bars.edges, 0.0, side="right") - 1
    assert bars.counts[zero] >= 17
    assert charts.rebinned(np.zeros(0), np.zeros(0), np.zeros(0), 0) is None


def test_integers_keep_their_numbers() -> None:
    counts = np.zeros(256, np.int64)
    counts[[0, 100, 255]] = [3, 5, 7]
    bars = charts.of_integers(counts, -128, -2, 1.0)
    assert bars is not None
    assert bars.counts.sum() == 15
    assert bars.edges[0] == pytest.approx((-128 - 0.5) / 4 + 1)
    assert bars.edges[-1] == pytest.approx((127 + 0.5) / 4 + 1)
    assert charts.of_integers(np.zeros(256, np.int64), -128, 0, 0.0) is None


def test_what_lies_beyond_the_grid_is_shaded() -> None:
    bars = charts.Bars(np.linspace(-4.0, 4.0, 65), np.ones(64))
    drawn = charts.histogram(bars, (-2.0, 4.0), 1 / 16)
    assert drawn.clipped == ((0.0, charts.WIDE / 4),)
    assert drawn.marks == (charts.WIDE / 4, charts.WIDE)
    assert charts.histogram(bars, (-4.0, 4.0), 1 / 16).clipped == ()
    assert drawn.path.count("M") == 64


def test_a_grid_much_wider_than_what_was_seen() -> None:
    """Leaves room for the values; its ends are outside of the picture."""
    drawn = charts.histogram(charts.Bars(np.array([0.0, 1.0]), np.array([5.0])), (-1000.0, 1000.0), 1.0)
    assert (drawn.low, drawn.high) == (-4.0, 5.0)
    assert drawn.marks == ()


def test_channels_of_a_group_share_a_bar() -> None:
    low, high = [-1.0] * 1000, [1.0] * 999 + [3.0]
    found = charts.spread(low, high)
    assert (found.low, found.high, found.channels) == (-1.0, 3.0, 1000)
    assert found.path.count("M") == charts.COLUMNS
    assert found.zero == pytest.approx(0.75 * charts.HIGH)


def test_colours_of_both_ends_differ() -> None:
    assert len({charts.colour(fraction) for fraction in (0.0, 0.25, 0.5, 0.75, 1.0)}) == 5
    assert charts.colour(-1) == charts.colour(0)


def test_colours_go_from_orange_over_grey_to_blue() -> None:
    assert [charts.colour(x) for x in (0.0, 0.5, 1.0)] == [
        "hsl(24 80% 46%)",
        "hsl(214 12% 68%)",
        "hsl(214 80% 46%)",
    ]
    assert charts.colour(-3.0) == charts.colour(0.0) and charts.colour(3.0) == charts.colour(1.0)


def test_ops_have_their_numbers_and_inputs_none() -> None:
    model = reader.read(to_bytes(nets.small_net(), {}))
    subject = SimpleNamespace(model=model, layers={}, report=None, times=())
    boxes = page.graph(subject)["boxes"]  # type: ignore[arg-type]
    inputs = len(model.inputs)
    assert [box.number for box in boxes] == [""] * inputs + [str(i) for i in range(len(model.ops))]
    assert [box.kind for box in boxes] == ["input"] * inputs + [op.kind for op in model.ops]


def test_a_histogram_shows_four_times_what_was_seen_of_a_wide_grid() -> None:
    bars = charts.Bars(np.array([10.0, 11.0, 12.0]), np.array([3.0, 5.0]))
    drawn = charts.histogram(bars, (-100.0, 100.0), 0.1)
    assert (drawn.low, drawn.high, drawn.marks) == (2.0, 20.0, ())
    narrow = charts.histogram(bars, (9.0, 14.0), 0.1)
    assert (narrow.low, narrow.high, narrow.marks, narrow.clipped) == (9.0, 14.0, (0.0, charts.WIDE), ())


def test_a_part_of_the_first_bar_is_clipped() -> None:
    bars = charts.Bars(np.array([10.0, 11.0, 12.0]), np.array([3.0, 5.0]))
    drawn = charts.histogram(bars, (10.5, 12.0), 0.1)
    assert drawn.clipped == ((0.0, charts.WIDE / 4),)
    assert charts.histogram(bars, (10.0, 11.5), 0.1).clipped == ((charts.WIDE * 3 / 4, charts.WIDE),)


def test_only_steep_steps_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some ops have no SQNR."""
    layers = {name: SimpleNamespace(name=name, sqnr_cumulative=30.0, sqnr_isolated=40.0) for name in "ac"}
    model = SimpleNamespace(ops=[SimpleNamespace(name=name) for name in "abc"])
    monkeypatch.setattr(page, "_steepest", lambda subject: ["c"])
    chart = page.sqnr_chart(SimpleNamespace(layers=layers, model=model))  # type: ignore[arg-type]
    assert chart is not None
    assert [mark[2:] for mark in chart["marks"]] == [("c", 2)]
    assert [point["name"] for point in chart["points"]] == ["a", "b", "c"]
