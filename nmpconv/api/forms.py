"""Keywords that come in several forms, and the command line that says the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from nmpconv.conversion.keywords import FLAGS, Keywords
from nmpconv.conversion.options import PREPROCESSING, Options
from nmpconv.errors import UsageError
from nmpconv.ir import Preprocess


def several(value: str | Iterable[Any] | None) -> tuple[Any, ...]:
    """A list; one word stands for a list of one."""
    return (value,) if isinstance(value, str) else tuple(value or ())


def path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)


def options(keywords: Keywords) -> Options:
    """Options of a conversion by its keywords."""
    settings: dict[str, Any] = {option.name: getattr(keywords, option.name) for option in fields(Options)}
    settings["preprocess"] = _preprocess(
        {name: getattr(keywords, name) for name, flag in FLAGS.items() if flag.panel == PREPROCESSING}
    )
    settings["widths"] = _widths(keywords)
    settings["levers"] = (
        keywords.report is not None and not keywords.fast if keywords.levers is None else keywords.levers
    )
    return Options(**settings)


def _widths(keywords: Keywords) -> str:
    """Widths of --bits 8 or auto; --strict and --precise are short for two of them."""
    asked = [name for name in ("strict", "precise") if getattr(keywords, name)]
    asked += [keywords.widths] if keywords.widths != "default" and keywords.widths not in asked else []
    if asked and (keywords.bits not in ("8", "auto") or len(asked) > 1):
        raise UsageError("--strict and --precise each refine --bits 8 or auto, not both and no other width")
    return asked[0] if asked else "default"


def _preprocess(look: Mapping[str, Any]) -> Preprocess | None:
    """Returns the given fields over the defaults; None when nothing was given."""
    settings = {name: value for name, value in look.items() if value is not None}
    for name in ("mean", "std", "range"):
        if name in settings:
            values = settings[name] if isinstance(settings[name], Iterable) else (settings[name],)
            settings[name] = tuple(float(value) for value in values)
    if "range" in settings and not settings["range"][0] < settings["range"][1]:
        raise UsageError(
            f"{list(settings['range'])}: LO must be less than HI",
            where="--range",
            found=str(settings["range"]),
            allowed="two numbers, the lesser first",
        )
    return Preprocess(**{"layout": "auto"} | settings) if settings else None


def command(model: str, data: Mapping[str, Any], keywords: Keywords) -> str:
    """The command line that does the same: flags that are not at their defaults. Of paths only the names are kept."""
    words = ["nmpconv convert", model]
    for name, source in data.items():
        place = Path(source).name if isinstance(source, str | Path) else "DATA"
        words.append(f"--data {name}={place}" if name else f"--data {place}")
    for name, value in keywords.changed().items():
        flag, _, no = (FLAGS[name].spelling or f"--{name.replace('_', '-')}").partition("/")
        if value is False:
            words.append(no or f"--no-{flag[2:]}")
        elif isinstance(value, Mapping):
            between = "x" if name == "input_shape" else ","
            words += [f"{flag} {key}={between.join(map(str, row))}" for key, row in value.items()]
        elif value is True:
            words.append(flag)
        elif isinstance(value, Path):
            words.append(f"{flag} {value.name}")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            words += [f"{flag} {','.join(map(str, value))}"] if value else []
        else:
            words.append(f"{flag} {value}")
    return " ".join(words)
