"""Steps that few models have: sequences, vectors of length 1, places of maxima, boxes, spectra, scikit-learn's."""

from __future__ import annotations

import numpy as np

from fuzz_models.case import ML, Node
from fuzz_models.net import Net, Reject

LENGTH = 64  # of a spectrum
LEAST = 1e-15  # largest number of a vector
STEEP = 1e-2  # of the largest number: a row whose largest is less is not divided by it


def unit_length(net: Net, x: str) -> str:
    """LpNormalization of both norms, along any axis but the first. Not of numbers whose squares are below float32."""
    rank = len(net.shape(x))
    if rank < 2 or net.largest(x) < LEAST:
        raise Reject("too few axes, or too small")
    axis = net.dice.randrange(1, rank)
    return net.add("LpNormalization", x, axis=net.among(axis, axis - rank), p=net.among(1, 2))


def turned(net: Net, x: str) -> str:
    """ReverseSequence of constant lengths, with time in front of the batch or behind it."""
    shape = net.shape(x)
    if len(shape) < 2 or net.opset < 10:
        raise Reject("no time")
    batch = net.among(0, 1)
    lengths = [net.dice.randint(1, shape[1 - batch]) for _ in range(shape[batch])]
    return net.add("ReverseSequence", x, net.const(lengths), batch_axis=batch, time_axis=1 - batch)


def unpooled(net: Net, x: str) -> str:
    """MaxPool, and MaxUnpool at the places of its maxima."""
    net.since(11)
    if net.half:
        raise Reject("float32 only")
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    small = net.add("MaxPool", x, outputs=2, **window)
    _, places = net.outputs_of(small)
    return net.add("MaxUnpool", net.add("Relu", small) if net.chance(0.3) else small, places, **window)


def boxes(net: Net, x: str) -> str:
    """RoiAlign of constant boxes, some of which reach beyond the plane."""
    net.since(10)
    if net.half:
        raise Reject("float32 only")
    _, _, height, width = net.shape(x)
    count = net.dice.randint(1, 3)
    ends = np.sort(net.noise.uniform(-1, 1 + max(height, width), (count, 2, 2)), axis=1)
    corners = net.const(np.asarray(ends.reshape(count, 4), np.float32), x)
    size = {"output_height": net.dice.randint(1, 3), "output_width": net.dice.randint(1, 3)}
    modes = {"mode": net.among("avg", "max"), "sampling_ratio": net.among(0, 1, 2)}
    if net.opset >= 16:
        modes["coordinate_transformation_mode"] = net.among("half_pixel", "output_half_pixel")
    return net.add("RoiAlign", x, corners, net.const([0] * count), **size, **modes)


def compressed(net: Net, x: str) -> str:
    """Compress by a constant condition, which may be shorter than the axis; of all numbers in a row without one."""
    net.since(9)
    axes = [axis for axis, size in enumerate(net.shape(x)) if size > 1]
    whole = not axes or net.chance(0.2)
    axis = 0 if whole else net.dice.choice(axes)
    count = net.dice.randint(1, int(np.prod(net.shape(x))) if whole else net.shape(x)[axis])
    chosen = net.noise.uniform(size=count) < net.among(0.3, 0.8)
    chosen[net.dice.randrange(count)] = True
    return net.add("Compress", x, net.const(chosen), **({} if whole else {"axis": axis}))


def spectrum(net: Net, x: str) -> str:
    """DFT along a constant axis. onnxruntime's own is off by more than rounding where that is long."""
    net.since(17)
    rank = len(net.shape(x))
    if rank < 2 or net.half:
        raise Reject("too few axes")
    axis = net.dice.randrange(1, rank)
    if net.shape(x)[axis] > LENGTH:
        raise Reject("a long axis")
    parts = net.with_axes("Unsqueeze", x, [rank], 13)
    whole = {"onesided": net.among(0, 1)}
    if net.opset < 20:
        return net.add("DFT", parts, axis=axis, **whole)
    return net.add("DFT", parts, "", net.const(np.array(axis)), **whole)


def frames(net: Net, x: str) -> str:
    """STFT of all numbers in a row."""
    net.since(17)
    if net.half:
        raise Reject("float32 only")
    row = net.add("Reshape", x, net.const([1, -1, 1]))
    length = net.dice.randint(2, min(LENGTH, net.shape(row)[1]))
    step = net.const(np.array(net.dice.randint(1, length)))
    window = net.const(np.hanning(length + 2)[1:-1].astype(np.float32)) if net.chance(0.6) else ""
    size = net.const(np.array(length)) if not window or net.chance(0.3) else ""
    return net.add("STFT", row, step, window, size, onesided=net.among(0, 1))


def pieces(net: Net, x: str) -> str:
    """A tensor in pieces, of which some go or come again, and one of them or all side by side."""
    net.since(11)
    shape = net.shape(x)
    axes = [i for i, n in enumerate(shape) if n > 1]
    if not axes:
        raise Reject("nothing to split")
    axis, nodes = net.dice.choice(axes), list[Node]()

    def then(kind: str, *inputs: str, **attributes: int) -> str:
        nodes.append(net.node(kind, *inputs, **attributes))
        return nodes[-1].outputs[0]

    size = shape[axis]
    first, single = net.dice.randint(1, size - 1), net.chance(0.4)
    sizes = [] if single else [net.const(net.among([first, size - first], np.array(first)))]
    items = then("SplitToSequence", x, *sizes, axis=axis, keepdims=(keep := net.among(0, 1)))
    ends = [net.const(np.array(place)) for place in (0, net.among(-1, 1))]
    again = then("SequenceAt", items, net.dice.choice(ends))
    if net.chance(0.3):
        items = then("SequenceConstruct", then("SequenceAt", items, ends[0]), again)
    if net.chance(0.5):
        items = then("SequenceInsert", items, again, *net.among([], ends[:1]))
    if net.chance(0.3):
        items = then("SequenceErase", items, *net.among([], ends[:1]))
    if net.chance(0.2):
        items = then("SequenceInsert", items, again)
        then("SequenceAt", items, ends[1])
    else:
        new = single and (not keep or net.chance(0.3))
        then("ConcatFromSequence", items, axis=axis, new_axis=int(new))
    return net.add_all(*nodes)


def _row(net: Net, x: str) -> str:
    """Numbers of one sample side by side, as scikit-learn's operators take them."""
    if net.half:
        raise Reject("float32 only")
    return x if len(net.shape(x)) in (1, 2) else net.add("Flatten", x)


def standardized(net: Net, x: str) -> str:
    """Scaler of all columns alike, or of each."""
    row = _row(net, x)
    count = net.among(1, net.shape(row)[-1])
    size, width = net.noise.normal(0, net.largest(row) / 2, count), net.noise.uniform(0.2, 3, count)
    return net.add(f"{ML}.Scaler", row, offset=size.tolist(), scale=width.tolist())


def normalized(net: Net, x: str) -> str:
    """Normalizer of all norms."""
    row, norm = _row(net, x), net.among("MAX", "L1", "L2")
    most = net.values[row].max(axis=-1)
    if net.largest(row) < LEAST or (norm == "MAX" and np.abs(most).min() < STEEP * net.largest(row)):
        raise Reject("a row that is nearly 0")
    return net.add(f"{ML}.Normalizer", row, norm=norm)


STEPS = (unit_length, turned, compressed, spectrum, frames, pieces, standardized, normalized)
IMAGES = (unpooled, boxes)
