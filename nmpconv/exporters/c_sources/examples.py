"""Examples of a bundle: run a test vector, hand in a buffer, measure. In C for any system, and as Arduino sketches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from nmpconv.exporters.c_sources.bundled_model import BundledModel, comment, literal
from nmpconv.exporters.c_sources.data_header import rows
from nmpconv.exporters.c_sources.template_files import filled
from nmpconv.file.reader import FilePort

EXAMPLES = {
    "test_vector": "runs the test vector of each model and compares the outputs",
    "buffer": "hands in an image, sound or numbers from a buffer and reads the result",
    "measure": "says how long a run takes",
}

FRAME_SIZE = "#define FRAME_WIDTH 160 /* of the camera */\n#define FRAME_HEIGHT 120\n\n"


def program(name: str, models: Sequence[BundledModel]) -> str:
    """An example as a program in C; ESP-IDF and Zephyr call it, too."""
    return filled(f"{name}.c", **_parts(name, models))


def sketch(name: str, models: Sequence[BundledModel]) -> str:
    """An example as an Arduino sketch."""
    return filled(f"{name}.ino", **_parts(name, models))


def _parts(name: str, models: Sequence[BundledModel]) -> dict[str, str]:
    parts = {
        "INCLUDES": "\n".join(f'#include "{one.name}_data.h"' for one in models),
        "ARENA": _arena(models),
        **_creation(models),
        "MODELS": "\n".join(f'    {{"{one.name}", {one.name}_data, {one.macro}_BYTES}},' for one in models),
    }
    if name == "test_vector":
        parts["VECTORS"] = "".join(map(_vectors, models))
        parts["MODELS"] = "\n".join(map(_row, models))
    if name == "buffer":
        parts["BUFFERS"] = "\n".join(line for one in models for line in _buffers(one))
        parts["RUNS"] = "\n".join(f"  run_{one.name}();" for one in models)
        pictures, sounds = any(one.pictures for one in models), any(one.sounds for one in models)
        parts["INCLUDES"] += '\n#include "nmp_image.h"' * pictures + '\n#include "nmp_sound.h"' * sounds
        numbers = any(i not in one.pictures and i not in one.sounds for one in models for i, _ in _fed(one))
        helpers = [("frame_functions.c", pictures), ("number_functions.c", numbers), ("buffer_functions.c", True)]
        parts["HELPERS"] = "\n".join(filled(file) for file, is_needed in helpers if is_needed)
        parts["BUFFERS"] = FRAME_SIZE * pictures + parts["BUFFERS"]
        parts["FUNCTIONS"] = "\n".join(_run(one, _creation(models)) for one in models)
    return parts


def _creation(models: Sequence[BundledModel]) -> dict[str, str]:
    """The creation of a net, in one memory or in two."""
    if any(one.model.fast_bytes for one in models):
        return {"SPLIT": "_split", "FAST": "&fast, sizeof(fast), ", "RAM": "(sizeof(fast) + sizeof(arena))"}
    return {"SPLIT": "", "FAST": "", "RAM": "sizeof(arena)"}


def _arena(models: Sequence[BundledModel]) -> str:
    """Memory for one model at a time: a fast one, too, where one of them has two."""
    split = [one for one in models if one.model.fast_bytes]
    if not split:
        return _buffer("arena", models, [""] * len(models), "")
    fast = _buffer("fast", split, ["FAST_"] * len(split), f"{split[0].macro}_FAST_MEMORY ")
    slow = ["SLOW_" if one in split else "" for one in models]
    return fast + "\n" + _buffer("arena", models, slow, f"{split[0].macro}_SLOW_MEMORY ")


def _buffer(name: str, models: Sequence[BundledModel], kinds: Sequence[str], where: str) -> str:
    """One for models that take turns. kinds: which of their sizes. where: macro with a place in memory."""
    [first, *others] = models
    start = f"static {where}{first.macro}_ALIGNED"
    if not others:
        return f"{start} unsigned char {name}[{first.macro}_{kinds[0]}ARENA_BYTES];"
    pairs = zip(models, kinds, strict=True)
    members = " ".join(f"unsigned char {one.name}_arena[{one.macro}_{kind}ARENA_BYTES];" for one, kind in pairs)
    return f"{start} union {{ {members} }} {name}; /* of one model at a time */"


def _vectors(one: BundledModel) -> str:
    text = ""
    for inputs, outputs in one.model.test_vectors[:1]:
        for role, blobs in (("input", inputs), ("output", outputs)):
            for i, blob in enumerate(blobs):
                text += f"static const unsigned char {one.name}_{role}_{i}[] = {{\n{rows(blob)}\n}};\n"
            names = ", ".join(f"{one.name}_{role}_{i}" for i in range(len(blobs)))
            text += f"static const unsigned char *const {one.name}_{role}s[] = {{{names}}};\n\n"
    return text


def _row(one: BundledModel) -> str:
    vectors = f"{one.name}_inputs, {one.name}_outputs" if one.model.test_vectors else "NULL, NULL"
    return f'    {{"{one.name}", {one.name}_data, {one.macro}_BYTES, {vectors}}},'


def _fed(one: BundledModel) -> Iterator[tuple[int, FilePort]]:
    """Inputs that a program writes: no states."""
    return ((i, port) for i, port in enumerate(one.model.inputs) if port.state is None)


def _buffers(one: BundledModel) -> Iterator[str]:
    for i, port in _fed(one):
        tensor = one.model.tensors[port.tensor]
        shape = " x ".join(map(str, tensor.shape))
        count = f"{one.macro}_INPUT_{i}_BYTES" + ("" if tensor.dtype == "int8" else " / 2")
        if i in one.pictures:
            yield f"/* {comment(port.name)}: a camera's frame, of which the middle becomes [{shape}]. */"
            yield f"static uint8_t {one.name}_frame_{i}[2 * FRAME_WIDTH * FRAME_HEIGHT];"
        elif i in one.sounds:
            yield f"/* {comment(port.name)}: a second of a microphone's samples, frames of which become [{shape}]. */"
            yield f"static int16_t {one.name}_pcm_{i}[{one.macro}_INPUT_{i}_RATE];"
            names = ", ".join(map(literal, one.model.labels))
            yield f"static const char *const {one.name}_names[] = {{{names}}};" if names else ""
        else:
            yield f"/* {comment(port.name)}: numbers of the float model, [{shape}]: features of sound, measurements. */"
            yield f"static float {one.name}_buffer_{i}[{count}];"


def _run(one: BundledModel, creation: dict[str, str]) -> str:
    """A function that runs one model on its buffers."""
    for i, front in one.sounds.items():
        tensor = one.model.tensors[one.model.inputs[i].tensor]
        frames = prod(tensor.shape) // front.bands
        has_states = any(port.state is not None for port in one.model.inputs)
        said = f"{one.name}_names[best]" if one.model.labels else f'"{one.name}"'
        steps = frames if has_states else max(frames // 4, 1)
        return filled("sound_run.c", NAME=one.name, MACRO=one.macro, INPUT=i, STEPS=steps, SAID=said)
    fills = []
    for i, _ in _fed(one):
        fills.append(f"  nmp_input(net, {i}, &view);")
        if i in one.pictures:
            fills.append(f"  const nmp_image_input to_{i} = {one.macro}_INPUT_{i}_IMAGE;")
            fills.append(f"  fill_from_frame(&view, {one.name}_frame_{i}, &to_{i});")
        else:
            grid = f"{one.macro}_INPUT_{i}_SCALE, {one.macro}_INPUT_{i}_OFFSET"
            fills.append(f"  fill_from_numbers(&view, {one.name}_buffer_{i}, {grid});")
    return filled("buffer_run.c", NAME=one.name, MACRO=one.macro, FILLS="\n".join(fills), **creation)
