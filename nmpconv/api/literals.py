"""The values that keywords can have where they are words, and the reading of keywords that come in several forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from nmpconv.base.files import read_lines
from nmpconv.errors import InputError, UsageError
from nmpconv.ir import Preprocess

Bits = Literal["8", "16", "a16w8", "auto", 8, 16]
Method = Literal["max", "mse", "mse4", "kl", "percentile"]
Equalize = Literal["auto", "none", "scalar", "vector"]
Rounding = Literal["auto", "nearest", "gptq"]
BiasBits = Literal["auto", "8", "16", "32", 8, 16, 32]
Target = Literal["host", "cortex-m4", "cortex-m55", "rv32"]
Form = Literal["onnx"]
Decoder = Literal["nanodet", "ultraface", "yolov5", "yolov8", "yolox", "yunet"]
Layout = Literal["nchw", "nhwc"]
ChannelOrder = Literal["rgb", "bgr", "gray"]
Resize = Literal["none", "shorter", "squash", "letterbox"]


def several(given: str | Iterable[Any] | None) -> tuple[Any, ...]:
    """A list; one word stands for a list of one."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def widths(bits: str, strict: bool, precise: bool) -> str:
    """Of `options.Options`."""
    if (strict or precise) and (bits not in ("8", "auto") or (strict and precise)):
        raise UsageError("--strict and --precise each refine --bits 8 or auto, not both and no other width")
    return "strict" if strict else "precise" if precise else "default"


def preprocess(flags: Mapping[str, Any]) -> Preprocess | None:
    """What was given over the defaults; None when nothing was."""
    found = {name: value for name, value in flags.items() if value is not None}
    for name in ("mean", "std", "range"):
        if name in found:
            values = found[name] if isinstance(found[name], Iterable) else (found[name],)
            found[name] = tuple(float(value) for value in values)
    if "range" in found and not found["range"][0] < found["range"][1]:
        raise UsageError(
            f"{list(found['range'])}: what pixel 0 stands for is to be less than what 255 does",
            where="--range",
            found=str(found["range"]),
            allowed="two numbers, the lesser first",
        )
    return Preprocess(**{"layout": "auto"} | found) if found else None


def labels(given: Path | str | Sequence[str] | None) -> tuple[str, ...]:
    """Class names, or those of a text file with one a line."""
    if given is None:
        return ()
    if not isinstance(given, str | Path):
        return tuple(map(str, given))
    found = tuple(row.strip() for row in read_lines(given, "list of labels"))
    if not found:
        raise InputError("the list of labels is empty", where=str(given), hint="one class name a line")
    return found


def command(model: str, data: Mapping[str, Any], flags: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """The command line that does the same: flags that are not at their defaults. Of paths only the names are kept."""
    words = ["nmpconv convert", model]
    for name, source in data.items():
        place = Path(source).name if isinstance(source, str | Path) else "DATA"
        words.append(f"--data {name}={place}" if name else f"--data {place}")
    for name, value in flags.items():
        if value == defaults[name] or value is None:
            continue
        flag = f"--{name.replace('_', '-')}"
        if value is False:
            words.append("--keep-channels" if name == "drop_channels" else f"--no-{flag[2:]}")
        elif isinstance(value, Mapping):
            words += [f"{flag} {key}={'x'.join(map(str, sizes))}" for key, sizes in value.items()]
        elif value is True:
            words.append(flag)
        elif isinstance(value, Path):
            words.append(f"{flag} {value.name}")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            words += [f"{flag} {','.join(map(str, value))}"] if value else []
        else:
            words.append(f"{flag} {value}")
    return " ".join(words)
