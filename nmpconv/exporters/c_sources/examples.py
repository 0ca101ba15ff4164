"""Examples of a bundle: run a test vector, hand in a buffer, measure, be a device.

They are in C for any system, and Arduino sketches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from nmpconv.exporters.c_sources.bundled_model import BundledModel, comment, knows_two_memories, literal
from nmpconv.exporters.c_sources.data_header import handle_growth, rows
from nmpconv.exporters.c_sources.template_files import filled
from nmpconv.file.reader import FilePort

DEVICE = "device"
EXAMPLES = {
    "test_vector": "runs the test vector of each model and compares the outputs",
    "buffer": "hands in an image, sound or numbers from a buffer and reads the result",
    "measure": "says how long a run takes",
    DEVICE: "is the device of nmpconv bench --device, which sends it models",
}

FILE_BYTES = ARENA_BYTES = 32768  # RAM of a device, where no model tells

FRAME_SIZE = "#define FRAME_WIDTH 160 /* of the camera */\n#define FRAME_HEIGHT 120\n\n"


def examples(models: Sequence[BundledModel]) -> dict[str, str]:
    """Examples of these models, with what they do; the interpreter alone has the one that models are sent to."""
    return EXAMPLES if models else {DEVICE: EXAMPLES[DEVICE]}


def program(name: str, models: Sequence[BundledModel]) -> str:
    """An example as a program in C; ESP-IDF and Zephyr call it, too."""
    return filled(f"{name}.c", **_parts(name, models)) + filled("example_main.c")


def sketch(name: str, models: Sequence[BundledModel]) -> str:
    """An example as an Arduino sketch."""
    return filled(f"{name}.ino", **_parts(name, models))


def _parts(name: str, models: Sequence[BundledModel]) -> dict[str, str]:
    if name == DEVICE:
        return _device(models)
    parts = {
        "INCLUDES": "\n".join(f'#include "{model.name}_data.h"' for model in models),
        "ARENA": _arena(models),
        **_creation(models),
        "MODELS": "\n".join(f'    {{"{model.name}", {model.name}_data, {model.macro}_BYTES}},' for model in models),
    }
    if name == "test_vector":
        parts["VECTORS"] = "".join(map(_vectors, models))
        parts["MODELS"] = "\n".join(map(_row, models))
    if name == "buffer":
        parts["BUFFERS"] = "\n".join(line for model in models for line in _buffers(model))
        parts["RUNS"] = "\n".join(f"  run_{model.name}();" for model in models)
        pictures, sounds = any(model.pictures for model in models), any(model.sounds for model in models)
        parts["INCLUDES"] += '\n#include "nmp_image.h"' * pictures + '\n#include "nmp_sound.h"' * sounds
        numbers = any(i not in model.pictures and i not in model.sounds for model in models for i, _ in _fed(model))
        helpers = [("frame_functions.c", pictures), ("number_functions.c", numbers), ("buffer_functions.c", True)]
        parts["HELPERS"] = "\n".join(filled(file) for file, is_needed in helpers if is_needed)
        parts["BUFFERS"] = FRAME_SIZE * pictures + parts["BUFFERS"]
        parts["FUNCTIONS"] = "\n".join(_run(model, _creation(models)) for model in models)
    return parts


def _device(models: Sequence[BundledModel]) -> dict[str, str]:
    """RAM for the largest of the models: a file with its inputs and eight bytes an op, and the arena of a run."""
    split = knows_two_memories(models)
    files = [len(m.data) + sum(16 + m.model.tensors[port.tensor].nbytes for _, port in _fed(m)) for m in models]
    file = max((n + 8 * len(m.model.ops) + 128 for n, m in zip(files, models, strict=True)), default=FILE_BYTES)
    arena = max((m.turn.arena + handle_growth(m, split=split) for m in models), default=ARENA_BYTES)
    header = f"{models[0].name}_data.h" if models else "nmp.h"
    return {"HEADER": header, "FILE": str(file), "ARENA": str(arena), "PROCESSOR": filled("processor.h")}


def _creation(models: Sequence[BundledModel]) -> dict[str, str]:
    """The creation of a net, in one memory or in two."""
    if knows_two_memories(models):
        return {"SPLIT": "_split", "FAST": "&fast, sizeof(fast), ", "RAM": "(sizeof(fast) + sizeof(arena))"}
    return {"SPLIT": "", "FAST": "", "RAM": "sizeof(arena)"}


def _arena(models: Sequence[BundledModel]) -> str:
    """Memory for one model at a time: a fast one, too, where one of them has two."""
    split = [model for model in models if model.model.fast_bytes]
    if not split:
        return _buffer("arena", models, [""] * len(models), "")
    fast = _buffer("fast", split, ["FAST_"] * len(split), f"{split[0].macro}_FAST_MEMORY ")
    slow = ["SLOW_" if model in split else "" for model in models]
    return fast + "\n" + _buffer("arena", models, slow, f"{split[0].macro}_SLOW_MEMORY ")


def _buffer(name: str, models: Sequence[BundledModel], kinds: Sequence[str], where: str) -> str:
    """One for models that take turns. kinds: which of their sizes. where: macro with a place in memory."""
    [first, *others] = models
    start = f"static {where}{first.macro}_ALIGNED"
    if not others:
        return f"{start} unsigned char {name}[{first.macro}_{kinds[0]}ARENA_BYTES];"
    pairs = zip(models, kinds, strict=True)
    members = " ".join(f"unsigned char {model.name}_arena[{model.macro}_{kind}ARENA_BYTES];" for model, kind in pairs)
    return f"{start} union {{ {members} }} {name}; /* of one model at a time */"


def _vectors(bundled: BundledModel) -> str:
    text = ""
    for inputs, outputs in bundled.model.test_vectors[:1]:
        for role, blobs in (("input", inputs), ("output", outputs)):
            for i, blob in enumerate(blobs):
                text += f"static const unsigned char {bundled.name}_{role}_{i}[] = {{\n{rows(blob)}\n}};\n"
            names = ", ".join(f"{bundled.name}_{role}_{i}" for i in range(len(blobs)))
            text += f"static const unsigned char *const {bundled.name}_{role}s[] = {{{names}}};\n\n"
    return text


def _row(bundled: BundledModel) -> str:
    vectors = f"{bundled.name}_inputs, {bundled.name}_outputs" if bundled.model.test_vectors else "NULL, NULL"
    return f'    {{"{bundled.name}", {bundled.name}_data, {bundled.macro}_BYTES, {vectors}}},'


def _fed(bundled: BundledModel) -> Iterator[tuple[int, FilePort]]:
    """Inputs that a program writes: no states."""
    return ((i, port) for i, port in enumerate(bundled.model.inputs) if port.state is None)


def _fill(bundled: BundledModel, i: int, port: FilePort) -> Iterator[str]:
    """Writes numbers of the float model into an input, whose units may differ along an axis."""
    tensor = bundled.model.tensors[port.tensor]
    units, axis = len(tensor.float_steps), tensor.float_axis
    step = 1 if axis is None else prod(tensor.shape[axis + 1 :])
    scale, offset = (f"{bundled.macro}_INPUT_{i}_{grid}" for grid in ("SCALE", "OFFSET"))
    scales, offsets = (f"{scale}S", f"{offset}S") if units > 1 else (f"{{{scale}}}", f"{{{offset}}}")
    yield f"  static const float scales_{i}[] = {scales}, offsets_{i}[] = {offsets};"
    yield f"  fill_from_numbers(&view, {bundled.name}_buffer_{i}, scales_{i}, offsets_{i}, {units}, {step});"


def _buffers(bundled: BundledModel) -> Iterator[str]:
    for i, port in _fed(bundled):
        tensor = bundled.model.tensors[port.tensor]
        shape = " x ".join(map(str, tensor.shape))
        count = f"{bundled.macro}_INPUT_{i}_BYTES" + ("" if tensor.dtype == "int8" else " / 2")
        if i in bundled.pictures:
            yield f"/* {comment(port.name)}: a camera's frame, of which the middle becomes [{shape}]. */"
            yield f"static uint8_t {bundled.name}_frame_{i}[2 * FRAME_WIDTH * FRAME_HEIGHT];"
        elif i in bundled.sounds:
            yield f"/* {comment(port.name)}: a second of a microphone's samples, frames of which become [{shape}]. */"
            yield f"static int16_t {bundled.name}_pcm_{i}[{bundled.macro}_INPUT_{i}_RATE];"
            names = ", ".join(map(literal, _labels(bundled)))
            yield f"static const char *const {bundled.name}_names[] = {{{names}}};" if names else ""
        else:
            yield f"/* {comment(port.name)}: numbers of the float model, [{shape}]: features of sound, measurements. */"
            yield f"static float {bundled.name}_buffer_{i}[{count}];"


def _labels(bundled: BundledModel) -> tuple[str, ...]:
    """Names of the first output's elements, where there is one for each: a file may have any."""
    model = bundled.model
    count = prod(model.tensors[model.outputs[0].tensor].shape)
    return tuple(model.labels) if len(model.labels) == count else ()


def _run(bundled: BundledModel, creation: dict[str, str]) -> str:
    """A function that runs one model on its buffers."""
    for i, front in bundled.sounds.items():
        tensor = bundled.model.tensors[bundled.model.inputs[i].tensor]
        frames = prod(tensor.shape) // front.width
        has_states = any(port.state is not None for port in bundled.model.inputs)
        result = f"{bundled.name}_names[best]" if _labels(bundled) else f'"{bundled.name}"'
        steps = frames if has_states else max(frames // 4, 1)
        parts = {"NAME": bundled.name, "MACRO": bundled.macro, "INPUT": i, "STEPS": steps, "RESULT": result}
        return filled("sound_run.c", **parts, **creation)
    fills = []
    for i, port in _fed(bundled):
        fills.append(f"  nmp_input(net, {i}, &view);")
        if i in bundled.pictures:
            fills.append(f"  const nmp_image_input to_{i} = {bundled.macro}_INPUT_{i}_IMAGE;")
            fills.append(f"  fill_from_frame(&view, {bundled.name}_frame_{i}, &to_{i});")
        else:
            fills += _fill(bundled, i, port)
    return filled("buffer_run.c", NAME=bundled.name, MACRO=bundled.macro, FILLS="\n".join(fills), **creation)
