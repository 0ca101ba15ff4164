"""The passes against golden texts: tests/passes/<folder>/<pass>/<case>.txt is '# what', a graph, '---' and
the graph after.

A line '# key: JSON' of the head is an argument of the pass. Statistics are spread evenly: '# seen: {"x": [-1, 1]}' is
the range of all channels, or a list of one range per channel; '# bits: 8' is the width of all activations but those of
'# wide: ["x"]' and '# narrow: ["y"]'; '# images: 8' are normal numbers. What is no graph has a line a tensor after
the '---'. ``pytest --bless`` writes what the passes make now. Every graph must also keep the float function, by
onnxruntime, or the integers, by the reference; integers for a float graph must be near its function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from float_run import run_float

from nmpconv.base.fixed_point import INT_MAX, INT_MIN, dequantize
from nmpconv.calib.activation_cache import Evidence, collect, integers
from nmpconv.calib.observers import TensorStats
from nmpconv.errors import UsageError
from nmpconv.graph.reference import run as run_reference
from nmpconv.graph.text import parse, to_text
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph
from nmpconv.ops import WEIGHTED
from nmpconv.ops.op import quant_of
from nmpconv.passes.memory import plan_memory
from nmpconv.passes.quantize import exponents, legalize, rounding, widths
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.intervals import Interval

FOLDER = Path(__file__).parent
CASES = sorted(FOLDER.glob("*/*/*.txt"))
ARGUMENT = re.compile(r"# (\w+): (.*)")
EVEN = 4097  # values of a channel that stand for an even spread

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Way:
    """The stages before and after a pass, how to call it, and what else its results have."""

    before: str = "FLOAT"
    after: str = "FLOAT"
    call: Callable[[Any, Graph, Arguments], Any] = lambda module, graph, _: module.run(graph)
    holds: Callable[[Graph, Arguments], None] = lambda after, _: None


def by_images(module: Any, graph: Graph, _: Arguments) -> Graph:
    result: Graph = module.run(replace(graph, preprocess={}), graph.preprocess)
    return result


def statistics(graph: Graph, a: Arguments) -> tuple[dict[str, TensorStats], dict[str, int]]:
    """Statistics and bits by activation."""
    stats = {}
    for value in graph.activations():
        low, high = np.broadcast_to(np.array(a["seen"][value.name], np.float64).T.reshape(2, -1), (2, value.shape[-1]))
        numbers = a.get("only", {}).get(value.name)
        x = np.linspace(low, high, EVEN) if numbers is None else np.multiply.outer(numbers, np.ones(value.shape[-1]))
        stats[value.name] = TensorStats.of(x.astype(np.float32))
    other = dict.fromkeys(a.get("wide", ()), 16) | dict.fromkeys(a.get("narrow", ()), 8)
    return stats, {name: other.get(name, a.get("bits", 8)) for name in stats}


def fed(a: Arguments) -> list[dict[str, np.ndarray]]:
    """A sample, or none."""
    return [{name: np.array(x, np.float32) for name, x in a["sample"].items()}] if "sample" in a else []


def seen_of(graph: Graph, feeds: Sequence[Mapping[str, np.ndarray]]) -> dict[str, TensorStats]:
    """Statistics of the inputs, as they are stored."""
    rows = {name: np.concatenate([feed[name].reshape(graph[name].shape) for feed in feeds]) for name in graph.inputs}
    return {name: TensorStats.of(graph[name].stored(x).astype(np.float32)) for name, x in rows.items()}


def varied(a: Arguments) -> list[dict[str, np.ndarray]]:
    """Samples with the numbers of the case in other places."""
    return [{name: np.roll(x, i) for name, x in sample.items()} for sample in fed(a) for i in range(16)]


def equalized(module: Any, graph: Graph, a: Arguments) -> Graph:
    more = (a.get("free", ()),) if a["how"] == "fill" else ()
    result: Graph = getattr(module, a["how"])(graph, *statistics(graph, a), *more)[0]
    return result


def ranges(module: Any, graph: Graph, a: Arguments) -> Mapping[str, Any]:
    """Without '# seen' there was no calibration; a refusal is its message."""
    try:
        result: Mapping[str, Any] = module.run(graph, statistics(graph, a)[0] if "seen" in a else {})
    except UsageError as error:
        return {"refused:": error.message}
    return result


def rounded(module: Any, graph: Graph, a: Arguments) -> Graph:
    rng = np.random.default_rng(1)
    images = [
        {name: rng.standard_normal(graph[name].shape).astype(np.float32) for name in graph.inputs}
        for _ in range(a.get("images", 0))
    ]
    result: Graph = module.run(graph, rounding.Rounding(**a["how"]), collect(graph, images, WEIGHTED))
    return result


def kept(module: Any, graph: Graph, a: Arguments) -> Graph | Mapping[str, Any]:
    """The grids that follow from it; or the widths of weights by node."""
    found = module.run(replace(graph, faithful=True), *statistics(graph, a), a.get("fine_sums", False))
    if a.get("show") == "nodes":
        return {node.name: found.choices.op(node.name, "weight_bits", 8) for node in graph.nodes}
    bits = widths.by_name(found.graph, found.bits, found.choices)
    return exponents.run(found.graph, found.stats, bits, Method("max"), found.choices)


def moved(module: Any, graph: Graph, a: Arguments) -> Graph:
    """All free exponents, by as much."""
    free = [name for group in module.groups(graph) for name in group]
    result: Graph = module.run(graph, {name: graph[name].quant.exponent + a["move"] for name in free})
    return result


def becomes_integer(after: Graph, _: Arguments) -> None:
    verify(rounding.run(after, rounding.Rounding(gptq=False), Evidence()), "INT", "quantize")
    assert legalize.run(after) == after


def fits(after: Graph, a: Arguments) -> None:
    planned = plan_memory.run(after, a["max_bytes"])
    verify(planned, "PLANNED", "plan_memory")
    assert plan_memory.peak(planned) <= a["max_bytes"]


WAYS = {
    "fold_input": Way(call=by_images),
    "split_activations": Way(call=lambda module, graph, a: module.run(graph, *statistics(graph, a))),
    "equalize": Way(call=equalized),
    "offsets": Way(
        call=lambda module, graph, a: module.run(graph, *statistics(graph, a), departing=a.get("departing", False))[0]
    ),
    "ranges": Way(call=ranges),
    "saturations": Way(call=lambda module, graph, a: module.run(graph, statistics(graph, a)[0] if "seen" in a else {})),
    "input_steps": Way(call=lambda module, graph, a: module.run(graph, seen_of(graph, varied(a)), varied(a))[0]),
    "input_grids": Way(call=lambda module, graph, a: module.run(graph, statistics(graph, a)[0], fed(a))[0]),
    "given_grids": Way(after="RANGED", call=kept),
    "slice_scales": Way(call=lambda module, graph, a: module.run(graph, *statistics(graph, a))[0]),
    "requantize_concat": Way(call=lambda module, graph, a: module.run(graph, *statistics(graph, a))[0]),
    "joined_inputs": Way(call=lambda module, graph, a: module.run(graph, *statistics(graph, a))[0]),
    "intervals": Way("INT"),
    "rounding": Way("RANGED", "INT", rounded),
    "widths": Way(call=lambda module, graph, a: module.activation_bits(graph, a["bits"], a["widths"])),
    "constant_masks": Way(call=lambda module, graph, a: module.run(graph, statistics(graph, a)[0])[0]),
    "attention_masks": Way(call=lambda module, graph, a: module.run(graph, statistics(graph, a)[0])[0]),
    "table_resolution": Way(call=lambda module, graph, a: module.run(graph, *statistics(graph, a))[0]),
    "exact_square_roots": Way(call=lambda module, graph, a: module.run(graph, *statistics(graph, a))[0]),
    "exponents": Way(
        after="RANGED", call=lambda module, graph, a: module.run(graph, *statistics(graph, a), Method(a["method"]))
    ),
    "table_segments": Way("RANGED", "RANGED", lambda module, graph, a: module.run(graph, statistics(graph, a)[0])),
    "legalize": Way("RANGED", "RANGED", holds=becomes_integer),
    "idle_requantizes": Way("RANGED", "RANGED", holds=becomes_integer),
    "trained_exponents": Way("RANGED", "RANGED", moved, becomes_integer),
    "drop_channels": Way("INT", "INT"),
    "recurrent_states": Way("INT", "INT", lambda module, graph, a: module.run(graph, a["state"])),
    "bands": Way("INT", "INT", lambda module, graph, a: module.run(graph, a["max_bytes"]), fits),
    "separate_pools": Way("INT", "INT"),
    "plan_memory": Way(
        "INT", "PLANNED", lambda module, graph, a: module.run(graph, a.get("room"), share=a.get("share", 0.0))
    ),
    "two_memories": Way("INT", "PLANNED", lambda module, graph, a: module.run(graph, a["fast"], a["scratch"])),
}


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden(path: Path, bless: bool) -> None:
    before, _, expected = path.read_text(encoding="utf-8").partition("---\n")
    folder, name = path.parts[-3:-1]
    way, a = WAYS.get(name, Way()), arguments(before)
    graph = parse(before)
    verify(graph, way.before, "the case")
    after = way.call(import_module(f"nmpconv.passes.{folder}.{name}"), graph, a)
    found = shown(after)
    if bless:
        path.write_text(f"{before}---\n{found}", encoding="utf-8")
    else:
        assert found == expected
    if isinstance(after, Graph):
        verify(after, way.after, name)
        way.holds(after, a)
        if way.before == "INT":
            assert_same_integers(graph, after)
        elif way.after == "INT":
            assert_near(graph, after)
        elif name != "fold_input":
            assert_same_function(graph, after)


def arguments(text: str) -> dict[str, Any]:
    """Those of a case; its first line says what it is."""
    found = (ARGUMENT.fullmatch(line) for line in text.splitlines()[1:])
    return {line[1]: json.loads(line[2]) for line in found if line}


def shown(after: Graph | Mapping[str, Any]) -> str:
    """A graph, with the bytes of its arena if it has one; or a line by tensor."""
    if not isinstance(after, Graph):
        return "".join(f"{name} {line(found)}\n" for name, found in after.items())
    text = to_text(after)
    if all(value.offset is not None for value in after.activations()):
        text += f"# {plan_memory.peak(after)} bytes, {plan_memory.lower_bound(after)} are alive together\n"
    return text


def line(found: Any) -> str:
    """Bits or words, the ends of a range, or those of each channel."""
    if isinstance(found, TensorStats):
        return f"{found.min:g} {found.max:g}"
    if isinstance(found, Interval):
        return " ".join(f"{low}..{high}" for low, high in zip(*found, strict=True))
    return str(found)


def assert_same_function(before: Graph, after: Graph, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    feeds = {name: rng.standard_normal(before[name].shape).astype(np.float32) for name in before.inputs}
    stored = {name: after[name].stored(x).astype(np.float32) for name, x in feeds.items()}
    for name, wanted, found in zip(before.outputs, run_float(before, feeds), run_float(after, stored), strict=True):
        shifts = after[name].shifts
        found = found if shifts is None else found / shifts.factors(found.ndim)
        scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)) + 1e-6  # a logarithm of 0 is infinite
        np.testing.assert_allclose(found / scale, wanted / scale, atol=2e-4, err_msg=name)


def assert_near(before: Graph, after: Graph) -> None:
    """Results of the integers are within two steps of the coarsest grid of those of the float graph."""
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(before[name].shape).astype(np.float32) for name in before.inputs}
    found = run_reference(after, {name: integers(x, after[name]) for name, x in feeds.items()})
    coarsest = max(quant_of(value).exponent for value in after.activations())
    for name, wanted in zip(before.outputs, run_float(before, feeds), strict=True):
        real = dequantize(found[name], quant_of(after[name]).exponent)
        np.testing.assert_allclose(real, wanted, rtol=0, atol=2 * 2.0**coarsest, err_msg=name)


def assert_same_integers(before: Graph, after: Graph) -> None:
    """On random integers, on the least, on the largest, and on random ones of those two."""
    rng = np.random.default_rng(0)

    def feeds(choose: Callable[[int, int, tuple[int, ...]], np.ndarray]) -> dict[str, np.ndarray]:
        inputs = ((name, before[name].quant, before[name].shape) for name in before.inputs)
        return {n: choose(INT_MIN[q.bits], INT_MAX[q.bits], shape).astype(q.dtype) for n, q, shape in inputs if q}

    for choose in (
        lambda low, high, shape: rng.integers(low, high + 1, shape),
        lambda low, high, shape: np.full(shape, low),
        lambda low, high, shape: np.full(shape, high),
        lambda low, high, shape: rng.choice([low, high], shape),
    ):
        x = feeds(choose)
        wanted, found = run_reference(before, x), run_reference(after, x)
        for name in before.outputs:
            np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)


@pytest.mark.parametrize("folder", ["quantize", "memory"])
def test_every_numbered_case_of_a_pass_is_there(folder: str) -> None:
    for name in sorted({path.parent.name for path in CASES if path.parent.parent.name == folder}):
        numbered = re.findall(r"^(\d)\. ", import_module(f"nmpconv.passes.{folder}.{name}").__doc__ or "", re.MULTILINE)
        heads = [path.read_text(encoding="utf-8").split("\n")[0] for path in CASES if path.parent.name == name]
        shown = "".join(found[0] for head in heads for found in [re.match(r"# Cases? [\d ,and]+", head)] if found)
        assert numbered and set(numbered) <= set(shown), name


def test_every_pass_has_cases() -> None:
    """A pass is a module with `run`."""
    root = Path(import_module("nmpconv.passes").__path__[0])
    passes = {path.stem for path in root.glob("*/*.py") if "\ndef run(" in path.read_text(encoding="utf-8")}
    assert {"legalize", "bands", "prune"} < passes
    assert passes <= {path.parent.name for path in CASES}


def test_every_case_says_what() -> None:
    assert [path.name for path in CASES if not path.read_text(encoding="utf-8").startswith("# ")] == []
    assert len(CASES) >= 100
