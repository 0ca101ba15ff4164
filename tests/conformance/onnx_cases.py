"""The onnx package's own backend tests as models that a CNN could contain: cases that nobody here wrote.

A node test has all of its tensors as inputs. Here each becomes a model that computes on its float inputs (or on its
first one alone, the others being constants, as weights are), for a batch of 1; a batch of n is n samples.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, version_converter

from nmpconv.calib.engine import OnnxEngine
from nmpconv.frontend.expand import ALWAYS as EXPANDED
from nmpconv.frontend.onnx import OP_OF_ONNX
from nmpconv.frontend.read import OPSET_MIN

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
FOLDERS = ("pytorch-converted", "pytorch-operator", "simple")
_FLOATS = {np.dtype(t) for t in ("float32", "float64")}
# Expected values that are written down with four digits.
_PRINTED = {"averagepool_2d_ceil_last_window_starts_on_pad"}
# Corners aligned by a length that is no whole number: the operator's text, onnxruntime and PyTorch have the sizes.
_BY_SCALES = {f"resize_downsample_scales_{mode}_align_corners" for mode in ("cubic", "linear")}
_NARROW = {"float16": 2.0**-9, "bfloat16": 2.0**-6}

# The same functions of ONNX as the converter expands, written out.
_EXPANDED_HERE = ("attention",)

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class OnnxCase:
    """A case as the package has it. op: the operator that it is about, or those of its graph."""

    name: str
    op: str
    model: onnx.ModelProto
    inputs: Arrays
    outputs: Arrays


@dataclass(frozen=True)
class Variant:
    """A case with its parameters as constants, and its batch cut into samples. shapes: of the inputs that were cut."""

    name: str
    model: onnx.ModelProto
    shapes: dict[str, tuple[int, ...]]
    samples: tuple[Arrays, ...]
    expected: tuple[Arrays, ...]


@cache
def in_scope(modules: tuple[str, ...] = ()) -> tuple[OnnxCase, ...]:
    """Every case of ops of the table whose data is float, or truth. modules: of the node tests, instead of all."""
    by_name = {case.name: case for case in (*_node_cases(modules), *(() if modules else _folder_cases()))}
    return tuple(case for _, case in sorted(by_name.items()) if _is_in_scope(case))


def choices(case: OnnxCase) -> list[list[str]]:
    """Inputs that are computed: all that are float, or only the first of them."""
    data = [name for name, array in case.inputs.items() if is_data(array)]
    return [data, data[:1]] if len(data) > 1 else [data]


def narrowed(case: OnnxCase) -> list[OnnxCase]:
    """The case, and with the first of its outputs alone, which is what CNNs use of pools and normalizations."""
    if len(case.outputs) < 2:
        return [case]
    model, first = onnx.ModelProto(), next(iter(case.outputs))
    model.CopyFrom(case.model)
    del model.graph.output[1:]
    return [case, replace(case, model=model, outputs={first: case.outputs[first]})]


def precision(case: OnnxCase) -> float:
    """The share of a result that the case's own arithmetic may have lost: nothing to speak of, unless it is narrow."""
    names = {array.dtype.name for array in (*case.inputs.values(), *case.outputs.values())}
    if case.name in _PRINTED:
        return 2.0**-13
    return max((loss for name, loss in _NARROW.items() if name in names), default=0.0)


def is_data(array: np.ndarray) -> bool:
    """Not a parameter such as a shape or indices."""
    return array.dtype in _FLOATS or array.dtype.name in _NARROW or array.dtype == np.bool_


# -- where they come from ---------------------------------------------------------------------------------------------


def _node_cases(modules: Sequence[str]) -> Iterator[OnnxCase]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        package = import_module("onnx.backend.test.case.node")
        if modules:
            for module in modules:
                import_module(f"onnx.backend.test.case.node.{module}")
            cases = package._NodeTestCases
        else:
            cases = package.collect_testcases(None)
    for case in cases:
        if case.model is not None and case.data_sets:
            inputs, outputs = case.data_sets[0]
            yield from _case(case.name, _readable(case.model), inputs, outputs)


def _folder_cases() -> Iterator[OnnxCase]:
    for path in sorted(path for folder in FOLDERS for path in (DATA / folder).glob("*/model.onnx")):
        model, data = onnx.load(path), path.parent / "test_data_set_0"
        try:
            tensors = [
                [numpy_helper.to_array(onnx.load_tensor(file)) for file in _numbered(data, role)]
                for role in ("input", "output")
            ]
        except Exception:  # a sequence, which is no tensor
            continue
        yield from _case(path.parent.name, _readable(model), *tensors)


def _numbered(folder: Path, role: str) -> list[Path]:
    return sorted(folder.glob(f"{role}_*.pb"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))


def _readable(model: onnx.ModelProto) -> onnx.ModelProto:
    """In the oldest opset that is read if it is older."""
    old = model.opset_import[0].domain == "" and model.opset_import[0].version < OPSET_MIN
    return version_converter.convert_version(model, OPSET_MIN) if old else model


def _case(name: str, model: onnx.ModelProto, inputs: Sequence, outputs: Sequence) -> Iterator[OnnxCase]:
    constants = {tensor.name for tensor in model.graph.initializer}
    ports = [value.name for value in model.graph.input if value.name not in constants]
    results = [value.name for value in model.graph.output]
    inputs, outputs = ([np.asarray(x) if np.isscalar(x) else x for x in side] for side in (inputs, outputs))
    arrays = [*inputs, *outputs]
    if len(ports) == len(inputs) and len(results) == len(outputs) and all(isinstance(a, np.ndarray) for a in arrays):
        feeds, wanted = dict(zip(ports, inputs, strict=True)), dict(zip(results, outputs, strict=True))
        kinds = [node.op_type for node in model.graph.node]
        op = kinds[0] if len(kinds) == 1 else "+".join(dict.fromkeys(kinds))
        yield OnnxCase(name.removeprefix("test_"), op, model, feeds, wanted)


def _is_in_scope(case: OnnxCase) -> bool:
    """Its data is float or truth, and every node that depends on data is in the table; a shape is no data."""
    computed = {name for name, array in case.inputs.items() if is_data(array)}
    if case.name.endswith("_expanded") and case.name.split("_")[0] in _EXPANDED_HERE:
        return False
    if case.name in _BY_SCALES:
        return False
    first = next(iter(case.inputs.values()), None)
    if first is None or not is_data(first):
        return False
    for node in case.model.graph.node:
        if node.domain not in ("", "ai.onnx"):
            return False
        if computed.intersection(node.input) and node.op_type not in ("Shape", "Size"):
            if node.op_type not in OP_OF_ONNX and node.op_type not in EXPANDED:
                return False
            computed.update(node.output)
    return bool(computed.intersection(case.outputs))


# -- what is made of them ---------------------------------------------------------------------------------------------


def variant(case: OnnxCase, names: Sequence[str]) -> Variant:
    """The case with these inputs computed and the others constant, for a batch of 1."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    constants = [name for name in case.inputs if name not in names]
    ports = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(ports)
    model.graph.initializer.extend(numpy_helper.from_array(case.inputs[name], name) for name in constants)
    computed = {name: case.inputs[name] for name in names}
    for name in [name for name, x in computed.items() if x.dtype == np.bool_]:
        computed[f"{name}.number"] = computed.pop(name)
        _casting(model, name)
    batch = max((len(x) for x in computed.values() if x.ndim == 4), default=1)
    if batch <= 1:
        return Variant(case.name, model, {}, (_float32(computed),), (_float32(case.outputs),))
    shapes = {name: (1, *x.shape[1:]) for name, x in computed.items() if x.ndim == 4}
    samples = tuple(_float32(_cut(computed, i, batch)) for i in range(batch))
    expected = tuple(_float32(_cut(case.outputs, i, batch)) for i in range(batch))
    if _independent(model, shapes, samples, expected):
        return Variant(case.name, model, shapes, samples, expected)
    flat = {f"{name}.flat": x.reshape(1, -1) for name, x in computed.items()}
    return Variant(case.name, _reshaping(model, computed), {}, (_float32(flat),), (_float32(case.outputs),))


def _casting(model: onnx.ModelProto, name: str) -> None:
    """An input of truth is handed in as numbers."""
    [value] = [value for value in model.graph.input if value.name == name]
    value.name, value.type.tensor_type.elem_type = f"{name}.number", onnx.TensorProto.FLOAT
    model.graph.node.insert(0, onnx.helper.make_node("Cast", [value.name], [name], to=onnx.TensorProto.BOOL))


def _reshaping(model: onnx.ModelProto, inputs: Arrays) -> onnx.ModelProto:
    """The model with its inputs handed in as [1, n]: a first axis of another size than 1 then is no batch."""
    for value in [value for value in model.graph.input if value.name in inputs]:
        shape = inputs[value.name].shape
        old, value.name = value.name, f"{value.name}.flat"
        value.type.tensor_type.shape.CopyFrom(
            onnx.TensorShapeProto(dim=[onnx.TensorShapeProto.Dimension(dim_value=n) for n in (1, math.prod(shape))])
        )
        model.graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), f"{old}.shape"))
        model.graph.node.insert(0, onnx.helper.make_node("Reshape", [value.name, f"{old}.shape"], [old]))
    return model


def _cut(arrays: Arrays, i: int, batch: int) -> Arrays:
    """Sample i of those that are a batch."""
    return {name: x[i : i + 1] if x.ndim and len(x) == batch else x for name, x in arrays.items()}


def _float32(arrays: Arrays) -> Arrays:
    with np.errstate(over="ignore"):  # some cases have data that float32 does not hold; they are refused
        return {name: x.astype(np.float32) for name, x in arrays.items()}


def _independent(
    model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]], samples: Sequence[Arrays], expected: Sequence[Arrays]
) -> bool:
    """Checks that the model computes the samples of a batch one by one."""
    names = [value.name for value in model.graph.output]
    free = onnx.ModelProto()
    free.CopyFrom(model)
    del free.graph.output[:]
    free.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        engine = OnnxEngine(free, shapes, names)
        results = [engine.run(sample) for sample in samples]
    except Exception:  # onnxruntime has no base class of its own
        return False
    pairs = [(got[name], wanted[name]) for got, wanted in zip(results, expected, strict=True) for name in names]
    return all(got.shape == wanted.shape and np.allclose(got, wanted, 1e-3, 1e-5) for got, wanted in pairs)
