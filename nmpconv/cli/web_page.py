"""nmpconv page: a model that runs in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmpconv.cli import console, shared_flags

NAME = "page"


def command(
    model: shared_flags.ModelFile,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The file to write; default: the model's name with -page.html here."),
    ] = None,
    decoder: shared_flags.DecoderName = None,
    json: shared_flags.Json = False,
) -> None:
    """Write one HTML page that runs the model.

    Pictures are dropped, chosen or taken by the camera, sounds dropped, chosen or heard by the microphone; classes, a
    mask or boxes, and milliseconds are shown. The page opens without a network or a server. Its outputs are, byte for
    byte, those of a board on the same pixels or frames of sound.

    \b
    Examples:
      nmpconv page model.nmp -o model.html
      nmpconv page detector.nmp --decoder yolox
      nmpconv page words.nmp
    """
    path = output or Path(f"{shared_flags.stem(model)}-page.html")  # MODEL.html is a report
    shared_flags.check_output(path, model, json=json)

    import nmpconv  # not loaded for --help

    text = nmpconv.page(shared_flags.file_or_stdin(model), decoder=shared_flags.value(decoder)).encode()
    shared_flags.write(path, text)
    if json:
        console.as_json({"model": str(model), "output": str(path), "bytes": len(text)})
    elif path != shared_flags.STREAM:
        console.line(f"{path}, {console.size(len(text))}")
