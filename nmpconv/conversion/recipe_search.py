"""Choice of the recipe that a model is converted by: the best one on all images, fitted on two thirds of them."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import partial

from nmpconv.base.progress import Progress
from nmpconv.base.workers import Workers
from nmpconv.conversion.quantizer import BY_CHANNEL, EQUALIZATIONS, HELD_OUT, Fitter, Prepared, Recipe, Unequal
from nmpconv.conversion.validation import Considered, Score, tried
from nmpconv.graph.trace import Trace
from nmpconv.passes.quantize import offsets
from nmpconv.passes.quantize.balance import fewest_bits
from nmpconv.passes.quantize.overrides import NOTHING

# Balanced channels saturate together on an unusual image: at 16 bits they have to be better by this.
BALANCED_16_DB = 1.0
# Of two that do about as well, the one with second moments gains more by the third of the images that was held out.
NEAREST_DB = 0.1
# Plain biases are for nets that a correction harms; others may do as well with them on a few images.
PLAIN_BIASES_DB = 1.0
# Factors of few samples may be theirs alone.
AMPLIFIED_DB = 1.0
# Recipes this near the best one are as good in the mean; of them, one whose worst image is better by STEADIER_DB wins.
ALIKE_DB = 0.2
CONTENDERS_DB = 1.0  # recipes this near the best one compete again where tensors get 16 bits
STEADIER_DB = 1.0


def handicap(recipe: Recipe, balanced: float) -> float:
    """By how many dB a recipe must be better. balanced: of factors by channel."""
    plain = (0.0 if recipe.gptq else NEAREST_DB) + (0.0 if recipe.corrected else PLAIN_BIASES_DB)
    return (balanced if recipe.equalize in BY_CHANNEL else 0.0) + plain + AMPLIFIED_DB * recipe.amplified


def ranked(scores: Mapping[Recipe, Score], balanced: float = 0.0) -> list[Recipe]:
    """The best recipe first: by the mean SQNR of all images less `handicap`, and among those alike by the worst one."""
    figures = {recipe: score.rank for recipe, score in scores.items()}

    def merit(recipe: Recipe) -> float:
        return figures[recipe].db - handicap(recipe, balanced)

    order = sorted(figures, key=merit, reverse=True)
    alike = [recipe for recipe in order if merit(recipe) >= merit(order[0]) - ALIKE_DB]
    steadiest = max(alike, key=lambda recipe: figures[recipe].worst_db, default=None)
    if steadiest is not None and figures[steadiest].worst_db >= figures[order[0]].worst_db + STEADIER_DB:
        order.sort(key=lambda recipe: recipe != steadiest)
    return order


def contenders(best: Recipe, scores: Mapping[Recipe, Score]) -> tuple[Recipe, ...]:
    """Recipes within CONTENDERS_DB of the best one, with what it leaves out."""
    least = scores[best].rank.db - CONTENDERS_DB if best in scores else math.inf
    near = [recipe for recipe, score in scores.items() if score.rank.db >= least]
    alike = (replace(best, equalize=recipe.equalize, gptq=recipe.gptq) for recipe in near)
    return tuple(dict.fromkeys(alike))


def choose(
    fitter: Fitter,
    recipes: Sequence[Recipe],
    progress: Progress,
    trace: Trace,
    workers: Workers | None = None,
    *,
    measured: bool = True,
    decided: Container[str] = (),
) -> tuple[Recipe, Prepared, tuple[str, ...], Score | None, tuple[Recipe, ...]]:
    """The recipe that is best, prepared on all images, what was considered, how good it was on held-out images, and the
    recipes within CONTENDERS_DB of it, itself among them.

    With fewer than HELD_OUT images: the first, and None. An equalization that changes the float function is left out;
    where none of the recipes keeps it, the plainer ones follow; see `ranked`. The best one is tried without zero
    points, too, unless `offsets.pay` and nothing is said by name; with 16 bits throughout without corrections of
    biases, which errors that are few and large make useless. Where its outputs change less than the float model's, it
    is tried with amplified weights, too. workers: what recipes are fitted by. measured: False for
    the first, and None, at once. decided: what a recipe file says, by its keys.
    """
    narrow = fewest_bits(fitter.graph, fitter.bits) == 8
    balanced = 0.0 if narrow or fitter.weight_bits == 8 else BALANCED_16_DB
    trials = _RecipeSearch(fitter, progress, workers)
    for tier in (recipes, *_plainer(recipes)):
        order, scores = list(tier), dict[Recipe, Score]()
        if measured and len(fitter.images) >= HELD_OUT:
            scores = trials.scores(tier)
            order = ranked(scores, balanced)
        if len(tier) > 1 and order and scores:
            trials.notes += [_noted(recipe, score) for recipe, score in scores.items()]
            if fitter.rounding.may_amplify and "amplify" not in decided and scores[order[0]].weakened:
                order, scores = trials.beside(order, scores, replace(order[0], amplified=True))
            key, has = ("zero_points", fitter.zero_points) if narrow else ("bias_correction", fitter.corrects)
            # Where most tensors gain a bit by an origin, the same without was 2.7 to 4.7 dB behind in the eight nets of
            # decision 046. What is said by name may be a grid that a zero point harms.
            sure = narrow and fitter.choices == NOTHING and offsets.pay(fitter.graph, fitter.stats)
            if has and key not in decided and not sure:
                best = order[0]
                order, scores = trials.beside(
                    order,
                    scores,
                    replace(best, zero_points=False) if narrow else replace(best, corrected=False, amplified=False),
                )
        if len(tier) > 1 and order and scores:
            fitter.keep_only(order[0])
        for recipe in order:
            if (prepared := trials.prepared(recipe, trace)) is not None:
                notes, near = (*trials.notes, *prepared.notes), contenders(recipe, scores)
                return recipe, prepared, notes, scores.get(recipe), near
    raise AssertionError("equalize none keeps every function")


class _RecipeSearch:
    """Recipes, tried. notes: what was considered. An equalization that changes the float function is tried once."""

    def __init__(self, fitter: Fitter, progress: Progress, workers: Workers | None) -> None:
        self.notes: list[str] = []
        self._lost: set[tuple[str, bool]] = set()  # equalization, zero points
        self._fitter, self._progress, self._workers = fitter, progress, workers

    def scores(self, recipes: Sequence[Recipe]) -> dict[Recipe, Score]:
        """Scores of recipes; none of those that change the function. All leave out the same."""
        stage = partial(self._progress, "choose")
        scores, unequal = tried(self._fitter.of(recipes[0]), recipes, stage, self._workers)
        for mode, error in unequal.items():
            self._leave_out(mode, recipes[0].zero_points, error)
        return scores

    def beside(
        self, order: list[Recipe], scores: Mapping[Recipe, Score], other: Recipe
    ) -> tuple[list[Recipe], dict[Recipe, Score]]:
        """Order and scores with another recipe, in front where it is better than the first one."""
        more = self.scores([other])
        self.notes += [_noted(recipe, score) for recipe, score in more.items()]
        wins = ranked({order[0]: scores[order[0]], **more})[0] == other
        return [other, *order] if wins else order, {**scores, **more}

    def prepared(self, recipe: Recipe, trace: Trace) -> Prepared | None:
        """On all images; None where it changes the function."""
        if (recipe.equalize, recipe.zero_points) in self._lost:
            return None
        try:
            return self._fitter.of(recipe).prepare(recipe.equalize, self._fitter.images, trace, keep=True)
        except Unequal as error:
            self._leave_out(recipe.equalize, recipe.zero_points, error)
            return None

    def _leave_out(self, mode: str, zero_points: bool, error: Unequal) -> None:
        self._lost.add((mode, zero_points))
        self.notes.append(f"equalize {mode}{'' if zero_points else ', no zero points'} left out: {error.message}")


def _plainer(recipes: Sequence[Recipe]) -> list[list[Recipe]]:
    """Returns the recipes that follow where none of these keeps the function, one equalization after the other."""
    modes = dict.fromkeys(recipe.equalize for recipe in recipes)
    plainer = [mode for mode in reversed(EQUALIZATIONS[: EQUALIZATIONS.index(next(iter(modes)))]) if mode not in modes]
    roundings = list(dict.fromkeys(recipe.gptq for recipe in recipes))
    return [[Recipe(mode, gptq) for gptq in roundings] for mode in plainer]


def _noted(recipe: Recipe, score: Score) -> str:
    """No error at all has an infinite SQNR, and any error where the float model gives 0 alone has none."""
    db = "exact" if score.db == math.inf else f"{score.db:.2f} dB" if math.isfinite(score.db) else "no SQNR, beside 0,"
    rank = score.rank
    every = f", {rank.db:.2f} dB on all" if rank is not score and math.isfinite(rank.db) else ""
    worst = f", worst image {rank.worst_db:.2f} dB" if math.isfinite(rank.worst_db) else ""
    return Considered(f"{recipe}: {db} on held-out images{every}{worst}")
