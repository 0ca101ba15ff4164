"""Operators of onnxruntime's own domain that its optimizer leaves in a model. Source: its ContribOperators.md."""

from __future__ import annotations

from nmpconv.errors import Unsupported
from nmpconv.frontend.expand.functions import rms_norm
from nmpconv.frontend.expand.node_builder import Body, Expansion
from nmpconv.ops.onnx_node import OnnxNode

_ACTIVATIONS = {  # activation: its attributes in the order of activation_params
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}
_OF_FUSED = ("activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma")

SKIP_EPSILON = 1e-12  # the default of onnxruntime's normalizations of a sum


def fused(kind: str) -> Expansion:
    """A Conv or Gemm with a sum and an activation behind it."""

    def expansion(node: OnnxNode, body: Body) -> None:
        attributes = {name: value for name, value in node.attributes.items() if name not in _OF_FUSED}
        y = body(kind, *node.inputs[:3], **attributes)
        if node.input(3):
            y = body("Add", y, node.input(3))
        _activate(node, body, y)

    return expansion


def _activate(node: OnnxNode, body: Body, y: str) -> None:
    activation = node.text("activation", "")
    if not activation:
        return body.rename(y)
    numbers = list(node.attributes.get("activation_params", ()))
    numbers = numbers or [node.attributes[name] for name in _OF_FUSED[2:] if name in node.attributes]
    if activation == "Clip":
        body("Clip", y, *map(float, numbers), output=node.outputs[0])
    elif activation in _ACTIVATIONS:
        options = dict(zip(_ACTIVATIONS[activation], map(float, numbers), strict=False))
        body(activation, y, output=node.outputs[0], **options)
    else:
        raise Unsupported(f"activation {activation}", hint=", ".join((*_ACTIVATIONS, "Clip")))
    return None


def fused_matmul(node: OnnxNode, body: Body) -> None:
    """alpha * A @ B, each transposed in its last two axes where it says so."""
    if node.integer("transBatchA", 0) or node.integer("transBatchB", 0):
        raise Unsupported("transBatchA or transBatchB", hint="a Transpose before it")
    sides = []
    for name, flag in zip(node.inputs, ("transA", "transB"), strict=True):
        rank = len(body.shape(name))
        turned = node.integer(flag, 0) and rank > 1
        sides.append(body("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2]) if turned else name)
    alpha = node.number("alpha", 1.0)
    y = body("MatMul", *sides, output=node.outputs[0] if alpha == 1.0 else "")
    if alpha != 1.0:
        body("Mul", y, alpha, output=node.outputs[0])


def quick_gelu(node: OnnxNode, body: Body) -> None:
    x, alpha = node.input(0), node.number("alpha", 1.702)
    body("Mul", x, body("Sigmoid", body("Mul", x, alpha)), output=node.outputs[0])


def gelu(form: str) -> Expansion:
    """Writes Gelu of x, or of x and a bias."""

    def expansion(node: OnnxNode, body: Body) -> None:
        x = body("Add", node.input(0), node.input(1)) if node.input(1) else node.input(0)
        body("Gelu", x, output=node.outputs[0], approximate=form)

    return expansion


def skip_norm(kind: str) -> Expansion:
    """A normalization of a sum: input, skip, scale, (for LayerNormalization its bias,) a bias of the sum."""

    def expansion(node: OnnxNode, body: Body) -> None:
        body.only_outputs(0, 3)
        plain = kind == "LayerNormalization"
        total = body("Add", node.input(0), node.input(1))
        if bias := node.input(4 if plain else 3):
            total = body("Add", total, bias)
        if len(node.outputs) > 3 and node.outputs[3]:
            body.rename(total, node.outputs[3])
        scales = [name for name in (node.input(2), node.input(3) if plain else "") if name]
        body(kind, total, *scales, output=node.outputs[0], axis=-1, epsilon=node.number("epsilon", SKIP_EPSILON))

    return expansion


ALWAYS = {
    "SimplifiedLayerNormalization": rms_norm,
    "com.microsoft.BiasGelu": gelu("none"),
    "com.microsoft.FastGelu": gelu("tanh"),
    "com.microsoft.FusedConv": fused("Conv"),
    "com.microsoft.FusedGemm": fused("Gemm"),
    "com.microsoft.FusedMatMul": fused_matmul,
    "com.microsoft.Gelu": gelu("none"),
    "com.microsoft.QuickGelu": quick_gelu,
    "com.microsoft.SkipLayerNormalization": skip_norm("LayerNormalization"),
    "com.microsoft.SkipSimplifiedLayerNormalization": skip_norm("RMSNormalization"),
    "com.microsoft.TransposeMatMul": fused_matmul,
}
