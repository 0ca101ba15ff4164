"""The recipe of a conversion as a TOML file: what is chosen for the whole model, for single tensors and for single ops.

    [convert]
    equalize = "vector"
    [tensors]
    "/0/Conv_output_0" = { bits = 8, exponent = -5, origin = 0.5 }
    "/1/*" = { bits = 16 }
    [ops]
    "/9/Gemm" = { rounding = "nearest", weight_bits = 16 }

`[tensors."name"]` with a line for each key is the same. What is left out is decided as without a recipe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nmpconv.base import memory_spec, units
from nmpconv.base.files import read_text, toml_of, write_file
from nmpconv.base.fixed_point import EXPONENT_MAX, EXPONENT_MIN
from nmpconv.conversion.option_types import Flag, kinds_of, option_flag, words_of
from nmpconv.conversion.options import Options
from nmpconv.errors import InputError, UsageError
from nmpconv.ir import Graph
from nmpconv.ops import WEIGHTED
from nmpconv.ops.op import quant_of
from nmpconv.passes.quantize.overrides import Choices, Line, resolve
from nmpconv.passes.quantize.shared_grids import grid_groups

LISTED = 50  # names in a comment
HEAD = """\
# What a conversion decided. Edit a line to decide it otherwise, or leave it out to have it decided anew.
# Exponents and origins are those of the equalized model. Names may be patterns: "/stage1/*" = { bits = 16 }
"""


class Allowed(NamedTuple):
    """Values that a key can have: in words, and as what reads it. The latter raises UsageError or ValueError."""

    words: str
    read: Callable[[Any], Any]


def _one_of(*values: Any) -> Allowed:
    """Words count in any case, and a number may stand in quotes."""
    words = ", ".join(json.dumps(value) for value in values[:-1]) + f" or {json.dumps(values[-1])}"
    known = {_word(value): value for value in values}

    def read(value: Any) -> Any:
        if _word(value) not in known:
            raise ValueError
        return known[_word(value)]

    return Allowed(words, read)


def _word(value: Any) -> tuple[bool, str]:
    """A value in one form: truth is no word."""
    return isinstance(value, bool), str(value).lower() if isinstance(value, str | int) else ""


def _whole(low: int, high: int) -> Allowed:
    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError
        return value

    return Allowed(f"a whole number from {low} to {high}", read)


def _number(words: str, low: float, high: float) -> Allowed:
    def read(value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError
        units.number(value, low=low, high=high)
        return value

    return Allowed(words, read)


def _memories(value: Any) -> str:
    """The value as it is, if it is a pair of memories."""
    if not isinstance(value, str):
        raise ValueError
    memory_spec.parse(value)
    return value


TRUTH = _one_of(True, False)
MOST = 2**53  # a number of bytes


def _allowed(option: Field[Any], flag: Flag) -> Allowed:
    """Returns the values that an option can have in a recipe."""
    (kind,) = kinds_of(str(option.type))
    if kind is bool:
        return TRUTH
    if known := words_of(kind):
        return _one_of(*(flag.recipe if isinstance(flag.recipe, tuple) else known))
    if flag.metavar == units.SIZE:
        words = f'bytes from {flag.low} to {MOST}, such as 65536 or "64k"'
        return Allowed(words, partial(units.whole, units=units.BYTES, low=flag.low, high=MOST))
    if flag.metavar == memory_spec.FORM:
        return Allowed(f"text such as {json.dumps(flag.metavar)}", _memories)
    assert flag.low is not None and flag.high is not None
    return _number(f"a number from {flag.low:g} to {flag.high:g}", flag.low, flag.high)


CONVERT: Mapping[str, Allowed] = {
    option.name: _allowed(option, flag)
    for option in fields(Options)
    if (flag := option_flag(option)) is not None and flag.recipe
}
TENSORS: Mapping[str, Allowed] = {
    "bits": _one_of(8, 16),
    "exponent": _whole(EXPONENT_MIN, EXPONENT_MAX),
    "origin": _number("a finite number", -1e38, 1e38),
    "method": CONVERT["method"],
    "percentile": CONVERT["percentile"],
    "equalize": TRUTH,
}
OPS: Mapping[str, Allowed] = {
    "rounding": _one_of("nearest", "gptq"),
    "weight_bits": _one_of(8, 16),
    "per_tensor": TRUTH,
    "bias_bits": _one_of(8, 16, 32),
}
TABLES = {"convert": CONVERT, "tensors": TENSORS, "ops": OPS}


@dataclass(frozen=True)
class RecipeFile:
    """convert: options that are given. path: for messages."""

    convert: Mapping[str, Any] = field(default_factory=dict)
    tensors: Sequence[Line] = ()
    ops: Sequence[Line] = ()
    path: str = ""

    def choices(self, graph: Graph) -> Choices:
        """The rows by the names of a float graph; InputError for names that it has not, and for contradictions."""
        return resolve(graph, self.tensors, self.ops)


def with_recipe(options: Options) -> tuple[RecipeFile, Options]:
    """Reads options.recipe: returns it, and the options with its values. UsageError where a flag says otherwise."""
    if options.stream is not None and options.state:
        raise UsageError("cannot be combined with --stream", where="--state", hint="leave one of them out")
    _check_limits(options)
    if options.recipe is None:
        return RecipeFile(), options
    recipe, plain = load(options.recipe), Options()
    merged = replace(options, **recipe.convert)
    for key in recipe.convert:
        by_flag, value = getattr(options, key), getattr(merged, key)
        if by_flag not in (getattr(plain, key), value):
            raise UsageError(
                f"{key} is {by_flag} by a flag, and {value} by {options.recipe}", hint="leave one of them out"
            )
    _check_limits(merged)
    return recipe, merged


def _check_limits(options: Options) -> None:
    """Raises UsageError for two limits of RAM, and where one cannot be read."""
    if options.memories is not None and options.max_ram is not None:
        raise UsageError("--max-ram limits the RAM already", where="--ram", hint="leave one of them out")


def load(path: Path) -> RecipeFile:
    """InputError names the line and the key that are wrong, what was found and what is allowed."""
    return from_text(read_text(path, "recipe"), where=str(path))


def from_text(text: str, *, where: str = "") -> RecipeFile:
    root = toml_of(text, "recipe", where)
    place = _Places(text, where)
    for name, table in root.items():
        if name not in TABLES:
            raise _unknown(f"the table {name!r}", TABLES, place.of(name))
        if not isinstance(table, dict):
            raise InputError(f"{name} is no table but {_shown(table)}", where=place.of(name))
    convert = _checked(root.get("convert", {}), CONVERT, "convert", place.of)
    tensors, ops = (_lines(root.get(table, {}), table, place) for table in ("tensors", "ops"))
    return RecipeFile(convert, tensors, ops, where)


def _lines(rows: Mapping[str, Any], table: str, place: _Places) -> list[Line]:
    lines = []
    for name, row in rows.items():
        where = place.of(name)
        if not isinstance(row, dict):
            raise InputError(f"{name!r} in [{table}] is no row of keys but {_shown(row)}", where=where)
        lines.append(Line(name, where, _checked(row, TABLES[table], f"{table}.{name}", where)))
    return lines


def _checked(
    row: Mapping[str, Any], allowed: Mapping[str, Allowed], title: str, place: str | Callable[[str], str]
) -> Mapping[str, Any]:
    """The row as it is read; place: of its keys, or what tells the place of a key."""
    read = {}
    for key, value in row.items():
        where = place if isinstance(place, str) else place(key)
        if key not in allowed:
            raise _unknown(f"the key {key!r} in [{title}]", allowed, where)
        try:
            read[key] = allowed[key].read(value)
        except (ValueError, UsageError):
            message = f"{key} of [{title}] is {_shown(value)}; allowed: {allowed[key].words}"
            raise InputError(message, where=where, found=_shown(value), allowed=allowed[key].words) from None
    return read


def _unknown(name: str, known: Iterable[str], where: str) -> InputError:
    return InputError(f"{name} is unknown; there are {', '.join(known)}", where=where)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Places:
    """Lines of the keys; TOML readers do not tell. A key that is written with escapes has no line."""

    def __init__(self, text: str, where: str) -> None:
        self._lines, self._where = text.splitlines(), where

    def of(self, key: str) -> str:
        start = re.compile(rf"\s*(\[[^\]\"']*)?[\"']?{re.escape(key)}[\"']?\s*[=\].]")
        number = next((i for i, line in enumerate(self._lines, 1) if start.match(line)), None)
        return self._where if number is None else f"{self._where}:{number}"


def save(path: Path, text: str) -> None:
    """Writes the file whole or not at all; OutputError when it cannot be."""
    write_file(path, text.encode())


def to_text(
    convert: Mapping[str, Any],
    float_graph: Graph,
    chosen: Graph,
    free: Iterable[str],
    ops: Mapping[str, Any],
    choices: Choices,
) -> str:
    """Writes the decisions as a recipe.

    convert: fields of Options, without what is None. float_graph: names the tensors and ops; chosen: has their grids.
    free: the tensors that could have an origin. ops: what holds for all ops that choices do not name.
    """
    named, origins, exempt = {value.name for value in float_graph.activations()}, set(free), choices.kept()
    tensors = []
    for group in grid_groups(chosen):
        known = [name for name in group if name in named]
        # Grids of inputs by channel, or in steps of their own, are those of the samples: what is stored has no meaning
        # without them.
        of_data = any(float_graph[name].shifts is not None for name in known if name in float_graph.inputs)
        for i, name in enumerate(known):
            quant = quant_of(chosen[name])
            row: dict[str, Any] = {"bits": quant.bits} if i == 0 else {}
            row |= {"exponent": quant.exponent} if i == 0 and not of_data else {}
            row |= {"origin": chosen[name].origin} if name in origins else {}
            for key in ("method", "percentile") if i == 0 else ():
                row |= {key: choice.value} if (choice := choices.of(group, key)) else {}
            row |= {"equalize": False} if name in exempt else {}
            note = f"  # one grid: {', '.join(map(quoted, known[:LISTED]))}" if i == 0 and known[1:] else ""
            note += f" and {len(known) - LISTED} more" if i == 0 and known[LISTED:] else ""
            tensors += [f"{quoted(name)} = {_row(row)}{note}"] if row else []
    weighted = [node.name for node in float_graph.nodes if node.op in WEIGHTED]
    rows = {
        name: {**ops, **{key: choice.value for key, choice in choices.ops.get(name, {}).items()}} for name in weighted
    }
    return "\n".join(
        [
            *(HEAD, "[convert]", *(f"{key} = {_value(value)}" for key, value in convert.items())),
            *("", "[tensors]", *tensors),
            *("", "[ops]", *(f"{quoted(name)} = {_row(row)}" for name, row in rows.items()), ""),
        ]
    )


def lines(convert: Mapping[str, Any], rows: Sequence[tuple[str, str, Mapping[str, Any]]], head: str = "") -> str:
    """A recipe of a few rows: the table, the name and what is said of each. head: comments."""
    parts = [*head.splitlines(), *(["[convert]"] if convert else [])]
    parts += [f"{key} = {_value(value)}" for key, value in convert.items()]
    for table in ("tensors", "ops"):
        row_lines = [f"{quoted(name)} = {_row(row)}" for of, name, row in rows if of == table and row]
        parts += [f"[{table}]", *row_lines] if row_lines else []
    return "\n".join(parts) + "\n"


def _row(row: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {_value(value)}" for key, value in row.items()) + " }"


def _value(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def quoted(text: str) -> str:
    """A string of TOML, which has no surrogates and no DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
