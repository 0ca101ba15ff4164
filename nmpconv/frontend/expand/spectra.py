"""Fourier transforms of constant length: products with constant matrices of cosines and sines."""

from __future__ import annotations

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.ops.onnx_node import OnnxNode

LENGTH_MAX = 4096  # of a transform: its matrix has twice the square of that


def _matrix(size: int, length: int, bins: int, parts: int, *, inverse: bool) -> np.ndarray:
    """[size*parts, bins*2]: from an axis of real numbers, or of (real, imaginary), to one of (real, imaginary).

    Of an axis of ``size`` the first ``length`` count, and zeros follow where it is shorter.
    """
    if length > LENGTH_MAX:
        raise Unsupported(f"a transform of {length} elements", hint=f"at most {LENGTH_MAX}")
    places = np.arange(min(size, length))
    turns = np.outer(places, np.arange(bins)) % length * (2 * np.pi / length) * (1 if inverse else -1)
    real, imaginary = np.cos(turns), np.sin(turns)
    whole = np.zeros((size, parts, bins, 2))
    whole[: len(places), 0, :, 0], whole[: len(places), 0, :, 1] = real, imaginary
    if parts == 2:
        whole[: len(places), 1, :, 0], whole[: len(places), 1, :, 1] = -imaginary, real
    return (whole / (length if inverse else 1)).reshape(size * parts, bins * 2).astype(np.float32)


def _real(bins: int, length: int) -> np.ndarray:
    """[bins*2, length]: from the half of a spectrum that real numbers have, (real, imaginary), to these numbers."""
    whole = _matrix(bins, length, length, 2, inverse=True).reshape(bins, 2, length, 2)[..., 0]
    twice = ((np.arange(bins) > 0) & (2 * np.arange(bins) < length))[:, np.newaxis]  # the other half has them, too
    parts = [whole[:, 0] * np.where(twice, 2, 1), whole[:, 1] * np.where(twice, 2, 0)]
    return np.stack(parts, axis=1).reshape(bins * 2, length).astype(np.float32)


def dft(node: OnnxNode, body: Body) -> None:
    """[..., n, ..., 1 or 2] to [..., bins, ..., 2]; the inverse of the onesided one to [..., length, ..., 1]. Source:
    ONNX, DFT-17 and DFT-20."""
    x, inverse, onesided = node.input(0), bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    shape = body.shape(x)
    axis_input = body.array(2, "axis") if node.opset >= 20 else np.array(node.integer("axis", 1))
    axis = node.axis(int(axis_input.item()) if axis_input is not None else -2, len(shape))
    lengths = body.array(1, "length")
    real = inverse and onesided
    length = int(lengths.item()) if lengths is not None else 2 * shape[axis] - 2 if real else shape[axis]
    if axis == len(shape) - 1 or shape[-1] not in (1, 2) or length < 1:
        raise Invalid(f"axis {axis} of x {list(shape)}, length {length}", hint="[..., n, ..., 1 or 2]")
    if real and (shape[-1], shape[axis]) != (2, length // 2 + 1):
        raise Unsupported(f"{length} numbers from x {list(shape)}", hint=f"{length // 2 + 1} complex numbers")
    if onesided and not inverse and shape[-1] == 2:
        raise Unsupported("onesided of complex numbers", hint="onesided = 0")
    bins = length // 2 + 1 if onesided and not inverse else length
    parts = 1 if real else 2
    matrix = _real(shape[axis], length) if real else _matrix(shape[axis], length, bins, shape[-1], inverse=inverse)
    last = [*(i for i in range(len(shape) - 1) if i != axis), axis, len(shape) - 1]
    others = [shape[i] for i in last[:-2]]
    rows = body("Reshape", body("Transpose", x, perm=last), np.array([*others, shape[axis] * shape[-1]]))
    y = body("Reshape", body("MatMul", rows, matrix), np.array([*others, bins, parts]))
    body("Transpose", y, perm=[last.index(i) for i in range(len(shape))], output=node.outputs[0])


def stft(node: OnnxNode, body: Body) -> None:
    """[B,n,1] or [B,n] to [B,frames,bins,2]: a convolution. Source: ONNX, STFT-17."""
    x, step = node.input(0), int(body.to.array(node.input(1), "frame step").item())
    shape, window, lengths = body.shape(x), body.array(2, "window"), body.array(3, "frame length")
    if len(shape) not in (2, 3) or shape[2:] not in ((), (1,)):
        raise Unsupported(f"a signal of shape {list(shape)}", hint="[B,n,1], of real numbers")
    if window is None and lengths is None:
        raise Invalid("neither a window nor a frame length", hint="one of them")
    length = int(lengths.item()) if lengths is not None else 0 if window is None else window.size
    shape_of = np.ones(length) if window is None else np.ravel(window).astype(np.float64)
    if step < 1 or not 1 <= length <= shape[1] or len(shape_of) != length:
        raise Invalid(f"frames of {length} in steps of {step}, a window of {len(shape_of)}", hint=f"within {shape[1]}")
    bins = length // 2 + 1 if node.integer("onesided", 1) else length
    matrix = _matrix(length, length, bins, 1, inverse=False) * shape_of[:, np.newaxis]
    filters = np.ascontiguousarray(matrix.T[:, np.newaxis]).astype(np.float32)
    y = body("Conv", body("Reshape", x, np.array([shape[0], 1, shape[1]])), filters, strides=[step])
    frames = body.shape(y)[2]
    turned = body("Transpose", y, perm=[0, 2, 1])
    body("Reshape", turned, np.array([shape[0], frames, bins, 2]), output=node.outputs[0])


ALWAYS = {"DFT": dft, "STFT": stft}
