"""Choices of a person for single tensors and ops: the rows of a recipe, by the names in the float graph.

Keys of a tensor: bits, exponent, origin, method, percentile, equalize (False: it keeps its own numbers). Keys of an op
with weights: rounding, weight_bits, per_tensor, bias_bits. What is not said is decided as ever. All tensors on one grid
have the bits and the exponent that one of them was given.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from nmpconv.errors import InputError
from nmpconv.ir import Graph
from nmpconv.ops import WEIGHTED

PATTERN = "*?["  # characters that make a pattern of a name


class Said(NamedTuple):
    """One choice. place: of its line. exact: it names one tensor or op, and goes before what a pattern says."""

    value: Any
    place: str
    exact: bool = True


Row = Mapping[str, Said]
"""Choices by key."""


@dataclass(frozen=True)
class Choices:
    """tensors, ops: rows by name."""

    tensors: Mapping[str, Row] = field(default_factory=dict)
    ops: Mapping[str, Row] = field(default_factory=dict)

    def of(self, names: Iterable[str], key: str) -> Said | None:
        """Returns the rule of tensors that share it; InputError where there are several."""
        rules = [self.tensors[name][key] for name in names if key in self.tensors.get(name, {})]
        rules = [rule for rule in rules if rule.exact] or rules
        for other in rules[1:]:
            if other.value != rules[0].value:
                raise contradiction(key, rules[0], other, "; these tensors share one grid")
        return rules[0] if rules else None

    def op(self, name: str, key: str, otherwise: Any) -> Any:
        """Returns the rule of an op."""
        rule = self.ops.get(name, {}).get(key)
        return otherwise if rule is None else rule.value

    def kept(self) -> frozenset[str]:
        """The tensors that equalization is to leave alone."""
        return frozenset(name for name, row in self.tensors.items() if "equalize" in row and not row["equalize"].value)

    def over(self, others: Choices) -> Choices:
        """Merges two sets of choices: these go first. A choice with the same value in both is taken from the others."""

        def merged(rows: Mapping[str, Row], below: Mapping[str, Row]) -> dict[str, Row]:
            return {name: merged_row(rows.get(name, {}), below.get(name, {})) for name in (*below, *rows)}

        def merged_row(row: Row, below: Row) -> Row:
            return {**row, **{key: rule for key, rule in below.items() if row.get(key, rule).value == rule.value}}

        return Choices(merged(self.tensors, others.tensors), merged(self.ops, others.ops))

    def widths(self) -> Choices:
        """Only what decides how many bytes things take."""
        keys = ("bits", "weight_bits", "per_tensor", "bias_bits")

        def only(rows: Mapping[str, Row]) -> dict[str, Row]:
            return {name: {key: rule for key, rule in row.items() if key in keys} for name, row in rows.items()}

        return Choices(only(self.tensors), only(self.ops))


NOTHING = Choices()


def contradiction(key: str, first: Said, other: Said, why: str = "") -> InputError:
    return InputError(
        f"{key} is {first.value} by {first.place}, and {other.value} by {other.place}{why}",
        hint="leave one of them out",
    )


class Line(NamedTuple):
    """A row as it was written: a name or a pattern of names, and what is said of them, by key."""

    name: str
    place: str
    said: Mapping[str, Any]


def resolve(graph: Graph, tensors: Sequence[Line], ops: Sequence[Line]) -> Choices:
    """The rows of a float graph's tensors and of its ops with weights. InputError for names that it has not."""
    weighted = [node.name for node in graph.nodes if node.op in WEIGHTED]
    return Choices(
        _matched(tensors, [value.name for value in graph.activations()], "tensor"),
        _matched(ops, weighted, "op with weights"),
    )


def _matched(lines: Sequence[Line], names: Collection[str], kind: str) -> dict[str, Row]:
    rows: dict[str, dict[str, Said]] = {}
    for line in lines:
        exact = line.name in names
        for name in [line.name] if exact else _fitting(line, names, kind):
            row = rows.setdefault(name, {})
            for key, value in line.said.items():
                rule, before = Said(value, line.place, exact), row.get(key)
                if before is None or (exact and not before.exact):
                    row[key] = rule
                elif exact == before.exact and before.value != value:
                    raise contradiction(f"{key} of {name!r}", before, rule)
    return dict(rows)


def _fitting(line: Line, names: Collection[str], kind: str) -> list[str]:
    """The names that a pattern fits."""
    matches = [name for name in names if fnmatchcase(name, line.name)]
    if not matches:
        near = difflib.get_close_matches(line.name, names, n=3, cutoff=0.0)
        pattern = any(mark in line.name for mark in PATTERN)
        wrong = f"no {kind} fits the pattern {line.name!r}" if pattern else f"the model has no {kind} {line.name!r}"
        raise InputError(f"{wrong}; the nearest are {', '.join(map(repr, near))}", where=line.place)
    return matches
