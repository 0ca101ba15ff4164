"""The interpreter, with or without a model in it, as a C library: a folder to drop into a firmware project.

src/nmp.h, src/*               the interpreter; with a model, reduced to the ops that it has
src/model_data.h, .c           sizes, shapes and exponents of the model; its file's bytes as an array
example/main.c                 runs the model, on its own test vector where it has one
CMakeLists.txt                 a subdirectory or, installed, a package (find_package(nmp))
library.properties, .json      the same folder as an Arduino and a PlatformIO library
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

from nmpconv import __version__
from nmpconv._schema import OP_TABLES
from nmpconv.errors import NmpError
from nmpconv.memory import scratch_bound
from nmpconv.ops import WEIGHTED
from nmpconv.reader import Model, Op, Port, read

PACKAGE = Path(__file__).parent.parent
TEMPLATES = Path(__file__).parent / "templates"
# Their weights are packed in RAM.
ON_PCS = re.compile(r".*avx|.*neon|.*x86\.c|.*rvv\w*\.c|aarch64\.c|conv_bands|conv_join|tile_|vector")
HANDLE = 640  # bytes that a handle takes at most
COLUMNS = 20  # bytes of a line of an array
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def bundle(data: bytes | None) -> dict[str, bytes]:
    """Relative path to content. data: a .nmp file, None for the interpreter alone."""
    model = None if data is None else read(data)
    arena_bytes = 0 if model is None else arena_bound(model)
    files = {f"src/{path}": text for path, text in _interpreter(model)}
    if data is not None and model is not None:
        files["src/model_data.h"] = _header(model, arena_bytes)
        files["src/model_data.c"] = _array(data)
        files["example/main.c"] = _example(model)
    for name in ("CMakeLists.txt", "library.properties", "library.json"):
        files[name] = _filled(name, VERSION=__version__)
    files["README.md"] = _readme(model, arena_bytes)
    return {path: text.encode() for path, text in files.items()}


def arena_bound(model: Model) -> int:
    """Bytes that a run takes at most, whatever kernels a microcontroller has."""
    ends = [(op.live_end or model.arena_bytes) + scratch_bound(op, model) for op in model.ops]
    return max([model.arena_bytes, *ends]) + HANDLE


def _sources() -> Path:
    """The interpreter's folder: in the package when installed, beside it in a checkout."""
    for folder in (PACKAGE / "interpreter", PACKAGE.parent / "interpreter"):
        if (folder / "src" / "nmp.c").is_file():
            return folder
    raise NmpError("the interpreter's sources are not there", where=str(PACKAGE), hint="install nmpconv again")


def _interpreter(model: Model | None) -> Iterator[tuple[str, str]]:
    """The core, the public header among the others; with a model, no more than it needs on a microcontroller."""
    root = _sources()
    yield "nmp.h", (root / "include/nmp.h").read_text()
    for path in sorted([*root.glob("src/*.[ch]"), *root.glob("src/gen/*.[ch]")]):
        if model is not None and ON_PCS.match(path.name):
            continue
        text = path.read_text()
        if model is not None and path.name == "build.h":
            text = _choices(model) + text
        yield str(path.relative_to(root / "src")), text
    yield from _ops(root / "src/ops", list(OP_TABLES) if model is None else _kinds(model))


def _choices(model: Model) -> str:
    """build.h of a model: what stands before the defaults."""
    weighted = [op for op in model.ops if op.kind in WEIGHTED]
    parameters = {i for op in weighted for i in op.inputs[1:3]}
    values = [t.dtype for i, t in enumerate(model.tensors) if i not in parameters and t.dtype != "int32"]
    weights = [model.tensors[op.inputs[1]] for op in weighted]
    convolutions = [op for op in model.ops if op.kind == "conv2d"]
    choices = {
        "NMP_FIXED_CPU": 1,
        "NMP_KEEP_OPS": 0,
        "NMP_FAULT_DETAILS": 0,
        "NMP_ACTIVATION_BITS": _only_bits(values),
        "NMP_WEIGHT_BITS": _only_bits([w.dtype for w in weights]),
        "NMP_CONV_K_MAX": max((prod(w.shape[1:]) for w in weights), default=1),
        "NMP_CONV_DEPTHWISE": int(any(_is_depthwise(op, model) for op in convolutions)),
        "NMP_CONV_WINDOWS": int(any(not _is_product(op, model) for op in convolutions)),
        "NMP_CONV_OVERLAP": int(any(_overlaps(op, model) for op in convolutions)),
        "NMP_CONV_HARD": int(any(_is_hard(op, model) for op in weighted)),
        "NMP_BUILD_OPS(X)": " ".join(f"X({kind}, {kind.upper()})" for kind in _kinds(model)),
    }
    lines = "".join(f"#define {name} {value}\n" for name, value in choices.items())
    return f"/* Written by nmpconv bundle for one model; the defaults are below. */\n{lines}\n"


def _kinds(model: Model) -> list[str]:
    return sorted({op.kind for op in model.ops})


def _only_bits(dtypes: Sequence[str]) -> int:
    """8 or 16 where all are of that width, else 0."""
    return {frozenset({"int8"}): 8, frozenset({"int16"}): 16}.get(frozenset(dtypes), 0)


def _is_depthwise(op: Op, model: Model) -> bool:
    """One input and one output channel a group."""
    x, w = (model.tensors[i] for i in op.inputs[:2])
    return bool(op.params["groups"] == x.shape[-1] == w.shape[0])


def _is_hard(op: Op, model: Model) -> bool:
    """What vectors of 32 bits may leave to the portable kernels; conv_mve.c has the rule, which is a little milder."""
    x, w = (model.tensors[i] for i in op.inputs[:2])
    y, taps = model.tensors[op.outputs[0]], prod(w.shape[1:])
    shift = y.exponents[0] - x.exponents[0] - max(w.exponents)
    if op.kind == "conv_transpose" or shift < 0:
        return True
    if op.kind == "conv2d" and _is_depthwise(op, model) and (len(op.inputs) > 3 or taps > 256):
        return True
    return "int16" in (x.dtype, w.dtype) and (shift < 9 or taps >= 1 << (shift + 1))


def _overlaps(op: Op, model: Model) -> bool:
    """The result is written over bytes of the input."""
    x, y = model.tensors[op.inputs[0]], model.tensors[op.outputs[0]]
    assert x.offset is not None
    assert y.offset is not None
    return x.offset < y.offset + y.nbytes and y.offset < x.offset + x.nbytes


def _is_product(op: Op, model: Model) -> bool:
    """The pixels of the input are the rows of a matrix product as they are."""
    p, w = op.params, model.tensors[op.inputs[1]]
    padding = p["pad_top"] + p["pad_bottom"] + p["pad_left"] + p["pad_right"]
    return bool(w.shape[1:3] == (1, 1) and p["groups"] == p["stride_h"] == p["stride_w"] == 1 and padding == 0)


def _ops(folder: Path, kinds: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each op's file and, as far as they lie in the same folder, what it includes and the sources of that."""
    waiting = [f"{kind}.c" for kind in kinds]
    done: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in done or "/" in name or not (folder / name).is_file():
            continue
        done.add(name)
        text = (folder / name).read_text()
        yield f"ops/{name}", text
        for included in INCLUDE.findall(text):
            waiting += [included, included.removesuffix(".h") + ".c"]


def _filled(name: str, **values: object) -> str:
    """A template with its @NAMES@ replaced."""
    text = (TEMPLATES / name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def _header(model: Model, arena_bytes: int) -> str:
    ports = [*_ports("INPUT", model.inputs, model), *_ports("OUTPUT", model.outputs, model)]
    return _filled(
        "model_data.h",
        NAME=_comment(model.name),
        BYTES=model.file_bytes,
        ARENA=arena_bytes,
        PORTS="\n".join(ports),
        VECTORS=int(bool(model.test_vectors)),
    )


def _ports(role: str, ports: Sequence[Port], model: Model) -> Iterator[str]:
    for i, port in enumerate(ports):
        tensor = model.tensors[port.tensor]
        shape = " x ".join(map(str, tensor.shape))
        yield f"\n/* {_comment(port.name)}: {tensor.dtype} [{shape}], real value = integer * 2^{tensor.exponents[0]} */"
        yield f"#define MODEL_{role}_{i}_BYTES {tensor.nbytes}"
        yield f"#define MODEL_{role}_{i}_EXPONENT ({tensor.exponents[0]})"


def _comment(text: str) -> str:
    """Text that can stand in a C comment."""
    return (
        "".join(c if c.isprintable() and c.isascii() else "?" for c in text).replace("*/", "* /").replace("/*", "/ *")
    )


def _array(data: bytes) -> str:
    return f"""#include "model_data.h"

MODEL_ALIGNED const unsigned char model_data[MODEL_BYTES] = {{
{_rows(data)}
}};
"""


def _rows(data: bytes) -> str:
    rows = (data[i : i + COLUMNS] for i in range(0, len(data), COLUMNS))
    return "\n".join("    " + " ".join(f"{byte}," for byte in row) for row in rows)


def _example(model: Model) -> str:
    vectors = ""
    for inputs, outputs in model.test_vectors[:1]:
        for role, blobs in (("input", inputs), ("output", outputs)):
            for i, blob in enumerate(blobs):
                vectors += f"static const unsigned char {role}_{i}[] = {{\n{_rows(blob)}\n}};\n"
            names = ", ".join(f"{role}_{i}" for i in range(len(blobs)))
            vectors += f"static const unsigned char *const {role}s[] = {{{names}}};\n\n"
    return _filled("main.c", VECTORS=vectors)


def _readme(model: Model | None, arena_bytes: int) -> str:
    facts, kinds = "", list(OP_TABLES)
    if model is not None:
        kinds = _kinds(model)
        facts = f"""| | bytes |
|---|---|
| model: constant, may stay in flash | {model.file_bytes} |
| arena: RAM | {arena_bytes}, of which activations {model.arena_bytes} |

`src/model_data.h` says what goes in and comes out, `example/main.c` shows how.
"""
    title = "The nmp interpreter" if model is None else model.name or "A model"
    return _filled("README.md", TITLE=title, FACTS=facts, OPS=", ".join(kinds))
