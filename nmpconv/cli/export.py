"""nmpconv export: a .nmp file in a form that other tools open."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from nmpconv.cli import console, shared_flags

NAME = "export"


class Form(str, Enum):
    ONNX = "onnx"


def command(
    model: shared_flags.ModelFile,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The file to write; default: the model's name with .qdq.onnx here; - is stdout."
        ),
    ] = None,
    to: Annotated[Form, typer.Option(help="onnx: QuantizeLinear and DequantizeLinear around float operators.")] = (
        Form.ONNX
    ),
    json: shared_flags.Json = False,
) -> None:
    """Write the model as quantized (QDQ) ONNX.

    Inputs and outputs are those of the model that was converted. At 8 bits onnxruntime computes the same integers but
    for a few that are off by one. At 16 bits float32 is too narrow for that.

    \b
    Examples:
      nmpconv export model.nmp
      nmpconv export model.nmp -o model.qdq.onnx --to onnx
    """
    path = output or Path(f"{shared_flags.stem(model)}.qdq.onnx")
    shared_flags.check_output(path, model, json=json)

    import nmpconv  # not loaded for --help

    data = nmpconv.export(shared_flags.file_or_stdin(model), to=to.value)
    shared_flags.write(path, data)
    if json:
        console.as_json({"model": str(model), "output": str(path), "to": to.value, "bytes": len(data)})
    elif path != shared_flags.STREAM:
        console.line(f"{path}, {console.size(len(data))}")
