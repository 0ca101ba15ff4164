"""The bounds of the conformance cases are tight: a model that means almost the same is found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from conform import BITS, Imported, run
from onnx import helper, numpy_helper
from onnx_cases import choices, in_scope, precision, variant

Edit = Callable[[onnx.GraphProto], None]


def attribute(name: str, value: object) -> Edit:
    """Give the first node another attribute."""

    def edit(graph: onnx.GraphProto) -> None:
        node = graph.node[0]
        kept = [a for a in node.attribute if a.name != name]
        assert all(helper.get_attribute_value(a) != value for a in node.attribute if a.name == name)
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return edit


def constants(change: Callable[[np.ndarray], np.ndarray], *names: str) -> Edit:
    """Other numbers in these initializers."""

    def edit(graph: onnx.GraphProto) -> None:
        found = [tensor for tensor in graph.initializer if tensor.name in names]
        assert len(found) == len(names)
        for tensor in found:
            tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), tensor.name))

    return edit


def operator(kind: str) -> Edit:
    """Another operator."""

    def edit(graph: onnx.GraphProto) -> None:
        graph.node[0].op_type = kind

    return edit


def swapped(graph: onnx.GraphProto) -> None:
    """The first node's inputs the other way round."""
    graph.node[0].input[:] = list(graph.node[0].input)[::-1]


# module, case, what is changed
MUTATIONS = [
    ("conv", "basic_conv_with_padding", attribute("pads", [0, 1, 2, 1])),
    ("conv", "conv_with_strides_padding", attribute("pads", [1, 2, 1, 0])),
    ("convtranspose", "convtranspose_pads", attribute("pads", [0, 2, 2, 2])),
    ("gemm", "gemm_alpha", attribute("alpha", 0.45)),
    ("gemm", "gemm_beta", attribute("beta", 0.55)),
    ("gemm", "gemm_default_vector_bias", constants(lambda c: np.roll(c, 1), "c")),
    ("batch_normalization", "batchnorm_epsilon", attribute("epsilon", 2e-2)),
    ("leakyrelu", "leakyrelu", attribute("alpha", 0.12)),
    ("elu", "elu", attribute("alpha", 1.9)),
    ("hardsigmoid", "hardsigmoid", attribute("beta", 0.58)),
    ("lrn", "lrn", attribute("bias", 1.9)),
    ("softmax", "softmax_axis_0", attribute("axis", 1)),
    ("softmax", "softmax_axis_1", attribute("axis", 2)),
    ("resize", "resize_upsample_scales_linear", attribute("coordinate_transformation_mode", "asymmetric")),
    ("resize", "resize_upsample_scales_cubic", attribute("cubic_coeff_a", -0.6)),
    ("resize", "resize_upsample_sizes_cubic", attribute("exclude_outside", 1)),
    ("resize", "resize_upsample_sizes_nearest_round_prefer_ceil_asymmetric", attribute("nearest_mode", "floor")),
    ("gridsample", "gridsample_zeros_padding", attribute("align_corners", 1)),
    ("gridsample", "gridsample_border_padding", attribute("padding_mode", "reflection")),
    ("gridsample", "gridsample_reflection_padding", attribute("padding_mode", "zeros")),
    ("gridsample", "gridsample_nearest", attribute("mode", "linear")),
    ("slice", "slice", constants(lambda bounds: bounds + np.array([1, 0]), "starts", "ends")),
    ("gather", "gather_0", constants(lambda index: index + 1, "indices")),
    ("depthtospace", "depthtospace_example", attribute("mode", "CRD")),
    ("prelu", "prelu_broadcast", constants(lambda slope: np.roll(slope, 1), "slope")),
    ("instance_normalization", "instancenorm_epsilon", attribute("epsilon", 0.1)),
    ("argmax", "argmax_keepdims_random_select_last_index", operator("ArgMin")),
    ("greater", "greater", operator("Less")),
    ("div", "div", swapped),
    ("concat", "concat_2d_axis_0", swapped),
    ("sub", "sub", swapped),
]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(("module", "name", "edit"), MUTATIONS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_small_change_is_found(module, name, edit, bits, tmp_path):
    [case] = [case for case in in_scope((module,)) if case.name == name]
    kept = choices(case)[0 if edit is swapped else -1]
    original = variant(case, kept)
    changed = onnx.ModelProto()
    changed.CopyFrom(original.model)
    edit(changed.graph)
    worst, wrong = run(Imported.of(original, tmp_path), bits, precision(case))
    assert worst <= 1 and not wrong
    worst, wrong = run(Imported.of(replace(original, model=changed), tmp_path), bits, precision(case))
    assert worst > 1 and "off by" in wrong
