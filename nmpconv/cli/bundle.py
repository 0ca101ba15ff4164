"""nmpconv bundle: models as C sources for a firmware project."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from nmpconv.cli import console, shared_flags

NAME = "bundle"


class LayoutChoice(str, Enum):
    PLAIN = "plain"
    CMAKE = "cmake"
    ARDUINO = "arduino"
    PLATFORMIO = "platformio"
    ZEPHYR = "zephyr"
    IDF = "idf"
    CMSIS_PACK = "cmsis-pack"


def command(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="A new or empty folder.")],
    models: Annotated[
        list[Path] | None, typer.Argument(metavar="[MODEL.nmp]...", help="Converted models; - is stdin.")
    ] = None,
    as_: Annotated[
        LayoutChoice | None,
        typer.Option(
            "--as", help="A package of one build system. [default: cmake, arduino and platformio]", show_default=False
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Names in C: NAME_data, NAME_BYTES. [default: the file's]", show_default=False
        ),
    ] = None,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="In headers, scale, offset and range of all activations, too.")
    ] = False,
    json: shared_flags.Json = False,
) -> None:
    """Write C sources with models as a package for firmware.

    A folder with the interpreter, models as C arrays, headers, examples and what the build system of --as wants.
    Several models share one interpreter. Without a model: the interpreter alone, with all ops.

    \b
    Examples:
      nmpconv bundle kws.nmp -o firmware/kws
      cmake -S firmware/kws -B build && cmake --build build && build/test_vector
      nmpconv bundle kws.nmp vww.nmp --as zephyr -o modules/models
    """
    import nmpconv  # not loaded for --help
    from nmpconv.runtime.shared_arena import shared_arena
    from nmpconv.runtime.targets import most

    sources = [shared_flags.file_or_stdin(model) for model in models or ()]
    files = nmpconv.bundle(sources, output=output, as_=shared_flags.value(as_), name=name, tensors=tensors)
    contents = [shared_flags.content(source) for source in sources]
    arenas = [most(data) for data in contents]
    total, arena = sum(map(len, contents)), shared_arena(arenas)
    if json:
        sizes = [
            {"file": str(model), "model_bytes": len(data), "arena_bytes": bytes_}
            for model, data, bytes_ in zip(models or (), contents, arenas, strict=True)
        ]
        figures = {"model_bytes": total, "arena_bytes": arena, "models": sizes}
        console.as_json({"folder": str(output), "files": sorted(files), **figures})
        return
    several = f", {len(contents)} models" if len(contents) > 1 else ""
    console.facts(
        [
            ("folder", f"{output}, {len(files)} files"),
            ("model", f"{console.size(total)}{several}" if contents else ""),
            ("arena", f"at most {console.size(arena)}{', one after the other' * bool(several)}" if contents else ""),
        ]
    )
