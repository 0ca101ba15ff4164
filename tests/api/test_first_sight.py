"""Results in a console are one line, and in a notebook a small fragment of HTML that holds nothing from elsewhere."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import cli_files
import pytest

import nmpconv
from nmpconv.base.summary import COLOURS, LINE_MAX, ROWS_MAX, Summary
from nmpconv.device.client import Upload
from nmpconv.device.protocol import Hello, Loaded
from nmpconv.errors import UsageError
from nmpconv.file.writer import to_bytes
from nmpconv.runtime.on_device import Counter, Measured

HELLO = Hello(1, 1, 1, 1_000_000, 1, 1, 1, "0.2.0", "a board", "cortex-m4", "cycles")
WARNING = "labels look off by 1"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One object of each kind that is shown, by name."""
    folder = tmp_path_factory.mktemp("shown")
    images = cli_files.images(folder / "images")
    model = cli_files.onnx_model()
    converted = nmpconv.convert(model, images, mean=127.5, std=64)
    return {
        "Converted": converted,
        "Report": converted.report,
        "Inspected": nmpconv.inspect(converted),
        "Net": converted.load(cpu="portable"),
        "Evaluation": nmpconv.evaluate(converted, images / "labels.csv", reference=model),
        "Timing": nmpconv.bench(converted, runs=2, warmup=0),
        "Measured": Measured(
            HELLO, Upload(1, 0, 1.0), Loaded(1, 1, 1, 1), Counter("cycles", 1.0, 1e-6), (7, 5), (3, 2), 1
        ),
        "sketch": nmpconv.convert(model, dry_run=True),
    }


class Fragment(HTMLParser):
    """Tags of a fragment, which is well formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert {name for name, _ in attrs} <= {"style"}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


KINDS = ["Converted", "Report", "Inspected", "Net", "Evaluation", "Timing", "Measured", "sketch"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_is_a_line_and_a_small_fragment(kind: str, shown: dict[str, Any]) -> None:
    line, html = repr(shown[kind]), shown[kind]._repr_html_()
    assert len(line) <= LINE_MAX and line.isprintable()
    assert line.startswith(f"<{'Converted' if kind == 'sketch' else kind}")
    assert set(Fragment(html).tags) <= {
        *("div", "p", "b", "span", "br", "details", "summary", "table", "tr", "th", "td"),
    }
    assert len(html) < 10_000
    assert "url(" not in html


def test_lines_say_what_is_asked_first(shown: dict[str, Any]) -> None:
    converted, net = shown["Converted"], shown["Net"]
    assert repr(converted).startswith(f"<Converted: {converted.verdict.word}: int8 (int16 in 4 of 5 layers) keeps ")
    assert f"flash {len(converted.data) / 1000:.2f} kB" in repr(converted)
    assert repr(net).startswith("<Net tiny: x [1x8x8x3] to y [1x3]; ")
    assert "CPU level portable" in repr(net)
    found = shown["Evaluation"]
    assert f"{found.verdict.word}: int8 (int16 in 4 of 5 layers) keeps {100 * found.agreed / 8:.0f} % of 8" in repr(
        found
    )
    inspected = shown["Inspected"]
    assert repr(inspected).startswith("<Inspected tiny: x [1x8x8x3] to y [1x3]; file ")
    total = sum(inspected.instructions["cortex-m4"]) / 1000
    assert f"instructions, cortex-m4 {total:.1f} k" in repr(inspected)
    assert [record["name"] for record in inspected.records()] == [op.name for op in inspected.model.ops]
    assert "the median of 2 runs" in repr(shown["Timing"])
    assert "6 us, the median of 2 runs on a board" in repr(shown["Measured"])
    assert "nothing was calibrated" in repr(shown["sketch"])


def test_a_fragment_has_all_layers(shown: dict[str, Any]) -> None:
    html = shown["Converted"]._repr_html_()
    assert "100\xa0%" in html and "100 %" not in html  # a line that ends between them is read twice
    for layer in shown["Converted"].report.layers:
        assert f">{layer.name}</td>" in html


def test_names_of_files_are_escaped() -> None:
    """By HTML's rules, and what steers a terminal."""
    evil = "<script>\x1b[2J\nx"
    summary = Summary(evil, evil, [(evil, evil)], evil, [evil], [[evil]], [evil])
    assert "script" not in Fragment(summary.html()).tags
    assert "\x1b" not in summary.html() + summary.line()
    assert "\n" not in summary.line()
    graph = cli_files.nmp_graph(name="<i>\x1b", labels=("a", "b", "c"))
    net = nmpconv.load(to_bytes(graph, {}, []))
    assert "\x1b" not in repr(net) + net._repr_html_()
    assert "i" not in Fragment(net._repr_html_()).tags


def test_long_tables_are_cut_and_say_so() -> None:
    summary = Summary("Report", "good", columns=["name", ">n"], rows=[["a", str(i)] for i in range(ROWS_MAX + 5)])
    html = summary.html()
    assert len(re.findall("<tr>", html)) == ROWS_MAX + 1
    assert "and 5 more" in html
    assert len(Summary("x" * 1000, "y").line()) == LINE_MAX


def test_empty_evaluations_say_what_is_missing(tmp_path: Path, shown: dict[str, Any]) -> None:
    images = cli_files.images(tmp_path / "images")
    (images / "labels.csv").unlink()
    assert "not measured: nothing to compare with" in repr(nmpconv.evaluate(shown["Converted"], images))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_plain_data(kind: str, shown: dict[str, Any]) -> None:
    rows, chart = shown[kind].records(), shown[kind].chart()
    assert len(rows) > 0
    assert len({tuple(row) for row in rows}) == 1
    assert len(chart.names) == len(chart.values) > 0
    assert chart.label


@pytest.mark.parametrize(("module", "method"), [("pandas", "to_pandas"), ("matplotlib", "plot")])
def test_packages_that_are_missing_are_named(module: str, method: str, shown, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, f"{module}.pyplot", None)
    with pytest.raises(UsageError, match=rf"{method}\(\) needs {module}, .* \(pip install {module}\)"):
        getattr(shown["Report"], method)()


@pytest.mark.parametrize("kind", KINDS)
def test_bars_and_frames(kind: str, shown: dict[str, Any], monkeypatch) -> None:
    pytest.importorskip("pandas", reason="the extra test has it")
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    thing = shown[kind]
    frame, chart = thing.to_pandas(), thing.chart()
    assert list(frame.columns) == list(thing.records()[0])
    assert len(frame) == len(thing.records())
    axes = thing.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == list(chart.names)
    assert len(axes.patches) == len(chart.values)
    axes.figure.canvas.draw()
    assert thing.plot(axes) is axes
    pyplot.close("all")


@pytest.mark.parametrize("word", COLOURS)
def test_a_verdict_is_readable_on_any_page(word: str) -> None:
    """White on a colour of its own, so that it does not matter how dark a notebook is. 4.5: WCAG 2, AA."""
    badge = re.search(r'<b style="background:#(\w+);color:#fff;', Summary("S", "", word=word).html())
    assert badge
    values = [int(badge[1][i : i + 2], 16) / 255 for i in (0, 2, 4)]
    lights = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in values]
    assert 1.05 / (0.2126 * lights[0] + 0.7152 * lights[1] + 0.0722 * lights[2] + 0.05) >= 4.5
