"""Making a failing case small: whatever can go without the failure going, goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from fuzz_models.case import Arrays, Case, Node
from fuzz_models.net import SAMPLES

SECONDS = 60.0
Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, seconds: float = SECONDS) -> Case:
    """The smallest case found in the time that still fails. Each way is repeated as long as one of its steps helps."""
    end = time.monotonic() + seconds
    done = False
    while not done:
        done = True
        for way in (
            _fewer_samples,
            _fewer_outputs,
            _cut_below,
            _cut_above,
            _bypass,
            _fewer_inputs,
            _plain,
            _smaller,
            _rounder,
        ):
            for small in _steps(way, case, fails, end):
                case, done = small, False
    return case


def _steps(way: Callable[[Case], Iterator[Case]], case: Case, fails: Fails, end: float) -> Iterator[Case]:
    """Each case on the way down; the way starts again from each."""
    shrank = True
    while shrank:
        shrank = False
        for candidate in way(case):
            if time.monotonic() > end:
                return
            small = _without_unread(candidate)
            if small.outputs and small.nodes and fails(small):
                case, shrank = small, True
                yield case
                break


def _without_unread(case: Case) -> Case:
    """Inputs that nobody reads go, but for one."""
    trimmed = case.trimmed()
    read = {name for node in trimmed.nodes for name in node.inputs}
    feeds = {name: x for name, x in case.feeds.items() if name in read} or dict(list(case.feeds.items())[:1])
    return replace(trimmed, feeds=feeds)


def _fewer_samples(case: Case) -> Iterator[Case]:
    if case.count > min(SAMPLES):  # with fewer, headroom makes another fault of it
        yield replace(case, feeds={name: x[: min(SAMPLES)] for name, x in case.feeds.items()})


def _fewer_outputs(case: Case) -> Iterator[Case]:
    if len(case.outputs) > 1:
        for i in range(len(case.outputs)):
            yield replace(case, outputs=case.outputs[:i] + case.outputs[i + 1 :])


def _cut_below(case: Case) -> Iterator[Case]:
    """An inner tensor is the only output."""
    cuts = [replace(case, outputs=(name,)).trimmed() for name in case.tensors()]
    yield from _middle_first([c for c in cuts if len(c.nodes) < len(case.nodes)], len(case.nodes))


def _middle_first(cuts: list[Case], count: int) -> list[Case]:
    """Those that leave half of the nodes first, which fail as often as not; of few nodes, those that leave least."""
    return sorted(cuts, key=lambda c: abs(len(c.nodes) - count // 2) if count > 5 else len(c.nodes))


def _cut_above(case: Case) -> Iterator[Case]:
    """An inner tensor becomes an input that is fed what it was."""
    values = _values(case)
    cuts = []
    for node in case.nodes:
        name = node.outputs[0]
        if name in values and name not in case.outputs and values[name].dtype.kind == "f":
            left = tuple(n for n in case.nodes if n is not node)
            if all(other not in case.outputs for other in node.outputs):
                cuts.append(replace(case, nodes=left, feeds={**case.feeds, name: values[name]}).trimmed())
    yield from _middle_first(cuts, len(case.nodes))


def _bypass(case: Case) -> Iterator[Case]:
    """A node goes, and its readers read its input, or a constant of its shape."""
    values = _values(case)
    for node in reversed(case.nodes):
        out, left = node.outputs[0], tuple(n for n in case.nodes if n is not node)
        for source in node.inputs:
            if source in values and _alike(values[source], values.get(out)):
                yield _renamed(replace(case, nodes=left), out, source)
        if out in values and out not in case.outputs:
            yield replace(case, nodes=left, constants={**case.constants, out: values[out][0]})


def _fewer_inputs(case: Case) -> Iterator[Case]:
    """One input for two of the same shape; an input as a constant."""
    names = list(case.feeds)
    for name in names[1:]:
        rest = {n: x for n, x in case.feeds.items() if n != name}
        for other in names[: names.index(name)]:
            if _alike(case.feeds[name], case.feeds[other]):
                yield _renamed(replace(case, feeds=rest), name, other)
        yield replace(case, feeds=rest, constants={**case.constants, name: case.feeds[name][0]})


def _plain(case: Case) -> Iterator[Case]:
    """No Constant nodes, no named sizes, no attributes, no float16."""
    if case.loose or case.batched:
        yield replace(case, loose=frozenset(), batched=False)
    for i, node in enumerate(case.nodes):
        for name in node.attributes:
            rest = {key: value for key, value in node.attributes.items() if key != name}
            yield replace(case, nodes=(*case.nodes[:i], replace(node, attributes=rest), *case.nodes[i + 1 :]))
    if any(x.dtype == np.float16 for x in (*case.feeds.values(), *case.constants.values())):
        wide = [
            {n: x.astype(np.float32) if x.dtype == np.float16 else x for n, x in part.items()}
            for part in (case.feeds, case.constants)
        ]
        yield replace(case, feeds=wide[0], constants=wide[1])


def _smaller(case: Case) -> Iterator[Case]:
    """Sizes: a dimension becomes smaller wherever it occurs."""
    shapes = [x.shape[1:] for x in case.feeds.values()] + [np.shape(x) for x in case.constants.values()]
    for size in sorted({n for shape in shapes for n in shape if n > 1}, reverse=True):
        for less in dict.fromkeys((1, 2, size // 2, size - 1)):
            if 0 < less < size:
                yield _resized(case, size, less)
    for name, x in case.feeds.items():
        for axis in range(1, x.ndim):
            if x.shape[axis] > 1:
                yield replace(case, feeds={**case.feeds, name: np.take(x, range(x.shape[axis] // 2), axis)})


def _resized(case: Case, size: int, less: int) -> Case:
    def cut(x: np.ndarray, first: int) -> np.ndarray:
        if x.dtype.kind == "i" and x.ndim == 1:
            x = np.where(x == size, less, x)
        for axis in range(first, x.ndim):
            if x.shape[axis] == size:
                x = np.take(x, range(less), axis)
        return x

    def node(old: Node) -> Node:
        return (
            replace(old, attributes={**old.attributes, "group": less}) if old.attributes.get("group") == size else old
        )

    return replace(
        case,
        nodes=tuple(node(n) for n in case.nodes),
        feeds={name: cut(x, 1) for name, x in case.feeds.items()},
        constants={name: cut(np.asarray(x), 0) for name, x in case.constants.items()},
    )


def _rounder(case: Case) -> Iterator[Case]:
    """Numbers: all the same, 0 or 1, few digits."""
    for name, x in case.constants.items():
        if x.dtype.kind == "f" and x.size:
            middle = np.full_like(x, _digits(np.float64(x.mean()), 1))
            options = (np.zeros_like(x), np.ones_like(x), middle, _digits(x, 1).astype(x.dtype))
            for option in options:
                if _complexity(option) < _complexity(x):
                    yield replace(case, constants={**case.constants, name: option})
    for name, x in case.feeds.items():
        rough = _digits(x, 1).astype(x.dtype)
        if not np.array_equal(rough, x):
            yield replace(case, feeds={**case.feeds, name: rough})


def _complexity(x: np.ndarray) -> tuple[int, int, int]:
    """Different numbers, digits of them, and whether they are neither 0 nor 1."""
    values = np.unique(x)
    digits = sum(len(f"{value:.7g}") for value in values[:50].tolist())
    return len(values), digits, int(np.sum((values != 0) & (values != 1)))


def _digits(x: np.ndarray, count: int) -> np.ndarray:
    """Rounded to this many significant digits."""
    x = np.asarray(x, np.float64)
    with np.errstate(divide="ignore"):
        places = 10.0 ** (np.floor(np.log10(np.abs(x))) - count + 1)
    return np.where(x == 0, 0, np.round(x / np.where(x == 0, 1, places)) * places)


def _values(case: Case) -> Arrays:
    """Values of all tensors on the samples; none where they cannot be computed."""
    try:
        return {**case.feeds, **case.run(case.tensors())}
    except Exception:  # onnxruntime has no base class of its own
        return {}


def _alike(a: np.ndarray, b: np.ndarray | None) -> bool:
    return b is not None and a.shape == b.shape and a.dtype == b.dtype


def _renamed(case: Case, old: str, new: str) -> Case:
    def names(tensors: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in tensors)

    nodes = tuple(replace(node, inputs=names(node.inputs)) for node in case.nodes)
    return replace(case, nodes=nodes, outputs=tuple(dict.fromkeys(names(case.outputs))))
