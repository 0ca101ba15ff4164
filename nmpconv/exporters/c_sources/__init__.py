"""The interpreter, with or without a model in it, as a C library: a folder to drop into a firmware project.

src/nmp.h, src/**              the interpreter; with a model, reduced to the ops that it has
src/model_data.h, .c           sizes, shapes and exponents of the model; its file's bytes as an array
example/main.c                 runs the model, on its own test vector where it has one
LICENSE                        of the interpreter; each of its files names it (SPDX)
CMakeLists.txt                 a subdirectory or, installed, a package (find_package(nmp))
library.properties, .json      the same folder as an Arduino and a PlatformIO library
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

from nmpconv import __version__
from nmpconv.base.files import interpreter, licence
from nmpconv.file._schema import OP_TABLES
from nmpconv.file.reader import FileOp, FilePort, FileTensor, Model, read
from nmpconv.ops import WEIGHTED
from nmpconv.ops.conv2d import is_depthwise
from nmpconv.runtime.targets import MICROCONTROLLERS, most, needs, needs_portable

TEMPLATES = Path(__file__).parent / "templates"
# Folders of src/ that a bundle of a model leaves out: levels that pack weights in RAM, and what serves them alone.
ON_PCS = ("arch/x86", "arch/aarch64", "arch/rvv", "conv/gemm", "conv/depthwise", "core/fuse")
OPS = "ops"  # one op a file
NAME_MAX = 200  # characters of a model's or tensor's name
COLUMNS = 20  # bytes of a line of an array
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def bundle(data: bytes | None, *, tensors: bool = False) -> dict[str, bytes]:
    """Relative path to content. data: a .nmp file, None for the interpreter alone. tensors: the header has the grids of
    all activations, too.
    """
    model = None if data is None else read(data)
    arena_bytes = 0 if data is None else most(data)
    files = {f"src/{path}": SPDX + text for path, text in _interpreter(data, model)}
    if data is not None and model is not None:
        files["src/model_data.h"] = _header(model, arena_bytes, tensors)
        files["src/model_data.c"] = _array(data)
        files["example/main.c"] = SPDX + _example(model)
    for name in ("CMakeLists.txt", "library.properties", "library.json"):
        files[name] = _filled(name, VERSION=__version__)
    files["README.md"] = _readme(data, model)
    files["LICENSE"] = licence()
    return {path: text.encode() for path, text in files.items()}


def _interpreter(data: bytes | None, model: Model | None) -> Iterator[tuple[str, str]]:
    """The sources, the public header among them; with a model, no more than it needs on a microcontroller."""
    root = interpreter()
    yield "nmp.h", (root / "include/nmp.h").read_text(encoding="utf-8")
    src = root / "src"
    every = sorted(p.relative_to(src).as_posix() for p in src.rglob("*") if p.suffix in (".c", ".h", ".inc"))
    for path in every if model is None else _needed(src, every, _kinds(model)):
        text = (src / path).read_text(encoding="utf-8")
        if data is not None and model is not None and path == "base/build.h":
            text = _choices(data, model) + text
        yield path, text


def _choices(data: bytes, model: Model) -> str:
    """build.h of a model: what stands before the defaults."""
    weighted = [op for op in model.ops if op.kind in WEIGHTED]
    parameters = {i for op in weighted for i in op.inputs[1:3]}
    values = [t.dtype for i, t in enumerate(model.tensors) if i not in parameters and t.dtype != "int32"]
    weights = [model.tensors[op.inputs[1]] for op in weighted]
    convolutions = [op for op in model.ops if op.kind == "conv2d"]
    choices = {
        "NMP_FIXED_CPU": 1,
        "NMP_NO_RVV": 1,
        "NMP_FAULT_DETAILS": 0,
        "NMP_ACTIVATION_BITS": _only_bits(values),
        "NMP_WEIGHT_BITS": _only_bits([w.dtype for w in weights]),
        "NMP_CONV_K_MAX": max((prod(w.shape[1:]) for w in weights), default=1),
        "NMP_CONV_DEPTHWISE": int(any(_is_depthwise(op, model) for op in convolutions)),
        "NMP_CONV_WINDOWS": int(any(not _is_product(op, model) for op in convolutions)),
        "NMP_CONV_HARD": int(needs_portable(data, "cortex-m55")),
        "NMP_CONV_OVERLAP": int(
            any(_overlap(model.tensors[op.inputs[0]], model.tensors[op.outputs[0]]) for op in convolutions)
        ),
        "NMP_STATES": int(any(port.state is not None for port in model.inputs)),
        "NMP_BUILD_OPS(X)": " ".join(f"X({kind}, {kind.upper()})" for kind in _kinds(model)),
    }
    lines = "".join(f"#define {name} {value}\n" for name, value in choices.items())
    return f"/* Written by nmpconv bundle for one model; the defaults are below. */\n{lines}\n"


def _is_depthwise(op: FileOp, model: Model) -> bool:
    """A depthwise conv2d with one result a channel."""
    x, y = (model.tensors[i] for i in (op.inputs[0], op.outputs[0]))
    return op.kind == "conv2d" and is_depthwise(op.params["groups"], x.shape, y.shape)


def _overlap(a: FileTensor, b: FileTensor) -> bool:
    """Checks whether two activations share bytes of the arena."""
    start, other = a.offset or 0, b.offset or 0
    return start < other + b.nbytes and other < start + a.nbytes


def _kinds(model: Model) -> list[str]:
    return sorted({op.kind for op in model.ops})


def _only_bits(dtypes: Sequence[str]) -> int:
    """8 or 16 where all are of that width, else 0."""
    return {frozenset({"int8"}): 8, frozenset({"int16"}): 16}.get(frozenset(dtypes), 0)


def _is_product(op: FileOp, model: Model) -> bool:
    """The pixels of the input are the rows of a matrix product as they are."""
    p, w = op.params, model.tensors[op.inputs[1]]
    padding = p["pad_top"] + p["pad_bottom"] + p["pad_left"] + p["pad_right"]
    return bool(w.shape[1:3] == (1, 1) and p["groups"] == p["stride_h"] == p["stride_w"] == 1 and padding == 0)


def _needed(src: Path, every: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """Selects the files of a microcontroller with these ops: sources but for the folders of PCs and other ops, what
    they include, and the sources of those headers."""
    there = {path for path in every if not path.startswith(tuple(f"{folder}/" for folder in ON_PCS))}
    waiting = [path for path in there if path.endswith(".c") and not path.startswith(f"{OPS}/")]
    waiting += [f"{OPS}/{kind}.c" for kind in kinds]
    done: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in there and path not in done:
            done.add(path)
            for included in INCLUDE.findall((src / path).read_text(encoding="utf-8")):
                waiting += [included, included.removesuffix(".h") + ".c"]
    return sorted(done)


def _filled(name: str, **values: object) -> str:
    """A template with its @NAMES@ replaced."""
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def _header(model: Model, arena_bytes: int, tensors: bool) -> str:
    ports = [*_ports("INPUT", model.inputs, model), *_ports("OUTPUT", model.outputs, model)]
    for i, tensor in enumerate(model.tensors if tensors else ()):
        if tensor.data is None:  # constants have many exponents: nmp_tensor_at tells them
            ports += [*_grid(f"TENSOR_{i}", tensor.name, tensor)]
    return _filled(
        "model_data.h",
        NAME=_comment(model.name),
        BYTES=model.file_bytes,
        ARENA=arena_bytes,
        PORTS="\n".join(ports),
        VECTORS=int(bool(model.test_vectors)),
    )


def _ports(role: str, ports: Sequence[FilePort], model: Model) -> Iterator[str]:
    for i, port in enumerate(ports):
        yield from _grid(f"{role}_{i}", port.name, model.tensors[port.tensor])


def _grid(macro: str, name: str, tensor: FileTensor) -> Iterator[str]:
    shape = " x ".join(map(str, tensor.shape))
    exponents = tensor.float_exponents or tensor.exponents
    offsets = tensor.float_offsets or (tensor.origin,) * len(exponents)
    several = len(exponents) > 1
    what = "integer * SCALES[i] + OFFSETS[i], i along AXIS" if several else "integer * SCALE + OFFSET"
    yield f"\n/* {_comment(name)}: {tensor.dtype} [{shape}], real value = {what} */"
    yield f"#define MODEL_{macro}_BYTES {tensor.nbytes}"
    if several:
        yield f"#define MODEL_{macro}_AXIS {tensor.float_axis}"
        yield f"#define MODEL_{macro}_EXPONENTS {{{', '.join(map(str, exponents))}}}"
        scales = ", ".join(f"{2.0**exponent!r}f" for exponent in exponents)
        yield f"#define MODEL_{macro}_SCALES {{{scales}}} /* 2^EXPONENTS */"
        yield f"#define MODEL_{macro}_OFFSETS {{{', '.join(f'{offset!r}f' for offset in offsets)}}}"
    else:
        yield f"#define MODEL_{macro}_EXPONENT ({exponents[0]})"
        yield f"#define MODEL_{macro}_SCALE {2.0 ** exponents[0]!r}f /* 2^EXPONENT */"
        yield f"#define MODEL_{macro}_OFFSET {offsets[0]!r}f"
    yield f"#define MODEL_{macro}_MIN ({tensor.clip_min})"
    yield f"#define MODEL_{macro}_MAX ({tensor.clip_max})"


def _comment(text: str) -> str:
    """Text that can stand in a C comment, on its line: no backslash continues it."""
    plain = _plain(text).replace("\\", "?").replace("*/", "* /").replace("/*", "/ *")
    return plain.replace("??/", "? ?/")  # a backslash, too, where a compiler reads trigraphs


def _plain(text: str) -> str:
    """Text of a model on one line: printable ASCII, of a length that a line may have."""
    return "".join(c if c.isprintable() and c.isascii() else "?" for c in text[:NAME_MAX])


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is: no HTML, link or emphasis."""
    return re.sub(r"([^\w .:,-]|_)", r"\\\1", _plain(text).strip(), flags=re.ASCII)


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


def _readme(data: bytes | None, model: Model | None) -> str:
    facts, kinds = "", list(OP_TABLES)
    if data is not None and model is not None:
        kinds = _kinds(model)
        arenas = "\n".join(f"| on {target} | {needs(data, target).arena} |" for target in MICROCONTROLLERS)
        facts = f"""| | bytes |
|---|---|
| model: constant, may stay in flash | {model.file_bytes} |
| arena: RAM, of which activations {model.arena_bytes} | at most {most(data)} |
{arenas}

`src/model_data.h` says what goes in and comes out, `example/main.c` shows how.
"""
    title = "The nmp interpreter" if model is None else _markdown(model.name) or "A model"
    return _filled("README.md", TITLE=title, FACTS=facts, OPS=", ".join(kinds))
