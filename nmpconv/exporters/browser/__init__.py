"""A page that runs a model in a browser: an HTML file with the model, the interpreter as WebAssembly and a script."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nmpconv import __version__
from nmpconv.base.quantities import utf8
from nmpconv.data.audio import FrontEnd, bands_first, time_axis
from nmpconv.errors import UsageError
from nmpconv.exporters.browser.wasm_module import runtime, wasm
from nmpconv.file.reader import FilePort, Model
from nmpconv.runtime.feed import front_of, stream_of

__all__ = ["Detection", "image", "outputs", "page", "runtime", "sound", "wasm"]

RANK = 4  # of an image


@dataclass(frozen=True)
class Detection:
    """decoder: by which boxes are read. overlap: above which one is suppressed. score: from which boxes are drawn."""

    decoder: str
    overlap: float
    score: float


def page(name: str, model: Model, content: bytes, detection: Detection | None = None) -> str:
    """The page of a .nmp file with one input: an image of 1 or 3 channels whose preprocessing is in the file, or sound
    whose front end is.

    Raises UsageError for a file with other inputs.
    """
    loader = PackageLoader("nmpconv.exporters.browser", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    heard = sound(model)
    facts: dict[str, Any] = {"input": _picture(model, name) if heard is None else heard, "outputs": outputs(model)}
    facts |= {"labels": model.labels, "detection": detection and asdict(detection)}
    parts = ("detection.mjs", "page.js", "picture.js") if heard is None else ("sound.mjs", "page.js", "sound.js")
    script = "".join(loader.get_source(environment, file)[0] for file in parts)
    return environment.get_template("page.html").render(
        version=__version__,
        name=utf8(name),
        thing="picture" if heard is None else "sound",
        style=Markup(loader.get_source(environment, "page.css")[0]),
        script=Markup((runtime() + script).replace("\nexport ", "\n")),
        # The only "<" of JSON that HTML could take for its own; the project's script has no "</".
        facts=Markup(json.dumps(facts).replace("<", "\\u003c")),
        model=base64.b64encode(content).decode(),
        wasm=base64.b64encode(wasm()).decode(),
    )


def _picture(model: Model, name: str) -> dict[str, Any]:
    """Facts on where a picture goes."""
    port = image(model, name)
    look = port.preprocess
    assert look is not None
    _, height, width, channels = model.tensors[port.tensor].shape
    size = {"height": height, "width": width, "channels": channels}
    return {"name": model.tensors[port.tensor].name, **size, "pixels": port.pixels, **asdict(look)}


def sound(model: Model) -> dict[str, Any] | None:
    """Facts on how frames of sound become the only input; None for a file without a front end.

    frames: of a run. turned: a band's numbers follow each other, else a frame's.
    """
    ports = [port for port in model.inputs if port.state is None]
    front = front_of(model)
    if front is None or len(ports) != 1:
        return None
    [port] = ports
    shape = port.source_shape or model.tensors[port.tensor].shape
    stream = stream_of(model)
    axis = time_axis(front, shape, stream.axis if stream else None)
    facts = {"name": model.tensors[port.tensor].name, "frames": shape[axis], "turned": bands_first(shape, axis)}
    return {**facts, "front": front_facts(front)}


def front_facts(front: FrontEnd) -> dict[str, Any]:
    """Facts on a front end for JSON. tables: of one in integers, whose floor may have 63 bits; else None."""
    tables = None if not front.integers else {**asdict(front.whole), "floor": str(front.whole.floor)}
    return {**asdict(front), "tables": tables}


def outputs(model: Model) -> dict[str, tuple[int, ...]]:
    """Shapes of the outputs in the ONNX model, whose order the file's elements have."""
    tensors = {model.tensors[port.tensor].name: port for port in model.outputs}
    return {name: port.source_shape or model.tensors[port.tensor].shape for name, port in tensors.items()}


def image(model: Model, name: str) -> FilePort:
    """The only input. name: of the file, for the UsageError."""
    ports = [port for port in model.inputs if port.state is None]
    shape = model.tensors[ports[0].tensor].shape if ports else ()
    if len(ports) != 1 or ports[0].preprocess is None or len(shape) != RANK or shape[3] not in (1, 3):
        shapes = ", ".join(f"{port.name} {list(model.tensors[port.tensor].shape)}" for port in ports)
        raise UsageError(
            f"inputs {shapes}; allowed is one image of 1 or 3 channels whose preprocessing is in the file, or one "
            "sound whose front end is",
            where=name,
            hint="convert with --data FOLDER of images, or with --audio; nmp_runtime.mjs runs any file from a script",
        )
    return ports[0]
