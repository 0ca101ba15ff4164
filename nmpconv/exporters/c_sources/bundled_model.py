"""Models of a bundle, under the names that they have in C."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from nmpconv.base.sound import SoundFront
from nmpconv.data.camera import ImageInput, pixel_input, scaled_input
from nmpconv.errors import InputError, UsageError
from nmpconv.file.reader import FilePort, Model, read
from nmpconv.runtime.shared_arena import Turn

NAME_MAX = 28  # characters; an Arduino library's name, with nmp_ before it, should have at most 32
RULE = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{NAME_MAX - 1}}}")
ALLOWED = f"a letter, then letters, digits and _, at most {NAME_MAX}"
CHANNELS = (1, 3)  # of pictures
TEXT_MAX = 200  # characters of a model's or tensor's name in a comment


@dataclass(frozen=True)
class BundledModel:
    """name: of its symbols (kws_data), of its header (kws_data.h) and, in capitals, of its macros (KWS_BYTES)."""

    name: str
    data: bytes

    @cached_property
    def model(self) -> Model:
        return read(self.data)

    @cached_property
    def pictures(self) -> dict[int, ImageInput]:
        """Inputs that a camera's frame can feed, by their index."""
        pairs = ((i, _picture(port, self.model)) for i, port in enumerate(self.model.inputs))
        return {i: picture for i, picture in pairs if picture is not None}

    @cached_property
    def sounds(self) -> dict[int, SoundFront]:
        """Inputs that samples of sound can feed, by their index."""
        return {i: port.sound for i, port in enumerate(self.model.inputs) if port.sound is not None}

    @property
    def macro(self) -> str:
        return self.name.upper()

    @cached_property
    def turn(self) -> Turn:
        """Its needs as one of several, on whatever machine."""
        return Turn(self.data, self.model)


def knows_two_memories(models: Iterable[BundledModel]) -> bool:
    """Checks that the build of these models knows two memories."""
    return any(bundled.model.fast_bytes for bundled in models)


def _picture(port: FilePort, model: Model) -> ImageInput | None:
    """The input as `nmp_image_fill` takes it; None where it is not one of pictures."""
    tensor, preprocess = model.tensors[port.tensor], port.preprocess
    if preprocess is None or len(tensor.shape) != 4 or tensor.shape[0] != 1 or tensor.shape[3] not in CHANNELS:
        return None
    size = (tensor.shape[1], tensor.shape[2], tensor.shape[3])
    if port.pixels:
        return pixel_input(size, preprocess.channel_order == "bgr")
    if len(tensor.float_steps) > 1 and tensor.float_axis != 3:
        return None
    grid = (8 if tensor.dtype == "int8" else 16, tensor.clip_min, tensor.clip_max)
    try:
        return scaled_input(size, preprocess, grid, tensor.float_steps, tensor.float_offsets or (tensor.origin,))
    except InputError:  # the example then takes its numbers
        return None


def bundled(models: Mapping[str, bytes]) -> tuple[BundledModel, ...]:
    """models: the bytes of .nmp files by name in C. Raises UsageError for names that C or this bundle cannot have."""
    seen: dict[str, str] = {}
    for name in models:
        if (other := seen.setdefault(check_name(name).upper(), name)) != name:
            raise UsageError(f"{other} and {name} differ in case alone, and macros are in capitals", where="name")
    return tuple(BundledModel(name, data) for name, data in models.items())


def check_name(name: str) -> str:
    """Returns the name. Raises UsageError for one that C cannot have."""
    if not isinstance(name, str) or not RULE.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name in C; allowed: {ALLOWED}", where="name", found=str(name), allowed=ALLOWED
        )
    return name


def c_name(text: str) -> str:
    """The name in C of a file or model: small letters, digits and _ in place of anything else."""
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return (plain if plain[:1].isalpha() else f"model_{plain}")[:NAME_MAX].strip("_")


def comment(text: str) -> str:
    """Text that can stand in a C comment, on its line: no backslash continues it."""
    safe = plain(text).replace("\\", "?").replace("*/", "* /").replace("/*", "/ *")
    return safe.replace("??/", "? ?/")  # a backslash, too, where a compiler reads trigraphs


def literal(text: str) -> str:
    """Text as a string of C."""
    return '"' + re.sub(r'(["\\?])', r"\\\1", plain(text)) + '"'


def markdown(text: str) -> str:
    """Text that Markdown shows as it is: no HTML, link or emphasis."""
    return re.sub(r"([^\w .:,-]|_)", r"\\\1", plain(text).strip(), flags=re.ASCII)


def plain(text: str) -> str:
    """Text of a model on one line: printable ASCII, of a length that a line may have."""
    return "".join(c if c.isprintable() and c.isascii() else "?" for c in text[:TEXT_MAX])
