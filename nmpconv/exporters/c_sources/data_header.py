"""The header and the array of a model: sizes, shapes and exponents as macros, the file's bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from nmpconv.exporters.c_sources.bundled_model import BundledModel, comment
from nmpconv.exporters.c_sources.template_files import filled
from nmpconv.file.reader import FilePort, FileTensor, Model

COLUMNS = 20  # bytes of a line of an array
SPLIT_HANDLE = 16  # bytes by which a net is larger in builds that know two memories
OLD_NAME = "model"  # what every model was called in C before bundles had names


def data_files(bundled: BundledModel, tensors: bool, *, split: bool) -> dict[str, str]:
    """Files of src/. tensors: all activations are in the header, too. split: the build knows two memories."""
    ports = [*_ports("INPUT", bundled.model.inputs, bundled), *_ports("OUTPUT", bundled.model.outputs, bundled)]
    for i, tensor in enumerate(bundled.model.tensors if tensors else ()):
        if tensor.data is None:  # constants have many exponents: nmp_tensor_at tells them
            ports += [*_grid(bundled, f"TENSOR_{i}", tensor.name, tensor)]
    header = filled(
        "data.h",
        TITLE=comment(bundled.model.name),
        NAME=bundled.name,
        MACRO=bundled.macro,
        BYTES=len(bundled.data),
        ARENA=bundled.turn.arena + handle_growth(bundled, split=split),
        MEMORIES=memories(bundled),
        STACK=bundled.turn.stack,
        SUSPENDED=bundled.turn.suspended,
        PORTS="\n".join(ports),
        VECTORS=int(bool(bundled.model.test_vectors)),
    )
    array = filled("data.c", NAME=bundled.name, MACRO=bundled.macro, ROWS=rows(bundled.data))
    return {f"{bundled.name}_data.h": header, f"{bundled.name}_data.c": array}


def handle_growth(bundled: BundledModel, *, split: bool) -> int:
    """Bytes by which the net of a model with one memory is larger where the build knows two."""
    return SPLIT_HANDLE if split and not bundled.model.fast_bytes else 0


def memories(bundled: BundledModel) -> str:
    """Macros of a model with two memories."""
    fast = bundled.model.fast_bytes
    return filled("memories.h", MACRO=bundled.macro, FAST=fast, SLOW=bundled.turn.arena - fast) if fast else ""


def old_header(bundled: BundledModel, header: str) -> str:
    """model_data.h: the macros of `header`, under the names that they had in every bundle before 0.2.0."""
    macros = [line.split()[1] for line in header.splitlines() if line.startswith(f"#define {bundled.macro}_")]
    inner = [name.removeprefix(f"{bundled.macro}_") for name in macros if not name.endswith("_DATA_H")]
    lines = (f"#define {OLD_NAME.upper()}_{name} {bundled.macro}_{name}" for name in dict.fromkeys(inner))
    return filled("model_data.h", NAME=bundled.name, NAMES="\n".join(lines))


def rows(data: bytes) -> str:
    """Bytes as the lines of an array."""
    lines = (data[i : i + COLUMNS] for i in range(0, len(data), COLUMNS))
    return "\n".join("    " + " ".join(f"{byte}," for byte in line) for line in lines)


def _ports(role: str, ports: Sequence[FilePort], bundled: BundledModel) -> Iterator[str]:
    model: Model = bundled.model
    for i, port in enumerate(ports):
        yield from _grid(bundled, f"{role}_{i}", port.name, model.tensors[port.tensor])
        if role == "INPUT" and (to := bundled.pictures.get(i)) is not None:
            sizes = f"{to.width}, {to.height}, {to.channels}, {to.bgr:d}, {to.bits}, {to.shift}"
            factor, bias = (", ".join(map(str, numbers)) for numbers in (to.factor, to.bias))
            ends = f"{to.clip_min}, {to.clip_max}"
            yield f"#define {bundled.macro}_{role}_{i}_IMAGE {{{sizes}, {ends}, {{{factor}}}, {{{bias}}}}}"
        if role == "INPUT" and (front := bundled.sounds.get(i)) is not None:
            macro, tensor = f"#define {bundled.macro}_{role}_{i}", model.tensors[port.tensor]
            yield f"{macro}_RATE {front.rate} /* samples of sound a second: nmp_sound.h */"
            yield f"{macro}_WINDOW {len(front.window)} /* samples of a frame */"
            yield f"{macro}_HOP {front.hop} /* samples from a frame to the next one */"
            yield f"{macro}_BANDS {front.bands} /* numbers of a frame's memory */"
            yield f"{macro}_NUMBERS {front.width} /* of them in a frame of the input */"
            yield f"{macro}_FRAMES {prod(tensor.shape) // front.width}"
            yield f"{macro}_SOUND_BYTES {front.memory} /* of memory for nmp_sound_create */"


def _grid(bundled: BundledModel, part: str, name: str, tensor: FileTensor) -> Iterator[str]:
    shape = " x ".join(map(str, tensor.shape))
    exponents = tensor.float_exponents or tensor.exponents
    offsets = tensor.float_offsets or (tensor.origin,) * len(exponents)
    several, factor = len(exponents) > 1, "mantissas * " if tensor.float_mantissas else ""
    formula = "integer * SCALES[i] + OFFSETS[i], i along AXIS" if several else "integer * SCALE + OFFSET"
    macro = f"#define {bundled.macro}_{part}"
    yield f"\n/* {comment(name)}: {tensor.dtype} [{shape}], real value = {formula} */"
    yield f"{macro}_BYTES {tensor.nbytes}"
    if several:
        yield f"{macro}_AXIS {tensor.float_axis}"
        yield f"{macro}_EXPONENTS {{{', '.join(map(str, exponents))}}}"
        scales = ", ".join(f"{step!r}f" for step in tensor.float_steps)
        yield f"{macro}_SCALES {{{scales}}} /* {factor}2^EXPONENTS */"
        yield f"{macro}_OFFSETS {{{', '.join(f'{offset!r}f' for offset in offsets)}}}"
    else:
        yield f"{macro}_EXPONENT ({exponents[0]})"
        yield f"{macro}_SCALE {tensor.float_steps[0]!r}f /* {factor}2^EXPONENT */"
        yield f"{macro}_OFFSET {offsets[0]!r}f"
    yield f"{macro}_MIN ({tensor.clip_min})"
    yield f"{macro}_MAX ({tensor.clip_max})"
