"""nmpconv export: a .nmp file in a form that other tools open."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from nmpconv.cli import options, show

NAME = "export"


class Form(str, Enum):
    ONNX = "onnx"


def command(
    model: options.ModelFile,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The file to write; default: the model's name with .qdq.onnx here; - is stdout."
        ),
    ] = None,
    to: Annotated[Form, typer.Option(help="onnx: QuantizeLinear and DequantizeLinear around float operators.")] = (
        Form.ONNX
    ),
    json: options.Json = False,
) -> None:
    """Write the model as ONNX with quantized tensors, for onnxruntime and other tools.

    Inputs and outputs are those of the model that was converted. At 8 bits onnxruntime computes the same integers but
    for a few that are off by one. At 16 bits float32 is too narrow for that.

    \b
    Examples:
      nmpconv export model.nmp
      nmpconv export model.nmp -o model.qdq.onnx --to onnx
    """
    path = output or Path(f"{options.stem(model)}.qdq.onnx")
    options.check_output(path, model, json=json)

    import nmpconv  # not loaded for --help

    data = nmpconv.export(options.given(model), to=to.value)
    options.write(path, data)
    if json:
        show.as_json({"model": str(model), "output": str(path), "to": to.value, "bytes": len(data)})
    elif path != options.STREAM:
        show.line(f"{path}, {show.size(len(data))}")
