"""nmpconv bundle: a model as C sources for a firmware project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmpconv.cli import console, shared_flags

NAME = "bundle"


def command(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="A new or empty folder.")],
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL.nmp]", help="The converted model; - is stdin.")
    ] = None,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="In the header, scale, offset and range of all activations, too.")
    ] = False,
    json: shared_flags.Json = False,
) -> None:
    """Write C sources for a firmware project.

    A folder with the interpreter, the model as a C array, a header, an example and CMakeLists.txt.
    Without a model: the interpreter alone, with all ops, as a CMake, Arduino and PlatformIO library.

    \b
    Examples:
      nmpconv bundle model.nmp -o firmware/model
      cmake -S firmware/model -B build && cmake --build build && build/example
    """
    import nmpconv  # not loaded for --help

    sizes = {"model_bytes": 0, "arena_bytes": 0}
    source = None if model is None else shared_flags.given(model)
    files = nmpconv.bundle(source, output=output, tensors=tensors)
    if source is not None:
        from nmpconv.runtime.targets import most

        data = shared_flags.content(source)
        sizes = {"model_bytes": len(data), "arena_bytes": most(data)}
    if json:
        console.as_json({"folder": str(output), "files": sorted(files), **sizes})
        return
    console.facts(
        [
            ("folder", f"{output}, {len(files)} files"),
            ("model", console.size(sizes["model_bytes"]) if model else ""),
            ("arena", f"at most {console.size(sizes['arena_bytes'])}" if model else ""),
        ]
    )
