"""Gathers and scatters by constant indices, as gathers of blocks; and the few that computed indices can have."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto, helper

from nmpconv.errors import Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import Importer
from nmpconv.ops.onnx_node import OnnxNode

ELEMENTS_MAX = 2**24  # of an index that is computed here
SCATTERED_MAX = 64  # updates along an axis at computed places


def gather_nd(node: OnnxNode, body: Body) -> None:
    """The elements or blocks at these positions of the axes after the first batch_dims ones."""
    x = node.input(0)
    shape, batch = body.shape(x), node.integer("batch_dims", 0)
    if not body.to.is_const(node.input(1)):
        _by_positions(body, x, node.input(1), batch)
        return
    index = _index(body, 1)
    places = _places(node, shape)
    depth = batch + index.shape[-1]
    rows = index.reshape(-1, index.shape[-1])
    at = list(np.indices(index.shape[:-1])[:batch].reshape(batch, len(rows)))
    at += [_wrapped(node, column, size) for column, size in zip(rows.T, shape[batch:depth], strict=True)]
    indices = places[tuple(at)]
    _take(body, x, indices.reshape(*index.shape[:-1], *shape[depth:]), node.outputs[0])


def compress(node: OnnxNode, body: Body) -> None:
    """Gathers what lies where a constant condition holds, along an axis or of all elements in a row."""
    x, axis = node.input(0), node.integer("axis", 0)
    if not body.to.is_const(node.input(1)):
        raise Unsupported("the shape of its result depends on data", hint="a constant condition")
    if "axis" not in node.attributes:
        x = body("Reshape", x, np.array([-1]))
    places = np.flatnonzero(body.to.constants[node.input(1)])
    if not places.size:
        raise Unsupported("its result has no elements", hint="a condition that is true somewhere")
    body("Gather", x, places, axis=axis, output=node.outputs[0])


def gather_elements(node: OnnxNode, body: Body) -> None:
    """y[i, j] = x[index[i, j], j] along axis 0, and so on for other axes."""
    x, shape = node.input(0), body.shape(node.input(0))
    axis = node.axis(node.integer("axis", 0), len(shape))
    index = _index(body, 1)
    _take(body, x, _along(node, shape, index, axis), node.outputs[0])


def scatter_elements(node: OnnxNode, body: Body) -> None:
    """The reverse: updates go to the positions that gather_elements reads."""
    shape = body.shape(node.input(0))
    axis = node.axis(node.integer("axis", 0), len(shape))
    if body.to.is_const(node.input(1)):
        _scatter(node, body, _along(node, shape, _index(body, 1), axis))
    else:
        _scatter_chosen(node, body, axis)


def scatter_nd(node: OnnxNode, body: Body) -> None:
    if not body.to.is_const(node.input(1)):
        _scatter_rows(node, body)
        return
    index, shape = _index(body, 1), body.shape(node.input(0))
    flat = index.reshape(-1, index.shape[-1])
    columns = [_wrapped(node, flat[:, i], shape[i]) for i in range(index.shape[-1])]
    indices = _places(node, shape)[tuple(columns)]
    _scatter(node, body, indices.reshape(*index.shape[:-1], *shape[index.shape[-1] :]))


def _numbers(body: Body, name: str) -> np.dtype[np.generic]:
    """The type of a tensor's elements."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(body.element(name)))


def _scatter(node: OnnxNode, body: Body, places: np.ndarray) -> None:
    """places: where in the first input, counted row by row, each element of the third one goes."""
    x, updates = node.input(0), node.input(2)
    shape, reduction = body.shape(x), node.text("reduction", "none")
    if reduction == "none":
        _put(body, x, updates, places, node.outputs[0])
        return
    if reduction not in _REDUCTIONS:
        raise Unsupported(f"reduction {reduction}", hint="none, add, mul, min or max")
    kind, neutral = _REDUCTIONS[reduction]
    order = np.argsort(places, axis=None, kind="stable")
    ranks = np.empty(places.size, np.int64)  # the how-manieth update of its place each one is
    starts = np.r_[True, np.diff(places.ravel()[order]) != 0]
    ranks[order] = np.arange(places.size) - np.maximum.accumulate(np.where(starts, np.arange(places.size), 0))
    rounds = int(ranks.max(initial=0)) + 1
    flat = body("Reshape", updates, np.array([-1]))
    for turn in range(rounds):
        chosen = np.flatnonzero(ranks == turn)
        part = flat if rounds == 1 else body("Gather", flat, chosen)
        ground = x if neutral is None else body.operand(np.full(shape, neutral, _numbers(body, x)))
        spread = _put(body, ground, part, places.ravel()[chosen], "")
        x = body(kind, x, spread, output=node.outputs[0] if turn == rounds - 1 else "")


# The op, and what changes nothing; None: the tensor itself.
_REDUCTIONS: dict[str, tuple[str, float | None]] = {
    "add": ("Add", 0.0),
    "mul": ("Mul", 1.0),
    "min": ("Min", None),
    "max": ("Max", None),
}


def _put(body: Body, x: str, updates: str, places: np.ndarray, output: str) -> str:
    """x with the updates at these places: a gather of both, one after the other."""
    shape = body.shape(x)
    source = np.arange(prod(shape))
    source[places.ravel()] = source.size + np.arange(places.size)
    block = _block(source.reshape(shape), places.size)
    rows = [body("Reshape", name, np.array([1, -1, block])) for name in (x, updates)]
    joined = body("Concat", *rows, axis=1)
    taken = body("Gather", joined, source[::block] // block, axis=1)
    return body("Reshape", taken, np.array(shape), output=output)


def _take(body: Body, x: str, places: np.ndarray, output: str) -> None:
    """The elements of x at these places, counted row by row."""
    if not places.size:
        raise Unsupported("its result would be empty")
    block = _block(places, 0)
    rows = body("Reshape", x, np.array([1, -1, block]))
    taken = body("Gather", rows, places.ravel()[::block] // block, axis=1)
    body("Reshape", taken, np.array(places.shape, np.int64), output=output)


def _block(places: np.ndarray, extra: int) -> int:
    """The most elements that always stay side by side, and divide ``extra``, too."""
    block = 1
    for size in places.shape[::-1]:
        wider = block * size
        rows = places.reshape(-1, wider)
        if extra % wider or (rows[:, 0] % wider).any() or not (rows == rows[:, :1] + np.arange(wider)).all():
            break
        block = wider
    return block


def _along(node: OnnxNode, shape: tuple[int, ...], index: np.ndarray, axis: int) -> np.ndarray:
    grid: list[np.ndarray] = list(np.indices(index.shape, sparse=True))
    grid[axis] = _wrapped(node, index, shape[axis])
    return _places(node, shape)[tuple(grid)]


def _places(node: OnnxNode, shape: tuple[int, ...]) -> np.ndarray:
    """The number of each element, row by row."""
    if prod(shape) > ELEMENTS_MAX:
        raise Unsupported(f"an index into {prod(shape)} elements", hint=f"at most {ELEMENTS_MAX}")
    return np.arange(prod(shape)).reshape(shape)


def _wrapped(node: OnnxNode, index: np.ndarray, size: int) -> np.ndarray:
    """Indices that may count from the end as such from 0 on."""
    for end in (index.min(initial=0), index.max(initial=0)):
        node.axis(int(end), size, "index")
    return np.where(index < 0, index + size, index)


def _index(body: Body, place: int) -> np.ndarray:
    return body.to.array(body.node.input(place), "index").astype(np.int64)


# -- computed indices -------------------------------------------------------------------------------------------------


def _is_computed(node: OnnxNode, to: Importer) -> bool:
    return not to.is_const(node.input(1))


def _is_chosen(node: OnnxNode, to: Importer) -> bool:
    return to.is_const(node.input(1))


def gather(node: OnnxNode, body: Body) -> None:
    """The slices at these indices of an axis, whose place the axes of the index take."""
    x, index = node.input(0), node.input(1)
    shape, at = body.shape(x), body.shape(index)
    axis = node.axis(node.integer("axis", 0), len(shape))
    blocks = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    _rows(body, body("Reshape", x, np.array(blocks)), index, (*shape[:axis], *at, *shape[axis + 1 :]))


def _by_positions(body: Body, x: str, index: str, batch: int) -> None:
    """The axes that positions are of become one."""
    shape, at = body.shape(x), body.shape(index)
    sizes, rest = shape[batch : batch + at[-1]], shape[batch + at[-1] :]
    blocks = prod(shape[:batch]), prod(sizes), prod(rest)
    _rows(body, body("Reshape", x, np.array(blocks)), _counted(body, index, sizes), (*at[:-1], *rest))


def _counted(body: Body, index: str, sizes: tuple[int, ...]) -> str:
    """Positions in axes of these sizes, the last axis of the index, as places counted row by row, from the start. An
    axis of length 1 leaves nothing to choose. No column lies beyond its axis, so that what is computed from all of them
    has a known end."""
    at = body.shape(index)
    long = [i for i, size in enumerate(sizes) if size > 1] or [0]
    low, high = body.to.reach(body.to.value(index))
    if long[1:] and low < 0:
        raise Unsupported(f"positions '{index}' that may be negative", hint="positions from the start")
    flat = ""
    for i in long:
        term = body("Gather", index, np.array([i]), axis=len(at) - 1) if sizes[1:] else index
        if long[1:] and high >= sizes[i]:
            term = body("Clip", term, np.array(0), np.array(sizes[i] - 1))
        if (step := prod(sizes[i + 1 :])) > 1:
            term = body("Mul", term, np.array(step))
        flat = body("Add", flat, term) if flat else term
    return flat


def _rows(body: Body, blocks: str, index: str, shape: tuple[int, ...]) -> None:
    """Gathers those of blocks [B,N,R] at the indices, either for each of the B as many, or for all the same; in this
    shape."""
    groups, _, size = body.shape(blocks)
    count = prod(shape) // (groups * size)
    same = prod(body.shape(index)) == count
    lines = body("Reshape", index, np.array([1 if same else groups, count, 1]))
    spread = body("Expand", lines, np.array([groups, count, size]))
    body("Reshape", body("GatherElements", blocks, spread, axis=1), np.array(shape), output=body.node.outputs[0])


def _scatter_chosen(node: OnnxNode, body: Body, axis: int) -> None:
    """Scatters by computed indices: each update along the axis is compared with all places. Indices of one row differ,
    as ONNX wants it where nothing is reduced."""
    x, index, updates = map(node.input, range(3))
    shape, at, reduction = body.shape(x), body.shape(index), node.text("reduction", "none")
    if (*at[:axis], *at[axis + 1 :]) != (*shape[:axis], *shape[axis + 1 :]):
        raise Unsupported(f"computed indices of shape {list(at)} in {list(shape)}", hint="as long along the other axes")
    if at[axis] > SCATTERED_MAX:
        raise Unsupported(f"{at[axis]} computed indices along an axis", hint=f"at most {SCATTERED_MAX}")
    if reduction not in ("none", *_REDUCTIONS):
        raise Unsupported(f"reduction {reduction}", hint="none, add, mul, min or max")
    ends = body.shape(x)[axis] if body.to.reach(body.to.value(index))[0] < 0 else 0
    places = np.arange(shape[axis], dtype=np.float32).reshape(-1, *(1,) * (len(shape) - axis - 1))
    chosen, value = "", ""
    for i in range(at[axis]):
        column, update = (body("Gather", name, np.array([i]), axis=axis) for name in (index, updates))
        number = body("Cast", column, to=TensorProto.FLOAT)
        hot = body("Equal", number, places)
        if ends:
            hot = body("Or", hot, body("Equal", number, places - ends))
        if reduction == "none":
            value = body("Where", hot, update, value) if value else update
            chosen = body("Or", chosen, hot) if chosen else hot
            continue
        kind, neutral = _REDUCTIONS[reduction]
        changed = body("Where", hot, update, x if neutral is None else neutral)
        x = body(kind, x, changed, output=node.outputs[0] if i == at[axis] - 1 else "")
    if reduction == "none":
        body("Where", chosen, value, x, output=node.outputs[0])


def _scatter_rows(node: OnnxNode, body: Body) -> None:
    """Scatters blocks to computed places of the first axes: a product of what is 1 at the place of each, and them.

    Without a reduction the last block of a place stays, as onnxruntime has it; ONNX asks for places that differ."""
    x, index, updates = map(node.input, range(3))
    shape, at, reduction = body.shape(x), body.shape(index), node.text("reduction", "none")
    if reduction not in ("none", "add"):
        raise Unsupported(f"reduction {reduction} at computed places", hint="none or add")
    count, places = prod(at[:-1]), prod(shape[: at[-1]])
    if count * places > ELEMENTS_MAX:
        raise Unsupported(f"{count} computed places of {places}", hint=f"at most {ELEMENTS_MAX} of both multiplied")
    flat = body("Reshape", _counted(body, index, shape[: at[-1]]), np.array([count]))
    hot = _hot(body, flat, places, 0, TensorProto.FLOAT)
    if reduction == "none" and count > 1:
        turns = np.arange(1, count + 1, dtype=np.float32)
        last = body("ReduceMax", body("Mul", hot, turns), np.array([1]))
        hot = body("Cast", body("Equal", last, turns), to=TensorProto.FLOAT)
    numbers = body("Cast", updates, to=TensorProto.FLOAT)
    spread = body("MatMul", hot, body("Reshape", numbers, np.array([count, -1])))
    rows = body("Cast", body("Reshape", spread, np.array(shape)), to=body.element(x))
    if reduction == "add":
        body("Add", x, rows, output=node.outputs[0])
        return
    chosen = body("ReduceMax", hot, np.array([1]), keepdims=0)
    ones = (1,) * (len(shape) - at[-1])
    truth = body("Reshape", body("Cast", chosen, to=TensorProto.BOOL), np.array([*shape[: at[-1]], *ones]))
    body("Where", truth, rows, x, output=node.outputs[0])


def quotient(node: OnnxNode, body: Body) -> None:
    """Whole numbers are divided to whole numbers, which no op does."""
    raise Unsupported(f"a quotient of computed integers, '{node.input(0)}'", hint="a Cast to float before it")


def _of_integers(node: OnnxNode, to: Importer) -> bool:
    return to.is_integer(node.input(0)) and not all(map(to.is_const, node.inputs))


def one_hot(node: OnnxNode, body: Body) -> None:
    """on where the place along a new axis is the index, elsewhere off."""
    index = node.input(0)
    depth = int(body.to.array(node.input(1), "depth").item())
    off, on = body.to.array(node.input(2), "values").astype(np.float32).tolist()
    rank = len(body.shape(index))
    axis = node.axis(node.integer("axis", -1), rank + 1)
    hot = _hot(body, index, depth, axis, TensorProto.FLOAT)
    scaled = body("Mul", hot, float(on - off))
    body("Add", scaled, float(off), output=node.outputs[0])


def _hot(body: Body, index: str, depth: int, axis: int, element: int) -> str:
    """1.0 where the place along a new axis is the index, which may count from the end; elsewhere 0.0."""
    places = np.arange(depth, dtype=np.float32).reshape((-1, *(1,) * (len(body.shape(index)) - axis)))
    wide = body("Unsqueeze", body("Cast", index, to=TensorProto.FLOAT), np.array([axis]))
    from_start, from_end = (body("Cast", body("Equal", wide, at), to=element) for at in (places, places - depth))
    return body("Add", from_start, from_end)


ALWAYS = {
    "Compress": compress,
    "GatherND": gather_nd,
    "OneHot": one_hot,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
}
FORMS = {
    "Gather": ((_is_computed, gather),),
    "GatherElements": ((_is_chosen, gather_elements),),
    "ReduceMean": ((_of_integers, quotient),),
}
