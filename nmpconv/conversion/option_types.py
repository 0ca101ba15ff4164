"""Types of options, and how people give one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from nmpconv.base.type_check import allowed_instead
from nmpconv.errors import refusal

Bits = Literal["8", "16", "a16w8", "auto", 8, 16]
Method = Literal["max", "mse", "mse4", "kl", "percentile"]
Equalize = Literal["auto", "none", "scalar", "vector", "streams"]
Rounding = Literal["auto", "nearest", "gptq"]
BiasBits = Literal["auto", "8", "16", "32", 8, 16, 32]
Widths = Literal["default", "strict", "precise"]
Target = Literal["host", "cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m55", "rv32"]
Decoder = Literal["nanodet", "ultraface", "yolov5", "yolov8", "yolox", "yunet"]
Layout = Literal["nchw", "nhwc"]
ChannelOrder = Literal["rgb", "bgr", "gray"]
Resize = Literal["none", "shorter", "squash", "letterbox"]


@dataclass(frozen=True)
class Flag:
    """Form in which people give an option, and what keeps it.

    panel: of --help. low, high: least and most. counts: how many numbers there may be. spelling: of the flag, where it
    is not the field's name; "" for options without a flag. example: for messages. recorded: name in the file's
    metadata; recorded_default: at its default, too. recipe: the values that [convert] of a recipe may have, True for
    all. stored: the value as files have it. project: nmpconv.toml has it. writes: it names a file to write. command:
    the command line in a report has it.
    """

    panel: str
    help: str = ""
    low: float | None = None
    high: float | None = None
    counts: tuple[int, ...] = ()
    metavar: str | None = None
    spelling: str | None = None
    example: str = ""
    shows_default: bool = True
    recorded: str = ""
    recorded_default: bool = True
    recipe: bool | tuple[Any, ...] = False
    stored: Callable[[Any], Any] = lambda value: value
    project: bool = True
    writes: bool = False
    command: bool = True


def as_flag(*args: Any, **more: Any) -> dict[str, Flag]:
    """Metadata of a field that is an option."""
    return {"flag": Flag(*args, **more)}


def option_flag(option: Field[Any]) -> Flag | None:
    """Returns the flag of an option; None for fields that only programs set."""
    return option.metadata.get("flag")


def is_allowed(option: Field[Any], value: Any) -> bool:
    """Checks a value against the type and the bounds of an option."""
    flag = option.metadata["flag"]
    return not allowed_instead(value, eval(str(option.type)), flag.low, flag.high)


@cache
def kinds_of(annotation: str) -> tuple[Any, ...]:
    """Types in the union of an option's annotation, without None."""
    kind = eval(annotation)
    return tuple(member for member in (get_args(kind) if _is_union(kind) else (kind,)) if member is not NoneType)


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def words_of(kind: Any) -> tuple[str, ...]:
    """Words of a Literal; none of other types."""
    return tuple(word for word in get_args(kind) if isinstance(word, str)) if get_origin(kind) is Literal else ()


def _flat(value: Any, name: str) -> Iterator[Any]:
    """Numbers of nested sequences, row by row. name: of the option. Raises UsageError."""
    if hasattr(value, "tolist"):  # of numpy and torch
        value = value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        for part in value:
            yield from _flat(part, name)
    elif isinstance(value, bool | int | float):
        yield value
    else:
        raise refusal(value, "numbers", name)


def normal(option: Field[Any], value: Any) -> Any:
    """The one form of a value that comes in several: a tuple of words, a mapping to tuples, a Path, a word."""
    (kind, *others) = kinds_of(str(option.type))
    if others:
        return value
    if kind == Sequence[str]:
        return (value,) if isinstance(value, str) else tuple(value or ())
    if value is None and get_origin(kind) is not Mapping:
        return None
    if words_of(kind):
        return str(value)
    if get_origin(kind) is Mapping:
        return {name: tuple(_flat(numbers, option.name)) for name, numbers in (value or {}).items()}
    return kind(value) if kind in (Path, bool, int) else value
