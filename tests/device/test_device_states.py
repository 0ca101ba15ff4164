"""A board keeps the states of a model from one run to the next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lines
import nets
import numpy as np
import pytest

from nmpconv.device.client import Device
from nmpconv.device.transport import Program
from nmpconv.errors import DeviceError
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import steps
from nmpconv.ir import Graph, State
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import on_device
from nmpconv.runtime.interpreter import load

FRAMES = [np.full((1, 40), value, np.int8) for value in (100, -30, 7, 0, 0, -128)]


def echo() -> Graph:
    """y = x + s / 2; s takes over y."""
    net = nets.Net(grid=nets.grid(8, -4))
    net.input("x", 1, 40)
    net.input("s", 1, 40)
    net.const("half", [[64]], nets.grid(8, -7))
    net.op("mul", "s half", "m")
    net.op("add", "x m", "y")
    return plan_memory.run(replace(net.graph("y"), states={"s": State("y", 4)}))


DATA = to_bytes(echo(), {})


def calls(times: int) -> list[np.ndarray]:
    """The outputs of a stream of so many times the frames."""
    return [call["y"] for call in steps(echo(), [{"x": x} for x in FRAMES * times])]


WANTED = calls(1)


def test_from_run_to_run(line: Program) -> None:
    net, device = load(DATA), Device(line)
    for _ in range(2):
        on_device.load(device, net, DATA)  # states begin anew
        for x, y in zip(FRAMES, WANTED, strict=True):
            np.testing.assert_array_equal(on_device.run(device, net, [x])[0], y)


def test_verified_call_by_call(line: Program) -> None:
    net, device = load(DATA), Device(line)
    found = on_device.measure(device, net, DATA, [[[x] for x in FRAMES]] * 2, runs=2)
    assert found.verified == 2 * len(FRAMES)
    assert on_device.first_difference(device, net, [FRAMES[0]]) is None


def test_a_bad_line_runs_nothing_twice(agent: Path) -> None:
    line = lines.Faulty(Program([agent]), 1, lost=0.002, flipped=0.002)
    net, device = load(DATA), Device(line)
    on_device.load(device, net, DATA)
    for x, y in zip(FRAMES * 5, calls(5), strict=True):
        np.testing.assert_array_equal(on_device.run(device, net, [x])[0], y)
    assert line.faults > 5
    line.close()


def test_a_reset_loses_them(agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, and not hidden as that of a model without states is."""
    monkeypatch.setenv("NMP_AGENT_MEMORY", str(tmp_path / "memory"))
    line = Program([agent])
    net, device = load(DATA), Device(line)
    on_device.load(device, net, DATA)
    on_device.run(device, net, [FRAMES[0]])
    device.reset()
    with pytest.raises(DeviceError, match="was reset and has lost its states"):
        on_device.run(device, net, [FRAMES[1]])
    on_device.load(device, net, DATA)
    np.testing.assert_array_equal(on_device.run(device, net, [FRAMES[0]])[0], WANTED[0])
    line.close()
