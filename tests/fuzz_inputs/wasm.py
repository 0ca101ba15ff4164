"""Damaged .nmp files in nmp.wasm: refused with the status of C on this machine, or run with the same bytes.

One node runs for all mutants. It is started before processes with bounds on memory are forked.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import numpy as np
from verified import in_c

from fuzz_inputs import verifiers
from fuzz_inputs.damage import damaged
from nmpconv.base.files import interpreter
from nmpconv.errors import ModelError, NmpError, Status
from nmpconv.exporters.browser.wasm_module import wasm
from nmpconv.file import flatbuffer, reader
from nmpconv.runtime.interpreter import load, needs

NODES = ("node", "nodejs")
ARENA_MAX = 1 << 20  # of files that are run
NUMBERS = count()


def mutant(rng: np.random.Generator, good: list[bytes]) -> bytes:
    """One by the schema, or a file with damaged bytes, most of them with a right checksum."""
    if rng.integers(3):
        return verifiers.mutant(rng, good)
    data = damaged(rng, good[rng.integers(len(good))], good)
    with suppress(NmpError, KeyError):  # no root table is left
        return data if rng.integers(4) == 0 else flatbuffer.seal(data)
    return data


def missing() -> str:
    """A tool that is not here; ''."""
    if not any(map(shutil.which, NODES)):
        return NODES[0]
    return "" if find_spec("ziglang") else "ziglang"


@cache
def start(folder: Path) -> subprocess.Popen:
    """Node with the module, which ends with this process."""
    (folder / "nmp.wasm").write_bytes(wasm())
    program = next(filter(None, map(shutil.which, NODES)))
    script = Path(__file__).with_name("wasm_answers.mjs")
    command = [program, "--no-warnings", script, interpreter() / "wasm" / "nmp_runtime.mjs", folder / "nmp.wasm"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read(path: Path) -> None:
    """Raises ModelError for a file that both refuse, AssertionError where they differ."""
    data = path.read_bytes()
    status, rule = in_c(data)
    if status == Status.OK and (needs(data)["arena_bytes"] > ARENA_MAX or has_states(data) or not _has_names(data)):
        return
    if status == Status.LIMIT and "scratch" in rule:  # each level has its own
        return
    inputs, wanted = (b"", b"") if status != Status.OK else _native(data)
    for level, answer in _ask(path.parent, data, inputs).items():
        if status == Status.OK:
            assert answer == {"outputs": base64.b64encode(wanted).decode()}, f"{level}: {str(answer)[:200]}"
        else:
            assert answer == {"refused": status}, f"{level}: {answer}"
    if status != Status.OK:
        raise ModelError(rule)


def has_states(data: bytes) -> bool:
    return any(port.state is not None for port in reader.read(data, verified=True).inputs)


def _has_names(data: bytes) -> bool:
    """Says that inputs differ in name, and outputs: JavaScript knows them by that of their tensors."""
    model = reader.read(data, verified=True)
    names = [[model.tensors[port.tensor].name for port in ports] for ports in (model.inputs, model.outputs)]
    return all(len(set(some)) == len(some) for some in names)


def _native(data: bytes) -> tuple[bytes, bytes]:
    """Bytes of all inputs, and those of all outputs by the portable kernels."""
    net, rng = load(data, cpu="portable", threads=1), np.random.default_rng(len(data))
    arrays = [rng.integers(-100, 100, (1, *port.shape)).astype(port.dtype) for port in net.inputs]
    outputs = [np.empty((1, *port.shape), port.dtype) for port in net.outputs]
    net.run_each(arrays, outputs, range(1))
    return b"".join(x.tobytes() for x in arrays), b"".join(y.tobytes() for y in outputs)


def _ask(folder: Path, data: bytes, inputs: bytes) -> dict[str, dict]:
    """Answers of the levels, by name."""
    node, number = start(folder), next(NUMBERS)
    assert node.stdin is not None and node.stdout is not None
    asked = {"number": number, "file": base64.b64encode(data).decode(), "given": base64.b64encode(inputs).decode()}
    node.stdin.write(json.dumps(asked) + "\n")
    node.stdin.flush()
    for line in node.stdout:
        answer = json.loads(line)
        if answer.pop("number") == number:  # else of a process that was ended
            return answer
    raise AssertionError("node ended")
