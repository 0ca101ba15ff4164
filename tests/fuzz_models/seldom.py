"""Steps that few models have: sequences turned round, vectors of length 1, places of maxima, boxes, spectra."""

from __future__ import annotations

import numpy as np

from fuzz_models.net import Net, Reject

LENGTH = 64  # of a spectrum
LEAST = 1e-15  # largest number of a vector


def unit_length(net: Net, x: str) -> str:
    """LpNormalization of both norms, along any axis but the first.

    Not behind a DFT, where zeros are rounding errors in onnxruntime and would become 1; nor of numbers whose
    squares are below float32.
    """
    rank = len(net.shape(x))
    if rank < 2 or net.largest(x) < LEAST or any(node.kind == "DFT" for node in net.nodes):
        raise Reject("too few axes, or noise")
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


STEPS = (unit_length, turned, spectrum)
IMAGES = (unpooled, boxes)
