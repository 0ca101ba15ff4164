"""Custom ops on this machine: the table that the interpreter gets, with a function in Python or a library for each.

The structures are those of interpreter/include/nmp_custom.h.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int8, c_int32, c_uint8, c_uint32, c_void_p
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nmpconv.errors import InputError
from nmpconv.ir import Quant, Value
from nmpconv.ops.custom_op import CustomOp, custom_ops
from nmpconv.ops.op import QArray


class TensorInC(Structure):
    """nmp_tensor."""

    _fields_ = [
        ("data", c_void_p),
        ("shape", c_int32 * 6),
        ("rank", c_uint8),
        ("bits", c_uint8),
        ("is_const", c_uint8),
        ("exponent", c_int8),
        ("exponents", c_void_p),
        ("exponent_count", c_uint32),
        ("axis", c_int8),
        ("lo", c_int32),
        ("hi", c_int32),
        ("size", c_uint32),
        ("offset", c_uint32),
    ]

    def value(self, name: str) -> Value:
        quant = Quant(self.bits, (self.exponent,), self.lo, self.hi)
        value = Value(name, tuple(self.shape[: self.rank]), quant.dtype, quant=quant)
        return replace(value, data=self._array(value)) if self.is_const else value

    def array(self) -> np.ndarray:
        """The integers where they lie."""
        return self._array(self.value(""))

    def _array(self, value: Value) -> np.ndarray:
        memory = (ctypes.c_uint8 * value.nbytes).from_address(self.data)
        return np.ctypeslib.as_array(memory).view(value.dtype).reshape(value.shape)


class CallInC(Structure):
    """nmp_custom_call."""

    _fields_ = [
        ("inputs", POINTER(TensorInC)),
        ("input_count", c_uint32),
        ("output", POINTER(TensorInC)),
        ("attributes", POINTER(c_int32)),
        ("attribute_count", c_uint32),
        ("scratch", c_void_p),
        ("scratch_bytes", c_uint32),
    ]


Check = CFUNCTYPE(c_int, POINTER(CallInC))
Run = CFUNCTYPE(None, POINTER(CallInC))


class RowInC(Structure):
    """nmp_custom_op."""

    _fields_ = [("name", c_char_p), ("check", Check), ("run", Run)]


@dataclass
class CustomTable:
    """rows: of all installed ops, to be kept as long as nets have their address. failed: what a function in Python
    raised."""

    rows: Any = None
    failed: list[tuple[str, Exception]] = field(default_factory=list)
    loaded: list[Any] = field(default_factory=list)

    @classmethod
    def of_installed(cls) -> CustomTable:
        """Raises InputError for an op or a library that cannot be used."""
        table, ops = cls(), custom_ops()
        table.rows = (RowInC * (len(ops) + 1))(*(table._row(op) for op in ops.values()))
        return table

    @property
    def address(self) -> int:
        return ctypes.addressof(self.rows)

    def raise_failure(self) -> None:
        """Raises what a function in Python raised since."""
        if self.failed:
            name, error = self.failed[0]
            self.failed.clear()
            raise InputError(f"the reference of {name} raised {type(error).__name__}: {error}") from error

    def _row(self, op: CustomOp) -> RowInC:
        if op.shared_object is not None:
            try:
                self.loaded.append(ctypes.CDLL(str(op.shared_object)))
                return RowInC.in_dll(self.loaded[-1], op.row)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"no row '{op.row}' of {op.name} can be had: {error}", where=str(op.shared_object)
                ) from error
        return RowInC(
            op.name.encode(), Check(lambda call: self._check(op, call[0])), Run(lambda call: self._run(op, call[0]))
        )

    def _check(self, op: CustomOp, call: CallInC) -> int:
        inputs, output, attributes = _read(call)
        try:
            fits = tuple(op.infer(attributes, inputs)) == output.shape and not op.check(attributes, inputs, output)
            fits &= op.shift[0] <= call.output[0].exponent - call.inputs[0].exponent <= op.shift[1]
            return int(fits and op.scratch(attributes, inputs, output) <= call.scratch_bytes)
        except Exception:  # a file may hold anything
            return 0

    def _run(self, op: CustomOp, call: CallInC) -> None:
        values, output, attributes = _read(call)
        assert output.quant is not None
        to = call.output[0].array()
        try:
            inputs = [QArray(call.inputs[i].array(), x.quant) for i, x in enumerate(values) if x.quant is not None]
            to[...] = op.reference(attributes, inputs, output)
        except Exception as error:  # of the user's code; `raise_failure` tells it
            to[...] = 0
            self.failed.append((op.name, error))


def _read(call: CallInC) -> tuple[list[Value], Value, tuple[int, ...]]:
    inputs = [call.inputs[i].value(f"input{i}") for i in range(call.input_count)]
    attributes = tuple(call.attributes[: call.attribute_count]) if call.attribute_count else ()
    return inputs, call.output[0].value("output"), attributes
