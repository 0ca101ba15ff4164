"""A .nmp file as tidy data, without the interpreter: what `inspect` shows and what feeds and labels need.

A file is verified first, as the interpreter does (`flat`, `meaning`); then what only people and programs read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nmpconv.base import fixed_point
from nmpconv.base.files import read_file
from nmpconv.base.verdict import widths
from nmpconv.errors import ModelError
from nmpconv.file._schema import ENUMS, TABLES
from nmpconv.file.flatbuffer import KINDS, Table, unpack
from nmpconv.ir import Preprocess, Shifts

if TYPE_CHECKING:
    from nmpconv.base.sound import SoundFront

_DTYPES = {number: name.lower() for name, number in ENUMS["DType"].items()}
_METHODS = {number: name.lower() for name, number in ENUMS["Method"].items()}


def dequantize(q: np.ndarray, exponent: int, shifts: Shifts | None) -> np.ndarray:
    """Returns the float model's numbers of integers [...]: float64."""
    real = fixed_point.dequantize(q, exponent)
    return real if shifts is None else shifts.real(real)


@dataclass(frozen=True)
class FileTensor:
    """value = integer * 2^exponent. data: of constants; offset: of activations. observed_*: None when not observed.

    origin: what the value is less than that of the float model, observed_* being of the latter. float_exponents: of an
    activation whose parts are the float model's times powers of two, the exponents of the float model's numbers, one or
    one per index of float_axis; float_offsets: what 0 stands for there, float_mantissas: factors of 2^float_exponent,
    as many, or none.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    exponents: tuple[int, ...]
    axis: int | None
    clip_min: int
    clip_max: int
    observed_min: float | None
    observed_max: float | None
    method: str | None
    data: np.ndarray | None
    offset: int | None
    origin: float = 0.0
    float_exponents: tuple[int, ...] | None = None
    float_axis: int | None = None
    float_offsets: tuple[float, ...] = ()
    float_mantissas: tuple[float, ...] = ()

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @property
    def shifts(self) -> Shifts | None:
        """Map from the float model's numbers to an activation's."""
        if self.float_exponents is None:
            return None
        bits = tuple(self.exponents[0] - e for e in self.float_exponents)
        return Shifts(bits, self.float_axis, self.float_offsets, self.float_mantissas)

    @property
    def float_steps(self) -> tuple[float, ...]:
        """Real value of integer 1 in the float model, one or one per index of float_axis."""
        exponents = self.float_exponents or self.exponents
        mantissas = self.float_mantissas or (1.0,) * len(exponents)
        return tuple(math.ldexp(m, e) for m, e in zip(mantissas, exponents, strict=True))

    def dequantize(self, q: np.ndarray) -> np.ndarray:
        """Returns the float model's numbers of an activation's integers, of its shape, origin apart: float64."""
        return dequantize(q, self.exponents[0], self.shifts)


@dataclass(frozen=True)
class FileOp:
    """kind: the op's name in nmpconv.ops; inputs and outputs are indices of tensors. live_end: see FORMAT.md.

    scratch_at, scratch_room: place and bytes in the fast memory for its scratch.
    """

    kind: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    params: dict[str, Any]
    macs: int
    live_end: int
    scratch_at: int = 0
    scratch_room: int = 0


@dataclass(frozen=True)
class FilePort:
    """A graph input or output. pixels: raw pixels - 128 are fed. source_shape: in the ONNX model.

    state: the output, by index, whose integers the input holds in the next call; start: its integers in the first one.
    sound: front end in integers.
    """

    name: str
    tensor: int
    preprocess: Preprocess | None
    pixels: bool
    source_shape: tuple[int, ...]
    state: int | None = None
    start: int = 0
    sound: SoundFront | None = None


@dataclass(frozen=True)
class Model:
    """test_vectors: pairs of input bytes and output bytes. arena_bytes: activations only. fast_bytes: of these, from
    the start, in a fast memory of their own.
    """

    version: tuple[int, int]
    name: str
    tensors: tuple[FileTensor, ...]
    ops: tuple[FileOp, ...]
    inputs: tuple[FilePort, ...]
    outputs: tuple[FilePort, ...]
    arena_bytes: int
    labels: tuple[str, ...]
    metadata: dict[str, str]
    test_vectors: tuple[tuple[tuple[bytes, ...], tuple[bytes, ...]], ...]
    file_bytes: int
    fast_bytes: int = 0

    @property
    def weights_bytes(self) -> int:
        """Bytes of all constants: weights, biases and tables."""
        return sum(t.data.nbytes for t in self.tensors if t.data is not None)

    @property
    def widths(self) -> str:
        """Types of the results of ops: see `nmpconv.base.verdict.widths`."""
        return widths([8 * np.dtype(self.tensors[op.outputs[0]].dtype).itemsize for op in self.ops])

    @property
    def config(self) -> dict[str, Any]:
        """Options of the conversion, by their names; {} where the file does not say. Anybody may have written it."""
        try:
            options = json.loads(self.metadata.get("config", ""))
        except (ValueError, RecursionError):
            return {}
        return options if isinstance(options, dict) else {}


def read(source: Path | str | bytes | memoryview, *, verified: bool = False, where: str = "") -> Model:
    """The model of a path or of a file's bytes. Raises InputError (unreadable) or ModelError (refused).

    Ops of a later version are shown as they are. verified: the interpreter has taken the file; what runs files has no
    ops of Python. where: the name of bytes in an error.
    """
    if isinstance(source, bytes | memoryview):
        data = source
    else:
        data, where = read_file(source), str(source)
    try:
        root = unpack(data)
        if not verified:
            from nmpconv.file import semantics

            semantics.verify(root, data, unknown=True)
        return _model(root, len(data))
    except ModelError as error:
        if not where:
            raise
        raise ModelError(error.message, where=where, hint=error.hint, status=error.status) from error


class Names(NamedTuple):
    """Names of a file that is refused. ops: names and kinds."""

    tensors: list[str]
    ops: list[tuple[str, str]]


def names(data: bytes | memoryview) -> Names:
    """Raises ModelError where the structure is damaged."""
    root = unpack(data)
    ops = [(table["name"], KINDS.get(table["params"][0], table["params"][0])) for table in root["ops"]]
    return Names([table["name"] for table in root["tensors"]], ops)


def _model(root: Table, file_bytes: int) -> Model:
    tensors = tuple(_tensor(table) for table in root["tensors"])
    inputs, outputs = (tuple(_port(table, tensors) for table in root[side]) for side in ("inputs", "outputs"))
    _check_origins(inputs, outputs, tensors)
    return Model(
        version=(root["major"], root["minor"]),
        name=root["name"] or "",
        tensors=tensors,
        ops=tuple(map(_op, root["ops"])),
        inputs=inputs,
        outputs=outputs,
        arena_bytes=root["arena_bytes"],
        labels=tuple(root["labels"] or ()),
        metadata={entry["key"]: entry["value"] for entry in root["metadata"] or ()},
        test_vectors=tuple(
            (_blobs(v["inputs"], inputs, tensors), _blobs(v["outputs"], outputs, tensors))
            for v in root["test_vectors"] or ()
        ),
        file_bytes=file_bytes,
        fast_bytes=root["fast_bytes"],
    )


def _tensor(table: Table) -> FileTensor:
    name, shape = table["name"], _ints(table["shape"])
    dtype, data = _DTYPES[table["dtype"]], table["data"]
    if data is not None:
        data = data.view(np.dtype(dtype).newbyteorder("<")).reshape(shape)
    method = _METHODS.get(table["method"], "none")
    if not isfinite(table["origin"]) or (data is not None and table["origin"]):
        raise ModelError(f"tensor {name!r} has the origin {table['origin']}")
    low, high = table["observed_min"], table["observed_max"]
    if method != "none" and data is None and not (isfinite(low) and isfinite(high) and low <= high):
        raise ModelError(f"tensor {name!r} was observed from {low} to {high}")
    return FileTensor(
        name=name,
        shape=shape,
        dtype=dtype,
        exponents=_ints(table["exponents"]),
        axis=None if table["axis"] < 0 else table["axis"],
        clip_min=table["clip_min"],
        clip_max=table["clip_max"],
        observed_min=None if method == "none" or data is not None else table["observed_min"],
        observed_max=None if method == "none" or data is not None else table["observed_max"],
        method=None if method == "none" else method,
        data=data,
        offset=table["offset"] if data is None else None,
        origin=table["origin"],
        float_exponents=None if table["float_exponents"] is None else _ints(table["float_exponents"]),
        float_axis=None if table["float_axis"] < 0 else table["float_axis"],
        float_offsets=() if table["float_offsets"] is None else tuple(map(float, table["float_offsets"])),
        float_mantissas=() if table["float_mantissas"] is None else tuple(map(float, table["float_mantissas"])),
    )


def _op(table: Table) -> FileOp:
    member, fields = table["params"]
    inputs, outputs = _ints(table["inputs"]), _ints(table["outputs"])
    lists = {f.name for f in TABLES.get(member, ()) if f.kind == "vector"}
    params = {key: _ints(value) if key in lists else value for key, value in fields.items()}
    kind = KINDS.get(member, member)
    places = table["live_end"], table["scratch_at"], table["scratch_room"]
    return FileOp(kind, table["name"], inputs, outputs, params, table["macs"], *places)


def _port(table: Table, tensors: Sequence[FileTensor]) -> FilePort:
    name, shape = table["name"], _ints(table["source_shape"])
    size = prod(tensors[table["tensor"]].shape)
    if shape and (min(shape) < 1 or prod(shape) != size):
        raise ModelError(f"port {name!r} has the source shape {list(shape)}, its tensor has {size} elements")
    channels = tensors[table["tensor"]].shape[-1:]  # NHWC
    preprocess = None if table["preprocess"] is None else _preprocess(table["preprocess"], name, channels)
    state = None if table["state"] == -1 else table["state"]
    sound = None
    if table["sound"] is not None:
        from nmpconv.base.sound import SoundFront  # most files bring none

        sound = SoundFront.of(table["sound"])
    return FilePort(name, table["tensor"], preprocess, table["pixels"], shape, state, table["start"], sound)


def _check_origins(inputs: Sequence[FilePort], outputs: Sequence[FilePort], tensors: Sequence[FileTensor]) -> None:
    """States and their outputs have one."""
    for port in inputs:
        if port.state is not None:
            to, of = tensors[port.tensor], tensors[outputs[port.state].tensor]
            if to.origin != of.origin:
                raise ModelError(f"state {port.name!r} has the origin {to.origin}, its output {of.name!r} {of.origin}")


def _preprocess(table: Table, port: str, channels: tuple[int, ...]) -> Preprocess:
    """Fields that are absent keep the defaults of Preprocess; lists become tuples of floats."""
    fields: dict[str, Any] = {key: value for key, value in table.items() if value is not None}
    for key, value in fields.items():
        if isinstance(value, np.ndarray):
            fields[key] = tuple(float(x) for x in value)
    preprocess = Preprocess(**fields)
    right = {
        **{key: getattr(preprocess, key) in allowed for key, allowed in Preprocess.CHOICES.items()},
        "mean": len(preprocess.mean) in (1, *channels) and all(map(isfinite, preprocess.mean)),
        "std": len(preprocess.std) in (1, *channels) and all(isfinite(x) and x > 0 for x in preprocess.std),
        "range": len(preprocess.range) == 2 and all(map(isfinite, preprocess.range)),
        "crop": 0 < preprocess.crop <= 1,
        "pad": 0 <= preprocess.pad <= 255,
    }
    if wrong := [key for key, is_right in right.items() if not is_right]:
        raise ModelError(f"port {port!r} has a preprocessing with {wrong[0]} {getattr(preprocess, wrong[0])!r}")
    return preprocess


def _ints(vector: np.ndarray | None) -> tuple[int, ...]:
    return () if vector is None else tuple(vector.tolist())


def _blobs(items: list[Table] | None, ports: Sequence[FilePort], tensors: Sequence[FileTensor]) -> tuple[bytes, ...]:
    """The bytes of one test vector for each port."""
    blobs = tuple(b"" if item["data"] is None else item["data"].tobytes() for item in items or ())
    wanted = [tensors[port.tensor].nbytes for port in ports]
    if [len(data) for data in blobs] != wanted:
        raise ModelError(f"a test vector has {[len(data) for data in blobs]} bytes, its ports have {wanted}")
    return blobs
