"""An op is what its file says: passes hardly name ops, and what an op claims is true of its reference.

The claims are checked on the ops' own cases, with other integers. A check must be able to fail: for each there is a
case of another op that it refuses.
"""

from __future__ import annotations

import ast
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from named_ops import NAMED
from op_cases import BY_OP

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.ir import Node, Quant, Value
from nmpconv.ops import OPS, Case, Op, QArray
from nmpconv.ops.common.traits import ANY, Origins
from nmpconv.ops.op import quant_of

PACKAGE = Path(__file__).resolve().parent.parent / "nmpconv"


def named(path: Path) -> int:
    """Names of ops as strings, and classes of ops where they are used."""
    classes = {type(op).__name__ for op in OPS.values()}
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return sum(
        (isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value in OPS)
        or (isinstance(n, ast.Name) and n.id in classes)
        for n in tree
    )


def test_passes_ask_instead_of_naming_ops() -> None:
    files = [p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] != "ops" and p.name != "_schema.py"]
    counts = {p.relative_to(PACKAGE).as_posix(): count for p in files if (count := named(p))}
    assert counts == {p: n for p, (n, _) in NAMED.items()}, "more: ask a trait, or say in NAMED why; fewer: lower it"


CASES = {name: cases[:: max(1, len(cases) // 25)] for name, cases in BY_OP.items()}  # about 25 of each
Arrays = Mapping[str, np.ndarray]


def parts(case: Case) -> tuple[Op, Node, list[Value], Value]:
    (node,) = case.graph.nodes
    return OPS[node.op], node, case.graph.ins(node), case.graph[node.outputs[0]]


def fed(case: Case) -> dict[str, np.ndarray]:
    return dict(zip(case.graph.inputs, case.feeds, strict=True))


def noise(case: Case) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(case.id.encode()))


def others(case: Case) -> dict[str, np.ndarray]:
    """Other integers for the inputs."""
    rng = noise(case)
    return {n: rng.integers(*ends(x), endpoint=True, dtype=x.dtype, size=x.shape) for n, x in fed(case).items()}


def ends(x: np.ndarray) -> tuple[int, int]:
    bits = 8 * x.dtype.itemsize
    return INT_MIN[bits], INT_MAX[bits]


def run(case: Case, feeds: Arrays, shape: Sequence[int] | None = None) -> np.ndarray:
    """The output for these integers; of another shape than the case's where one is given."""
    _, node, ins, _ = parts(case)
    return compute(case, [feeds[n] if v.data is None else v.data for n, v in zip(node.inputs, ins, strict=True)], shape)


def compute(case: Case, operands: Sequence[np.ndarray], shape: Sequence[int] | None = None) -> np.ndarray:
    """`run`, with the operands in the order of the node's inputs."""
    op, node, ins, out = parts(case)
    arrays = [QArray(x, quant_of(v)) for x, v in zip(operands, ins, strict=True)]
    return op.reference(node.params, arrays, [out if shape is None else replace(out, shape=tuple(shape))])[0]


def is_monotone(case: Case) -> bool:
    low = others(case)
    rng = noise(case)
    high = {
        n: np.maximum(x, rng.integers(*ends(x), endpoint=True, size=x.shape)).astype(x.dtype) for n, x in low.items()
    }
    return bool((run(case, high) >= run(case, low)).all())


def is_homogeneous(case: Case) -> bool:
    """Twice the input is twice the output, as far as neither saturates, but for one rounding of each."""
    quant = quant_of(parts(case)[3])
    small = {n: (x // 2).astype(x.dtype) for n, x in others(case).items()}
    once = run(case, small).astype(np.int64)
    twice = run(case, {n: (2 * x).astype(x.dtype) for n, x in small.items()}).astype(np.int64)
    free = (np.minimum(once, twice) > quant.lo) & (np.maximum(once, twice) < quant.hi)
    return bool((np.abs(twice - 2 * once) <= 1)[free].all())


def passes_factors(case: Case) -> bool:
    """Twice some channels of the inputs is twice the channels that the op says, but for one rounding of each."""
    op, node, ins, out = parts(case)
    sources, rng = op.factors(node.params, ins, out), noise(case)
    assert sources is not None
    computed = [value for value in ins if not value.is_const]
    factors = np.zeros(len(sources[0]), int)
    small = {n: (x // 2).astype(x.dtype) for n, x in others(case).items()}
    more = dict(small)
    for value, source in zip(computed, sources, strict=True):
        there, own = source >= 0, rng.integers(1, 2, value.shape[-1:], endpoint=True)
        known = there & (factors > 0)
        if value.shape:
            own[source[known]] = factors[known]
            factors[there] = own[source[there]]
        else:
            factors[:] = own
        more[value.name] = (small[value.name] * own).astype(value.dtype)
    once, twice = (run(case, feeds).astype(np.int64) for feeds in (small, more))
    factors[factors == 0] = 1
    quant = quant_of(out)
    free = (np.minimum(once, twice) > quant.lo) & (np.maximum(once, twice) < quant.hi)
    return bool((np.abs(twice - factors * once) <= 1)[free].all())


def is_elementwise(case: Case) -> bool:
    """Checks that changes lie where an operand changed."""
    before, after, rng = fed(case), others(case), noise(case)
    touched = {n: rng.random(x.shape) < 0.2 for n, x in before.items()}
    y = run(case, before)
    changed = y != run(case, {n: np.where(touched[n], after[n], x) for n, x in before.items()})
    try:
        near = np.logical_or.reduce([np.broadcast_to(mask, y.shape) for mask in touched.values()])
    except ValueError:
        return False
    return not (changed & ~near).any()


def is_by_channel(case: Case) -> bool:
    before, after = fed(case), others(case)
    channels = run(case, before).shape[-1]
    c = int(noise(case).integers(channels))
    only = {n: np.where(np.arange(x.shape[-1]) == c, after[n], x) for n, x in before.items()}
    changed = run(case, before) != run(case, only)
    return not np.delete(changed, c, axis=-1).any()


def keeps_batch(case: Case) -> bool:
    """Two samples at once are what each of them is."""
    shape = parts(case)[3].shape
    pair = (fed(case), others(case))
    wanted = np.concatenate([run(case, feeds) for feeds in pair])
    try:
        got = run(case, {n: np.concatenate([feeds[n] for feeds in pair]) for n in pair[0]}, (2 * shape[0], *shape[1:]))
    except ValueError:
        return False
    return got.shape == wanted.shape and bool((got == wanted).all())


def is_renamed(case: Case, params: object, axes: Sequence[int]) -> bool:
    """Checks that these parameters do to a tensor what the case does to its transpose."""
    op, node, ins, out = parts(case)
    back, feeds, arrays, values = np.argsort(axes), fed(case), [], []
    for name, value in zip(node.inputs, ins, strict=True):
        x = feeds[name] if value.data is None else value.data
        x = x.transpose(back) if x.ndim == len(axes) else x
        arrays.append(QArray(x, quant_of(value)))
        values.append(replace(value, shape=x.shape))
    (shape,) = op.infer(params, values)
    (y,) = op.reference(params, arrays, [replace(out, shape=shape)])
    wanted = run(case, feeds)
    return y.transpose(axes).shape == wanted.shape and bool((y.transpose(axes) == wanted).all())


def makes_parts(case: Case, axis: int) -> bool | None:
    """True where the case makes the same of some indices of its inputs as it makes of all; None: it does not say so."""
    op, node, ins, out = parts(case)
    index = noise(case).permutation(out.shape[axis])[: out.shape[axis] // 2 + 1]
    part = op.part(node.params, ins, out, axis, len(index))
    if part is None:
        return None
    params, axes = part
    feeds, wanted = fed(case), run(case, fed(case)).take(index, axis)
    arrays = []
    for name, value, place in zip(node.inputs, ins, axes, strict=True):
        x = feeds[name] if value.data is None else value.data
        arrays.append(QArray(x if place is None else x.take(index, place), taken(quant_of(value), place, index)))
    (got,) = op.reference(params, arrays, [replace(out, shape=wanted.shape)])
    return got.shape == wanted.shape and bool((got == wanted).all())


def taken(quant: Quant, place: int | None, index: np.ndarray) -> Quant:
    if place is None or place != quant.axis:
        return quant
    return replace(quant, exponents=tuple(quant.exponents[i] for i in index))


def has_corners(case: Case, corners: Sequence[Sequence[int]]) -> bool:
    """Between two ends of the operands lies nothing beyond the results at these corners."""
    ins = parts(case)[2]
    rng, box = noise(case), []
    for value in ins:
        span = [value.data] * 2
        if value.data is None:
            dtype = np.dtype(value.dtype)
            span = np.sort(rng.integers(INT_MIN[8 * dtype.itemsize], INT_MAX[8 * dtype.itemsize], (2, *value.shape)), 0)
        box.append([np.asarray(x, value.dtype) for x in span])
    results = [compute(case, [x[side] for x, side in zip(box, corner, strict=True)]) for corner in corners]
    inside = compute(case, [rng.integers(low, high, endpoint=True).astype(low.dtype) for low, high in box])
    return bool((inside >= np.min(results, 0)).all() and (inside <= np.max(results, 0)).all())


def is_bounded(case: Case) -> bool:
    """Results that do not saturate lie within the bounds, or a step beside them."""
    op, node, ins, out = parts(case)
    feeds, quant = fed(case), quant_of(out)
    spans = []
    for value in ins:
        x = feeds[value.name] if value.data is None else value.data
        spans.append(tuple(float(np.ldexp(float(end), quant_of(value).exponent)) for end in (x.min(), x.max())))
    real = op.restored(node, case.graph) or node
    low, high = (end * 2.0**-quant.exponent for end in op.bounds(real, spans))
    y = run(case, feeds).astype(np.int64)
    return bool((((y >= low - 1) | (y == quant.hi)) & ((y <= high + 1) | (y == quant.lo))).all())


ORIGINS = {  # origins of two operands and of the result
    Origins.ALIKE: (1, 1, 1),
    Origins.SUM: (1, 2, 3),
    Origins.DIFFERENCE: (1, 3, -2),
    Origins.NONE: (1, 1, 1),
    Origins.PRODUCT: (1, 0, 1),
}


def has_origins(case: Case) -> bool:
    """Operands that are larger by their origins make the result larger by its own, but for one rounding of each."""
    op, node, ins, out = parts(case)
    *operands, result = ORIGINS[op.origins(node.params, ins, out)]
    unit = max(quant_of(value).exponent for value in (*ins, out))
    small = {n: (x // 4).astype(x.dtype) for n, x in others(case).items()}
    by_name = dict(zip(node.inputs, operands * len(ins), strict=False))
    more = {n: x + (by_name[n] << (unit - quant_of(case.graph[n]).exponent)) for n, x in small.items()}
    y = run(case, small).astype(np.int64)
    moved = run(case, {n: x.astype(small[n].dtype) for n, x in more.items()}).astype(np.int64)
    quant = quant_of(out)
    free = (np.minimum(y, moved) > quant.lo) & (np.maximum(y, moved) < quant.hi)
    return bool((np.abs(moved - y - (result << (unit - quant.exponent))) <= 1)[free].all())


def near_grids(case: Case) -> bool:
    exponents = [quant_of(value).exponent for value in (*parts(case)[2], parts(case)[3])]
    return max(exponents) - min(exponents) < 4


def plain(case: Case) -> bool:
    return not any(value.is_const for value in parts(case)[2])


def one_sample(case: Case) -> bool:
    _, _, ins, out = parts(case)
    return all(v.shape[:1] == (1,) for v in (*(v for v in ins if not v.is_const), out))


def transposable(case: Case) -> bool:
    op, _, ins, out = parts(case)
    tied = ins if op.joins else ins[:1]
    return len(out.shape) > 1 and all(len(v.shape) == len(out.shape) for v in tied)


def claims(trait: str) -> Iterator[Case]:
    """Cases of ops that say this of themselves."""
    for case in (case for cases in CASES.values() for case in cases):
        op, node, ins, out = parts(case)
        if (
            (trait in ("monotone", "elementwise") and getattr(op, trait))
            or (trait == "homogeneous" and op.homogeneous and plain(case))
            or (trait == "by_channel" and out.shape and op.by_channel(node.params, ins, out))
            or (trait == "keeps_batch" and one_sample(case) and op.keeps_batch(node.params, ins, out))
            or (
                trait == "factors"
                and len(set(node.inputs)) == len(ins)
                and op.factors(node.params, ins, out) is not None
            )
            or (
                trait == "origins"
                and plain(case)
                and near_grids(case)
                and len(set(node.inputs)) == len(ins)
                and op.origins(node.params, ins, out) in (Origins.ALIKE, Origins.SUM, Origins.DIFFERENCE)
            )
            or (trait == "bounds" and op.bounds(node, [(-1.0, 1.0)] * len(ins)) != ANY)
        ):
            yield case


CHECKS: dict[str, tuple[Callable[[Case], bool], str]] = {  # and an op that is not so
    "monotone": (is_monotone, "sub"),
    "homogeneous": (is_homogeneous, "mul"),
    "elementwise": (is_elementwise, "softmax"),
    "by_channel": (is_by_channel, "conv2d"),
    "keeps_batch": (keeps_batch, "concat"),
    "factors": (passes_factors, ""),
    "origins": (has_origins, "mul"),
    "bounds": (is_bounded, ""),
}


@pytest.mark.parametrize("trait", CHECKS)
def test_claims_are_true(trait: str) -> None:
    check, _ = CHECKS[trait]
    cases = list(claims(trait))
    assert len({case.graph.nodes[0].op for case in cases}) > 3
    assert [case.id for case in cases if not check(case)] == [], f"`{trait}` (ops/op.py) is not so for the reference"


@pytest.mark.parametrize("trait", [trait for trait, (_, other) in CHECKS.items() if other])
def test_checks_can_fail(trait: str) -> None:
    check, other = CHECKS[trait]
    claimed = {case.id for case in claims(trait)}
    assert not all(check(case) for case in CASES[other] if case.id not in claimed and one_sample(case))


def test_bounds_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(OPS["sub"]), "bounds", lambda self, node, inputs: inputs[0])
    assert not all(is_bounded(case) for case in CASES["sub"])


@pytest.mark.parametrize(("name", "some"), [("mul", "8x16x8/random"), ("gather", "channels")])
def test_factors_can_fail(name: str, some: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors of a product of two are of both; those of some channels are not the first ones."""
    cases = [case for case in BY_OP[name] if case.id.startswith(f"{name}/{some}")]
    monkeypatch.setattr(type(OPS[name]), "homogeneous", True)
    monkeypatch.setattr(type(OPS[name]), "factors", Op.factors)
    assert cases
    assert not all(passes_factors(case) for case in cases)


def test_renamed_parameters_do_the_same() -> None:
    renamed = 0
    for case in (case for cases in CASES.values() for case in cases if transposable(case)):
        op, node, _, out = parts(case)
        axes = tuple(int(i) for i in noise(case).permutation(len(out.shape)))
        params = op.renamed(node.params, axes)
        if params is not None:
            assert is_renamed(case, params, axes), case.id
            renamed += params != node.params
    assert renamed > 50


def test_kept_parameters_do_not_the_same() -> None:
    """Cases with one index: more than another axis has would be no result at all."""
    cases = [case for case in CASES["arg_max"] if transposable(case) and parts(case)[1].params.count == 1]
    ranks = [len(parts(case)[3].shape) for case in cases]
    turned = [is_renamed(c, parts(c)[1].params, range(n)[::-1]) for c, n in zip(cases, ranks, strict=True)]
    assert turned
    assert not all(turned)


def test_parts_are_made_of_parts() -> None:
    counts: Counter[str] = Counter()
    for case in (case for cases in CASES.values() for case in cases):
        for axis in range(len(parts(case)[3].shape)):
            agrees = makes_parts(case, axis)
            assert agrees is not False, (case.id, axis)
            counts[parts(case)[0].name] += bool(agrees)
    assert {"add", "batch_matmul", "concat", "fully_connected", "normalize", "reshape", "softmax"} <= set(+counts)


def test_parts_can_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """An axis that the op is tied to."""
    monkeypatch.setattr(type(OPS["softmax"]), "part", OPS["normalize"].part)
    monkeypatch.setattr(type(OPS["softmax"]).Params, "axes", (), raising=False)
    assert not all(makes_parts(case, len(parts(case)[3].shape) - 1) for case in CASES["softmax"])


def test_extremes_are_at_the_corners() -> None:
    names = set()
    for case in (case for cases in CASES.values() for case in cases):
        op, _, ins, _ = parts(case)
        if corners := op.corners(len(ins)):
            names.add(op.name)
            assert has_corners(case, corners), case.id
    assert {"mul", "add", "max_pool"} <= names
    assert not all(has_corners(case, ((0, 0), (1, 1))) for case in CASES["mul"])


def test_idle_ops_do_nothing() -> None:
    names = set()
    for case in (*BY_OP["requantize"], *(case for cases in CASES.values() for case in cases)):
        op, node, ins, out = parts(case)
        if ins[0].quant == out.quant and op.idle(node.params, ins[0], out):
            names.add(op.name)
            np.testing.assert_array_equal(run(case, fed(case)), case.feeds[0])
    assert {"requantize", "pad", "transpose", "slice"} <= names
