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
from pathlib import Path

from nmpconv import __version__
from nmpconv._schema import OP_TABLES
from nmpconv.errors import NmpError
from nmpconv.memory import scratch_bound
from nmpconv.reader import Model, Port, read

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
    kinds = list(OP_TABLES) if model is None else sorted({op.kind for op in model.ops})
    files = {f"src/{path}": text for path, text in _interpreter(kinds, whole=model is None)}
    if data is not None and model is not None:
        files["src/model_data.h"] = _header(model, arena_bytes)
        files["src/model_data.c"] = _array(data)
        files["example/main.c"] = _example(model)
    for name in ("CMakeLists.txt", "library.properties", "library.json"):
        files[name] = _filled(name, VERSION=__version__)
    files["README.md"] = _readme(model, kinds, arena_bytes)
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


def _interpreter(kinds: Sequence[str], *, whole: bool) -> Iterator[tuple[str, str]]:
    """The core, the public header among the others; of the ops only these. whole: with the kernels of PCs, too."""
    root = _sources()
    yield "nmp.h", (root / "include/nmp.h").read_text()
    for path in sorted([*root.glob("src/*.[ch]"), *root.glob("src/gen/*.[ch]")]):
        if not whole and ON_PCS.match(path.name):
            continue
        text = path.read_text()
        if not whole and path.name == "build.h":
            text = _choices(kinds) + text
        yield str(path.relative_to(root / "src")), text
    yield from _ops(root / "src/ops", kinds)


def _choices(kinds: Sequence[str]) -> str:
    """What stands before the defaults of build.h."""
    ops = " ".join(f"X({kind}, {kind.upper()})" for kind in kinds)
    return f"#define NMP_FIXED_CPU 1\n#define NMP_NO_RVV 1\n#define NMP_KEEP_OPS 0\n#define NMP_BUILD_OPS(X) {ops}\n"


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


def _readme(model: Model | None, kinds: Sequence[str], arena_bytes: int) -> str:
    facts = ""
    if model is not None:
        facts = f"""| | bytes |
|---|---|
| model: constant, may stay in flash | {model.file_bytes} |
| arena: RAM | {arena_bytes}, of which activations {model.arena_bytes} |

`src/model_data.h` says what goes in and comes out, `example/main.c` shows how.
"""
    title = "The nmp interpreter" if model is None else model.name or "A model"
    return _filled("README.md", TITLE=title, FACTS=facts, OPS=", ".join(kinds))
