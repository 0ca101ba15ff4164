"""The agent as a program on this machine, and a model of the size of a keyword spotter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nets
import numpy as np
import pytest

from nmpconv.device import simulator
from nmpconv.device.transport import Program
from nmpconv.file.writer import to_bytes
from nmpconv.runtime.interpreter import Net, load

INPUTS, CLASSES = 2000, 12


@pytest.fixture
def line(agent: Path) -> Iterator[Program]:
    program = Program([agent])
    yield program
    program.close()


@pytest.fixture(scope="session")
def model() -> bytes:
    """One fully connected layer, 24 kB of weights."""
    net = nets.Net(2, nets.grid(8, -2))
    net.input("x", 1, INPUTS, quant=nets.grid(8, 0))
    net.integers("w", CLASSES, INPUTS, most=127, quant=nets.grid(8, -12))
    net.integers("b", CLASSES, most=127)
    net.op("fully_connected", "x w b", "y")
    return to_bytes(nets.placed(net.graph("y")), {})


@pytest.fixture
def net(model: bytes) -> Net:
    return load(model)


@pytest.fixture
def here(agent: Path, model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the model in it; sim:host is the agent."""
    monkeypatch.chdir(tmp_path)
    Path("m.nmp").write_bytes(model)
    monkeypatch.setattr(simulator, "_folders", lambda: [agent.parent])
    return tmp_path


@pytest.fixture
def inputs(net: Net) -> list[np.ndarray]:
    return [np.random.default_rng(4).integers(-128, 128, net.inputs[0].shape).astype(np.int8)]
