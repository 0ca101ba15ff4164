"""Reports as a parser sees them: what is in them, that nothing leaves the page, and that names stay text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import cli_files
import numpy as np
import onnx
import pytest
from PIL import Image

import nmpconv
from nmpconv.calib.noise_budget import Noise
from nmpconv.cli.report_tables import _quality
from nmpconv.errors import UsageError
from nmpconv.exporters.html import render
from nmpconv.exporters.html.subject import of_file as subject_of
from nmpconv.file.reader import read
from nmpconv.file.writer import to_bytes

VOID = {"meta", "link", "input", "img", "br", "wbr"}
SHAPES = {"path", "rect", "circle"}
EVIL = """</title></script><script>alert("1")</script><img src=x onerror='alert(2)'>&"""


class Page(HTMLParser):
    """The tags with their attributes, the text by the tag that it stands in, and what is not closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES, tag
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.text.setdefault(self._open[-1], []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def within(self, tag: str) -> str:
        return "".join(self.text.get(tag, []))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """images/ with labels.csv, and model.onnx."""
    path = tmp_path_factory.mktemp("html")
    cli_files.images(path / "images")
    onnx.save(cli_files.onnx_model(), path / "model.onnx")
    return path


@pytest.fixture(scope="module")
def converted(folder: Path) -> nmpconv.Converted:
    report = folder / "report.html"
    return nmpconv.convert(folder / "model.onnx", folder / "images", mean=127.5, std=64, report=report, bits=16)


@pytest.fixture(scope="module")
def narrow(folder: Path) -> nmpconv.Converted:
    """The same at 8 bits throughout."""
    return nmpconv.convert(folder / "model.onnx", folder / "images", mean=127.5, std=64, strict=True)


@pytest.fixture(scope="module")
def page(converted: nmpconv.Converted, folder: Path) -> Page:
    """The page of the conversion."""
    return Page((folder / "report.html").read_text())


def test_all_of_a_conversion_is_there(page: Page, converted: nmpconv.Converted) -> None:
    ids = {attributes.get("id") for _, attributes in page.tags}
    names = ("facts", "layers", "graph", "memory", "activations", "weights", "samples")
    assert {f"f0-{name}" for name in names} <= ids
    assert "f0-times" not in ids
    rows, facts = page.within("th"), page.within("td")
    for layer in converted.report.layers:
        assert layer.name in rows
        assert f"{layer.sqnr_cumulative:.1f}" in facts
    model = nmpconv.inspect(converted).model
    for text in ("command", "source sha256", "producer"):
        assert text in rows
    assert "nmpconv convert model.onnx --data images --bits 16 --mean 127.5 --std 64" in facts
    assert model.metadata["source_sha256"] in facts
    found = [attributes["data-find"] for attributes in page.all("g")]
    assert found == [f"{port.name} input" for port in model.inputs] + [f"{op.name} {op.kind}" for op in model.ops]
    assert all(tensor.name in page.within("h3") for tensor in model.tensors if tensor.data is None)


def test_the_steepest_layer_is_marked(narrow: nmpconv.Converted) -> None:
    worst, page = narrow.report.steepest, Page(nmpconv.html_report(narrow))
    marked = [attributes["data-find"] for attributes in page.all("tr") if attributes.get("class") == "steep"]
    assert worst is not None
    assert any(str(name).startswith(worst.name) for name in marked)


def test_nothing_is_asked_of_the_network(page: Page) -> None:
    links = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert links
    assert all(str(link).startswith(("#", "data:")) for link in links)
    policy = [attributes["content"] for attributes in page.all("meta") if "http-equiv" in attributes]
    assert policy and str(policy[0]).startswith("default-src 'none';")
    assert "url(" not in page.within("style")
    assert "@import" not in page.within("style")


def test_it_can_be_read_aloud_and_without_a_mouse(page: Page) -> None:
    assert len(page.all("caption")) >= 3
    for svg in page.all("svg"):
        assert svg["role"] == "img"
        assert "aria-label" in svg or "aria-labelledby" in svg
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [attributes["aria-labelledby"] for attributes in page.all("svg") if "aria-labelledby" in attributes]
    assert set(named) <= set(ids)
    assert {str(a["href"]) for a in page.all("a")} <= {f"#{name}" for name in ids}
    assert [attributes["lang"] for attributes in page.all("html")] == ["en"]


def test_pictures_of_samples(page: Page) -> None:
    pictures = page.all("img")
    assert len(pictures) == 8
    assert "float" in page.within("th")
    assert "images/00.png" in page.within("h3")


def test_a_fast_conversion_has_a_page(folder: Path) -> None:
    """It is called after the model, since nobody knows the file's name yet, and sends nobody to where he is."""
    path = folder / "fast.html"
    nmpconv.convert(folder / "model.onnx", folder / "images", mean=127.5, std=64, report=path, fast=True)
    page = Page(path.read_text())
    assert page.within("h1") == "model.onnx"
    assert "without --fast" in page.within("caption")
    assert "convert --report" not in page.within("caption")


def test_the_same_bytes_each_time(converted: nmpconv.Converted, folder: Path) -> None:
    again = folder / "again.html"
    nmpconv.convert(folder / "model.onnx", folder / "images", mean=127.5, std=64, report=again, bits=16)
    assert again.read_bytes() == (folder / "report.html").read_bytes()


def test_names_stay_text(folder: Path) -> None:
    """Names of tensors, ops, labels, metadata, and of the file itself."""
    graph = cli_files.nmp_graph(labels=(EVIL, "bee", "cat"), name=EVIL)
    names = {name: f"{name}{EVIL}" for name in ("x", "c", "y")}
    values = {names.get(v.name, v.name): replace(v, name=names.get(v.name, v.name)) for v in graph.values.values()}
    nodes = tuple(
        replace(
            node,
            name=f"{node.name}{EVIL}",
            inputs=tuple(names.get(name, name) for name in node.inputs),
            outputs=tuple(names[name] for name in node.outputs),
        )
        for node in graph.nodes
    )
    moved = {names[name]: shape for name, shape in graph.source_shapes.items()}
    graph = replace(
        graph,
        nodes=nodes,
        values=values,
        inputs=(names["x"],),
        outputs=(names["y"],),
        preprocess={names["x"]: graph.preprocess["x"]},
        pixels=frozenset({names["x"]}),
        source_shapes=moved,
    )
    data = to_bytes(graph, {"producer": EVIL, EVIL: EVIL, "config": f'{{"{EVIL[:7]}": "{EVIL[:8]}"}}'})
    assert EVIL in read(data).ops[0].name
    html = nmpconv.html_report([data, cli_files.nmp_bytes()], data=folder / "images", limit=3)
    page = Page(html)
    assert len(page.all("script")) == 1
    assert all(str(image["src"]).startswith("data:image/png;base64,") for image in page.all("img"))
    assert "alert" not in page.within("script")
    assert EVIL[-60:] in page.within("th")
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_two_files_and_what_differs(converted: nmpconv.Converted, narrow: nmpconv.Converted) -> None:
    page = Page(nmpconv.html_report([narrow, converted]))
    text = page.within("td")
    assert re.search("bits 8/8/(8|16) → 8/16/16", text)
    assert page.text["th"].index("widths") < page.text["th"].index("sha256")  # digests, which nobody reads, come last
    assert {"f0-graph", "f1-graph"} <= {attributes.get("id") for _, attributes in page.tags}
    same = Page(nmpconv.html_report([narrow, narrow]))
    assert "→" not in same.within("td")
    with pytest.raises(UsageError, match="3 files"):
        nmpconv.html_report([narrow] * 3)


def test_many_outputs_leave_room(converted: nmpconv.Converted) -> None:
    """Pages and tables name the lowest of 40 outputs, and the tensors that make noise."""
    sqnr = {f"head_{i}": 30.0 + i for i in reversed(range(40))}
    noise = Noise({"x": 2.0, "a": 0.001, "b": 0.0009})
    report = replace(converted.report, sqnr_by_head=sqnr, noise=noise)
    page = Page(nmpconv.html_report(replace(converted, report=report)))
    assert re.findall(r"SQNR of (head_\d+)", page.within("th")) == [f"head_{i}" for i in range(5)]
    printed = "\n".join(value for _, value in _quality(report, {}, planned=False))
    for text in (page.within("td").replace("\xa0", " "), printed):
        assert "35 other outputs: 35.0 dB to 69.0 dB" in text
        assert "100 %" in text and " 0 %" not in text
    few = replace(report, sqnr_by_head=dict(list(sqnr.items())[:8]))
    assert few.shown_heads == (list(few.sqnr_by_head.items()), "")


def test_worst_samples_tell_of_how_many(converted: nmpconv.Converted, folder: Path) -> None:
    images = len(list((folder / "images").glob("*.png")))
    for limit, text in ((3, f"Of the first 3 of {images};"), (images, f"Of {images};")):
        assert text in nmpconv.html_report(converted.data, data=folder / "images", limit=limit)


def test_times_only_when_asked(converted: nmpconv.Converted) -> None:
    assert "Time on this machine" not in nmpconv.html_report(converted)
    page = Page(nmpconv.html_report(converted.data, time=True))
    assert "Time on this machine" in page.within("h2")
    assert nmpconv.html_report(converted.data) == nmpconv.html_report(converted.data)


def test_wrong_classes_come_first(folder: Path) -> None:
    net = nmpconv.load(cli_files.nmp_bytes())
    pictures = [np.asarray(Image.open(path)) for path in sorted((folder / "images").glob("*.png"))]
    best = [int(net.run(picture)[0].argmax()) for picture in pictures]
    pairs = [(picture, (label + (i == 5)) % 3) for i, (picture, label) in enumerate(zip(pictures, best, strict=True))]
    page = Page(nmpconv.html_report(cli_files.nmp_bytes(), data=pairs))
    names = [name for name in page.text["h3"] if name.startswith("data[")]
    assert names[0] == "data[5]"


def test_a_report_of_a_detector_without_ranks(folder: Path) -> None:
    """An output that is no vector has no classes; its SQNR is there all the same."""
    model = cli_files.onnx_model()
    del model.graph.node[2:]
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("r", 1, [1, 4, 8, 8]))
    found = nmpconv.convert(model, folder / "images", mean=127.5, std=64)
    page = Page(nmpconv.html_report(found, data=folder / "images", reference=model))
    assert "dB at the output" in page.within("figcaption")
    assert "quantized" not in page.within("th")


def test_where_nothing_falls_nothing_is_listed(converted: nmpconv.Converted) -> None:
    report, model = converted.report, read(converted.data)
    for falls in (True, False):
        layers = tuple(replace(layer, fall=3.0 if falls else 0.0) for layer in report.layers)
        subject = subject_of("a.nmp", converted.data, model, report=replace(report, layers=layers))
        assert ("It falls most at" in render([subject])) is falls
