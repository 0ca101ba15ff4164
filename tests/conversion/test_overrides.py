"""Choices for single tensors and ops: each is kept, changes nothing else, and what cannot be is an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from float_nets import RELU, feeds, in_bits, observed, residual
from nets import Net

from nmpconv.conversion.quantizer import Fitter, Prepared
from nmpconv.conversion.recipes import to_text
from nmpconv.errors import InputError
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.passes import residual_operands
from nmpconv.passes.quantize import rounding
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.overrides import NOTHING, Choices, Line, resolve
from nmpconv.passes.quantize.rounding import Rounding
from nmpconv.passes.quantize.shared_grids import grid_groups


def line(name: str, place: str = "r.toml:1", **said: object) -> Line:
    return Line(name, place, said)


def prepared(graph: Graph, choices: Choices = NOTHING, mode: str = "scalar") -> tuple[Prepared, Graph]:
    """With its integer graph, of a conversion with a few images."""
    images = feeds(graph)
    bits = in_bits(graph, 8, **(dict.fromkeys((*graph.inputs, *graph.outputs), 16) | dict.fromkeys(graph.pixels, 8)))
    made = Fitter(graph, observed(graph, images), bits, Method(), Rounding(), images, choices=choices)
    found = made.prepare(mode, images, Trace())
    return found, made.quantize(found, True, Trace())


def grids(graph: Graph) -> dict[str, tuple[int, int, float, str]]:
    return {
        v.name: (v.quant.bits, v.quant.exponent, v.origin, v.observed.method)
        for v in graph.activations()
        if v.quant and v.observed
    }


@pytest.fixture(scope="module")
def net() -> Graph:
    return residual()


def with_gates() -> Graph:
    """Uneven channels through a SiLU, which vector equalization writes as a product."""
    net, spread = Net(7), 2.0 ** np.array([-6.0, 3, 5, -5, 4, -7, 6, 0])[:, None, None, None]
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 8, w=np.sign(net.rng.normal(0, 1, (8, 1, 1, 3))) * spread)
    net.op("lookup", "a", "t", function="silu")
    net.conv("t", "d", 8, 3, groups=8, w=net.rng.normal(0, 1, (8, 3, 3, 1)) / spread, clamp=RELU)
    net.conv("d", "y", 4)
    return net.graph("y")


@pytest.mark.parametrize("mode", ["none", "scalar", "vector", "gates"])
def test_what_was_decided_can_be_said(net: Graph, mode: str) -> None:
    """All of it at once gives the same integers, and the methods that it had. Tensors that equalization adds have no
    rows, and are decided as before."""
    gated = mode == "gates"
    if gated:
        net, mode = with_gates(), "vector"
    first, integer = prepared(net, mode=mode)
    assert any(node.op == "mul" for node in first.float_graph.nodes) == gated
    known = {value.name for value in net.activations()}
    rows = [
        line(
            v.name,
            bits=v.quant.bits,
            exponent=v.quant.exponent,
            **({"origin": v.origin} if v.name in first.free else {}),
        )
        for v in first.chosen.activations()
        if v.quant and v.name in known
    ]
    again, other = prepared(net, resolve(net, rows, []), mode)
    assert grids(again.ranged) == grids(first.ranged)
    assert any(origin for _, _, origin, _ in grids(first.ranged).values())
    for value in integer.values.values():
        assert value.data is None or np.array_equal(value.data, other[value.name].data)


def test_one_exponent_changes_one_grid(net: Graph) -> None:
    first, again = (
        grids(prepared(net, choices)[0].ranged) for choices in (NOTHING, resolve(net, [line("p", exponent=-2)], []))
    )
    assert again["p"][1::2] == (-2, "recipe")
    assert {name for name in again if again[name] != first[name]} == {"p"}


def test_bits_of_one_tensor_are_those_of_its_grid(net: Graph) -> None:
    first, again = (
        grids(prepared(net, choices)[0].ranged) for choices in (NOTHING, resolve(net, [line("e", bits=16)], []))
    )
    changed = {name for name in again if again[name][0] != first[name][0]}
    assert changed == {"e", "f", "c"} == set(next(g for g in grid_groups(net) if "e" in g))


def test_a_method_holds_for_one_tensor(net: Graph) -> None:
    again = grids(prepared(net, resolve(net, [line("p", method="max")], []))[0].ranged)
    assert {name for name, row in again.items() if row[3] == "max"} == {"p", *net.inputs, *net.outputs}


def test_a_tensor_that_is_not_equalized(net: Graph) -> None:
    choices = resolve(net, [line("t", equalize=False)], [])
    for mode in ("scalar", "vector"):
        plain, kept = (prepared(net, c, mode)[0].float_graph for c in (NOTHING, choices))
        reader = next(node for node in net.nodes if node.inputs[0] == "v")
        assert not np.array_equal(plain[f"{reader.name}.weight"].data, net[reader.inputs[1]].data)
        assert np.array_equal(
            kept[next(n for n in kept.nodes if n.name == reader.name).inputs[1]].data, net[reader.inputs[1]].data
        )


def test_an_origin_ties_what_hangs_on_it(net: Graph) -> None:
    plain = prepared(net)[0]
    assert plain.ranged["a"].origin
    none = prepared(net, resolve(net, [line("*", origin=0)], []))[0]
    assert not any(value.origin for value in none.ranged.activations())
    some = prepared(net, resolve(net, [line("e", origin=1.5)], []))[0]
    assert {some.ranged[name].origin for name in "efc"} == {1.5}
    with pytest.raises(InputError, match=r"origin is 1\.5 by r.toml:1, and 2 by r.toml:7; 'e' and 'f' are tied"):
        prepared(net, resolve(net, [line("e", origin=1.5), line("f", "r.toml:7", origin=2)], []))
    with pytest.raises(InputError, match=r"r.toml:1: 'y' cannot have the origin 1"):
        prepared(net, resolve(net, [line("y", origin=1)], []))


def test_ops(net: Graph) -> None:
    first = prepared(net)[1]
    rows = [line("n_p", weight_bits=16, per_tensor=True, bias_bits=32), line("n_a", rounding="nearest")]
    again = prepared(net, resolve(net, [], rows))[1]
    weight, bias = again["n_p.weight"].quant, again["n_p.bias"].quant
    assert weight and bias
    assert (weight.bits, len(weight.exponents), bias.bits) == (16, 1, 32)
    assert not np.array_equal(again["n_a.weight"].data, first["n_a.weight"].data)
    assert again["n_d.weight"].quant == first["n_d.weight"].quant


def test_names_go_before_patterns(net: Graph) -> None:
    found = resolve(net, [line("p", bits=16), line("?", bits=8, method="max"), line("[ps]", method="max")], [])
    assert found.tensors["p"]["bits"].value == 16
    assert found.tensors["p"]["method"].value == "max"
    assert found.tensors["a"]["bits"].value == 8


@pytest.mark.parametrize(
    ("tensors", "ops", "expected"),
    [
        ([line("pp", bits=8)], [], r"r.toml:1: the model has no tensor 'pp'; the nearest are 'p',"),
        ([line("z*", bits=8)], [], r"no tensor fits the pattern 'z\*'"),
        ([], [line("n_m", rounding="gptq")], "no op with weights 'n_m'; the nearest are"),
        (
            [line("[ab]", bits=8), line("a*", "r.toml:9", bits=16)],
            [],
            "bits of 'a' is 8 by r.toml:1, and 16 by r.toml:9",
        ),
        (
            [line("e", bits=8), line("f", "r.toml:9", bits=16)],
            [],
            "8 by r.toml:1, and 16 by r.toml:9; these tensors share",
        ),
        ([line("e", exponent=-3), line("c", "r.toml:9", exponent=-4)], [], "-3 by r.toml:1, and -4 by r.toml:9"),
        ([line("y", exponent=-60)], [], "the exponent of 'y' is -60; beside its neighbours' exponents at least"),
    ],
)
def test_what_cannot_be(net: Graph, tensors: list[Line], ops: list[Line], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        prepared(net, resolve(net, tensors, ops))


def test_raw_pixels_stay_as_they_are() -> None:
    net = Net()
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "y", 4, 3, clamp=RELU)
    graph = net.graph("y", pixels=["x"])
    assert grids(prepared(graph, resolve(graph, [line("*", bits=16)], []))[0].ranged)["x"][:2] == (8, 0)
    for said, why in (({"bits": 16}, "raw pixels have 8 bits"), ({"exponent": -1}, "that of raw pixels is 0")):
        with pytest.raises(InputError, match=why):
            prepared(graph, resolve(graph, [line("x", **said)], []))
    assert grids(prepared(graph, resolve(graph, [line("x", bits=8)], []))[0].ranged)["x"][:2] == (8, 0)


@pytest.mark.parametrize("seed", range(12))
def test_any_widths_make_a_legal_graph(net: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [line(group[0], bits=int(rng.choice((8, 16)))) for group in grid_groups(net)]
    weights = [line(f"n_{name}", weight_bits=int(rng.choice((8, 16)))) for name in "adpefty"]
    _, integer = prepared(net, resolve(net, rows, weights), str(rng.choice(("none", "scalar", "vector"))))
    for row in rows:
        sum_of = residual_operands.found(integer).get(row.name)  # a result that nobody stores has no width of its own
        quant = integer[row.name].quant
        assert quant
        assert sum_of or quant.bits == row.said["bits"]


def test_only_the_widths(net: Graph) -> None:
    found = resolve(net, [line("p", bits=16, exponent=-3)], [line("n_p", rounding="gptq", weight_bits=16)]).widths()
    assert (set(found.tensors["p"]), set(found.ops["n_p"])) == ({"bits"}, {"weight_bits"})


def test_origins_of_those_that_may_have_one_are_said(net: Graph) -> None:
    found = prepared(net)[0]
    text = to_text({}, net, found.chosen, ["p"], {}, NOTHING)
    assert [row.split(" = ")[0] for row in text.splitlines() if " origin = " in row and row[0] == '"'] == ['"p"']


@pytest.mark.parametrize(("bits", "threads"), [(8, {2}), (16, {1})])
def test_sums_that_round_have_one_order(bits: int, threads: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Second moments of int16 are added by one thread however large they are."""
    net, seen = Net(3), set()
    net.input("x", 1, 6, 6, 4)
    net.conv("x", "y", 5, 3)

    def each(function: Any, items: Iterable[Any], most: int = 4) -> list[Any]:
        seen.add(most)
        return [function(item) for item in items]

    monkeypatch.setattr(rounding, "MUCH", 0)
    monkeypatch.setattr(rounding, "each", each)
    graph = net.graph("y")
    images = feeds(graph)
    made = Fitter(graph, observed(graph, images), in_bits(graph, bits), Method(), Rounding(), images)
    made.quantize(made.prepare("scalar", images, Trace()), True, Trace())
    assert seen - {4} == threads
