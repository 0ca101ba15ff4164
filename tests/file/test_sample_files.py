"""schema/samples: files for who writes a reader, with what is in them as flatc prints it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nets
import numpy as np
import pytest
from test_states import frames, leaky

from nmpconv.file.reader import read
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.ir import Graph
from nmpconv.runtime.interpreter import load

PRODUCER = {"producer": "nmpconv, a sample for readers of the format"}


def small() -> tuple[Graph, dict[str, np.ndarray]]:
    """Pixels, a weight grid a channel, an op in place, widths of 8 and 16 bits."""
    return nets.small_net(), {"x": np.arange(-16, 16, dtype=np.int8).reshape(1, 4, 4, 2)}


def state() -> tuple[Graph, dict[str, np.ndarray]]:
    """A graph with two inputs, of which the caller feeds one."""
    graph = nets.placed(leaky())
    return graph, {"x": frames(8)[0], "s": np.full((1, 20), graph.states["s"].start, np.int8)}


SAMPLES = {"small": small, "state": state}


def made(name: str) -> bytes:
    graph, inputs = SAMPLES[name]()
    outputs = run_reference(graph, inputs)
    vector = [inputs[key].tobytes() for key in graph.inputs], [outputs[key].tobytes() for key in graph.outputs]
    return to_bytes(graph, PRODUCER, [vector])


@pytest.mark.parametrize("name", SAMPLES)
def test_the_files_are_fresh(name: str, root: Path, bless: bool) -> None:
    path = root / "schema" / "samples" / f"{name}.nmp"
    if bless:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(made(name))
    assert path.read_bytes() == made(name), "pytest --bless writes it"
    [(given, wanted)] = read(path).test_vectors
    net = load(path)
    fed = [np.frombuffer(data, port.dtype).reshape(port.shape) for data, port in zip(given, net.inputs, strict=False)]
    assert [result.tobytes() for result in net.run(*fed)] == list(wanted[: len(net.outputs)])


@pytest.mark.parametrize("name", SAMPLES)
def test_what_flatc_prints_is_beside_them(
    name: str, root: Path, tmp_path: Path, bless: bool, need_tool: Callable[..., str]
) -> None:
    folder, schema = root / "schema" / "samples", root / "schema" / "nmp.fbs"
    command = [need_tool("flatc"), "--json", "--strict-json", "--defaults-json", "-o", tmp_path, schema]
    subprocess.run([*command, "--", folder / f"{name}.nmp"], check=True)
    text = compact(json.loads((tmp_path / f"{name}.json").read_text()))
    if bless:
        (folder / f"{name}.json").write_text(text)
    assert (folder / f"{name}.json").read_text() == text, "pytest --bless writes it"


def compact(found: Any, indent: str = "") -> str:
    """JSON with lists of plain things in one line."""
    inner = indent + "  "
    if isinstance(found, dict) and any(isinstance(value, dict | list) for value in found.values()):
        rows = [f"{json.dumps(key)}: {compact(value, inner)}" for key, value in found.items()]
        text = "{" + ",".join(f"\n{inner}{row}" for row in rows) + f"\n{indent}}}"
    elif isinstance(found, list) and any(isinstance(value, dict) for value in found):
        text = "[" + ",".join(f"\n{inner}{compact(value, inner)}" for value in found) + f"\n{indent}]"
    else:
        text = json.dumps(found)
    return text if indent else text + "\n"
