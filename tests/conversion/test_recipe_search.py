"""Ranking of recipes, those that are not worth a fit, and the note of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx_net import Net

import nmpconv
from nmpconv.base.progress import silent
from nmpconv.base.sqnr import sqnr_db
from nmpconv.conversion import cheap_promotions, costly_widths, recipe_search
from nmpconv.conversion.candidates import Candidate
from nmpconv.conversion.quantizer import Fitter, Recipe
from nmpconv.conversion.recipe_search import AMPLIFIED_DB, PLAIN_BIASES_DB, _noted, ranked
from nmpconv.conversion.validation import HOPELESS_DB, Score, Tried, hopeless, scored, tried, weakened
from nmpconv.errors import UsageError
from nmpconv.graph.trace import Trace
from nmpconv.passes.quantize.rounding import Rounding

RECIPES = [Recipe(mode, gptq) for mode in ("none", "scalar", "vector") for gptq in (False, True)]


@pytest.mark.parametrize(
    ("db", "words"), [(31.456, "31.46 dB on"), (np.inf, "exact on"), (-np.inf, "no SQNR, beside 0, on")]
)
def test_scores_in_words(db: float, words: str) -> None:
    assert _noted(RECIPES[0], Score(db, None, 2)) == f"equalize none, nearest rounding: {words} held-out images"


def test_the_worst_image_in_words() -> None:
    score = Score(31.456, None, 2, each_db=(40.0, -np.inf, 12.9))
    words = "equalize none, nearest rounding: 31.46 dB on held-out images, worst image 12.90 dB"
    assert _noted(RECIPES[0], score) == words


@pytest.mark.parametrize(
    ("mean", "worst", "best"),
    [
        ((31.0, 30.9), (12.9, 32.4), 1),  # as good in the mean, and no image is lost
        ((31.0, 30.7), (12.9, 32.4), 0),  # worse in the mean
        ((31.0, 30.9), (25.0, 25.9), 0),  # worst images alike
        ((np.inf, 40.0), (np.inf, 39.0), 0),
    ],
)
def test_of_recipes_that_are_alike_the_steadiest_is_taken(
    mean: tuple[float, float], worst: tuple[float, float], best: int
) -> None:
    recipes = (Recipe("scalar", True), Recipe("vector", True))
    scores = {
        recipe: Score(db, None, 2, each_db=(50.0, least))
        for recipe, db, least in zip(recipes, mean, worst, strict=True)
    }
    assert ranked(scores)[0] == recipes[best]
    assert len(ranked(scores)) == 2


def test_recipes_compete_on_all_images_and_notes_tell_of_the_held_out_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Takes the recipe that is better on all images, though it is worse on a third of them."""
    seen: list[Mapping[Recipe, Score]] = []

    def scores(*args: Any) -> Tried:
        measured, unequal = tried(*args)
        by_all = {recipe: Score(40.0 + recipe.gptq, None, 12) for recipe in measured}
        held = {recipe: score._replace(db=30.0 - recipe.gptq) for recipe, score in measured.items()}
        seen.append(measured)
        return {recipe: score._replace(all_images=by_all[recipe]) for recipe, score in held.items()}, unequal

    rng, path = np.random.default_rng(0), tmp_path / "m.onnx"
    net = Net((1, 2, 6, 6))
    net.save(path, net.conv("x", 2, 3))
    monkeypatch.setattr(recipe_search, "tried", scores)
    data = rng.normal(size=(12, 1, 2, 6, 6)).astype(np.float32)
    result = nmpconv.convert(path, data, equalize="none", zero_points=False)
    assert result.report.recipe == "equalize none, gptq rounding, no zero points"
    assert result.report.held_out is not None and result.report.held_out.images == 4
    assert any("29.00 dB on held-out images, 41.00 dB on all" in note for note in result.report.notes)
    for score in seen[0].values():
        assert score.all_images is not None and (score.images, score.all_images.images) == (4, 12)
        assert score.each_db == score.all_images.each_db[:4]


def test_heads_whose_first_axis_is_no_batch_are_scored_by_image() -> None:
    """The float graph's are one after the other, those of a file a row each."""
    rng = np.random.default_rng(0)
    wanted = rng.normal(size=(12, 2)).astype(np.float32)
    got = (wanted + rng.normal(0, 0.1, (12, 2))).reshape(3, 4, 2).astype(np.float32)
    score = scored({"y": wanted}, {"y": got}, ["y"], 3)
    each = [sqnr_db(wanted[4 * i : 4 * i + 4], got[i]) for i in range(3)]
    assert score.each_db == pytest.approx(each, abs=1e-4)


def test_recipes_that_were_nearly_as_good_compete_again_where_tensors_get_16_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, path, calls = np.random.default_rng(0), tmp_path / "m.onnx", list[Sequence[Recipe]]()
    net = Net((1, 2, 6, 6))
    promoted = net.add("Relu", net.conv("x", 2, 3))
    net.save(path, net.conv(promoted, 2, 3))

    def scores(fitter: Fitter, recipes: Sequence[Recipe], *_: object) -> Tried:
        calls.append(recipes)
        worth = {"none": 28.0, "scalar": 30.0, "vector": 31.0 if fitter.choices.tensors else 29.5}
        return {r: Score(worth[r.equalize] - 3 * (not r.gptq or not r.zero_points), None, 4) for r in recipes}, {}

    plain = Candidate((), 25.0, None, None, 1, 1, 1, 1)
    pair = plain, replace(plain, wide=(promoted,), db=28.0), Score(28.0, None, 4)
    monkeypatch.setattr(recipe_search, "tried", scores)
    monkeypatch.setattr(cheap_promotions, "run", lambda *_: pair)
    monkeypatch.setattr(
        costly_widths, "run", lambda fitter, *_: costly_widths.Affordable(fitter)
    )  # the net is very small
    data = rng.normal(size=(12, 1, 2, 6, 6)).astype(np.float32)
    result = nmpconv.convert(path, data)
    assert list(calls[-1]) == [Recipe("scalar", True), Recipe("vector", True)]
    assert len(calls) == 3  # the best one was tried without zero points once
    assert result.report.recipe == "equalize vector, gptq rounding"
    assert {t.name: t.dtype for t in result.load().model.tensors}[promoted] == "int16"


@pytest.mark.parametrize(("relus", "tried_without"), [(3, False), (1, True)])
def test_zero_points_stay_where_most_tensors_gain(relus: int, tried_without: bool, tmp_path: Path) -> None:
    net, path = Net((1, 2, 6, 6)), tmp_path / "m.onnx"
    y = "x"
    for i in range(4):
        y = net.conv(y, 2, 1)
        y = net.add("Relu", y) if i < relus else y
    net.save(path, y)
    data = np.random.default_rng(0).normal(size=(12, 1, 2, 6, 6)).astype(np.float32)
    notes = nmpconv.convert(path, data).report.notes
    assert any("no zero points:" in note for note in notes) == tried_without
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'[tensors]\n"{y}" = {{ bits = 8 }}\n', encoding="utf-8")
    assert any("no zero points:" in note for note in nmpconv.convert(path, data, recipe=recipe).report.notes)


@pytest.mark.parametrize(
    ("weakened", "gain", "amplify", "taken"),
    [
        (True, 9.0, None, True),
        (True, AMPLIFIED_DB - 0.1, None, False),
        (False, 9.0, None, False),
        (True, 9.0, False, False),
    ],
)
def test_weights_are_amplified_where_outputs_are_weakened(
    weakened: bool, gain: float, amplify: bool | None, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe that is saved, and the option, give the same bytes."""

    def scores(fitter: Fitter, recipes: Sequence[Recipe], *_: object) -> Tried:
        assert all(fitter.rounding.amplify or not recipe.amplified for recipe in recipes)
        return {r: Score(30.0 + r.gptq + gain * r.amplified, None, 2, weakened=weakened) for r in recipes}, {}

    path, saved, rng = tmp_path / "m.onnx", tmp_path / "m.toml", np.random.default_rng(0)
    net = Net((1, 2, 6, 6))
    net.save(path, net.conv(net.add("Relu", net.conv("x", 2, 3)), 3, 2))
    data = rng.choice([-1.0, 1.0], (8, 1, 2, 6, 6)).astype(np.float32)
    monkeypatch.setattr(recipe_search, "tried", scores)
    result = nmpconv.convert(path, data, amplify=amplify, save_recipe=saved)
    assert result.report.recipe.endswith(", amplified weights") == taken
    assert Recipe.of(result.report.recipe) is not None
    assert f"amplify = {str(taken).lower()}" in saved.read_text()
    assert result.data == nmpconv.convert(path, data, recipe=saved).data
    assert result.data == nmpconv.convert(path, data, amplify=taken).data


@pytest.mark.parametrize(("slope", "expected"), [(0.95, True), (1.0, False), (1.05, False)])
def test_outputs_that_change_less_are_weakened(slope: float, expected: bool) -> None:
    rng = np.random.default_rng(2)
    wanted = rng.normal(size=(12, 30))
    got = slope * wanted + rng.normal(0, 0.05, wanted.shape)
    assert weakened({"y": wanted}, {"y": got}, ["y"], 12) == expected


@pytest.mark.parametrize("options", [{"bits": "16"}, {"bits": "a16w8", "rounding": "nearest", "amplify": True}])
@pytest.mark.parametrize(("gain", "recipe"), [(PLAIN_BIASES_DB - 0.1, ""), (9.0, "plain biases")])
def test_at_16_bits_plain_biases_are_taken_where_corrections_harm(
    options: dict[str, Any], gain: float, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recipes that are saved give the same bytes again: plain biases have no amplified weights."""

    def scores(fitter: Fitter, recipes: Sequence[Recipe], *_: object) -> Tried:
        assert all(recipe.corrected or not fitter.corrects for recipe in recipes)
        worth = {recipe: recipe.gptq + (0.0 if recipe.corrected else gain) for recipe in recipes}
        return {recipe: Score(30.0 + db, None, 2) for recipe, db in worth.items()}, {}

    path, saved, rng = tmp_path / "m.onnx", tmp_path / "m.toml", np.random.default_rng(0)
    net = Net((1, 2, 6, 6))
    net.save(path, net.add("Relu", net.conv("x", 2, 3)))
    data = rng.normal(size=(8, 1, 2, 6, 6)).astype(np.float32)
    monkeypatch.setattr(recipe_search, "tried", scores)
    result = nmpconv.convert(path, data, save_recipe=saved, **options)
    assert result.report.recipe.endswith("plain biases") == bool(recipe)
    assert Recipe.of(result.report.recipe) is not None
    again = nmpconv.convert(path, data, recipe=saved)
    constants, others = (
        {t.name: t.data.tolist() for t in r.load().model.tensors if t.data is not None} for r in (result, again)
    )
    assert constants == others
    assert result.data == again.data
    assert f"bias_correction = {str(not recipe).lower()}" in saved.read_text()


@pytest.mark.parametrize(("behind", "count"), [(HOPELESS_DB - 0.1, 0), (HOPELESS_DB + 0.1, 1)])
def test_nearest_rounding_is_left_out_where_second_moments_trail(behind: float, count: int) -> None:
    reached = {"none": 30.0 - behind, "scalar": 30.0, "vector": 29.9}
    found = hopeless(RECIPES, {Recipe(mode, True): Score(db, None, 2) for mode, db in reached.items()})
    assert found == ({Recipe("none", False)} if count else set())
    assert not hopeless(RECIPES[::2], {})


def test_nearest_rounding_is_tried_where_nothing_is_left_and_not_where_all_is_exact() -> None:
    scores = [
        {Recipe(mode, True): Score(db, None, 2) for mode in ("none", "scalar", "vector")} for db in (-np.inf, np.inf)
    ]
    assert [len(hopeless(RECIPES, some)) for some in scores] == [0, 3]


class Searched:
    """Stands for the trials: factors by channel are better by 0.8 dB."""

    def __init__(self, *fitter: object) -> None:
        self.notes: list[str] = []

    def scores(self, recipes: Sequence[Recipe]) -> dict[Recipe, Score]:
        return {recipe: Score({"scalar": 50.0, "vector": 50.8}[recipe.equalize], None, 2) for recipe in recipes}

    def prepared(self, recipe: Recipe, trace: object) -> object:
        return SimpleNamespace(notes=())


@pytest.mark.parametrize(("weight_bits", "best"), [(8, "vector"), (16, "scalar")])
def test_factors_by_channel_are_worth_less_at_16_bits(
    weight_bits: int, best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe_search, "_RecipeSearch", Searched)
    monkeypatch.setattr(recipe_search, "fewest_bits", lambda *graph: 16)
    fitter: Any = SimpleNamespace(graph=None, bits=None, weight_bits=weight_bits, images=range(32), zero_points=False)
    fitter.corrects, fitter.rounding = False, Rounding(bias_correction=False)
    fitter.keep_only = lambda recipe: None
    recipes = [Recipe("scalar", True), Recipe("vector", True)]
    monkeypatch.setattr(recipe_search, "_noted", lambda recipe, score: "")
    recipe, *_ = recipe_search.choose(fitter, recipes, silent, Trace())
    assert recipe.equalize == best


@pytest.mark.parametrize("others", [{"bias_correction": False}, {"bits": 16}])
def test_weights_that_are_not_amplified(tmp_path: Path, others: dict[str, Any]) -> None:
    net = Net((1, 2, 6, 6))
    net.save(tmp_path / "m.onnx", net.conv("x", 2, 3))
    with pytest.raises(UsageError, match="needs weights of 8 bits and corrected biases"):
        nmpconv.convert(tmp_path / "m.onnx", np.ones((8, 1, 2, 6, 6), np.float32), amplify=True, **others)


def test_weights_are_amplified_by_samples_alone(tmp_path: Path) -> None:
    net = Net((1, 2, 6, 6))
    net.save(tmp_path / "m.onnx", net.conv("x", 2, 3))
    nmpconv.convert(tmp_path / "m.onnx", np.ones((8, 1, 2, 6, 6), np.float32), save_profile=tmp_path / "p.txt")
    with pytest.raises(UsageError, match="amplify True needs images"):
        nmpconv.convert(tmp_path / "m.onnx", load_profile=tmp_path / "p.txt", amplify=True)
