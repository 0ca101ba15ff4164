"""Shapes of the graph's inputs: batch 1, everything else fixed by the model or by the user."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx

from nmpconv.errors import UsageError
from nmpconv.frontend.to_float32 import REALS

Dim = int | str
INTEGERS = (
    *(onnx.TensorProto.UINT8, onnx.TensorProto.INT8, onnx.TensorProto.UINT16, onnx.TensorProto.INT16),
    *(onnx.TensorProto.INT32, onnx.TensorProto.INT64),
)


def bind(
    inputs: Sequence[onnx.ValueInfoProto], needed: Collection[str], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """The shapes of the needed ones of the inputs. shapes: the user's shapes by input name.

    A first dimension without a size becomes 1. UsageError for unknown names, for shapes that contradict the model,
    and for dimensions that nobody gave a size.
    """
    names = [value.name for value in inputs]
    for name in shapes:
        if name not in names:
            hint = f"inputs: {', '.join(names)}"
            raise UsageError(f"the model has no input '{name}'", where="--input-shape", hint=hint)
    return {value.name: _bind(value, shapes.get(value.name)) for value in inputs if value.name in needed}


def is_real(value: onnx.ValueInfoProto) -> bool:
    """Checks that its numbers can be read as reals: floats, integers, and truth as 0 and 1."""
    return value.type.tensor_type.elem_type in (*REALS, *INTEGERS, onnx.TensorProto.BOOL)


def type_name(element: int) -> str:
    """Name of a TensorProto.DataType; a number that is none of it stands for itself."""
    known = element in onnx.TensorProto.DataType.values()
    return onnx.TensorProto.DataType.Name(element).lower() if known else f"type {element}"


def flag(name: str, shape: Sequence[Dim]) -> str:
    """The command line's spelling of an input's shape."""
    return f"--input-shape {name}={'x'.join(map(str, shape))}"


def _bind(value: onnx.ValueInfoProto, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    name = value.name
    if not value.type.tensor_type.HasField("shape"):
        if wanted is None:
            raise UsageError(f"input '{name}' has no shape", hint=f"pass its shape: {flag(name, (1, 3, 224, 224))}")
        return wanted
    dims: list[Dim] = [
        dim.dim_value if dim.dim_value > 0 else dim.dim_param or "?" for dim in value.type.tensor_type.shape.dim
    ]
    batched = bool(dims) and (isinstance(dims[0], str) or len(dims) == 4)
    if wanted is not None:
        # Another batch than the model's is fine: what the exporter wrote there is often an accident.
        if len(wanted) != len(dims) or any(
            isinstance(dim, int) and dim != size and not (batched and axis == 0)
            for axis, (dim, size) in enumerate(zip(dims, wanted, strict=True))
        ):
            sizes, allowed = "x".join(map(str, wanted)), "x".join(map(str, dims))
            raise UsageError(f"input '{name}' cannot be {sizes}; the model says {allowed}", where="--input-shape")
        if any(size < 1 for size in wanted):
            raise UsageError(f"input '{name}' needs positive sizes", where=flag(name, wanted))
        dims = list(wanted)
    if batched and isinstance(dims[0], str):
        dims[0] = 1
    unknown = [f"{axis} ({dim})" for axis, dim in enumerate(dims) if isinstance(dim, str)]
    if unknown:
        raise UsageError(
            f"input '{name}' has dimensions without a size: {', '.join(unknown)}",
            hint=f"bind them, for example {flag(name, _example(dims))}",
        )
    shape = tuple(int(dim) for dim in dims)
    if batched and shape[0] != 1:
        raise UsageError(
            f"input '{name}' has batch {shape[0]}; models are converted for batch 1",
            hint=f"export it with a batch of 1, or try {flag(name, (1, *shape[1:]))}",
        )
    return shape


def _example(dims: Sequence[Dim]) -> list[int]:
    """Dimensions with the missing ones guessed, for a hint only."""
    guesses = (1, 3, 224, 224) if len(dims) == 4 else (100,) * len(dims)
    if len(dims) == 4 and isinstance(dims[3], int) and dims[3] <= 4:
        guesses = (1, 224, 224, 3)
    return [dim if isinstance(dim, int) else guess for dim, guess in zip(dims, guesses, strict=True)]
