"""The interpreter's files in a bundle: those that its models need, with choices and names of the bundle's own."""

from __future__ import annotations

import os.path
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from zlib import crc32

from nmpconv.base.files import interpreter
from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.exporters.c_sources.bundled_model import BundledModel, knows_two_memories
from nmpconv.exporters.c_sources.template_files import filled
from nmpconv.file.reader import FileOp, FileTensor, Model
from nmpconv.ops import layer_inputs
from nmpconv.ops.conv2d import is_depthwise
from nmpconv.ops.custom_op import c_source
from nmpconv.runtime.targets import needs_portable

# Folders of src/ that a bundle of models leaves out: levels that no microcontroller has, and what serves them alone.
ON_PCS = ("arch/x86", "arch/aarch64", "arch/rvv", "arch/wasm", "conv/gemm", "conv/depthwise", "core/fuse")
OPS = "ops"  # one op a file
CONVOLUTIONS = ("conv2d", "conv_add")
PRODUCTS = (*CONVOLUTIONS, "fully_connected", "batch_matmul")  # ops that are an `nmp_conv` to kernels
CUSTOM = "custom"  # an op's name, and the folder of users' files
IMAGE, SOUND = "image/", ("sound/", "core/sounds.c")  # for models that take pictures, or sound
PUBLIC = ("nmp.h", "nmp.hpp", "nmp_custom.h")  # headers that programs include
FRAMES, FRONT_END = "nmp_image.h", "nmp_sound.h"  # and those that programs with a camera or a microphone include
AGENT = ("agent.c", "agent.h", "frame.c", "frame.h")  # of the firmware: a program that nmpconv sends models to
NAMES = "nmp_names.h"
SINGLE = 0.01  # of a model's MACs that pixels alone have, from which on they are worth 0.9 kB of code
LINES = 1024  # elements of a softmax from which on its lines are worth half a kilobyte of code
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
IDENTIFIER = re.compile(r"\b(?:nmp|fb|agent|frame)_[a-z]\w*")
TYPE = re.compile(
    r"\b(?:struct|enum|union) (\w+)|^\} ?(\w+);|\btypedef [\w *]+ \*?(\w+);|\btypedef [\w *]+\(?\*?(\w+)\)?\(", re.M
)


def interpreter_files(models: Sequence[BundledModel], package: str) -> Iterator[tuple[str, str]]:
    """Paths in src/ and their text; with models, no more than these need on a microcontroller.

    Includes are relative to the file, so that no other bundle's file of the same name is found. package: see `_names`.
    """
    root = interpreter()
    src = root / "src"
    every = sorted(p.relative_to(src).as_posix() for p in src.rglob("*") if p.suffix in (".c", ".h", ".inc"))
    chosen = _needed(src, every, kinds(models)) if models else every
    pictures = not models or any(model.pictures for model in models)
    sounds = not models or any(model.sounds for model in models)
    chosen = [path for path in chosen if pictures or not path.startswith(IMAGE)]
    chosen = [path for path in chosen if sounds or not path.startswith(SOUND)]
    public = (*PUBLIC, *[FRAMES] * pictures, *[FRONT_END] * sounds)
    texts = {name: (root / "include" / name).read_text(encoding="utf-8") for name in public}
    texts |= {path: (src / path).read_text(encoding="utf-8") for path in chosen}
    texts |= {f"agent/{name}": (root / "firmware" / name).read_text(encoding="utf-8") for name in AGENT}
    rows = custom_rows(models)
    texts |= {f"{CUSTOM}/{row}.c": text for row, text in rows.items()}
    if models:
        texts["base/build.h"] = _choices(models) + texts["base/build.h"]
    names = _names(texts.values(), models, package) if models else None
    for path, text in texts.items():
        is_first = path.endswith(".c") or path in ("nmp.h", "agent/agent.h")
        before = f'#include "{_relative(NAMES, path)}"\n' if names and is_first else ""
        notice = "" if path.startswith(f"{CUSTOM}/") else SPDX  # whose licence that is, its author says
        yield path, notice + before + _with_relative_includes(text, path, texts)
    if names:
        yield NAMES, SPDX + names


def kinds(models: Sequence[BundledModel]) -> list[str]:
    """Ops of the models, sorted."""
    return sorted({op.kind for bundled in models for op in bundled.model.ops})


def custom_rows(models: Sequence[BundledModel]) -> dict[str, str]:
    """C files of the models' custom ops by the names of their rows. Raises InputError for one that has none."""
    names = {op.params["op"]: None for bundled in models for op in bundled.model.ops if op.kind == CUSTOM}
    return dict(c_source(name) for name in sorted(names))


def identity(models: Sequence[BundledModel], package: str) -> int:
    """A number that tells bundles apart: of their names and files."""
    checksum = crc32(package.encode())
    for model in models:
        checksum = crc32(model.data, crc32(model.name.encode(), checksum))
    return checksum


def _with_relative_includes(text: str, path: str, there: Collection[str]) -> str:
    """there: files of the bundle; others, of the C library, are included as they were."""
    return INCLUDE.sub(lambda match: f'#include "{_relative(match[1], path)}"' if match[1] in there else match[0], text)


def _relative(target: str, path: str) -> str:
    return os.path.relpath(target, os.path.dirname(path) or ".").replace(os.sep, "/")


def _names(texts: Iterable[str], models: Sequence[BundledModel], package: str) -> str:
    """nmp_names.h: functions and tables of the interpreter are called PACKAGE_nmp_... in the program.

    Types keep their names. Identifiers without linkage are among them, which does no harm.
    """
    text = "\n".join(texts)
    types = {name for groups in TYPE.findall(text) for name in groups if name}
    renamed = sorted((set(IDENTIFIER.findall(text)) | set(custom_rows(models))) - types)
    return filled(
        NAMES,
        PACKAGE=package,
        IDENTITY=f"0x{identity(models, package):08x}",
        NAMES="\n".join(f"#define {name} {package}_{name}" for name in renamed),
    )


def _choices(models: Sequence[BundledModel]) -> str:
    """build.h of models: what stands before the defaults."""
    each = [bundled.model for bundled in models]
    ops = [(op, model) for model in each for op in model.ops]
    weights = [model.tensors[i] for op, model in ops for i in layer_inputs(op.kind, op.inputs)[1:2]]
    pairs = [[model.tensors[i] for i in op.inputs] for op, model in ops if op.kind == "batch_matmul"]
    products = [b for _, b in pairs]  # weights to a kernel
    hard = any(x.dtype == "int16" for pair in pairs for x in pair)
    softmaxes = [(op, model) for op, model in ops if op.kind == "softmax"]
    convolutions = [(op, model) for op, model in ops if op.kind in CONVOLUTIONS]
    depthwise = [(op, model) for op, model in convolutions if _is_depthwise(op, model)]
    types = [dtype for model in each for dtype in _activation_types(model)]
    choices = {
        "NMP_FIXED_CPU": True,
        "NMP_NO_RVV": True,
        "NMP_FAULT_DETAILS": False,
        "NMP_ACTIVATION_BITS": _only_bits(types),
        "NMP_WEIGHT_BITS": _only_bits([w.dtype for w in (*weights, *products)]),
        "NMP_CONV_K_MAX": max((*(prod(w.shape[1:]) for w in weights), *(b.shape[-1] for b in products)), default=1),
        "NMP_CONV_DEPTHWISE": bool(depthwise),
        "NMP_CONV_TAPS": any(not _has_three_rows(op, model) for op, model in depthwise),
        "NMP_SOFTMAX_LINES": any(prod(m.tensors[op.inputs[0]].shape) >= LINES for op, m in softmaxes),
        "NMP_CONV_WINDOWS": any(not _is_product(op, model) for op, model in convolutions),
        "NMP_CONV_HARD": hard or any(needs_portable(bundled.data, "cortex-m55") for bundled in models),
        "NMP_CONV_OVERLAP": any(_overlap(*_ends(op, m)) for op, m in convolutions if op.kind == "conv2d"),
        "NMP_CONV_RANGES": any(_has_range(op, m) for op, m in ops),
        "NMP_CONV_ADD": any(op.kind == "conv_add" for op, _ in ops),
        "NMP_CONV_SINGLE": any(_single_macs(model) > SINGLE * sum(op.macs for op in model.ops) for model in each),
        "NMP_TWO_MEMORIES": knows_two_memories(models),
        "NMP_CUSTOM": any(op.kind == CUSTOM for op, _ in ops),
        "NMP_BUILD_CUSTOM(X)": " ".join(f"X({row})" for row in custom_rows(models)),
        "NMP_SOUND": any(bundled.sounds for bundled in models),
        "NMP_STATES": any(port.state is not None for model in each for port in model.inputs),
        "NMP_BUILD_OPS(X)": " ".join(f"X({kind}, {kind.upper()})" for kind in kinds(models)),
    }
    values = {name: int(value) if isinstance(value, bool) else value for name, value in choices.items()}
    lines = "".join(f"#define {name} {value}\n" for name, value in values.items() if value != "")
    subject = "one model" if len(models) == 1 else f"{len(models)} models"
    return f"/* Written by nmpconv bundle for {subject}; the defaults are below. */\n{lines}\n"


def _single_macs(model: Model) -> float:
    """MACs of products of one pixel alone: of a fully connected layer all; of others, where an M4 takes three pixels at
    a time, a last one."""
    rows = [(op.macs, prod(model.tensors[op.outputs[0]].shape[:-1])) for op in model.ops if op.kind in PRODUCTS]
    return sum(macs / pixels for macs, pixels in rows if pixels % 3 == 1)


def _activation_types(model: Model) -> list[str]:
    """Types of a model's tensors but for weights and biases."""
    parameters = {i for op in model.ops for i in layer_inputs(op.kind, op.inputs)[1:3]}
    return [t.dtype for i, t in enumerate(model.tensors) if i not in parameters and t.dtype != "int32"]


def _has_range(op: FileOp, model: Model) -> bool:
    """Checks that products are clipped to another int8 range than all of it and, but for sums, its positive half."""
    y = model.tensors[op.outputs[0]]
    adds = 0 < len(layer_inputs(op.kind, op.inputs)) < len(op.inputs)
    is_usual = y.clip_max == INT_MAX[8] and (y.clip_min == INT_MIN[8] or (y.clip_min == 0 and not adds))
    return op.macs > 0 and y.dtype == "int8" and not is_usual


def _is_depthwise(op: FileOp, model: Model) -> bool:
    """A depthwise convolution with one result a channel: `nmp_conv_is_depthwise`."""
    x, y = _ends(op, model)
    return is_depthwise(op.params["groups"], x.shape, y.shape)


def _has_three_rows(op: FileOp, model: Model) -> bool:
    """A kernel whose depthwise convolution has a way of its own on Cortex-M4: `nmp_dsp_is_three_rows`."""
    channels, rows, columns, _ = model.tensors[layer_inputs(op.kind, op.inputs)[1]].shape
    is_strip = channels >= 4 and rows == 3 and columns <= 8
    return is_strip and op.params["stride_w"] < 8 and op.params["dilation_w"] == 1


def _ends(op: FileOp, model: Model) -> tuple[FileTensor, FileTensor]:
    """Input and output of a convolution, or of another product."""
    return model.tensors[(layer_inputs(op.kind, op.inputs) or op.inputs)[0]], model.tensors[op.outputs[0]]


def _overlap(a: FileTensor, b: FileTensor) -> bool:
    """Checks that two activations share bytes of the arena."""
    start, other = a.offset or 0, b.offset or 0
    return start < other + b.nbytes and other < start + a.nbytes


def _only_bits(dtypes: Sequence[str]) -> int:
    """8 or 16 where all are of that width, else 0."""
    return {frozenset({"int8"}): 8, frozenset({"int16"}): 16}.get(frozenset(dtypes), 0)


def _is_product(op: FileOp, model: Model) -> bool:
    """The pixels of the input are the rows of a matrix product as they are."""
    p, w = op.params, model.tensors[layer_inputs(op.kind, op.inputs)[1]]
    padding = p["pad_top"] + p["pad_bottom"] + p["pad_left"] + p["pad_right"]
    return bool(w.shape[1:3] == (1, 1) and p["groups"] == p["stride_h"] == p["stride_w"] == 1 and padding == 0)


def _needed(src: Path, every: Sequence[str], ops: Sequence[str]) -> list[str]:
    """Selects the files of a microcontroller with these ops: sources but for the folders of PCs and other ops, what
    they include, and the sources of those headers."""
    there = {path for path in every if not path.startswith(tuple(f"{folder}/" for folder in ON_PCS))}
    waiting = [path for path in there if path.endswith(".c") and not path.startswith(f"{OPS}/")]
    waiting += [f"{OPS}/{kind}.c" for kind in ops]
    done: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in there and path not in done:
            done.add(path)
            for included in INCLUDE.findall((src / path).read_text(encoding="utf-8")):
                waiting += [included, included.removesuffix(".h") + ".c"]
    return sorted(done)
