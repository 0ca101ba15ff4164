"""nmpconv.init: a project file to begin with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import onnx

from nmpconv.api.keyword_checks import forgiving
from nmpconv.conversion.recipes import quoted
from nmpconv.data.images import guess_layout
from nmpconv.errors import InputError, refusal
from nmpconv.frontend.read import read

ARITHMETIC = ("Sub", "Add", "Mul", "Div")
MOVES = ("Transpose", "Cast", "Identity")

END = """
[gates]  # one that is missed ends `nmpconv build` with an exit code of its own
min_agreement = 95.0  # %, with the float model's best class
min_sqnr = 15.0       # dB
# min_top1 = 90.0     # %, on [data] test
# max_drop = 0.5      # points of top-1 below the float model

# [targets.board]     # one file for each target, with keywords and gates of its own
# target = "cortex-m4"
# [targets.board.gates]
# max_ram = 65536     # bytes of a run
# max_flash = 524288  # bytes of the file
# max_instructions = 5000000  # of a run, in QEMU
"""


@dataclass(frozen=True)
class _Input:
    """layout: "nchw" or "nhwc" where it can be an image's, else None. normalizes: it is scaled or shifted by constants
    before anything else."""

    name: str
    shape: tuple[int | str, ...]
    layout: str | None
    normalizes: bool


@forgiving()
def init(model: str | PathLike[str], *, folder: str | PathLike[str] | None = None) -> str:
    """The text of a project file for an ONNX model, with comments. It says of the model's inputs what can be guessed:
    which are images, in which layout, and whether the model normalizes pixels itself.

    folder: that the file will lie in; None: the model's own. Raises InputError for what is no ONNX model.

    For example:

        Path("nmpconv.toml").write_text(nmpconv.init("model.onnx"))
    """
    if not isinstance(model, str | PathLike):
        raise refusal(model, "the path of an ONNX file", "model")
    path = Path(model)
    inputs = _inputs(read(path).graph)
    place = path.name if folder is None else Path(os.path.relpath(path, folder)).as_posix()
    if not place.isascii() and place.encode(errors="ignore").decode() != place:
        raise InputError("a name that is not UTF-8, which no project file can have", where=str(path), hint="rename it")
    text = [f"model = {quoted(place)}", 'output = "build"  # of each target NAME.nmp, NAME.html, NAME.json', ""]
    if len(inputs) > 1:
        text += ["[data.calibration]  # about 100 samples of each input, without labels"]
        text += [f"{quoted(model_input.name)} = {quoted(f'{model_input.name}.npy')}" for model_input in inputs]
    else:
        text += ["[data]", 'calibration = "calib/"  # about 100 samples, without labels: a folder, a list, an .npy']
        text += ['# test = "test/labels.csv"  # with labels: what top-1, agreement and SQNR are measured on']
    text += ["", "[convert]  # keywords of nmpconv.convert, for all targets", 'bits = "8"']
    for model_input in inputs:
        text += [
            f"# input {quoted(model_input.name)}: {'x'.join(map(str, model_input.shape))}",
            *_look(model_input),
        ]
    return "\n".join(text) + "\n" + END


def _look(model_input: _Input) -> list[str]:
    """Lines on what the pixels of an image become."""
    if model_input.layout is None:
        return []
    lines = [f'layout = "{model_input.layout}"', '# resize = "squash"  # none, shorter, squash or letterbox']
    if model_input.normalizes:
        return [*lines, "# The model normalizes pixels itself: mean = 0, std = 1."]
    return [
        *lines,
        "# x = (pixel - mean) / std, as in training. Of many models of ImageNet:",
        "# mean = [123.675, 116.28, 103.53]",
        "# std = [58.395, 57.12, 57.375]",
    ]


def _inputs(graph: onnx.GraphProto) -> list[_Input]:
    constants = {tensor.name for tensor in graph.initializer}
    return [_input(value, graph, constants) for value in graph.input if value.name not in constants]


def _input(value: onnx.ValueInfoProto, graph: onnx.GraphProto, constants: set[str]) -> _Input:
    dims = value.type.tensor_type.shape.dim
    shape = tuple(dim.dim_value or dim.dim_param or "?" for dim in dims)
    known = tuple(size if isinstance(size, int) else 0 for size in shape)
    return _Input(value.name, shape, guess_layout(known), _normalizes(value.name, graph, constants))


def _normalizes(name: str, graph: onnx.GraphProto, constants: set[str]) -> bool:
    """Checks that all that reads the input, moves aside, combines it with a constant."""
    constant_names = constants | {node.output[0] for node in graph.node if node.op_type == "Constant"}
    readers = [node for node in graph.node if name in node.input]
    if len(readers) == 1 and readers[0].op_type in MOVES:
        return _normalizes(readers[0].output[0], graph, constants)
    return bool(readers) and all(
        node.op_type in ARITHMETIC and any(other in constant_names for other in node.input) for node in readers
    )
