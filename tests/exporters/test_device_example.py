"""The example that is a device: nmpconv sends it models over its line, here stdin and stdout, in each package."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from c_core import built, objects

import nmpconv
from nmpconv.device.client import Device
from nmpconv.device.link import RequestRefused
from nmpconv.device.protocol import Hello
from nmpconv.device.transport import Program
from nmpconv.runtime import on_device
from nmpconv.runtime.interpreter import load

HERE = Path(__file__).parent / "build_systems"
Need = Callable[..., str]


def run(command: Sequence[str | Path], **environment: str) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]


def verified(program: Path, model: Path) -> Hello:
    """Loads a model, compares the outputs with those of this machine, and returns what the device says of itself."""
    data, line = model.read_bytes(), Program([program])
    net = load(data)
    try:
        device = Device(line)
        on_device.load(device, net, data)
        on_device.verify(device, net, on_device.cases(net)[0])
        return device.hello
    finally:
        line.close()


@pytest.mark.slow
def test_any_board(model: Path, make: Callable[..., Path], tmp_path: Path, need_tool: Need) -> None:
    """A program for a board of one's own; here its line and timer are those of the C library."""
    nmpconv.bundle({"kws": model}, as_="plain", output=tmp_path / "bundle")
    src, program = tmp_path / "bundle/src", tmp_path / "device"
    sources = [*sorted(src.rglob("*.c")), tmp_path / "bundle/examples/device.c"]
    strict = ["-std=c99", "-O0", "-Wall", "-Wextra", "-Werror"]
    built([need_tool("gcc"), *strict, f"-I{src}", *sources], program)
    hello = verified(program, model)
    [arena] = re.findall(r"KWS_ARENA_BYTES (\d+)", (src / "kws_data.h").read_text())
    assert (hello.counter, hello.arena_bytes) == ("ns", int(arena))
    with pytest.raises(RequestRefused, match=r"LOAD|BEGIN"):  # for which it has neither kernels nor memory
        verified(program, make(channels=16, bits="16"))


@pytest.mark.slow
def test_zephyr(model: Path, tmp_path: Path, need_tool: Need) -> None:
    nmpconv.bundle({"kws": model}, as_="zephyr", output=tmp_path / "bundle")
    cmake, sample = need_tool("cmake"), tmp_path / "bundle/samples/device"
    run([cmake, "-S", sample, "-B", tmp_path / "b", f"-DZephyr_DIR={HERE / 'zephyr'}"])
    run([cmake, "--build", tmp_path / "b"])
    assert verified(tmp_path / "b/app", model).board == "stand_in"


@pytest.mark.slow
def test_idf(model: Path, tmp_path: Path, need_tool: Need) -> None:
    nmpconv.bundle({"kws": model}, as_="idf", output=tmp_path / "bundle")
    cmake, project = need_tool("cmake"), tmp_path / "bundle/examples/device"
    run([cmake, "-S", project, "-B", tmp_path / "b"], IDF_PATH=str(HERE / "idf"))
    run([cmake, "--build", tmp_path / "b"])
    hello = verified(tmp_path / "b/device.elf", model)
    assert (hello.board, hello.clock_hz) == ("esp32", 160_000_000)


@pytest.mark.slow
def test_arduino(model: Path, tmp_path: Path, need_tool: Need) -> None:
    """A sketch of which a library of two bundles has no name twice: functions of the agent have names of the bundle."""
    made: list[Path] = []
    for name in ("kws", "vww"):
        nmpconv.bundle({name: model}, as_="arduino", output=tmp_path / name)
        sources = sorted((tmp_path / name / "src").rglob("*.c"))
        made += objects([need_tool("gcc"), "-O0"], sources, tmp_path / f"{name}-o")
    sketch, compiled = tmp_path / "vww/examples/device/device.ino", tmp_path / "sketch.o"
    cxx = [need_tool("g++"), "-std=gnu++11", "-O0", "-Wall", "-Werror", "-include", "Arduino.h"]
    run([*cxx, "-x", "c++", f"-I{HERE / 'arduino'}", f"-I{tmp_path / 'vww/src'}", "-c", sketch, "-o", compiled])
    run([*cxx[:1], compiled, *made, "-o", tmp_path / "device"])
    assert verified(tmp_path / "device", model).board == "Arduino"
