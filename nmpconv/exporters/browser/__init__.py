"""A page that runs a model in a browser: an HTML file with the model, the interpreter as WebAssembly and a script."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nmpconv import __version__
from nmpconv.errors import UsageError
from nmpconv.exporters.browser.wasm_module import runtime, wasm
from nmpconv.file.reader import FilePort, Model

__all__ = ["Detection", "image", "outputs", "page", "runtime", "wasm"]

RANK = 4  # of an image


@dataclass(frozen=True)
class Detection:
    """decoder: by which boxes are read. overlap: above which one is suppressed. score: from which boxes are drawn."""

    decoder: str
    overlap: float
    score: float


def page(name: str, model: Model, content: bytes, detection: Detection | None = None) -> str:
    """The page of a .nmp file with one image input: 1 or 3 channels, preprocessing in the file.

    Raises UsageError for a file with other inputs.
    """
    loader = PackageLoader("nmpconv.exporters.browser", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = "".join(loader.get_source(environment, file)[0] for file in ("detection.mjs", "page.js"))
    # The only "<" of JSON that HTML could take for its own; the project's script has no "</".
    told = json.dumps({**_facts(model, name), "detection": detection and asdict(detection)}).replace("<", "\\u003c")
    return environment.get_template("page.html").render(
        version=__version__,
        name=name,
        style=Markup(loader.get_source(environment, "page.css")[0]),
        script=Markup((runtime() + script).replace("\nexport ", "\n")),
        facts=Markup(told),
        model=base64.b64encode(content).decode(),
        wasm=base64.b64encode(wasm()).decode(),
    )


def _facts(model: Model, name: str) -> dict[str, Any]:
    """Facts that the script needs besides the file: where a picture goes, and what classes are called."""
    port = image(model, name)
    look = port.preprocess
    assert look is not None
    _, height, width, channels = model.tensors[port.tensor].shape
    given = {
        "name": model.tensors[port.tensor].name,
        "height": height,
        "width": width,
        "channels": channels,
        "pixels": port.pixels,
        **asdict(look),
    }
    return {"input": given, "outputs": outputs(model), "labels": model.labels}


def outputs(model: Model) -> dict[str, tuple[int, ...]]:
    """Shapes of the outputs in the ONNX model, whose order the file's elements have."""
    tensors = {model.tensors[port.tensor].name: port for port in model.outputs}
    return {name: port.source_shape or model.tensors[port.tensor].shape for name, port in tensors.items()}


def image(model: Model, name: str) -> FilePort:
    """The only input. name: of the file, for the UsageError."""
    ports = [port for port in model.inputs if port.state is None]
    shape = model.tensors[ports[0].tensor].shape if ports else ()
    if len(ports) != 1 or ports[0].preprocess is None or len(shape) != RANK or shape[3] not in (1, 3):
        found = ", ".join(f"{port.name} {list(model.tensors[port.tensor].shape)}" for port in ports)
        raise UsageError(
            f"inputs {found}; allowed is one image of 1 or 3 channels whose preprocessing is in the file",
            where=name,
            hint="convert with --data FOLDER of images; nmp_runtime.mjs runs any file from a script",
        )
    return ports[0]
