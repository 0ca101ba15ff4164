"""A bad line, a reset, nobody or somebody else at the other end: the right result, or a clear error soon."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import lines
import numpy as np
import pytest

from nmpconv.device import client, link, protocol, simulator, transport
from nmpconv.device.client import Device, Upload
from nmpconv.device.connect import connect
from nmpconv.device.link import Link
from nmpconv.device.protocol import Frame, Type
from nmpconv.device.transport import Program, Transport
from nmpconv.errors import DeviceError, NmpError
from nmpconv.runtime import on_device
from nmpconv.runtime.interpreter import Net

BAD = {"lost": 0.001, "flipped": 0.001}
Inputs = list[np.ndarray]


@contextmanager
def soon(seconds: float = 10) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def upload_and_run(line: Transport, model: bytes, net: Net, inputs: Inputs) -> Upload:
    try:
        device = Device(line)
        upload, _ = on_device.load(device, net, model)
        on_device.verify(device, net, inputs)
    finally:
        line.close()
    return upload


@pytest.mark.parametrize("seed", range(20))
def test_bad_line(agent: Path, model: bytes, net: Net, inputs: Inputs, seed: int) -> None:
    line = lines.Faulty(Program([agent]), seed, **BAD)
    upload_and_run(line, model, net, inputs)
    assert line.faults > 20


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "harm",
    [
        partial(lines.Faulty, doubled=0.002),
        partial(lines.Late, longest=0.3),
        lines.Shared,
    ],
    ids=["doubled", "late", "shared"],
)
def test_other_harm(agent: Path, model: bytes, net: Net, inputs: Inputs, harm: Callable, seed: int) -> None:
    line = harm(Program([agent]), seed)
    upload_and_run(line, model, net, inputs)
    assert line.faults > 5


def test_resumes_after_a_reset(
    agent: Path, model: bytes, net: Net, inputs: Inputs, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(Link, "quiet", 0.5)
    memory = {"NMP_AGENT_MEMORY": str(tmp_path / "memory")}
    line = lines.Cut(Program([agent], memory), 15_000)
    with pytest.raises(DeviceError, match="stopped answering"):
        on_device.load(Device(line), net, model)
    line.close()  # the agent ends; its memory stays, as RAM does
    again = Program([agent], memory)
    device = Device(again)
    upload, _ = on_device.load(device, net, model)
    assert 10_000 < upload.resumed < 15_000
    on_device.verify(device, net, inputs)
    again.close()


@pytest.mark.parametrize("kind", [Type.RUN, Type.DIGESTS])
def test_a_repeated_request_does_not_run_again(
    line: Program, model: bytes, net: Net, inputs: Inputs, kind: Type
) -> None:
    device = Device(line)
    on_device.load(device, net, model)
    device.set_inputs(inputs[0].tobytes())
    request = (1,) if kind == Type.RUN else (0, net.model.outputs[0].tensor)
    frame = Frame(kind, 9, protocol.numbers(zlib.crc32(model), zlib.crc32(inputs[0].tobytes()), *request))
    line.write(2 * protocol.encode(frame))
    parser, found = protocol.Parser(), []
    while len(found) < 3:  # a busy machine may have asked an earlier question twice
        found += [frame for frame in parser.push(line.read(5)) if frame.seq == 9]
    assert [frame.type for frame in found] == [protocol.PROGRESS, kind | protocol.REPLY, kind | protocol.REPLY]
    assert found[1] == found[2]


def test_does_not_resume_on_other_memory(agent: Path, model: bytes, net: Net, tmp_path: Path) -> None:
    path = tmp_path / "memory"
    line = Program([agent], {"NMP_AGENT_MEMORY": str(path)})
    on_device.load(Device(line), net, model)
    line.close()
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    line = Program([agent], {"NMP_AGENT_MEMORY": str(path)})
    upload, _ = on_device.load(Device(line), net, model)
    line.close()
    assert upload.resumed == 0


@pytest.mark.parametrize("before_end", [10, 30, 50, 500, 2_000, 3_000, 10_000, 25_000])
def test_reset_in_the_middle(
    agent: Path,
    model: bytes,
    net: Net,
    inputs: Inputs,
    tmp_path: Path,
    before_end: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While outputs are read, in the run, in the inputs, in the upload: counted from the end of a whole session."""

    sessions = count()

    def session(after: int) -> int:
        memory = {"NMP_AGENT_MEMORY": str(tmp_path / f"memory{next(sessions)}")}
        line = lines.Reset(lambda: Program([agent], memory), after)
        device = Device(line)
        on_device.load(device, net, model)
        on_device.verify(device, net, inputs)
        line.close()
        return line.left

    whole = 1_000_000
    with monkeypatch.context() as patch:  # on a busy machine answers are late, and a request sent again counts twice
        patch.setattr(link, "WAIT_MIN", 1.0)
        patch.setattr(link, "WAIT_FIRST", 1.0)
        left = max(session(whole) for _ in range(2))
    assert session(whole - left - before_end) < 0


def test_an_upload_that_is_forgotten_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: the refusal of a piece tells it, no silence."""
    monkeypatch.setattr(Link, "quiet", 0.3)
    line = lines.Forgetful()
    assert Device(line)._upload(bytes(3000), 0).size == 3000
    assert line.begun == 2


def test_pieces_are_smaller_after_a_loss() -> None:
    fine, harmed = lines.Keeping(), lines.Keeping(1)
    for line in (fine, harmed):
        assert Device(line)._upload(bytes(3000), 0).size == 3000
        assert line.begun == 1
    first = harmed.pieces[0]
    assert fine.pieces[0] == first and min(fine.pieces[:-1]) >= first
    assert first // 2 in harmed.pieces


def test_reset_before_a_run(line: Program, model: bytes, net: Net, inputs: Inputs) -> None:
    device = Device(line)
    on_device.load(device, net, model)
    device.set_inputs(inputs[0].tobytes())
    first = device.run().digest
    device.reset()
    assert device.run().digest == first


@pytest.mark.parametrize(
    ("peer", "message"),
    [
        (lines.Silent, "no answer"),
        (lines.Chatter, "no frame"),
        (lines.Busy, "stopped answering"),
        (lines.Old, "speaks version 99"),
        (lines.Echo, "what is sent comes back"),
    ],
)
def test_no_agent_there(peer: type, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "HELLO_SECONDS", 0.6)
    with soon(), pytest.raises(DeviceError, match=message):
        Device(peer())


def test_an_upload_that_does_not_move(model: bytes, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "quiet", 0.5)
    with soon(), pytest.raises(DeviceError, match=r"stopped answering; 0 of \d+ bytes of the model had arrived"):
        on_device.load(Device(lines.Stuck()), net, model)


@pytest.mark.parametrize("step", [1, -1, 1 << 20])
def test_progress_without_end(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Only the ops of the model, in their order, are a sign of life."""
    monkeypatch.setattr(Link, "quiet", 0.3)
    monkeypatch.setattr(client, "OP_SECONDS", 0.3)
    device = Device(lines.Counting(step))
    device._ops = 5
    with soon(), pytest.raises(DeviceError, match="stopped answering"):
        device.run()


@pytest.mark.parametrize("seed", range(30))
def test_answers_that_make_no_sense(
    model: bytes, net: Net, inputs: Inputs, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(Link, "quiet", 0.3)
    monkeypatch.setattr(client, "OP_SECONDS", 0.3)
    device = Device(lines.Liar(seed))
    with soon(), pytest.raises(NmpError):
        on_device.verify(device, net, inputs)
    for ask in (
        lambda: on_device.load(device, net, model),
        lambda: on_device.first_difference(device, net, inputs),
        lambda: device.profile(40),
    ):
        with soon(), suppress(NmpError):  # what can be made sense of is no error
            ask()


def test_a_device_that_stops(agent: Path, model: bytes, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes nothing any more, and its line is full at some time. Nothing of the line is left when it is closed."""
    monkeypatch.setattr(Link, "quiet", 0.5)
    before = set(threading.enumerate())
    line = Program([agent])
    device = Device(line)
    os.kill(line._process.pid, signal.SIGSTOP)
    with soon(), pytest.raises(DeviceError, match="stopped answering"):
        on_device.load(device, net, model)
    monkeypatch.setattr(transport, "WRITE_SECONDS", 0.2)

    def fill() -> None:
        for _ in range(1000):
            line.write(bytes(256))

    with soon(), pytest.raises(DeviceError, match="took no bytes"):
        fill()
    with soon():
        line.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert set(threading.enumerate()) == before


QEMU = """#!/bin/sh
exec {python} - << END
import os, pty, time, tty
ours, theirs = pty.openpty()
tty.setraw(theirs)
print(f"char device redirected to {{os.ttyname(theirs)}} (label serial0)", flush=True)
time.sleep(1)
while True:
    os.read(ours, 4096)
END
"""


def test_a_simulator_that_gets_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine QEMU takes nothing for longer than a board would."""
    (tmp_path / "qemu").write_text(QEMU.format(python=shlex.quote(sys.executable)))
    (tmp_path / "qemu").chmod(0o755)
    monkeypatch.setitem(simulator.MACHINES, "slow", simulator.Machine(str(tmp_path / "qemu"), (), "", 0, 0))
    monkeypatch.setattr(transport, "WRITE_SECONDS", 0.2)
    line = simulator.Simulator("slow", tmp_path / "any.elf")
    for _ in range(200):
        line.write(bytes(256))
    line.close()


def test_over_tcp(agent: Path, model: bytes, net: Net, inputs: Inputs) -> None:
    """The agent behind a port, as ser2net or a simulator puts a serial line there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = connect(f"tcp:127.0.0.1:{server.getsockname()[1]}")
        behind = server.accept()[0]
        with subprocess.Popen([agent], stdin=behind, stdout=behind) as process:
            behind.close()
            device = Device(line)
            on_device.load(device, net, model)
            on_device.verify(device, net, inputs)
            line.close()
            process.wait(5)


def test_the_program_ends(line: Program, model: bytes, net: Net) -> None:
    device = Device(line)
    line._process.kill()
    with pytest.raises(DeviceError, match="the line is gone"):
        on_device.load(device, net, model)
