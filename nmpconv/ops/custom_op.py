"""Ops of users: one class in Python and one function in C each, found by entry point and called by name in a file.

A package names the class in the group `nmpconv.ops` of its entry points. The ONNX node `domain::Type` becomes the op
of this name; C has a row of the same name (nmp_custom.h).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nmpconv.errors import InputError
from nmpconv.ir import Quant, Value
from nmpconv.ops.op import QArray

if TYPE_CHECKING:
    from nmpconv.ops.builders import OnnxBuilder

GROUP = "nmpconv.ops"
INPUTS_MAX = 4


@dataclass(frozen=True)
class CustomCase:
    """One test case of a user's op. inputs: as `CustomOp.reference` gets them; output: the grid of the result."""

    id: str
    inputs: tuple[QArray, ...]
    output: Quant
    attributes: tuple[int, ...] = ()


class CustomOp:
    """Base of a user's op. It is stateless; nmpconv makes one instance.

    name:          of the ONNX node and in the file: "domain::Type".
    elementwise:   an element of the output depends on the elements of the inputs at its place alone.
    keeps_batch:   samples that lie one after the other along axis 0 stay apart.
    channels_last: inputs of 3 and 4 dimensions and the output are [N,H,W,C], as in the file, H = 1 for 3; else they
                   have the layout of the ONNX model, with a transpose before and after the op where that differs.
    shift:         least and largest exponent of the output less that of the first input; the converter keeps to it.
    source:        path of the C file that defines the row.
    row:           name of the `const nmp_custom_op` in it.
    shared_object: path of a shared library with this row, which this machine runs in place of `reference`.

    Inputs are int8 or int16 with one exponent; a constant one is quantized to 16 bits. Arrays have an axis 0 of size 1,
    but in `reference` of an op that `keeps_batch`, where it may be longer, in inputs and output alike.
    """

    name: ClassVar[str]
    elementwise: ClassVar[bool] = False
    keeps_batch: ClassVar[bool] = False
    channels_last: ClassVar[bool] = False
    shift: ClassVar[tuple[int, int]] = (-15, 30)
    source: ClassVar[Path | None] = None
    row: ClassVar[str] = ""
    shared_object: ClassVar[Path | None] = None

    def attributes(self, onnx_attributes: Mapping[str, Any]) -> Sequence[int]:
        """The integers in the file that stand for the attributes of an ONNX node. Raises Unsupported or Invalid."""
        return ()

    def infer(self, attributes: tuple[int, ...], inputs: Sequence[Value]) -> tuple[int, ...]:
        """Shape of the output. Raises Unsupported or ValueError for inputs or attributes that do not fit."""
        return inputs[0].shape

    def check(self, attributes: tuple[int, ...], inputs: Sequence[Value], output: Value) -> str:
        """Describes what is wrong with widths or exponents (`Value.quant`), the rules of `check` in C; '' for none."""
        return ""

    def exponent(self, attributes: tuple[int, ...], bits: int) -> int | None:
        """The exponent that fits the output of this width whatever the data; None: it follows from calibration."""
        return None

    def scratch(self, attributes: tuple[int, ...], inputs: Sequence[Value], output: Value) -> int:
        """Bytes of memory that the C function needs besides inputs and output."""
        return 0

    def macs(self, attributes: tuple[int, ...], inputs: Sequence[Value], output: Value) -> int:
        """Multiply-accumulates of one inference."""
        return 0

    def instructions(self, attributes: tuple[int, ...], inputs: Sequence[Value], output: Value) -> int:
        """Instructions of one run on a microcontroller, for estimates."""
        return 0

    def export(self, attributes: tuple[int, ...], inputs: Sequence[str], output: str, to: OnnxBuilder) -> None:
        """Emit ONNX nodes that compute the op in floats: what calibration runs."""
        raise NotImplementedError(f"{type(self).__name__}.export")

    def reference(self, attributes: tuple[int, ...], inputs: Sequence[QArray], output: Value) -> np.ndarray:
        """The specification: integers in, integers out, within output.quant.lo and hi. output: shape and quant."""
        raise NotImplementedError(f"{type(self).__name__}.reference")

    def cases(self) -> Iterator[CustomCase]:
        """Test cases: attributes, widths, extremes."""
        return iter(())


@cache
def custom_ops() -> dict[str, CustomOp]:
    """The ops of users that are installed, by name. Raises InputError for one that cannot be used."""
    ops: dict[str, CustomOp] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        op = _loaded(point)
        if op.name in ops:
            raise _wrong(point, f"'{op.name}' is there already, by {type(ops[op.name]).__name__}")
        ops[op.name] = op
    return ops


def c_source(name: str) -> tuple[str, str]:
    """The row of an installed op and the C file that has it. Raises InputError."""
    op = custom_ops().get(name)
    if op is None:
        raise InputError(f"the custom op '{name}' is not installed", hint="pip install the package that has it")
    if op.source is None or not re.fullmatch(r"[A-Za-z_]\w*", op.row, re.ASCII):
        raise InputError(f"the custom op '{name}' has no C", hint="`source` and `row` of its class")
    try:
        return op.row, op.source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "a package installs it only where its pyproject.toml says so, as package-data"
        raise InputError(f"the C file of '{name}' cannot be read: {error}", where=str(op.source), hint=hint) from error


def _loaded(point: EntryPoint) -> CustomOp:
    try:
        op_class = point.load()
    except Exception as error:  # whatever the user's module raises
        raise _wrong(point, f"it cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(op_class, type) and issubclass(op_class, CustomOp)):
        raise _wrong(point, f"it is no subclass of {CustomOp.__name__}")
    name = getattr(op_class, "name", "")
    if not isinstance(name, str) or not all(name.partition("::")[::2]):
        raise _wrong(point, f"its name is {name!r}, not 'domain::Type'")
    return op_class()


def _wrong(point: EntryPoint, why: str) -> InputError:
    hint = "mend or uninstall the package that names it"
    return InputError(
        f"the custom op {point.value} cannot be used: {why}", where=f"entry point {point.name}", hint=hint
    )
