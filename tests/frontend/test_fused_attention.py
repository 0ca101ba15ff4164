"""Attention and embeddings as onnxruntime's optimizers fuse them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_text import build, feeds
from test_lowering import run

from nmpconv.errors import UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx

CONTRIB = ', "com.microsoft" : 1'
TOKENS = "(float[1,5,8] x"
WEIGHTS = "float[8,24] w, float[24] b"
SIDES = "(float[1,5,8] q, float[1,6,8] k, float[1,6,4] v"
IDS = "int64[1,5] i = {3,1,4,1,5}"
TABLES = "float[9,8] words, float[7,8] places, float[3,8] kinds, float[8] scale, float[8] shift"

CASES = [
    ("heads", f"{TOKENS}) => (y) <{WEIGHTS}> {{ y = com.microsoft.Attention<num_heads=2>(x, w, b) }}"),
    (
        "sizes",
        f"{TOKENS}) => (y) <float[8,20] w, float[20] b> "
        "{ y = com.microsoft.Attention<num_heads=2,qkv_hidden_sizes=[8,8,4],scale=0.3>(x, w, b) }",
    ),
    (
        "later keys",
        f"{TOKENS}) => (y) <{WEIGHTS}> {{ y = com.microsoft.Attention<num_heads=2,unidirectional=1>(x, w, b) }}",
    ),
    (
        "a mask of keys",
        f"{TOKENS}) => (y) <{WEIGHTS}, int32[1,5] m = {{1,7,0,1,-1}}> "
        "{ y = com.microsoft.Attention<num_heads=2>(x, w, b, m) }",
    ),
    (
        "a mask of pairs",
        f"{TOKENS}) => (y) <{WEIGHTS}, int32[1,5,5] m = {{{','.join('10011' * 5)}}}> "
        "{ y = com.microsoft.Attention<num_heads=2,mask_filter_value=-5.0>(x, w, b, m) }",
    ),
    (
        "a number of keys",
        f"{TOKENS}) => (y) <{WEIGHTS}, int32[1] m = {{3}}> {{ y = com.microsoft.Attention<num_heads=2>(x, w, b, m) }}",
    ),
    (
        "a bias of scores",
        f"{TOKENS}, float[1,2,5,5] s) => (y) <{WEIGHTS}> "
        "{ y = com.microsoft.Attention<num_heads=2>(x, w, b, , , s) }",
    ),
    ("three sides", f"{SIDES}) => (y) {{ y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v) }}"),
    (
        "three sides, biases and a mask",
        f"{SIDES}) => (y) <float[20] b, int32[1,6] m = {{1,1,0,1,0,1}}> "
        "{ y = com.microsoft.MultiHeadAttention<num_heads=2,scale=0.7>(q, k, v, b, m) }",
    ),
    (
        "keys and values by heads",
        "(float[1,5,8] q, float[1,2,6,4] k, float[1,2,6,4] v) => (y) "
        "{ y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v) }",
    ),
    (
        "biases, and keys and values by heads",
        "(float[1,5,8] q, float[1,2,6,4] k, float[1,2,6,4] v) => (y) <float[24] b> "
        "{ y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, b) }",
    ),
    (
        "embeddings",
        f"{TOKENS}) => (y) <{IDS}, int32[1,5] s = {{0,1,2,0,0}}, int32[1,5] m = {{1,1,1,0,0}}, {TABLES}, {WEIGHTS}> "
        "{ j = Cast<to=6>(i) e, n = com.microsoft.EmbedLayerNormalization<epsilon=0.01>"
        "(j, s, words, places, kinds, scale, shift, m) "
        "t = Add(x, e) y = com.microsoft.Attention<num_heads=2>(t, w, b, n) }",
    ),
    (
        "embeddings without a mask",
        f"{TOKENS}) => (y) <{IDS}, {TABLES}, {WEIGHTS}> "
        "{ j = Cast<to=6>(i) e, n = com.microsoft.EmbedLayerNormalization(j, , words, places, , scale, shift) "
        "t = Add(x, e) y = com.microsoft.Attention<num_heads=2>(t, w, b, n) }",
    ),
]


@pytest.mark.parametrize("text", [pytest.param(case[1], id=case[0]) for case in CASES])
def test_equals_onnxruntime(text: str, tmp_path: Path) -> None:
    model = build(text, 17, tmp_path / "m.onnx", CONTRIB)
    graph = load(tmp_path / "m.onnx")
    feed = feeds(graph)
    (wanted,), (got,) = run(model, feed), run(to_onnx(graph, graph.outputs), feed)
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)


def test_causal_scores_are_square(tmp_path: Path) -> None:
    text = f"{SIDES}) => (y) {{ y = com.microsoft.MultiHeadAttention<num_heads=2,unidirectional=1>(q, k, v) }}"
    build(text, 17, tmp_path / "m.onnx", CONTRIB)
    with pytest.raises(UnsupportedModel, match="unidirectional with 5 queries and 6 keys; instead: as many of both"):
        load(tmp_path / "m.onnx")


def test_a_past_is_refused(tmp_path: Path) -> None:
    text = (
        f"{TOKENS}, float[2,1,2,3,4] p) => (y) <{WEIGHTS}> {{ y = com.microsoft.Attention<num_heads=2>(x, w, b, , p) }}"
    )
    build(text, 17, tmp_path / "m.onnx", CONTRIB)
    with pytest.raises(UnsupportedModel, match=r"a past \('p'\); instead: an export without onnxruntime's optimizer"):
        load(tmp_path / "m.onnx")


def test_keys_and_values_in_one_tensor_are_refused(tmp_path: Path) -> None:
    text = "(float[1,5,8] q, float[1,6,2,2,4] k) => (y) { y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k) }"
    build(text, 17, tmp_path / "m.onnx", CONTRIB)
    with pytest.raises(UnsupportedModel, match="in one tensor, which onnxruntime has on GPUs alone; instead: an"):
        load(tmp_path / "m.onnx")
