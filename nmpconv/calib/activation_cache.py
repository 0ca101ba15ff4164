"""Cache of the float model's activations on some images, for the passes: statistics, and rows of pre-activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nmpconv.base.float_rounding import on_grid
from nmpconv.base.thread_pool import MOST, each
from nmpconv.calib.engine import Engine, FloatEngine, is_small, serialized
from nmpconv.calib.sampled_rows import Rows, spread
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops import OPS
from nmpconv.ops.op import quant_of
from nmpconv.ops.requantize import requantize

ROWS = 4096  # rows kept of a tensor
ROW_BYTES = 96 << 20  # of all tensors together
SUMS = 4  # of a stream that may drift
FEW = 8  # images that are run one by one: each run in parallel holds the activations of one
SMALL = 2**12  # numbers of a tensor that is read whole: nodes that pick its rows would cost more
PLANES_LAST = [0, 2, 3, 1]
SHAPE, FLAT, PICKED, ROWS_OF = "/nmpconv/shape", "/nmpconv/flat", "/nmpconv/picked", "nmpconv/rows of "  # of names

T = TypeVar("T")

Feeds = Sequence[Mapping[str, np.ndarray]]
"""One item an image: float input by name, batch 1. Any sequence, so nothing needs to be in memory at once."""


@dataclass(frozen=True)
class Evidence:
    """Float inputs [N, ...] by name, and rows of the pre-activations of the nodes asked for, by output name.

    Empty for a conversion without images.
    """

    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    rows: Mapping[str, Rows] = field(default_factory=dict)
    rounded: dict[tuple[str, Quant], np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    def on_grids(self, graph: Graph) -> dict[str, np.ndarray]:
        """The inputs as integers of a quantized graph. They are kept: graphs that differ elsewhere ask for the same."""
        arrays = {}
        for name, x in self.inputs.items():
            quant = quant_of(graph[name])
            if (name, quant) not in self.rounded:
                self.rounded[name, quant] = integers(x, graph[name])
            arrays[name] = self.rounded[name, quant]
        return arrays

    def first(self, count: int) -> Evidence:
        """Returns the evidence of the first images."""
        inputs = {name: x[:count] for name, x in self.inputs.items()}
        return Evidence(inputs, {name: Rows(*(part[r.images < count] for part in r)) for name, r in self.rows.items()})


def of_images(x: np.ndarray, indices: np.ndarray, count: int) -> np.ndarray:
    """Tensors of some images, of those of count, one after the other along the first axis."""
    each_has = len(x) // count
    return x.take((indices[:, None] * each_has + np.arange(each_has)).ravel(), axis=0)


def inputs_of(graph: Graph, feeds: Feeds) -> Evidence:
    """The inputs alone."""
    return Evidence(
        {n: np.concatenate([np.atleast_1d(f[n]) for f in feeds]) for n in graph.inputs} if len(feeds) else {}
    )


def collect(graph: Graph, feeds: Feeds, ops: Collection[str], inputs: Evidence | None = None) -> Evidence:
    """Runs the float graph on every image and keeps rows of the outputs of `sampled_nodes`, before their clamp.

    inputs: what `inputs_of` gives, where that is known.
    """
    rows = run_once(graph, feeds, ops, [range(len(feeds))]).rows[0]
    return replace(inputs or inputs_of(graph, feeds), rows=rows)


def sampled_nodes(graph: Graph, ops: Collection[str]) -> list[Node]:
    """The nodes of these ops, and the residual sums behind them."""
    adds = residual_sums(graph, 0)
    sums = {adds[node.outputs[0]].outputs[0] for node in graph.nodes if node.op in ops and node.outputs[0] in adds}
    return [node for node in graph.nodes if node.op in ops or node.outputs[0] in sums]


def residual_sums(graph: Graph, least: int = SUMS) -> dict[str, Node]:
    """Adds of long streams, by the operand that is added to the stream: no activation, and read by the add alone.

    The other operand has the same shape, and so many sums or more before it. A stream of fewer than SUMS hardly drifts.
    """
    users, outputs, adds = graph.consumers(), frozenset(graph.outputs), dict[str, Node]()
    before: dict[str, int] = {}  # sums in the stream up to an activation
    for node in graph.nodes:
        names = [name for name in node.inputs if not graph[name].is_const]
        depth = max((before.get(name, 0) for name in names), default=0)
        if node.op == "add":
            before[node.outputs[0]] = depth + 1
            for name, other in zip(names, names[::-1], strict=True):
                out = graph[name]
                alone = users[name] == [node] and name not in outputs and not out.clamp and out.shape
                if alone and len({*names}) == 2 and out.shape == graph[other].shape and before.get(other, 0) >= least:
                    adds[name] = node
        elif OPS[node.op].grid == "same":
            before.update(dict.fromkeys(node.outputs, depth))
    return adds


class RowsAndOutputs(NamedTuple):
    """Results of one run of every image. rows: of each part of the images. whole: by name, [N, ...]; empty where
    nothing was run."""

    rows: Sequence[Mapping[str, Rows]]
    whole: Mapping[str, np.ndarray]


def run_once(
    graph: Graph, feeds: Feeds, ops: Collection[str], parts: Sequence[Sequence[int]], whole: Sequence[str] = ()
) -> RowsAndOutputs:
    """Runs every image once, for the rows that `collect` keeps, of each of these parts of the images. whole: tensors
    that are kept as they are, of all images of the parts in order."""
    plain, before = _split_clamps(graph, sampled_nodes(graph, ops))
    if not before or not len(feeds):
        return RowsAndOutputs([{} for _ in parts], {})
    widths = {name: (graph[name].shape or (1,))[-1] for name in before}
    limit = max(64, min(ROWS, ROW_BYTES // (4 * sum(widths.values()))))

    sizes = {name: math.prod(graph[name].shape[:-1]) for name in before}

    def empty(name: str, images: int) -> Rows:
        at = spread(images, sizes[name], limit)
        return Rows(*at, np.empty((len(at.images), widths[name]), np.float32))

    tables = [{name: empty(name, len(part)) for name in before} for part in parts]
    engine = _Picking(plain, {pre: widths[name] for name, pre in before.items()}, whole)

    def places(image: int, size: int) -> list[tuple[int, slice, np.ndarray]]:
        """Rows of an image in tensors of a size: which table they are in, where, and their positions."""
        shares = []
        for table, part in enumerate(parts):
            if image in part:
                at, i = spread(len(part), size, limit), part.index(image)
                rows = slice(*np.searchsorted(at.images, (i, i + 1)).tolist())
                shares.append((table, rows, at.positions[rows]))
        return shares

    def run(image: int) -> list[np.ndarray]:
        by_size = {size: places(image, size) for size in {*sizes.values()}}
        positions = {size: np.concatenate([at for *_, at in shares]) for size, shares in by_size.items()}
        at = {pre: positions[sizes[name]] for name, pre in before.items()}
        picked, heads = engine.rows(feeds[image], at)
        for name, values in zip(before, picked, strict=True):
            start = 0
            for table, rows, part in by_size[sizes[name]]:
                tables[table][name].values[rows] = values[start : start + len(part)]
                start += len(part)
        return heads

    results = _each(run, sorted({image for part in parts for image in part}))
    return RowsAndOutputs(tables, dict(zip(whole, _together(results), strict=True)))


def _together(results: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Tensors of all images, [N, ...], of those of each image."""
    return [np.concatenate([np.atleast_1d(x) for x in tensors]) for tensors in zip(*results, strict=True)]


def _each(run: Callable[[int], T], images: Sequence[int]) -> list[T]:
    """Runs of images; of few ones one after the other."""
    return each(run, images, 1 if len(images) <= FEW else MOST)


class Moved(Mapping[str, Rows]):
    """Rows of tensors that are times a factor of each channel [C] and less an origin, made when they are asked for.

    changed: both, by the names that are asked for.
    """

    def __init__(self, rows: Mapping[str, Rows], changed: Mapping[str, tuple[np.ndarray, float]]) -> None:
        self._rows, self._changed = rows, changed

    def __getitem__(self, name: str) -> Rows:
        rows, (factor, origin) = self._rows[name], self._changed[name]
        if origin == 0 and np.all(factor == 1):
            return rows
        moved = rows.values * factor
        moved -= origin
        return rows._replace(values=moved.astype(np.float32))

    def __iter__(self) -> Iterator[str]:
        return iter(self._changed if self._rows else ())

    def __len__(self) -> int:
        return len(self._changed if self._rows else ())


def integers(x: np.ndarray, value: Value) -> np.ndarray:
    """Real numbers on the grid of a quantized value."""
    quant = quant_of(value)
    return on_grid(np.asarray(x), quant.exponent, quant.lo, quant.hi, quant.dtype)[0]


class _Picking:
    """A float graph that gives rows of these activations, and not the whole of large ones. widths: channels by name.
    whole: others that it gives as they are."""

    def __init__(self, graph: Graph, widths: Mapping[str, int], whole: Sequence[str]) -> None:
        proto = to_onnx(graph, list(dict.fromkeys((*widths, *whole))))
        makers = {name: node for node in proto.graph.node for name in node.output}
        self._widths, self._whole = widths, whole
        self._sizes = {name: graph[name].size // channels for name, channels in widths.items()}
        large = [name for name in widths if graph[name].size > SMALL]
        self._by_row: dict[str, bool] = {}  # of large ones
        for name in large:
            channels = widths[name]
            rows = self._sizes[name]
            planes = _planes(makers.get(name)) if graph[name].shape[:1] == (1,) else ""
            self._by_row[name] = not planes
            flat = np.array([channels, rows] if planes else [rows, channels])
            proto.graph.initializer.append(numpy_helper.from_array(flat, name + SHAPE))
            proto.graph.node.append(helper.make_node("Reshape", [planes or name, name + SHAPE], [name + FLAT]))
            picked = [name + FLAT, self._port(name)]
            proto.graph.node.append(helper.make_node("Gather", picked, [name + PICKED], axis=int(bool(planes))))
        ports = dict.fromkeys(self._port(name) for name in large)
        proto.graph.input.extend(helper.make_tensor_value_info(port, TensorProto.INT64, ["rows"]) for port in ports)
        del proto.graph.output[:]
        self._fetched = {name: name + PICKED if name in self._by_row else name for name in widths}
        fetch = list(dict.fromkeys((*self._fetched.values(), *whole)))
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in fetch)
        data, small = serialized(proto, graph.name), is_small(proto)
        del proto, makers
        self._engine = Engine(data, fetch, where=graph.name, optimize=small, threads=1)

    def _port(self, name: str) -> str:
        """The wanted rows, which are the same for tensors of one size."""
        return f"{ROWS_OF}{self._sizes[name]}"

    def rows(
        self, feed: Mapping[str, np.ndarray], at: Mapping[str, np.ndarray]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Picks rows of each activation [R, C], and returns what is wanted whole. at: their positions."""
        ports = {self._port(name): at[name] for name in self._by_row}
        tensors, results = self._engine.run({**feed, **ports}), []
        for name, fetched in self._fetched.items():
            x = tensors[fetched]
            if name not in self._by_row:
                x = x.reshape(-1, self._widths[name])[at[name]]
            results.append(x if self._by_row.get(name, True) else x.T)
        return results, [tensors[name] for name in self._whole]


def _planes(node: onnx.NodeProto | None) -> str:
    """Name of the tensor that a node transposes to have channels side by side; '' where it does not. A transposition
    only to read some rows is not worth it."""
    if node is None or node.op_type != "Transpose" or list(node.attribute[0].ints) != PLANES_LAST:
        return ""
    return str(node.input[0])


def outputs(graph: Graph, feeds: Feeds, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Values of these tensors for all images, [N, ...]."""
    names = list(dict.fromkeys(names))
    engine = FloatEngine(graph, names, threads=1)
    results = _each(lambda i: list(engine.run(feeds[i]).values()), range(len(feeds)))
    return dict(zip(names, _together(results), strict=True))


def _split_clamps(graph: Graph, nodes: Sequence[Node]) -> tuple[Graph, dict[str, str]]:
    """A graph where the outputs of these nodes can be read before their clamp, and the names to read."""
    names = {node.outputs[0] for node in nodes if graph[node.outputs[0]].clamp}
    values, result = dict(graph.values), []
    for node in graph.nodes:
        out = node.outputs[0]
        if out not in names:
            result.append(node)
            continue
        pre = f"{out}.pre"
        values[pre] = replace(graph[out], name=pre, clamp=None)
        result.append(replace(node, outputs=(pre,)))
        result.append(requantize(pre, pre, out))
    before = {
        node.outputs[0]: f"{node.outputs[0]}.pre" if node.outputs[0] in names else node.outputs[0] for node in nodes
    }
    return replace(graph, nodes=tuple(result), values=values), before
