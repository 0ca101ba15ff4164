"""A tensor or op has one short name: in tables, with --json and on pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nets
import onnx
import pytest

from nmpconv.base.short_names import of_files, shortened
from nmpconv.exporters import html
from nmpconv.file.reader import read
from nmpconv.file.writer import to_bytes
from nmpconv.passes.memory import plan_memory

LONG = "model_1/backbone/a_stage_with_a_long_name"


@pytest.fixture
def file(here: Path) -> Path:
    """Ops and tensors whose shortest ends are others where only some of the file's names are looked at."""
    net = nets.Net(1, nets.grid(8, -6))
    net.input(f"{LONG}/one/x:0", 1, 4)
    net.integers(f"{LONG}/one/w", 4, 4, most=99, quant=nets.grid(8, -8))
    net.integers(f"{LONG}/two/w", 4, 4, most=99, quant=nets.grid(8, -8))
    net.integers(f"{LONG}/one/b", 4, most=9)
    net.integers(f"{LONG}/relu", 1, 4, most=9)  # a constant
    one, two, ends = (f"{LONG}/{name}" for name in ("one", "two", "three/relu"))
    net.op("fully_connected", f"{one}/x:0 {one}/w {one}/b", f"{one}/sum")
    net.op("fully_connected", f"{one}/sum {two}/w {one}/b", f"{two}/sum")
    net.op("add", f"{two}/sum {LONG}/relu", ends)
    path = here / "m.nmp"
    path.write_bytes(to_bytes(plan_memory.run(net.graph(ends)), {}))
    return path


def test_names_of_a_file(file: Path, cli: Any) -> None:
    model = read(file)
    short = of_files([model])
    activations = [tensor.name for tensor in model.tensors if tensor.data is None]
    alone = shortened(activations)
    assert any(alone[name] != short[name] for name in activations), "the test tells the two namings apart"
    found = json.loads(cli("inspect", file, "--json").out)
    for row in (*found["tensors"], *found["ops"], *json.loads(cli("bench", file, "--runs", "3", "--json").out)["ops"]):
        assert row["short"] == short[row["name"]]
    tables, whole = cli("inspect", file).out, cli("inspect", file, "-v").out
    page = html.render([html.of_file("m.nmp", file.read_bytes(), model)])
    ops = [op.name for op in model.ops]
    for name in (*activations, *ops):
        assert short[name] in tables.split()
        assert name in whole.split()
    assert all(short[name] in re.sub(r"<wbr>|<[^>]*>", "", page) for name in ops)


def test_names_of_a_conversion(here: Path, cli: Any) -> None:
    """Layers are named as the file's ops are, whatever other names there are."""
    found = json.loads(cli("convert", "model.onnx", "--data", "images", "--mean", "100", "--std", "60", "--json").out)
    short = of_files([read(here / "model.nmp")])
    assert {row["name"]: row["short"] for row in found["layers"]}.items() <= short.items()
    assert found["layers"]


@pytest.mark.slow
def test_names_of_a_bisection(here: Path, cli: Any) -> None:
    """The tables have those of the file, also where other tensors would leave a shorter end."""
    model = onnx.load("model.onnx")
    for node in model.graph.node:
        node.output[:] = [name if name == "y" else f"{LONG}/{name}/output_of_it" for name in node.output]
    renamed = {name.split("/")[-2]: name for node in model.graph.node for name in node.output if "/" in name}
    for node in model.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    onnx.save(model, "long.onnx")
    look = ("--mean", "100", "--std", "60", "--strict")
    assert cli("convert", "long.onnx", "--data", "images", *look, "-o", "long.nmp").code == 0
    short = of_files([read(here / "long.nmp")])
    found = json.loads(cli("bisect", "long.onnx", "long.nmp", "--data", "images", "--json").out)
    rows = [*found["tensors"], *found["levers"]]
    assert rows and all(row["short"] == short.get(row["name"], row["name"]) for row in rows)
    assert any(row["short"] != row["name"] for row in found["tensors"])
    shown = cli("bisect", "long.onnx", "long.nmp", "--data", "images", "-o", "again").out
    assert LONG not in shown.partition("SQNR")[0]
    assert any(row["short"] in shown for row in found["tensors"] if row["short"] != row["name"])
