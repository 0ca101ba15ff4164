"""Choosing a recipe: what is measured, that it is the same every time, and that a broken equalization is noticed."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from threading import Semaphore

import numpy as np
import pytest
from float_nets import RELU, closeness, ends, evidence, feeds, in_bits, integer, names, observed, on_grids, residual
from nets import Net

from nmpconv.base import thread_pool
from nmpconv.base.sqnr import gain, mean_db
from nmpconv.base.workers import Here
from nmpconv.calib import parity
from nmpconv.calib.activation_cache import integers
from nmpconv.conversion import node_runner, quantizer, validation
from nmpconv.conversion.diagnostics import quality
from nmpconv.conversion.quantizer import Fitter, Recipe, Unequal
from nmpconv.conversion.validation import Score, integer_outputs, tried
from nmpconv.graph.reference import run
from nmpconv.graph.text import to_text
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.passes.quantize import equalize, offsets
from nmpconv.passes.quantize.balance import Balance
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.heads import heads
from nmpconv.passes.quantize.overrides import Choices, Said
from nmpconv.passes.quantize.rounding import Rounding

RECIPES = [Recipe(mode, gptq) for mode in ("none", "scalar", "vector") for gptq in (False, True)]


@pytest.mark.parametrize(
    ("ratios", "mean"),
    [([20, 30], 25), ([inf, 20, 30], 25), ([inf, inf], inf), ([20, -inf], -inf), ([inf, -inf], -inf)],
)
def test_an_exact_output_does_not_hide_the_others(ratios: list[float], mean: float) -> None:
    assert mean_db(ratios) == mean


@pytest.mark.parametrize(
    ("after", "before", "more"),
    [(3, 1, 2), (inf, inf, 0), (inf, 3, inf), (3, inf, -inf), (3, -inf, inf), (-inf, 3, -inf), (-inf, -inf, 0)],
)
def test_gain(after: float, before: float, more: float) -> None:
    assert gain(after, before) == more


def test_what_is_left_out_is_not_fitted(net: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have the scores that they had, progress reaches its end, and several workers agree."""
    every, ends = scores(fitter(net)), []
    monkeypatch.setattr(validation, "HOPELESS_DB", -inf)
    runs, real = [], quantizer.quantize.run
    monkeypatch.setattr(quantizer.quantize, "run", lambda *arguments: runs.append(1) or real(*arguments))
    found = scores(fitter(net), progress=lambda done, total: ends.append((done, total)))
    assert found == {recipe: every[recipe] for recipe in RECIPES if recipe.gptq}
    assert (len(runs), ends[-1]) == (3, (9, 9))
    several = Here()
    monkeypatch.setattr(several, "count", 2)
    assert tried(fitter(net), RECIPES, lambda done, total: None, several)[0] == found


def test_integer_outputs() -> None:
    graph = ends("a", "s")
    grids = dict.fromkeys(names(graph), (8, -4)) | dict.fromkeys("pqstu", (8, -7)) | dict.fromkeys("ij", (8, 0))
    images = feeds(graph, 3)
    made = integer(on_grids(graph, **grids), Rounding(gptq=False))
    found = integer_outputs(made, images, ["a", "k"])
    assert found["a"].shape == (3, 2, 2, 4)
    for i, image in enumerate(images):
        one = run(made, {"x": integers(image["x"], made["x"])}, keep=["k"])
        assert np.array_equal(found["a"][i], one["a"][0] * 2.0**-4)
        assert np.array_equal(found["k"][i], one["k"][0] * 2.0**-4)


@pytest.fixture(scope="module")
def net() -> Graph:
    return residual()


def fitter(net: Graph, count: int = 6, *, zero_points: bool = True, method: str = "mse") -> Fitter:
    images = feeds(net, count)
    bits = in_bits(net, 8, x=16, y=16)
    return Fitter(net, observed(net, images), bits, Method(method), Rounding(), images, zero_points)


def scores(
    made: Fitter, recipes: Sequence[Recipe] = RECIPES, progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[Recipe, Score]:
    found, unequal = tried(made, recipes, progress)
    assert not unequal
    return found


def test_scores_do_not_depend_on_timing(net: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fitter(net)
    found, told = [], []
    rng = np.random.default_rng(0)
    real = quantizer.quantize.run

    def late(*arguments: object) -> Graph:
        time.sleep(rng.uniform(0, 0.01))
        return real(*arguments)

    monkeypatch.setattr(quantizer.quantize, "run", late)
    monkeypatch.setattr(thread_pool, "_idle", Semaphore(7))
    for together, large in ((1, validation.LARGE), (4, validation.LARGE), (4, 0)):
        monkeypatch.setattr(validation, "TOGETHER", together)
        monkeypatch.setattr(validation, "LARGE", large)
        told.clear()
        found.append(scores(made, progress=lambda done, total: told.append((done, total))))
        assert told == [(i, 9) for i in range(1, 10)]
    assert list(found[0].items()) == list(found[1].items()) == list(found[2].items())
    assert len(set(found[0].values())) == len(found[0])
    assert all(10 < score.db < 60 for score in found[0].values())
    # In another order, and one alone: the same numbers.
    assert scores(made, RECIPES[::-1]) == found[0]
    assert scores(made, RECIPES[3:4]) == {RECIPES[3]: found[0][RECIPES[3]]}


def test_scores_are_of_images_that_were_not_fitted_on(net: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    made, fitted, measured, files = fitter(net), [], [], []
    real, outputs, write = quantizer.quantize.run, integer_outputs, node_runner.to_bytes
    monkeypatch.setattr(node_runner, "to_bytes", lambda *args: files.append(args) or write(*args))
    monkeypatch.setattr(
        quantizer.quantize, "run", lambda g, how, seen, *rest: fitted.append(seen) or real(g, how, seen, *rest)
    )
    monkeypatch.setattr(
        validation,
        "integer_outputs",
        lambda g, images, n, file: measured.append(images) or outputs(g, images, n, file),
    )
    (score,) = scores(made, RECIPES[:1]).values()
    # The others gave their heads while the graph was fitted to them.
    assert [[id(image) for image in part] for part in measured] == [[id(made.images[i]) for i in (0, 3)]]
    assert score.images == 2 and score.rank.images == 6 and len(files) == 1
    rest = [made.images[i] for i in (1, 2, 4, 5)]
    (seen,) = fitted
    alone = evidence(made.prepare("none", rest, Trace()).float_graph, rest)
    assert np.array_equal(seen.inputs["x"], alone.inputs["x"])
    assert all(np.allclose(seen.rows[name].values, rows.values, atol=1e-5) for name, rows in alone.rows.items())
    assert [len(rows.values) for rows in seen.rows.values()] == [len(rows.values) for rows in alone.rows.values()]


def test_heads_of_a_fit_are_those_of_its_file(net: Graph) -> None:
    """They are handed over once."""
    made = fitter(net)
    whole = made.quantize(made.prepare("vector", made.images, Trace(), keep=True), True, Trace())
    wanted, found = integer_outputs(whole, made.images, heads(net)), made.outcome(whole)
    assert found.keys() == wanted.keys() == {*heads(net)}
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
    assert not made.outcome(whole)
    assert not made.outcome(net)


@pytest.mark.parametrize(("mode", "count"), [("none", 1), ("scalar", 2)])
def test_equations_of_origins_are_solved_once_a_graph(
    mode: str, count: int, net: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before factors and after them; rules by name are solved for themselves."""
    graphs, real = [], offsets._rows
    monkeypatch.setattr(offsets, "_rows", lambda *arguments: graphs.append(arguments) or real(*arguments))
    fitter(net).prepare(mode, [], Trace())
    assert len(graphs) == count
    rules = Choices({"y": {"origin": Said(0.0, "")}})
    fitter(net).with_choices(rules).prepare(mode, [], Trace())
    assert graphs[-1][2] is rules


def test_heads_come_with_the_rows(net: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of an image gives both, and heads of some images are taken from those of all."""
    made, rest = fitter(net), [image for i, image in enumerate(fitter(net).images) if i % 3]
    made.images, every = [*rest, *made.images[::3]], fitter(net)
    made.rows(rest, others=True)
    monkeypatch.setattr(quantizer.calibration, "run_once", None)
    for images in (rest, made.images[-2:], made.images[::-1]):
        for name, wanted in every.outputs(images).items():
            np.testing.assert_allclose(made.outputs(images)[name], wanted, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(quantizer.calibration, "outputs", None)
    assert len(made.outputs(rest)["y"]) == len(rest)
    assert made.outputs(made.images)["y"] is made.outputs(made.images)["y"]
    assert len(made.outputs([])["y"]) == 0


def test_vector_equalization_observes_an_image_once(net: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without zero points, on some of the images and on all; what is seen does not depend on it."""
    made, seen, real = fitter(net), [], quantizer.observe
    monkeypatch.setattr(
        quantizer, "observe", lambda e, images, *rest, **by: seen.extend(images) or real(e, images, *rest, **by)
    )
    some = [image for i, image in enumerate(made.images) if i % 3]
    for one, images in ((made, some), (made.without_zero_points(), some), (made, made.images)):
        found = one.prepare("vector", images, Trace()).stats
    assert [id(image) for image in seen] == [id(image) for image in (*some, *made.images[::3])]
    alone = fitter(net).prepare("vector", made.images, Trace()).stats
    assert list(found) == list(alone)
    for name, stats in alone.items():
        assert np.array_equal(found[name].histogram.counts, stats.histogram.counts)
        assert (found[name].min, found[name].max, found[name].count) == (stats.min, stats.max, stats.count)
        np.testing.assert_allclose(found[name].channel_mean, stats.channel_mean, rtol=1e-9)


def test_what_a_recipe_is_prepared_on_does_not_depend_on_what_was_tried_before(net: Graph) -> None:
    """The same last bits, where processes of their own fit the recipes and this one has seen none of the images."""
    first, fresh = fitter(net), fitter(net)
    scores(first)
    tried_first, new = (one.prepare("vector", one.images, Trace()) for one in (first, fresh))
    for name, stats in new.stats.items():
        assert np.array_equal(tried_first.stats[name].channel_mean, stats.channel_mean)
        assert (tried_first.stats[name].mean, tried_first.stats[name].room) == (stats.mean, stats.room)


def test_large_inputs_are_drawn_once_and_only_for_a_comparison(net: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without images, an equalized graph is compared on seeded ones: fewer where they are large."""
    without = Fitter(net, observed(net, feeds(net, 6)), in_bits(net, 8, x=16, y=16), Method(), Rounding(), [])
    drawn, real = [], Fitter._drawn
    monkeypatch.setattr(Fitter, "_drawn", lambda self: drawn.append(real(self)) or drawn[-1])
    without.prepare("none", [], Trace())
    assert not drawn
    without.prepare("scalar", [], Trace())
    assert [len(part) for part in drawn] == [quantizer.GUARD_IMAGES]
    monkeypatch.setattr(quantizer, "DRAWN_ELEMENTS", 2 * net["x"].size)
    assert len(real(without)) == 2
    monkeypatch.setattr(quantizer, "DRAWN_ELEMENTS", 1)
    assert len(real(without)) == 1


def test_an_error_comes_back_from_a_process() -> None:
    error = pickle.loads(pickle.dumps(Unequal("it changes", where="here")))
    assert (error.message, error.where) == ("it changes", "here")


def test_what_was_scored_is_not_made_again(net: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    made, best = fitter(net), Recipe("scalar", True)
    scores(made)
    images = [image for i, image in enumerate(made.images) if i % 3]
    wanted = made.quantize(made.prepare("scalar", images, Trace()), True, Trace())
    runs = []
    real = quantizer.quantize.run
    monkeypatch.setattr(quantizer.quantize, "run", lambda *arguments: runs.append(1) or real(*arguments))
    made.keep_only(best)
    monkeypatch.setattr(quantizer.calibration, "run_once", None)  # those of the competition are still there
    _, found = made.fitted(best, images)
    assert not runs
    made.with_choices(Choices()).prepare("scalar", images, Trace()).seen()
    monkeypatch.undo()
    monkeypatch.setattr(quantizer.quantize, "run", lambda *arguments: runs.append(1) or real(*arguments))
    assert to_text(found) == to_text(wanted)
    for other in (pickle.loads(pickle.dumps(made)), made.with_choices(Choices()), made.without_zero_points()):
        other.fitted(best, images)
    made.fitted(Recipe("scalar", False), images)
    made.fitted(best, images[1:])
    assert len(runs) == 5


def test_uneven_channels_want_the_vector() -> None:
    """One layer makes small what the next makes large again: only a factor per channel helps."""
    net = Net(3)
    net.input("x", 1, 8, 8, 3)
    uneven = 2.0 ** np.arange(-4, 4)
    net.conv("x", "a", 8, w=net.rng.normal(0, 1, (8, 1, 1, 3)) * uneven[:, None, None, None], b=np.zeros(8), clamp=RELU)
    net.conv("a", "y", 4, w=net.rng.normal(0, 1, (4, 1, 1, 8)) / uneven)
    reached = [score.db for score in scores(fitter(net.graph("y")), RECIPES[::2]).values()]
    assert reached[2] > max(reached[:2]) + 6


@pytest.mark.parametrize(("mode", "count"), [("none", 0), ("none", 4), ("scalar", 0), ("scalar", 4), ("vector", 4)])
@pytest.mark.parametrize("zero_points", [False, True])
def test_prepare(net: Graph, mode: str, count: int, zero_points: bool) -> None:
    images = feeds(net, count)
    made = fitter(net, zero_points=zero_points).prepare(mode, images, Trace())
    assert [node.op for node in made.ranged.nodes] == [node.op for node in net.nodes]
    assert (made.float_graph == net) == (mode == "none" and not zero_points)
    assert any(value.origin for value in made.ranged.activations()) == zero_points
    assert set(made.evidence.rows) == (
        {node.outputs[0] for node in net.nodes if node.op in (*quantizer.WEIGHTED, "add")} if count else set()
    )
    integer(made.ranged, Rounding(), evidence(made.ranged, images))


def breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equalization then forgets the factor of one bias."""
    real = equalize.scale

    def broken(graph: Graph, factors: dict) -> Graph:
        after = real(graph, factors)
        name = after.nodes[1].inputs[2]
        return after.with_values(replace(after[name], data=graph[graph.nodes[1].inputs[2]].data * np.float32(1.01)))

    monkeypatch.setattr(equalize, "scale", broken)


@pytest.mark.parametrize("mode", ["scalar", "vector"])
def test_guard(net: Graph, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch)
    with pytest.raises(Unequal, match=rf"equalization \({mode}\): it changes the float function: 'y' has [\d.]+ dB"):
        fitter(net).prepare(mode, feeds(net), Trace())


def test_recipes_that_change_the_function_have_no_score(net: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch)
    found, unequal = tried(fitter(net), RECIPES, lambda done, total: None)
    assert (list(found), list(unequal)) == (RECIPES[:2], ["scalar", "vector"])


def cancelling() -> Graph:
    """Two convolutions with a bias of 10 between; the second one's weights sum to 0, so what it adds up cancels."""
    net = Net(5)
    net.input("x", 1, 8, 8, 3)
    weights = net.rng.normal(0, 1, (4, 16))
    net.conv("x", "a", 16, w=net.rng.normal(0, 3e-4, (16, 3)), b=np.full(16, 10.0))
    net.conv("a", "y", 4, w=weights - weights.mean(1, keepdims=True), b=np.zeros(4))
    return net.graph("y")


def test_the_bound_is_that_of_the_nets_own_noise() -> None:
    """Weights that are rounded once more change the result by more than 90 dB allow; so does any rounding."""
    graph = cancelling()
    made = fitter(graph).prepare("vector", feeds(graph), Trace())
    assert closeness(graph, made.float_graph, feeds(graph)) < 90


def with_indices() -> Graph:
    """x -> conv `a` -> conv `c` -> arg_max `i`."""
    net = Net(2)
    net.input("x", 1, 16, 16, 3)
    net.conv("x", "a", 8, 3, clamp=RELU)
    net.conv("a", "c", 4)
    net.op("arg_max", "c", "i", axis=3)
    return net.graph("i")


def test_an_index_that_flips_is_no_other_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 256 places of an ArgMax with another class is 20 to 30 dB; the tensor that it is made of agrees."""
    graph = with_indices()
    real = parity.FloatEngine.run

    def flipped(self: parity.FloatEngine, feed: dict, names: tuple = ()) -> dict:
        found = real(self, feed, names)
        if "i" in found:
            found["i"].reshape(-1)[7] += 1
        return found

    monkeypatch.setattr(parity.FloatEngine, "run", flipped)
    images = feeds(graph, 3)
    Fitter(graph, observed(graph, images), in_bits(graph, 8), Method(), Rounding(), images).prepare(
        "vector", images, Trace()
    )


@pytest.mark.parametrize("name", ["a", "d", "t"])
def test_an_edited_range_survives_the_vector(net: Graph, name: str) -> None:
    """Its factor grows as the range shrinks; measured again, the range would have grown with the factor."""
    made, edited = fitter(net, zero_points=False), fitter(net, zero_points=False)
    stats = made.stats[name]
    edited.stats = {**made.stats, name: stats.clipped(stats.min / 16, stats.max / 16)}
    first, again = (f.prepare("vector", f.images, Trace()).chosen[name] for f in (made, edited))
    assert again.observed.max < first.observed.max
    assert again.quant.exponent <= first.quant.exponent


@pytest.mark.parametrize("mode", ["scalar", "vector"])
def test_ranges_are_those_of_all_images(net: Graph, mode: str) -> None:
    """Images that nothing is fitted to have widened them, whatever equalization does."""
    made, wide = fitter(net, method="max"), fitter(net, method="max")
    images = [{"x": 8 * image["x"]} for image in made.images]
    wide.stats = observed(net, [*made.images, *images])
    first, again = (f.prepare(mode, f.images, Trace()).chosen["t"] for f in (made, wide))
    assert again.observed.max > 2 * first.observed.max
    assert again.quant.exponent > first.quant.exponent


def test_statistics_are_carried_without_noise(net: Graph) -> None:
    """Nothing is cut off ranges that nobody edited."""
    made = fitter(net)
    factors = Balance(net, made.stats, made.bits).factors()
    graph = equalize.scale(net, factors)
    found, seen = made._carried("vector", graph, factors, made.images), observed(graph, made.images)
    for name, stats in found.items():
        assert (stats.min, stats.max) == pytest.approx((seen[name].min, seen[name].max), rel=1e-5)
        assert np.array_equal(stats.histogram.counts, seen[name].histogram.counts)


def test_a_score_counts_the_same_best_classes() -> None:
    wanted = {"y": np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 1.0], [0.0, 1.0, 4.0], [5.0, 4.0, 0.0]])}
    got = {"y": wanted["y"] + [[0.0, 0.0, 1.0], [0, 0, 0], [0, 5, 0], [0, 0, 0]]}
    found = validation.scored(wanted, got, ["y"], 4)
    assert found[:3] == (pytest.approx(10 * np.log10(73 / 26)), 75.0, 4)
    assert (found.agreed, found.words) == (3, "3 of 4 images agree (30 to 95 %)")
    plane = {"y": np.ones((4, 2, 2, 3))}
    assert validation.scored(plane, plane, ["y"], 4)[:4] == (np.inf, None, 4, None)
    tokens = {"y": np.ones((12, 5))}  # three rows of scores for each image are no answer of it
    assert validation.scored(tokens, tokens, ["y"], 4)[:4] == (np.inf, None, 4, None)


@pytest.mark.slow
def test_the_margin_of_an_sqnr_holds_what_other_images_have() -> None:
    """A linear estimate of the standard error beside that of 400 sets of 40 images of any contrast, two heads."""
    rng = np.random.default_rng(0)

    def score(images: int) -> Score:
        scale = np.exp(rng.normal(0, 0.3, (images, 1)))
        wanted = {name: rng.normal(0, 1, (images, 8)) * scale for name in "yz"}
        got = {name: x + rng.normal(0, 0.1, x.shape) * scale**0.5 for name, x in wanted.items()}
        return validation.scored(wanted, got, ["y", "z"], images)

    truth = score(400_000).db
    sets = [score(40) for _ in range(400)]
    held = sum(abs(one.db - truth) <= one.db_margin for one in sets)
    assert 0.88 * 400 <= held <= 0.99 * 400


@pytest.mark.parametrize(
    ("score", "bits", "expected"),
    [
        (Score(14.9, 99.0, 40, 0.05), "8", "14.9 dB on 40 images (give or take 0.1 dB); try --precise, --bits a16w8,"),
        (Score(14.9, 99.0, 40, 0.2), "8", None),
        (Score(14.9, 99.0, 40), "8", None),
        (Score(-np.inf, None, 40), "8", "no SQNR on 40 images; try"),
        (Score(30.0, 100 * 32 / 34, 34, 0.5), "8", None),
        (Score(30.0, 100 * 28 / 34, 34, 0.5), "a16w8", "28 of 34 images agree (66 to 92 %); try --bits 16, other pre"),
        (Score(30.0, 94.9, 400, 0.5), "8", None),
        (Score(30.0, 92.5, 400, 0.5), "8", "370 of 400 images agree (89 to 95 %); try --precise, --bits a16w8, other"),
        (Score(3.0, 0.0, 2), "8", "0 of 2 images agree (0 to 66 %); try other preprocessing"),
        (Score(30.0, None, 40, 0.5), "8", None),
    ],
)
def test_a_poor_result_is_reported_where_chance_does_not_explain_it(
    score: Score, bits: str, expected: str | None
) -> None:
    """Two images of 34 are no reason to double the RAM (MobileNetV2: 98.25 % of 400 others agree)."""
    found = quality(bits, "default", 120, 80, score, {}, "images")
    assert len(found) == (expected is not None)
    assert expected is None or f"poor on images that nothing was fitted to: {expected}" in found[0]
