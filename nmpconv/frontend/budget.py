"""Bounds the nodes that are computed during the import by their cost: a small file must not ask for much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np
import onnx

from nmpconv.errors import Unsupported
from nmpconv.frontend.node_check import TensorType
from nmpconv.ops.onnx_node import OnnxNode

ELEMENTS_MAX = 2**24  # of all results together, besides a multiple of what the file itself holds
SHARE = 8  # the multiple: weights are reshaped, scaled and normalized in a few steps
WORK_MAX = 2**30  # additions and multiplications of all nodes together, besides SHARE of them for each element
SLOW = 2**10  # of them take as long as one that the reference implementation computes in a loop of Python


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Results are views of an input, or a few numbers.
_VIEWS = _names(
    """
    Cast CastLike Constant Flatten Identity Reshape Shape Size Squeeze Transpose Unsqueeze
    """
)
# Time and memory in proportion to inputs and results.
_BY_ELEMENT = _names(
    """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BatchNormalization BitShift BitwiseAnd BitwiseNot
    BitwiseOr BitwiseXor BlackmanWindow Ceil Celu CenterCropPad Clip Compress Concat ConstantOfShape Cos Cosh
    CumProd CumSum DepthToSpace DequantizeLinear Div Dropout DynamicQuantizeLinear Elu Equal Erf Exp Expand
    EyeLike Floor Gather GatherElements GatherND Gelu GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual
    GroupNormalization HammingWindow HannWindow HardSigmoid HardSwish Hardmax InstanceNormalization IsInf IsNaN
    LRN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization Max Mean
    MeanVarianceNormalization Min Mish Mod Mul Neg NonZero Not OneHot Or PRelu Pad Pow QuantizeLinear
    RMSNormalization Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
    ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu RotaryEmbedding Round Scatter ScatterElements ScatterND
    Selu Shrink Sigmoid Sign Sin Sinh Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Sub Sum Swish Tan
    Tanh ThresholdedRelu Tile TopK Trilu Unique Where Xor
    """
)
_PRODUCTS = _names("Einsum Gemm MatMul")
_SLOW = _names("AffineGrid AveragePool Conv ConvTranspose GridSample LpPool MaxPool Resize Upsample")
_KNOWN = _VIEWS | _BY_ELEMENT | _PRODUCTS | _SLOW
# At most as many elements as the first input has, for each of its axes; ONNX does not tell their shapes, or not always.
_BOUNDED = _names("BatchNormalization Compress Dropout NonZero Unique")


def can_fold(node: onnx.NodeProto) -> bool:
    """Checks that the node may be computed on constants: it is a function of its inputs, and of known cost."""
    return node.op_type in _KNOWN


class Budget:
    """Work that the folding of constants may still cost in one import. elements: of the file's constants."""

    def __init__(self, elements: int) -> None:
        self._elements = ELEMENTS_MAX + SHARE * elements
        self._work = WORK_MAX + SHARE * elements

    def take(self, node: OnnxNode, inputs: Mapping[str, TensorType], results: Mapping[str, TensorType]) -> None:
        """Unsupported for a node that `can_fold` and that costs more than is left.

        inputs, results: what is known of its inputs and results.
        """
        elements = sum(_elements(node, inputs, results.get(name)) for name in node.outputs if name)
        read = sum(prod(inputs[name].shape or ()) for name in node.inputs if name)
        self._work -= read + elements * _terms(node, inputs, elements) * (SLOW if node.op_type in _SLOW else 1)
        if node.op_type == "Constant":  # as good as an initializer
            credit = SHARE * np.size(next(iter(node.attributes.values()), 0))
            self._elements, self._work = self._elements + credit, self._work + credit
        if node.op_type not in _VIEWS:
            self._elements -= elements
        if self._elements < 0 or self._work < 0:
            raise Unsupported(
                f"computing its {elements} constants takes too much", hint="fold the constants in the export"
            )


def _elements(node: OnnxNode, inputs: Mapping[str, TensorType], result: TensorType | None) -> int:
    if result is not None and result.shape is not None:
        return prod(result.shape)
    if node.op_type in _VIEWS:
        return 0
    if node.op_type in _BOUNDED:
        shape = inputs[node.inputs[0]].shape or ()
        return prod(shape) * max(len(shape), 1)
    raise Unsupported("it computes constants of a size that only their values tell", hint="fold the constants")


def _terms(node: OnnxNode, inputs: Mapping[str, TensorType], elements: int) -> int:
    """Number of numbers that make one number of the result."""
    shapes = [inputs[name].shape or () for name in node.inputs if name]
    if node.op_type == "MatMul":
        return shapes[0][-1]
    if node.op_type == "Gemm":
        return shapes[0][0 if node.integer("transA", 0) else -1]
    if node.op_type in ("Conv", "ConvTranspose"):
        return prod(shapes[1][1:])
    if node.op_type == "Einsum":
        return prod(_indices(node.text("equation", ""), shapes)) // max(elements, 1) + 1
    return prod(node.integers("kernel_shape") or ())


def _indices(equation: str, shapes: Sequence[Sequence[int]]) -> Iterable[int]:
    """The size of each index of an Einsum; with an ellipsis all sizes of all inputs, which is never too few."""
    terms = equation.replace(" ", "").split("->")[0].split(",")
    if [len(term) for term in terms] != [len(shape) for shape in shapes]:
        return [n for shape in shapes for n in shape]
    return dict(
        pair for term, shape in zip(terms, shapes, strict=True) for pair in zip(term, shape, strict=True)
    ).values()
