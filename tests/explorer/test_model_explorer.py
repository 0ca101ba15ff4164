"""Model Explorer's own loader opens .nmp files. It is installed for the test, without its readers of other formats."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zoo_quick

import nmpconv
from nmpconv.file.reader import Model, read

pytestmark = pytest.mark.slow
EXPLORER = "ai-edge-model-explorer==0.1.34"
# What its loader imports; it needs 0.5 GB of readers of other formats besides.
NEEDED = ("dacite", "flask", "packaging", "portpicker", "requests", "termcolor", "typing-extensions", "watchdog")
PROGRAM = """
import json, sys
from model_explorer.extension_manager import ExtensionManager
manager = ExtensionManager(["nmpconv.explorer"])
manager.load_extensions()
[about] = [one for one in manager.get_extensions_metadata() if one["id"] == "nmpconv"]
command = {"extensionId": "nmpconv", "cmdId": "convert", "settings": json.loads(sys.argv[1])}
found = []
for path in sys.argv[2:]:
    try:
        found.append(manager.run_cmd({**command, "modelPath": path}))
    except Exception as error:
        found.append(str(error))
print(json.dumps([about, found]))
"""
Node = dict[str, Any]


@pytest.fixture(scope="session")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explorer")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", folder]
    for words in (["--no-deps", EXPLORER], NEEDED):
        subprocess.run([*pip, *words], check=True)
    return folder


def opened(explorer: Path, *files: Path, **settings: object) -> list[Any]:
    """The loader's answers, file by file."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(settings), *map(str, files)]
    environment = {**os.environ, "PYTHONPATH": str(explorer)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    about, found = json.loads(ran.stdout.splitlines()[-1])
    assert (about["type"], about["fileExts"]) == ("adapter", ["nmp"])
    return list(found)


def facts(attributes: list[dict[str, str]]) -> dict[str, str]:
    assert all(isinstance(one["value"], str) for one in attributes)
    return {one["key"]: one["value"] for one in attributes}


def check(graph: dict[str, Any], model: Model) -> None:
    """Every op and constant is there with its grid, and every edge comes from the node that made the tensor."""
    nodes: dict[str, Node] = {node["id"]: node for node in graph["nodes"]}
    constants = [tensor for tensor in model.tensors if tensor.data is not None]
    assert len(nodes) == len(graph["nodes"]) == sum(map(len, (model.inputs, model.ops, constants, model.outputs)))
    for number, op in enumerate(model.ops):
        node = nodes[f"op{number}"]
        assert (node["label"], facts(node["attrs"])["name"]) == (op.kind, op.name)
        for item, index in zip(node["outputsMetadata"], op.outputs, strict=True):
            check_tensor(facts(item["attrs"]), model, index)
        for edge, index in zip(node["incomingEdges"], op.inputs, strict=True):
            source = nodes[edge["sourceNodeId"]]
            [item] = [one for one in source["outputsMetadata"] if one["id"] == edge["sourceNodeOutputId"]]
            check_tensor(facts(item["attrs"]), model, index)
    assert graph["groupNodeAttributes"][""]["file (bytes)"] == str(model.file_bytes)


def check_tensor(told: dict[str, str], model: Model, index: int) -> None:
    tensor = model.tensors[index]
    assert told["name"] == tensor.name
    assert told["tensor_shape"] == f"{tensor.dtype}{list(tensor.shape)}"
    assert told["width (bits)"] == tensor.dtype.removeprefix("int")
    assert told["exponent"].split("..")[0] == str(min(tensor.exponents))
    if tensor.data is None:
        assert told["offset in the arena (bytes)"] == str(tensor.offset)
        assert float(told["origin"]) == pytest.approx(tensor.origin, rel=1e-5)


@pytest.mark.zoo
def test_the_loader_opens_five_files(explorer: Path, samples: Path, zoo: Path, tmp_path: Path) -> None:
    files = []
    for name in ("shapes", "digits"):
        folder = samples / name
        made = nmpconv.convert(folder / "model.onnx", folder / "calib", std=255.0, rounding="nearest", equalize="none")
        files.append(made.save(tmp_path / f"{name}.nmp"))
        (tmp_path / f"{name}.json").write_text(json.dumps(made.report.to_json()))
    for name in ("mlperf_kws_dscnn", "mlperf_ic_resnet8_nhwc", "squeezenet1.1_227"):
        (tmp_path / name).mkdir()
        files.append(tmp_path / f"{name}.nmp")
        files[-1].write_bytes(zoo_quick.converted(zoo, name, "8", tmp_path / name)[0].data)
    found = opened(explorer, *files)
    for answer, path in zip(found, files, strict=True):
        check(answer["graphs"][0], read(path))
    ops = [facts(node["attrs"]) for node in found[0]["graphs"][0]["nodes"] if node["id"].startswith("op")]
    layers = json.loads((tmp_path / "shapes.json").read_text())["layers"]
    assert [one["SQNR (dB)"] for one in ops] == [f"{layer['sqnr_cumulative']:.4g}" for layer in layers]
    assert not any("SQNR (dB)" in facts(node["attrs"]) for node in found[2]["graphs"][0]["nodes"])


def test_constants_have_statistics_and_values(explorer: Path, root: Path) -> None:
    files = [root / "schema" / "samples" / f"{name}.nmp" for name in ("small", "state")]
    (small, state) = opened(explorer, *files, const_element_count_limit=3)
    told = {facts(node["attrs"])["name"]: facts(node["attrs"]) for node in small["graphs"][0]["nodes"]}
    w = read(files[0]).tensors[1]
    assert w.data is not None
    assert told["w"]["__value"] == ", ".join(map(str, w.data.ravel()[:3]))
    assert told["w"]["integers"] == f"{w.data.min()}..{w.data.max()}"
    values = w.data * [[[[2.0**-11]]], [[[2.0**-10]]]]  # a grid for each of two channels
    assert float(told["w"]["largest value"]) == pytest.approx(values.max(), rel=1e-5)
    assert float(told["w"]["standard deviation"]) == pytest.approx(values.std(), rel=1e-5)
    assert "of the call before, first 5" in facts(state["graphs"][0]["nodes"][1]["attrs"])["state"]


def test_a_refused_file_and_another_report(explorer: Path, root: Path, tmp_path: Path) -> None:
    good = (root / "schema" / "samples" / "small.nmp").read_bytes()
    (tmp_path / "small.nmp").write_bytes(good)
    (tmp_path / "cut.nmp").write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    for text in ('{"layers": 3, "file_bytes": 2304}', "[1]", "\xff", '{"layers": [{"name": "n_c"}], "file_bytes": 1}'):
        (tmp_path / "small.json").write_text(text, encoding="latin-1")
        small, cut, gone = opened(explorer, *(tmp_path / name for name in ("small.nmp", "cut.nmp", "gone.nmp")))
        check(small["graphs"][0], read(good))
        assert "checksum" in cut
        assert "gone.nmp" in gone
