"""Operators that are written as products of computed tensors: as onnxruntime computes them."""

from __future__ import annotations

import numpy as np
import pytest
from test_expand import check

SUMS = [
    ("scores", "bhqd,bhkd->bhqk", "1,2,3,4", "1,2,5,4"),
    ("batch", "bij,bjk->bik", "1,3,4", "1,4,2"),
    ("ellipsis", "...ij,jk->...ik", "1,2,3,4", "4,5"),
    ("implicit", "ij,jk", "1,4", "4,5"),
    ("sums of one", "bchw,bc->bhw", "1,3,4,5", "1,3"),
    ("no sum", "nchw,c->nchw", "1,3,4,2", "3"),
    ("outer", "bi,bj->bij", "1,3", "1,4"),
    ("broadcast batch", "bij,bjk->bik", "1,3,4", "2,4,2"),
    ("broadcast sum", "bij,bjk->bik", "2,3,1", "2,4,2"),
    ("broadcast ellipsis", "...ij,...jk->...ik", "1,5,3,4", "1,1,4,2"),
    ("broadcast both ways", "bi,bi->bi", "3,1", "1,5"),
    ("broadcast all", "bi,bi->b", "1,1", "1,5"),
    ("diagonal", "bib,bi->i", "2,3,2", "1,3"),
]
EINSUM = [
    *(
        (f"Einsum/{n}", 13, f'(float[{a}] x, float[{b}] z) => (y) {{ y = Einsum<equation="{e}">(x, z) }}')
        for n, e, a, b in SUMS
    ),
    *(
        (f"Einsum/{n}/weights", 13, f'(float[{a}] x) => (y) <float[{b}] z> {{ y = Einsum<equation="{e}">(x, z) }}')
        for n, e, a, b in SUMS
    ),
    ("Einsum/diagonal", 13, '(float[1,3,3] x) => (y) { y = Einsum<equation="bii->bi">(x) }'),
    ("Einsum/diagonal of three", 13, '(float[1,3,3,3] x) => (y) { y = Einsum<equation="biii->b">(x) }'),
    (
        "Einsum/broadcast of three",
        13,
        '(float[1,3] x, float[3,4] z, float[5,4] u) => (y) { y = Einsum<equation="ab,bc,ac->bc">(x, z, u) }',
    ),
    ("Einsum/one", 13, '(float[1,2,3] x) => (y) { y = Einsum<equation="abc->ca">(x) }'),
    (
        "Einsum/three",
        13,
        '(float[1,2,3] x, float[1,3,4] z) => (y) <float[4,5] w> { y = Einsum<equation="abc,acd,de->abe">(x, z, w) }',
    ),
]


def with_filter(shape: str, conv: str, more: str = "") -> str:
    """y = conv with weights w of a shape, which an input is reshaped to: one with a batch is no input."""
    size = np.prod([int(n) for n in shape.split(",")])
    rank = shape.count(",") + 1
    inputs = f"(float[1,4,9,8] x, float[1,{size}] u) => (y) <int64[{rank}] s = {{{shape}}}{more}>"
    return f"{inputs} {{ w = Reshape(u, s) y = {conv} }}"


FILTERS = [
    (
        "DeformConv",
        22,
        "(float[1,4,9,8] x, float[1,18,9,8] o) => (y) <float[6,4,3,3] w, float[6] b> "
        "{ y = DeformConv<pads=[1,1,1,1]>(x, w, o, b) }",
    ),
    (
        "DeformConv/all",
        22,
        "(float[1,4,9,8] x, float[1,16,4,8] o, float[1,8,4,8] m) => (y) <float[6,2,2,2] w> { y = DeformConv"
        "<group=2,offset_group=2,strides=[2,1],dilations=[1,2],pads=[0,1,0,1]>(x, w, o, , m) }",
    ),
    ("Conv/computed", 13, with_filter("6,4,3,2", "Conv(x, w)")),
    (
        "Conv/computed/all",
        13,
        with_filter(
            "6,2,3,2",
            "Conv<group=2,strides=[2,1],dilations=[1,2],pads=[1,0,2,1],kernel_shape=[3,2]>(x, w, b)",
            ", float[6] b",
        ),
    ),
    ("Conv/computed/depthwise", 13, with_filter("4,1,3,3", "Conv<group=4>(x, w)")),
    ("Conv/computed/1x1", 13, with_filter("6,4,1,1", "Conv(x, w, b)", ", float[6] b")),
    ("Conv/computed/same", 13, '(float[1,4,9] x, float[1,4,4] w) => (y) { y = Conv<auto_pad="SAME_UPPER">(x, w) }'),
    ("Conv/computed/volume", 13, "(float[1,2,6,5,4] x, float[1,2,2,2,2] w) => (y) { y = Conv(x, w) }"),
    ("Conv/computed/both", 13, "(float[1,4,9,8] x, float[1,4,3,3] w, float[1] b) => (y) { y = Conv(x, w, b) }"),
    ("Conv/computed bias", 13, "(float[1,4,9,8] x, float[6] b) => (y) <float[6,4,3,3] w> { y = Conv(x, w, b) }"),
    ("ConvTranspose/computed", 13, with_filter("4,6,3,2", "ConvTranspose(x, w)")),
    (
        "ConvTranspose/computed/all",
        13,
        with_filter(
            "4,3,3,3",
            "ConvTranspose<group=2,strides=[2,3],dilations=[1,2],pads=[1,0,2,1],output_padding=[1,0]>(x, w, b)",
            ", float[6] b",
        ),
    ),
    (
        "ConvTranspose/computed/same",
        13,
        with_filter("4,6,3,3", 'ConvTranspose<strides=[2,2],auto_pad="SAME_UPPER">(x, w)'),
    ),
    ("ConvTranspose/computed/cut", 13, with_filter("4,6,1,1", "ConvTranspose<strides=[2,2],pads=[1,1,0,0]>(x, w)")),
    (
        "ConvTranspose/computed/1d",
        13,
        "(float[1,1,7] x, float[1,6,3] w) => (y) { y = ConvTranspose<strides=[2],output_shape=[14]>(x, w) }",
    ),
    (
        "ConvTranspose/computed/volume",
        13,
        "(float[1,1,3,4,5] x, float[1,6,2,3,2] w, float[6] b) => (y) "
        "{ y = ConvTranspose<strides=[2,1,2],pads=[1,1,1,0,0,0]>(x, w, b) }",
    ),
    (
        "ConvTranspose/computed bias",
        13,
        "(float[1,4,9,8] x, float[6] b) => (y) <float[4,6,3,3] w> { y = ConvTranspose<strides=[2,2]>(x, w, b) }",
    ),
]

GRIDS = [
    ("AffineGrid", 20, "(float[1,2,3] t) => (y) <int64[4] s = {1,2,5,4}> { y = AffineGrid(t, s) }"),
    (
        "AffineGrid/corners",
        20,
        "(float[1,2,3] t) => (y) <int64[4] s = {1,2,5,4}> { y = AffineGrid<align_corners=1>(t, s) }",
    ),
    ("AffineGrid/volume", 20, "(float[1,3,4] t) => (y) <int64[5] s = {1,2,2,5,4}> { y = AffineGrid(t, s) }"),
    (
        "AffineGrid/of an image",
        20,
        "(float[1,2,6,5] x, float[1,2,3] t) => (y) <int64[4] s = {1,2,6,5}> "
        "{ g = AffineGrid(t, s) y = GridSample(x, g) }",
    ),
    (
        "AffineGrid/constant",
        20,
        "(float[1,2,6,5] x) => (y) <float[1,2,3] t, int64[4] s = {1,2,6,5}> "
        "{ g = AffineGrid(t, s) y = GridSample(x, g) }",
    ),
]


@pytest.mark.parametrize(
    ("opset", "text"), [pytest.param(*case[1:], id=case[0]) for case in (*EINSUM, *FILTERS, *GRIDS)]
)
def test_products_equal_onnxruntime(opset, text, tmp_path):
    check(opset, text, tmp_path)
