"""Steps that move, join, reduce and multiply tensors of any rank."""

from __future__ import annotations

from math import prod

import numpy as np

from fuzz_models.net import Net, Reject


def some_axes(net: Net, x: str, *, least: int = 1) -> list[int]:
    """Axes to reduce, seldom axis 0; negative ones as often as not."""
    rank = len(net.shape(x))
    options = list(range(1 if rank > 1 and net.chance(0.9) else 0, rank))
    if len(options) < least:
        raise Reject("too few axes")
    axes = sorted(net.dice.sample(options, net.dice.randint(least, len(options))))
    return [axis - rank for axis in axes] if net.chance(0.5) else axes


def reduce(net: Net, x: str) -> str:
    kind = net.among(*(f"Reduce{name}" for name in ("Mean", "Mean", "Sum", "Max", "Min", "L1", "L2", "SumSquare")))
    return net.with_axes(kind, x, some_axes(net, x), 13 if kind == "ReduceSum" else 18, keepdims=net.among(0, 1, 1))


def log_sum(net: Net, x: str) -> str:
    y = net.add("Exp", net.add("Tanh", x)) if net.chance(0.5) else net.add("Softplus", x)
    return net.with_axes("ReduceLogSum", y, some_axes(net, x), 18, keepdims=net.among(0, 1))


def softmax(net: Net, x: str) -> str:
    kind, rank = net.among("Softmax", "Softmax", "LogSoftmax"), len(net.shape(x))
    axis = net.dice.randrange(rank) - (net.among(0, rank) if net.opset >= 11 else 0)
    return net.add(kind, x, **({} if net.chance(0.3) else {"axis": axis}))


def transpose(net: Net, x: str) -> str:
    perm = list(range(1, len(net.shape(x))))
    net.dice.shuffle(perm)
    return net.add("Transpose", x, perm=[0, *perm])


def reshape(net: Net, x: str) -> str:
    shape = net.shape(x)
    lead = list(shape[:1]) if shape and net.chance(0.9) else []
    left, dims = prod(shape[len(lead) :]), []
    while left > 1 and len(dims) < 3:
        dims.append(net.dice.choice([d for d in range(1, left + 1) if left % d == 0]))
        left //= dims[-1]
    target = [*lead, *dims, left]
    if net.chance(0.4):
        target[net.dice.randrange(len(target))] = -1
    elif lead and net.chance(0.5):
        target[0] = 0
    return net.add("Reshape", x, net.const(target))


def reshape_by_shape(net: Net, x: str) -> str:
    """As exporters write a view: Shape, Gather, Unsqueeze, Concat, Reshape."""
    size = net.add("Gather", net.add("Shape", x), net.const(np.asarray(0, np.int64)), axis=0)
    row = net.with_axes("Unsqueeze", size, [0], 13)
    return net.add("Reshape", x, net.add("Concat", row, net.const([-1]), axis=0))


def flatten(net: Net, x: str) -> str:
    rank = len(net.shape(x))
    return net.add("Flatten", x, **({} if net.chance(0.5) else {"axis": net.dice.randint(0, rank)}))


def squeeze(net: Net, x: str) -> str:
    shape = net.shape(x)
    ones = [i for i, n in enumerate(shape) if n == 1 and (i or net.chance(0.1))]
    if ones and net.chance(0.6):
        return net.with_axes("Squeeze", x, net.dice.sample(ones, net.dice.randint(1, len(ones))), 13)
    return net.with_axes("Unsqueeze", x, [net.dice.randint(min(1, len(shape)), len(shape))], 13)


def slice_(net: Net, x: str) -> str:
    shape = net.shape(x)
    axis = net.dice.randrange(len(shape))
    start, step = net.dice.randrange(shape[axis]), 1 if net.opset < 10 else net.among(1, 1, 2, -1)
    end = net.among(2**31 - 1, shape[axis]) if step > 0 else -shape[axis] - 1
    start = start - shape[axis] if net.chance(0.3) else start
    if net.opset < 10:
        return net.add("Slice", x, starts=[start], ends=[end], axes=[axis])
    return net.add("Slice", x, *(net.const([n]) for n in (start, end, axis, step)))


def focus(net: Net, x: str) -> str:
    """Every second row and column, four times, side by side: the first layer of YOLOv5."""
    parts = []
    for dy in (0, 1):
        for dx in (0, 1):
            if net.opset < 10:
                raise Reject("no steps")
            y = net.add("Slice", x, *(net.const([n]) for n in (dy, 2**31 - 1, 2, 2)))
            parts.append(net.add("Slice", y, *(net.const([n]) for n in (dx, 2**31 - 1, 3, 2))))
    return net.add("Concat", *parts, axis=1)


def picked(net: Net, x: str) -> str:
    """Elements by constant indices along an axis, the same or other ones for each position beside it."""
    net.since(11)
    shape = net.shape(x)
    if len(shape) < 2:
        raise Reject("a vector")
    axis = net.dice.randrange(1, len(shape))
    count = net.among(1, 2, shape[axis])
    index = net.noise.integers(0, shape[axis], (*shape[:axis], count, *shape[axis + 1 :]))
    if net.chance(0.5):
        return net.add("GatherElements", x, net.const(index), axis=axis)
    where = np.stack([np.zeros(count, np.int64), net.noise.integers(0, shape[1], count)], axis=1)
    return net.with_axes("Unsqueeze", net.add("GatherND", x, net.const(where)), [0], 13)


def replaced(net: Net, x: str) -> str:
    """Some rows by those of another tensor, as an assignment to a slice."""
    net.since(11)
    shape = net.shape(x)
    if len(shape) < 2:
        raise Reject("a vector")
    rows = sorted(net.dice.sample(range(shape[1]), net.among(1, min(2, shape[1]))))
    other = net.dice.choice(net.computed(lambda s: s == shape))
    taken = net.add("Gather", net.with_axes("Squeeze", other, [0], 13), net.const(rows), axis=0)
    return net.add("ScatterND", x, net.const([[0, row] for row in rows]), taken)


def gather(net: Net, x: str) -> str:
    shape = net.shape(x)
    axis = net.dice.randrange(len(shape))
    count = net.dice.randint(1, 4)
    index = [
        net.dice.randrange(-shape[axis] if net.opset >= 11 and net.chance(0.2) else 0, shape[axis])
        for _ in range(count)
    ]
    data = index if len(shape) == 1 or net.chance(0.7) else np.asarray(index[0], np.int64)
    return net.add("Gather", x, net.const(data), axis=axis)


def split(net: Net, x: str) -> str:
    """In two, and one half or both of it used."""
    shape = net.shape(x)
    axes = [i for i, n in enumerate(shape) if n > 1]
    if not axes:
        raise Reject("nothing to split")
    axis = net.dice.choice(axes)
    sizes = [first := net.dice.randint(1, shape[axis] - 1), shape[axis] - first]
    if net.opset < 13:
        y = net.add("Split", x, outputs=2, axis=axis, split=sizes)
    elif net.opset >= 18 and shape[axis] % 2 == 0 and net.chance(0.5):
        y = net.add("Split", x, outputs=2, axis=axis, num_outputs=2)
    else:
        y = net.add("Split", x, net.const(sizes), outputs=2, axis=axis)
    halves = list(net.outputs_of(y))
    net.dice.shuffle(halves)
    if net.chance(0.5):
        return net.add("Concat", *halves, axis=axis)
    return halves[0]


def concat(net: Net, x: str) -> str:
    """With a tensor that fits, or a constant (coordinates)."""
    shape = net.shape(x)
    axis = net.dice.randrange(min(1, len(shape) - 1), len(shape))

    def fits(other: tuple[int, ...]) -> bool:
        return len(other) == len(shape) and all(
            a == b or i == axis for i, (a, b) in enumerate(zip(shape, other, strict=True))
        )

    parts = [x, *(net.dice.choice(net.computed(fits)) for _ in range(net.among(1, 1, 2)))]
    if net.chance(0.25):
        dims = [net.dice.randint(1, 2) if i == axis else n for i, n in enumerate(shape)]
        parts[1:] = [net.weights(*dims, like=x)]
    net.dice.shuffle(parts)
    return net.add("Concat", *parts, axis=axis - net.among(0, len(shape)) if net.opset >= 11 else axis)


def pad(net: Net, x: str) -> str:
    shape = net.shape(x)
    modes = ["constant", "constant", "reflect", "edge"] + ["wrap"] * (net.opset >= 19)
    mode = net.dice.choice(modes)
    most = [0 if i == 0 else min(n - 1, 2) if mode in ("reflect", "wrap") else 2 for i, n in enumerate(shape)]
    pads = [net.dice.randint(0, m) for m in most * 2]
    value = net.among(0.0, 0.0, 1.5, -1.0)
    if net.opset < 11:
        return net.add("Pad", x, pads=pads, mode=mode, **({"value": value} if mode == "constant" else {}))
    extra = [net.const(np.float32(value), x)] if mode == "constant" and net.chance(0.8) else []
    return net.add("Pad", x, net.const(pads), *extra, mode=mode)


def tile(net: Net, x: str) -> str:
    shape = net.shape(x)
    if net.opset >= 8 and net.chance(0.4):
        target = [n if n > 1 else net.among(1, 2, 3) * (i > 0) or 1 for i, n in enumerate(shape)]
        return net.add("Expand", x, net.const(target))
    return net.add("Tile", x, net.const([1, *(net.among(1, 1, 2) for _ in shape[1:])][: len(shape)]))


def dense(net: Net, x: str) -> str:
    shape = net.shape(x)
    if not shape:
        raise Reject("a scalar")
    inputs, outputs = shape[-1], net.among(1, 3, 5)
    spread = net.among(1.0, 1.0, 0.1) * inputs**-0.5
    bias = {"spread": net.among(0.2, 10.0), "middle": net.among(0.0, 0.0, 5.0)}
    if len(shape) == 2 and net.chance(0.6):
        turned = net.among(0, 1)
        w = net.weights(*((outputs, inputs) if turned else (inputs, outputs)), like=x, spread=spread)
        c = [net.weights(outputs, like=x, **bias)] if net.opset < 11 or net.chance(0.7) else []
        factors = {"alpha": net.among(0.5, 2.0), "beta": net.among(0.5, 1.5)} if net.chance(0.15) else {}
        return net.add("Gemm", x, w, *c, transB=turned, **factors)
    if net.chance(0.12) and len(shape) > 1:  # a constant on the left
        return net.add("MatMul", net.weights(outputs, shape[-2], like=x, spread=shape[-2] ** -0.5), x)
    y = net.add("MatMul", x, net.weights(inputs, outputs, like=x, spread=spread))
    return net.add("Add", y, net.weights(outputs, like=x, **bias)) if net.chance(0.6) else y


def products(net: Net, x: str) -> str:
    """x @ x^T, or with another tensor that fits."""
    shape = net.shape(x)
    if len(shape) < 2:
        raise Reject("a vector")
    fits = net.computed(lambda s: len(s) == len(shape) and s[:-2] == shape[:-2] and s[-2] == shape[-1])
    if fits and net.chance(0.5):
        return net.add("MatMul", x, net.dice.choice(fits))
    rank = len(shape)
    return net.add("MatMul", x, net.add("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2]))


def arg_max(net: Net, x: str) -> str:
    """Indices as an output of the model; the graph goes on from x, from the largest elements or from those at the
    indices."""
    shape = net.shape(x)
    axis = net.dice.randrange(len(shape))
    if net.opset >= 11 and net.chance(0.3):
        count = net.const([net.dice.randint(1, shape[axis])])
        largest = net.add("TopK", x, count, outputs=2, axis=axis, largest=net.among(0, 1))
        return net.among(x, largest)
    keepdims = net.among(0, 1)
    index = net.add(net.among("ArgMax", "ArgMin"), x, axis=axis, keepdims=keepdims)
    if keepdims and net.opset >= 11 and net.chance(0.3):
        return net.add("GatherElements", x, index, axis=axis)
    return x


def dropout(net: Net, x: str) -> str:
    """Nothing, or running sums."""
    rank = len(net.shape(x))
    if rank > 1 and net.opset >= 11 and net.chance(0.5):
        axis = net.const(np.array(net.dice.randint(1, rank - 1)))
        return net.add("CumSum", x, axis, exclusive=net.among(0, 1), reverse=net.among(0, 1))
    return net.add("Dropout", x)


STEPS = (
    *(
        reduce,
        reduce,
        log_sum,
        softmax,
        transpose,
        transpose,
        reshape,
        reshape,
        reshape_by_shape,
        flatten,
        squeeze,
        slice_,
    ),
    *(gather, picked, replaced, split, concat, concat, concat, pad, tile, dense, dense, products, arg_max, dropout),
)
IMAGES = (focus,)
