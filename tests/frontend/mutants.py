"""Valid models with one thing wrong, and what onnxruntime says of them."""

from __future__ import annotations

import pickle
import resource
import select
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

INTEGERS = (-(2**63), -(2**40), -99, -2, -1, 0, 1, 2, 3, 99, 2**31, 2**40)
FLOATS = (0.0, -1.0, 1e-6, 1e6, float("nan"), float("inf"))
TYPES = ("float16", "float64", "int64", "int32", "uint8", "bool", "complex64")
MEMORY = 4 << 30  # bytes that onnxruntime may take
SECONDS = 30  # for one model


def mutants(model: onnx.ModelProto, rng: np.random.Generator) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Endless: what is wrong, and the model."""
    while True:
        mutant = onnx.ModelProto.FromString(model.SerializeToString())
        change = CHANGES[rng.integers(len(CHANGES))]
        if (description := change(mutant.graph, rng)) is not None:
            yield description, mutant


def _node(graph: onnx.GraphProto, rng: np.random.Generator) -> onnx.NodeProto:
    return graph.node[rng.integers(len(graph.node))]


def _attribute(graph: onnx.GraphProto, rng: np.random.Generator) -> str | None:
    """Another value: an extreme, another string, a list that is longer, shorter or has one extreme."""
    node = _node(graph, rng)
    known = onnx.defs.get_schema(node.op_type).attributes
    if not known:
        return None
    name = sorted(known)[rng.integers(len(known))]
    old = next((a for a in node.attribute if a.name == name), None)
    value = None if old is None else helper.get_attribute_value(old)
    kind = known[name].type.value
    if kind == AttributeProto.INT:
        value = int(rng.choice(INTEGERS))
    elif kind == AttributeProto.FLOAT:
        value = float(rng.choice(FLOATS))
    elif kind == AttributeProto.STRING:
        value = str(rng.choice(["", "bogus", "VALID", "linear", "reflect", "wrap", "CRD", "tanh", "floor"]))
    elif kind == AttributeProto.INTS:
        numbers = list(value) if value else [1, 1]
        at = int(rng.integers(len(numbers)))
        number = int(rng.choice(INTEGERS))
        value = [
            [*numbers[:at], number, *numbers[at + 1 :]],
            numbers[:-1] or [number],
            [*numbers, number],
            numbers[::-1],
        ][rng.integers(4)]
    else:
        return None
    if old is not None:
        node.attribute.remove(old)
    node.attribute.append(helper.make_attribute(name, value))
    return f"{node.op_type}.{name} = {value}"


def _attribute_type(graph: onnx.GraphProto, rng: np.random.Generator) -> str | None:
    """An attribute of another type, none at all, or one that the op does not have."""
    node = _node(graph, rng)
    way = rng.integers(3)
    if way == 0 or not node.attribute:
        node.attribute.append(helper.make_attribute("bogus", 1))
        return f"{node.op_type}.bogus"
    old = node.attribute[rng.integers(len(node.attribute))]
    if old.type == AttributeProto.TENSOR or old.type == AttributeProto.GRAPH:
        return None
    node.attribute.remove(old)
    if way == 1:
        return f"{node.op_type} without {old.name}"
    value = [1, 1.5, "text", [1, 2], [1.5]][rng.integers(5)]
    node.attribute.append(helper.make_attribute(old.name, value))
    return f"{node.op_type}.{old.name} = {value!r}"


def _inputs(graph: onnx.GraphProto, rng: np.random.Generator) -> str | None:
    """One less, one empty, one more, two in the other order, or another tensor."""
    node = _node(graph, rng)
    if not node.input:
        return None
    names, at = list(node.input), int(rng.integers(len(node.input)))
    way = int(rng.integers(5))
    if way == 0:
        del names[at]
    elif way == 1:
        names[at] = ""
    elif way == 2:
        names.append(names[at])
    elif way == 3:
        names[0], names[at] = names[at], names[0]
    else:
        others = [tensor.name for tensor in graph.initializer] + [value.name for value in graph.input]
        names[at] = str(rng.choice(others))
    if names == list(node.input):
        return None
    del node.input[:]
    node.input.extend(names)
    return f"{node.op_type}({', '.join(names)})"


def _outputs(graph: onnx.GraphProto, rng: np.random.Generator) -> str | None:
    node = _node(graph, rng)
    if rng.integers(2) and len(node.output) > 1:
        node.output.pop()
    else:
        node.output.append(f"more{len(node.output)}")
    return f"{node.op_type} with {len(node.output)} outputs"


def _constant(graph: onnx.GraphProto, rng: np.random.Generator) -> str | None:
    """A tensor of another shape, another type, or with another number."""
    if not graph.initializer:
        return None
    tensor = graph.initializer[rng.integers(len(graph.initializer))]
    array = numpy_helper.to_array(tensor)
    ways: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda a: a[:-1] if a.ndim and len(a) > 1 else a[None],
        lambda a: a[None],
        lambda a: a.ravel()[0],
        lambda a: a.T,
        lambda a: np.concatenate([a, a]) if a.ndim else np.stack([a, a]),
        lambda a: a.astype(str(rng.choice(TYPES))),
        lambda a: _with_number(a, rng),
        lambda a: _with_number(a, rng),
    ]
    way = int(rng.integers(len(ways)))
    with np.errstate(all="ignore"):
        changed = np.asarray(ways[way](array))
    if changed.dtype == array.dtype and changed.shape == array.shape and np.array_equal(changed, array):
        return None
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changed).reshape(changed.shape), tensor.name))
    shown = changed.tolist() if changed.size < 9 else "..."
    return f"{tensor.name}: {changed.dtype} {list(changed.shape)} {shown}"


def _with_number(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    numbers = array.copy().ravel()
    if numbers.size:
        number = rng.choice(INTEGERS if array.dtype.kind in "iu" else FLOATS)
        numbers[rng.integers(numbers.size)] = np.asarray(number).astype(array.dtype)
    return numbers.reshape(array.shape)


def _shape(graph: onnx.GraphProto, rng: np.random.Generator) -> str | None:
    """Another size of an input."""
    value = graph.input[rng.integers(len(graph.input))]
    dims = value.type.tensor_type.shape.dim
    if len(dims) < 2:
        return None
    way = rng.integers(3)
    if way == 0:
        dims[int(rng.integers(1, len(dims)))].dim_value = int(rng.choice([1, 2, 3, 5]))
    elif way == 1:
        dims.pop()
    else:
        dims.add().dim_value = 2
    return f"{value.name}: {[dim.dim_value for dim in dims]}"


CHANGES = (_attribute, _attribute, _attribute_type, _inputs, _inputs, _constant, _constant, _constant, _outputs, _shape)


class Onnxruntime:
    """In a process of its own, since some malformed models end it."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([sys.executable, __file__], **pipes)

    def run(self, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | str:
        """The outputs, or why there are none."""
        try:
            pickle.dump((model.SerializeToString(), feeds), self._process.stdin)
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], SECONDS)[0]:
                raise EOFError
            return pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self.close()
            self._start()
            return "it ended"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _serve() -> None:
    import onnxruntime

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, most))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    while True:
        data, feeds = pickle.load(sys.stdin.buffer)
        try:
            session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            known = {value.name for value in session.get_inputs()}
            answer = session.run(None, {name: x for name, x in feeds.items() if name in known})
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
