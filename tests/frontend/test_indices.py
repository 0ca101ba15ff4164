"""Gathers, scatters, and what indices are computed by, that are written as other operators."""

from __future__ import annotations

import pytest
from test_expand import IMAGE, check

CASES = [
    ("GatherND", 13, f"{IMAGE} <int64[2,3] i = {{0,1,2,0,3,-1}}> {{ y = GatherND(x, i) }}"),
    ("GatherND/elements", 13, f"{IMAGE} <int64[2,4] i = {{0,1,2,5,0,3,-1,-2}}> {{ y = GatherND(x, i) }}"),
    ("GatherND/batch", 13, f"{IMAGE} <int64[1,4,2] i = {{1,2,5,0,3,-1,0,-2}}> {{ y = GatherND<batch_dims=2>(x, i) }}"),
    ("GatherElements", 13, f"{IMAGE} <int64[1,4,2,1] i = {{0,1,2,3,4,5,6,-7}}> {{ y = GatherElements<axis=2>(x, i) }}"),
    ("GatherElements/computed", 13, f"{IMAGE} {{ i = ArgMax<axis=2>(x) y = GatherElements<axis=2>(x, i) }}"),
    (
        "GatherElements/computed/fewer",
        13,
        "(float[1,4,9,3] x, float[1,2,9,3] z) => (y) { i = ArgMax<axis=3>(z) y = GatherElements<axis=1>(x, i) }",
    ),
    (  # the segments of transformers' BERT: a part of a buffer, by places
        "GatherElements/constants/fewer",
        13,
        "(float[1,5,8] x) => (y) <float[3,9] t, int64[2,5] i = {0,-2,4,1,1,8,7,6,5,3}, int64[2,3] s = {0,0,0,0,0,1}> "
        "{ a = GatherElements<axis=1>(t, i) b = GatherElements<axis=0>(a, s) "
        "c = ReduceSum(a) d = ReduceSum(b) e = Add(c, d) y = Add(x, e) }",
    ),
    (
        "GatherElements/boxes",
        13,
        "(float[1,50] s, float[1,50,4] b) => (v, y) <int64[1] k = {20}, int64[3] r = {1,1,4}, int64[1] a = {2}> "
        "{ v, i = TopK(s, k) j = Unsqueeze(i, a) w = Tile(j, r) y = GatherElements<axis=1>(b, w) }",
    ),
    (
        "ScatterND",
        18,
        "(float[1,4,9,8] x, float[2,8] u) => (y) <int64[2,3] i = {0,1,2,0,3,3}> { y = ScatterND(x, i, u) }",
    ),
    *(
        (
            f"ScatterND/{kind}",
            18,
            "(float[1,4,9,8] x, float[3,8] u) => (y) <int64[3,3] i = {0,1,2,0,3,3,0,1,2}> "
            f'{{ y = ScatterND<reduction="{kind}">(x, i, u) }}',
        )
        for kind in ("add", "mul", "min", "max")
    ),
    (
        "ScatterND/integers",
        18,
        "(float[1,6] x) => (y) <int64[2,2] i = {0,1,0,1}, int64[2] u = {3,5}> "
        "{ j = ArgMax<axis=1>(x) k = Concat<axis=1>(j, j, j) "
        's = ScatterND<reduction="add">(k, i, u) y = Cast<to=1>(s) }',
    ),
    (
        "ScatterND/computed in two axes",
        18,
        "(float[1,6] x, float[1] u) => (y) <float[1,6] d = {1,2,3,4,5,6}, int64[1,1] o = {0}> "
        "{ j = ArgMax<axis=1>(x) i = Concat<axis=1>(o, j) y = ScatterND(d, i, u) }",
    ),
    (
        "ScatterND/computed, of booleans",
        18,
        "(float[1,6] x) => (y) <bool[6] d = {1,0,1,0,1,0}, bool[1] u = {1}> "
        "{ i = ArgMax<axis=1>(x) s = ScatterND(d, i, u) y = Cast<to=1>(s) }",
    ),
    (
        "ScatterElements/computed, of booleans",
        18,
        "(float[1,6] x) => (y) <bool[1,6] d = {0,0,0,0,0,0}, bool[1,1] u = {1}> "
        "{ i = ArgMax<axis=1>(x) s = ScatterElements<axis=1>(d, i, u) y = Cast<to=1>(s) }",
    ),
    (
        "ScatterElements",
        18,
        "(float[1,6] x, float[1,2] u) => (y) <int64[1,2] i = {4,1}> { y = ScatterElements<axis=1>(x, i, u) }",
    ),
    (
        "ScatterElements/computed",
        13,
        "(float[2,9] x) => (y) <int64[1] k = {3}, float[2,9] z = {0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,"
        "0.5,0.5,0.5,0.5,0.5}> { v, i = TopK(x, k) y = ScatterElements<axis=1>(z, i, v) }",
    ),
    (
        "ScatterElements/computed/from_the_end",
        13,
        "(float[1,4,9] x, float[1,1,9] u) => (y) <int64 c = {4}> "
        "{ m = ArgMax<axis=1>(x) i = Sub(m, c) y = ScatterElements<axis=1>(x, i, u) }",
    ),
    *(
        (
            f"ScatterElements/computed/{kind}",
            18,
            "(float[1,4,9] x, float[1,2,9] u) => (y) { m = ArgMax<axis=1>(x) i = Concat<axis=1>(m, m) "
            f'y = ScatterElements<axis=1, reduction="{kind}">(x, i, u) }}',
        )
        for kind in ("add", "mul", "min", "max")
    ),
    *(
        (
            f"ScatterND/computed/{kind}",
            18,
            "(float[6,4,3] x, float[1,4] s, float[2,4,3] u) => (y) <int64[1] k = {2}, int64[2] r = {2,1}> "
            f'{{ v, i = TopK(s, k) j = Reshape(i, r) y = ScatterND<reduction="{kind}">(x, j, u) }}',
        )
        for kind in ("none", "add")
    ),
    (
        "ScatterND/computed/the_same_place",
        18,
        "(float[6,4] x, float[3,5] s, float[3,4] u) => (y) "
        '{ i = ArgMax<axis=1>(s) y = ScatterND<reduction="add">(x, i, u) }',
    ),
    (
        "ScatterND/computed/the_last_of_a_place",
        18,
        "(float[4,4] x, float[3,5] s, float[6,4] u) => (y) "
        "{ i = ArgMax<axis=1>(s) j = Concat<axis=0>(i, i) y = ScatterND(x, j, u) }",
    ),
    (
        "ScatterElements/computed/experts",
        13,
        "(float[1,6] x) => (y) <int64[1] k = {2}, float[1,6] z = {-inf,-inf,-inf,-inf,-inf,-inf}> "
        "{ v, i = TopK(x, k) g = ScatterElements<axis=1>(z, i, v) p = Softmax(g) y = Mul(p, x) }",
    ),
    (
        "OneHot",
        13,
        f"{IMAGE} <int64 d = {{4}}, float[2] v = {{0.5,2}}> {{ i = ArgMax<axis=1>(x) y = OneHot<axis=1>(i, d, v) }}",
    ),
    (
        "GatherND/computed",
        13,
        "(float[1,50] s, float[1,50,4] b) => (y) <int64[1] k = {20}, int64[1] a = {2}> "
        "{ v, i = TopK(s, k) j = Unsqueeze(i, a) y = GatherND<batch_dims=1>(b, j) }",
    ),
    (
        "GatherND/computed/two",
        13,
        "(float[1,5,6,3] x) => (y) <int64[1] k = {4}, int64[1] a = {2}, "
        "int64[1,4,1] first = {0, 0, 0, 0}, int64 c = {5}> "
        "{ f = Flatten(x) v, i = TopK(f, k) m = Mod(i, c) j = Unsqueeze(m, a) p = Concat<axis=2>(first, j, j) "
        "y = GatherND(x, p) }",
    ),
    (
        "GatherND/computed/columns that differ",
        13,
        "(float[1,5,7,3] x) => (y) <int64[1] k = {4}, int64[1] a = {2}, int64[1,4,1] first = {0, 0, 0, 0}, "
        "int64 r = {21}, int64 c = {7}> { f = Flatten(x) v, i = TopK(f, k) m = Div(i, r) n = Mod(i, c) "
        "j = Unsqueeze(m, a) h = Unsqueeze(n, a) p = Concat<axis=2>(first, j, h) y = GatherND(x, p) }",
    ),
    (
        "GatherND/computed/from the end",
        13,
        "(float[1,9,4] x) => (y) <int64[1] a = {2}, int64[1,4,1] first = {0, 0, 0, 0}, int64 c = {9}> "
        "{ i = ArgMax<axis=1,keepdims=0>(x) j = Sub(i, c) u = Unsqueeze(j, a) p = Concat<axis=2>(first, u) "
        "y = GatherND(x, p) }",
    ),
    *(
        (
            f"flat indices/{kind}",
            13,
            "(float[1,50,80] x) => (y) <int64[1] k = {30}, int64 c = {80}> "
            f"{{ f = Flatten(x) v, i = TopK(f, k) {text} }}",
        )
        for kind, text in (
            ("Div", "y = Div(i, c)"),
            ("Mod", "y = Mod(i, c)"),
            ("fmod", "y = Mod<fmod=1>(i, c)"),
            ("difference", "q = Div(i, c) p = Mul(q, c) d = Sub(i, p) y = Cast<to=1>(d)"),
            ("rounded down", "g = Cast<to=1>(i) d = Cast<to=1>(c) q = Div(g, d) w = Floor(q) y = Cast<to=7>(w)"),
            ("counted on", "g = Cast<to=1>(i) d = Cast<to=1>(c) q = Add(g, d) y = Cast<to=7>(q)"),
        )
    ),
    ("embedding", 13, f"{IMAGE} <float[4,5] t> {{ i = ArgMax<axis=1,keepdims=0>(x) y = Gather<axis=0>(t, i) }}"),
    (
        "embedding/from the end",
        13,
        f"{IMAGE} <float[4,5] t, int64 n = {{4}}> "
        "{ j = ArgMax<axis=1,keepdims=0>(x) i = Sub(j, n) y = Gather<axis=0>(t, i) }",
    ),
    ("embedding/axis", 13, f"{IMAGE} <float[2,4,5] t> {{ i = ArgMax<axis=1,keepdims=0>(x) y = Gather<axis=1>(t, i) }}"),
]


@pytest.mark.parametrize(("opset", "text"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_equals_onnxruntime(opset, text, tmp_path):
    check(opset, text, tmp_path)
