"""The ops' cases against quantized operators of others: where scales are powers of two they compute the same integers.

One rule differs, and is held here: of a number in the middle between two, ONNX takes the even one, TFLite the one away
from zero, and FORMAT.md the upper one (rsh). TFLite halves products before, and rounds that. The bias of QLinearConv
and QGemm is added before the shift: it is ours times 2^shift. Sums become float32 before they are rounded, so that
numbers of 2^24 and more are compared only where the result is saturated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from op_cases import BY_OP

from nmpconv.graph import reference
from nmpconv.ir import Value
from nmpconv.ops import Case

EXACT = 2**24  # below, float32 tells all integers apart
NEAR = 1e-4  # of the middle between two, where float32 may say either
MICROSOFT = "com.microsoft"


@dataclass
class Twin:
    """A node of ONNX for a case.

    exact: what is rounded, as numbers times 2^-shift, divided by count; inputs: by name, those that are fed and
    constants alike; fed: one of them; floats: they compute in float32, where numbers near the middle are not told apart
    """

    operator: str
    exact: np.ndarray
    shift: Any  # one, or one for each output channel, in a shape that fits exact's
    inputs: dict[str, np.ndarray]
    order: tuple[str, ...]
    domain: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    channels_first: bool = False
    fed: str = "x"
    count: Any = 1
    floats: bool = False

    @property
    def middle(self) -> np.ndarray:
        """Distances from the middle between two integers."""
        real = np.abs(self.exact / 2.0 ** np.asarray(self.shift, float) / self.count)
        return np.abs(real - np.floor(real) - 0.5)


def scale(exponent: int) -> np.ndarray:
    return np.float32(2.0**exponent)


def exponent_of(value: Value) -> int:
    assert value.quant is not None
    return value.quant.exponents[0]


def parts(case: Case) -> tuple[Any, list[Value], Value, list[np.ndarray]]:
    graph, node = case.graph, case.graph.nodes[0]
    feeds = dict(zip(graph.inputs, case.feeds, strict=True))
    ins = graph.ins(node)
    return node.params, ins, graph.outs(node)[0], [feeds[v.name] if v.data is None else v.data for v in ins]


def are_int8(*values: Value) -> bool:
    return all(v.quant is not None and v.quant.bits == 8 for v in values)


def whole_range(y: Value) -> bool:
    assert y.quant is not None
    return (y.quant.lo, y.quant.hi) == (-128, 127)


def of_conv2d(case: Case) -> Twin | None:
    params, ins, y, (x, w, b, *pad) = parts(case)
    shift = shifts_of(ins, y)
    bias = biases(b, shift)
    if pad or bias is None or not are_int8(ins[0], ins[1], y) or not whole_range(y):
        return None
    attributes = {
        "strides": [params.stride_h, params.stride_w],
        "dilations": [params.dilation_h, params.dilation_w],
        "pads": [params.pad_top, params.pad_left, params.pad_bottom, params.pad_right],
        "group": params.groups,
    }
    x, w = x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2)
    sums = evaluated("ConvInteger", {"x": x, "w": w}, ("x", "w"), "", attributes, TensorProto.INT32)
    exact = sums.astype(np.int64) + bias[:, None, None]
    inputs = {"x": x, "w": w, "b": bias.astype(np.int32), **scales(x=ins[0], w=ins[1], y=y)}
    order = ("x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "b")
    return Twin("QLinearConv", exact, shift[:, None, None], inputs, order, attributes=attributes, channels_first=True)


def shifts_of(ins: list[Value], y: Value) -> np.ndarray:
    """Shifts of the output channels."""
    assert ins[1].quant is not None
    exponents = np.array(ins[1].quant.exponents)
    return np.broadcast_to(exponent_of(y) - exponent_of(ins[0]) - exponents, ins[1].shape[:1])


def biases(b: np.ndarray, shift: np.ndarray) -> np.ndarray | None:
    """On the scale of sums; None where that is not int32."""
    if shift.min() < 0 or shift.max() > 40:
        return None
    bias = b.astype(np.int64) << shift
    return bias if np.abs(bias).max(initial=0) < 2**31 else None


def of_fully_connected(case: Case) -> Twin | None:
    _, ins, y, (x, w, b) = parts(case)
    shift = shifts_of(ins, y)
    bias = biases(b, shift)
    if bias is None or not are_int8(ins[0], ins[1], y) or not whole_range(y):
        return None
    x = x.reshape(-1, x.shape[-1])
    exact = x.astype(np.int64) @ w.astype(np.int64).T + bias
    inputs = {"a": x, "b": w, "c": bias.astype(np.int32), **scales(a=ins[0], b=ins[1], y=y)}
    order = ("a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "c", "y_scale", "y_zero")
    return Twin("QGemm", exact, shift, inputs, order, MICROSOFT, {"transB": 1}, fed="a")


def of_batch_matmul(case: Case) -> Twin | None:
    _, ins, y, (a, b) = parts(case)
    if not are_int8(*ins, y) or not whole_range(y):
        return None
    b = b.swapaxes(-1, -2)
    shift = exponent_of(y) - exponent_of(ins[0]) - exponent_of(ins[1])
    inputs = {"a": a, "b": b, **scales(a=ins[0], b=ins[1], y=y)}
    order = ("a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero")
    products = evaluated("MatMulInteger", {"a": a, "b": b}, ("a", "b"), "", {}, TensorProto.INT32)
    return Twin("QLinearMatMul", products.astype(np.int64), shift, inputs, order, fed="a")


def of_binary(operator: str, case: Case) -> Twin | None:
    _, ins, y, (a, b) = parts(case)
    if not are_int8(*ins, y) or not whole_range(y):
        return None
    wide = a.astype(np.int64), b.astype(np.int64)
    if operator == "QLinearMul":
        exact, shift = wide[0] * wide[1], exponent_of(y) - exponent_of(ins[0]) - exponent_of(ins[1])
    else:
        least = min(map(exponent_of, ins))
        exact = sum(q << (exponent_of(v) - least) for q, v in zip(wide, ins, strict=True))
        shift = exponent_of(y) - least
    inputs = {"a": a, "b": b, **scales(a=ins[0], b=ins[1], y=y)}
    order = ("a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero")
    return Twin(operator, exact, shift, inputs, order, MICROSOFT, fed="a")


def of_requantize(case: Case) -> Twin | None:
    """QuantizeLinear of what DequantizeLinear makes: floats that are exact."""
    _, ins, y, (x,) = parts(case)
    if not are_int8(y) or not whole_range(y):
        return None
    reals = x.astype(np.float32) * scale(exponent_of(ins[0]))
    inputs = {"x": reals, **scales(y=y)}
    shift = exponent_of(y) - exponent_of(ins[0])
    return Twin("QuantizeLinear", x.astype(np.int64), shift, inputs, ("x", "y_scale", "y_zero"))


def of_average_pool(case: Case) -> Twin | None:
    """Sums by a convolution with ones."""
    p, ins, y, (x,) = parts(case)
    if not are_int8(ins[0], y):
        return None
    kernel, x = [p.kernel_h, p.kernel_w], x.transpose(0, 3, 1, 2)
    window = {"strides": [p.stride_h, p.stride_w], "pads": [p.pad_top, p.pad_left, p.pad_bottom, p.pad_right]}
    ones = {"x": np.ones_like(x), "w": np.ones((x.shape[1], 1, *kernel), np.int8)}
    convolution = "ConvInteger", ("x", "w"), "", {**window, "group": x.shape[1]}, TensorProto.INT32
    operator, *how = convolution
    sums, pixels = (evaluated(operator, inputs, *how) for inputs in ({**ones, "x": x}, ones))
    count = np.full_like(pixels, np.prod(kernel)) if p.count_include_pad else pixels
    shift = exponent_of(y) - exponent_of(ins[0])
    inputs = {"x": x, **scales(x=ins[0], y=y)}
    order = ("x", "x_scale", "x_zero", "y_scale", "y_zero")
    is_global = tuple(kernel) == x.shape[2:]
    name = "QLinearGlobalAveragePool" if is_global else "QLinearAveragePool"
    attributes = {} if is_global else {"kernel_shape": kernel, "count_include_pad": int(p.count_include_pad), **window}
    twin = Twin(name, sums.astype(np.int64), shift, inputs, order, MICROSOFT, attributes, channels_first=True)
    return replace(twin, count=count.astype(np.int64), floats=True)


def of_max_pool(case: Case) -> Twin | None:
    p, _, y, (x,) = parts(case)
    if not are_int8(y):
        return None
    attributes = {
        "kernel_shape": [p.kernel_h, p.kernel_w],
        "strides": [p.stride_h, p.stride_w],
        "dilations": [p.dilation_h, p.dilation_w],
        "pads": [p.pad_top, p.pad_left, p.pad_bottom, p.pad_right],
    }
    inputs = {"x": x.transpose(0, 3, 1, 2)}
    exact = evaluated("MaxPool", inputs, ("x",), "", attributes)
    return Twin("MaxPool", exact.astype(np.int64), 0, inputs, ("x",), attributes=attributes, channels_first=True)


def of_concat(case: Case) -> Twin | None:
    p, ins, y, arrays = parts(case)
    if not are_int8(y):
        return None
    named = {f"x{i}": value for i, value in enumerate(ins)}
    inputs = {**dict(zip(named, arrays, strict=True)), **scales(y=y, **named)}
    order = ("y_scale", "y_zero", *(f"{name}{part}" for name in named for part in ("", "_scale", "_zero")))
    exact = np.concatenate(arrays, axis=p.axis).astype(np.int64)
    return Twin("QLinearConcat", exact, 0, inputs, order, MICROSOFT, {"axis": p.axis}, fed="x0")


def of_lookup(case: Case) -> Twin | None:
    """Every integer through a function that has an operator."""
    p, ins, y, (x, _) = parts(case)
    operators = {"sigmoid": ("QLinearSigmoid", {}), "leaky_relu": ("QLinearLeakyRelu", {"alpha": p.alpha})}
    if p.function not in operators or not are_int8(ins[0], y):
        return None
    operator, attributes = operators[p.function]
    exact = p(np.ldexp(x.astype(np.float64), exponent_of(ins[0])))
    inputs = {"x": x, **scales(x=ins[0], y=y)}
    order = ("x", "x_scale", "x_zero", "y_scale", "y_zero")
    return Twin(operator, exact, exponent_of(y), inputs, order, MICROSOFT, attributes, floats=p.function == "sigmoid")


def of_softmax(case: Case) -> Twin | None:
    p, ins, y, (x, _) = parts(case)
    if not are_int8(ins[0], y) or not case.id.endswith("random"):
        return None
    powers = np.exp(np.ldexp((x - x.max(axis=p.axis, keepdims=True).astype(np.float64)), exponent_of(ins[0])))
    exact = powers / powers.sum(axis=p.axis, keepdims=True)
    inputs = {"x": x, **scales(x=ins[0], y=y)}
    order = ("x", "x_scale", "x_zero", "y_scale", "y_zero")
    attributes = {"axis": p.axis, "opset": 13}
    return Twin("QLinearSoftmax", exact, exponent_of(y), inputs, order, MICROSOFT, attributes, floats=True)


def scales(**values: Value) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for name, value in values.items():
        assert value.quant is not None
        some = np.array([scale(exponent) for exponent in value.quant.exponents])
        zeros = np.zeros(len(some), np.int8)
        one = len(some) == 1
        found |= {
            f"{name}_scale": some.reshape(()) if one else some,
            f"{name}_zero": zeros.reshape(()) if one else zeros,
        }
    return found


TWINS = {
    "conv2d": of_conv2d,
    "fully_connected": of_fully_connected,
    "batch_matmul": of_batch_matmul,
    "add": lambda case: of_binary("QLinearAdd", case),
    "mul": lambda case: of_binary("QLinearMul", case),
    "requantize": of_requantize,
    "average_pool": of_average_pool,
    "max_pool": of_max_pool,
    "concat": of_concat,
    "lookup": of_lookup,
    "softmax": of_softmax,
}
# onnx.reference has no operators of com.microsoft, and no MaxPool of int8.
BY_REFERENCE = {"conv2d", "batch_matmul", "requantize"}


def evaluated(
    operator: str,
    inputs: dict[str, np.ndarray],
    order: tuple[str, ...],
    domain: str,
    attributes: dict[str, Any],
    result: int = TensorProto.INT8,
    by_reference: bool = False,
    fed: str = "",
) -> np.ndarray:
    """Results of onnxruntime, or of onnx.reference, for one node. One input is fed, the first one if none is named; the
    others are constants."""
    fed = fed or order[0]
    constants = [name for name in dict.fromkeys(order) if name != fed]
    node = helper.make_node(operator, list(order), ["y"], domain=domain, **attributes)
    kind = helper.np_dtype_to_tensor_dtype(inputs[fed].dtype)
    graph = helper.make_graph(
        [node],
        "case",
        [helper.make_tensor_value_info(fed, kind, inputs[fed].shape)],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(np.array(inputs[name], order="C"), name) for name in constants],
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    feeds = {fed: np.array(inputs[fed], order="C")}
    if by_reference:
        return np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def half_even(exact: Fraction) -> int:
    return round(exact)


def half_up(exact: Fraction) -> int:
    return math.floor(exact + Fraction(1, 2))


def rounded(rule: Callable[[Fraction], int], twin: Twin) -> np.ndarray:
    """exact * 2^-shift / count by a rule, saturated to int8."""
    shifts, counts = (np.broadcast_to(part, twin.exact.shape).ravel() for part in (twin.shift, twin.count))
    rows = zip(twin.exact.ravel().tolist(), shifts.tolist(), counts.tolist(), strict=True)
    whole = [rule(Fraction(v) / Fraction(2) ** s / n) for v, s, n in rows]
    return np.clip(np.array(whole, object), -128, 127).astype(np.int8).reshape(twin.exact.shape)


def with_small_bias(case: Case) -> Case:
    """The case with biases of one byte, of which more are an int32 where ONNX adds them."""
    graph, bias = case.graph, case.graph.ins(case.graph.nodes[0])[2]
    assert bias.data is not None
    small = (bias.data % 64 - 32).astype(bias.data.dtype)
    return replace(case, graph=replace(graph, values={**graph.values, bias.name: replace(bias, data=small)}))


def twins(op: str) -> Iterator[tuple[Case, Twin]]:
    for case in BY_OP[op]:
        case = with_small_bias(case) if op in ("conv2d", "fully_connected") else case
        twin = TWINS[op](case)
        if twin is not None and twin.exact.size <= 4000:
            yield case, twin


@pytest.mark.parametrize("op", TWINS)
def test_integers_are_the_operator_s(op: str, root: Path, record_property: Callable[[str, str], None]) -> None:
    """Ours are the exact numbers rounded half up, the operator's the same numbers rounded half to even."""
    compared, ties, operators = 0, 0, set()
    for case, twin in twins(op):
        feeds = dict(zip(case.graph.inputs, case.feeds, strict=True))
        ours = reference.run(case.graph, feeds)["y"]
        ours = (ours.transpose(0, 3, 1, 2) if twin.channels_first else ours).reshape(twin.exact.shape)
        up, even = (rounded(rule, twin) for rule in (half_up, half_even))
        np.testing.assert_array_equal(ours, up, err_msg=case.id)
        size = np.abs(twin.exact)
        operators.add(twin.operator)
        told = (size < EXACT) | (size.astype(float) > 2.0 ** np.asarray(twin.shift, float) * 130)
        told &= ~np.bool_(twin.floats) | (twin.middle > NEAR)
        for by_reference in (False, True) if op in BY_REFERENCE else (False,):
            node = (twin.operator, twin.inputs, twin.order, twin.domain, twin.attributes)
            theirs = evaluated(*node, by_reference=by_reference, fed=twin.fed)
            message = f"{case.id}, {'onnx.reference' if by_reference else 'onnxruntime'}"
            np.testing.assert_array_equal(theirs[told], even[told], err_msg=message)
        compared += int(told.sum())
        ties += int((up != even)[told].sum())
    record_property(
        "summary", f"{op}: {compared} integers are those of {', '.join(sorted(operators))}, but for {ties} ties"
    )
    assert operators <= page(root)[op]
    assert compared > 100, op
    assert ties < compared / 4  # the rule that differs


def page(root: Path) -> dict[str, set[str]]:
    """Operators of onnxruntime by op."""
    text = (root / "docs" / "proofs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| ([A-Z][\w, ]*) \|", text, re.M)
    return {op: set(operators.split(", ")) for op, operators in rows}


def test_the_page_has_every_op(root: Path) -> None:
    assert set(page(root)) == set(TWINS)
