"""Which recipe a model is converted by: the one that does best on images that it was not fitted to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from nmpconv.fit import EQUALIZATIONS, Fitter, Prepared, Recipe, Score, Unequal
from nmpconv.graph.trace import Trace
from nmpconv.passes.quantize.equalize import fewest_bits
from nmpconv.progress import Progress

HELD_OUT = 6  # images that are enough to hold a third of them out
# Balanced channels saturate together on an unusual image; at 16 bits that is worth it for half a bit only.
BALANCED_16_DB = 3.0
# Of two that do about as well, the one with second moments gains more by the third of the images that was held out.
NEAREST_DB = 0.1


def handicap(recipe: Recipe, balanced: float) -> float:
    """By how many dB a recipe must be better. balanced: of vector equalization."""
    return (balanced if recipe.equalize == "vector" else 0.0) + (0.0 if recipe.gptq else NEAREST_DB)


def choose(
    fitter: Fitter, recipes: Sequence[Recipe], progress: Progress, trace: Trace
) -> tuple[Recipe, Prepared, tuple[str, ...], Score | None]:
    """The recipe that is best on held-out images, prepared on all, what was considered, and how good it was on them.

    With fewer than HELD_OUT images: the first, and None. An equalization that changes the float function is left out;
    where none of the recipes keeps it, the plainer ones follow. With 16 bits throughout, vector equalization is to be
    better by BALANCED_16_DB, and nearest rounding always by NEAREST_DB. The best one is tried without zero points, too.
    """
    narrow = fewest_bits(fitter.graph, fitter.bits) == 8
    balanced = 0.0 if narrow or fitter.weight_bits == 8 else BALANCED_16_DB
    notes: list[str] = []
    lost: set[tuple[str, bool]] = set()  # equalization, zero points
    fitters = {True: fitter, False: fitter.without_zero_points()}

    def leave_out(mode: str, error: Unequal, zero_points: bool = True) -> None:
        lost.add((mode, zero_points))
        notes.append(f"equalize {mode}{'' if zero_points else ', no zero points'} left out: {error.message}")

    modes = dict.fromkeys(recipe.equalize for recipe in recipes)
    plainer = [mode for mode in reversed(EQUALIZATIONS[: EQUALIZATIONS.index(next(iter(modes)))]) if mode not in modes]
    roundings = list(dict.fromkeys(recipe.gptq for recipe in recipes))
    for tier in (recipes, *([Recipe(mode, gptq) for gptq in roundings] for mode in plainer)):
        ranked, scores = list(tier), dict[Recipe, Score]()
        if len(fitter.images) >= HELD_OUT:
            scores = fitter.scores(tier, lambda done, total: progress("choose", done, total), leave_out)
            ranked = sorted(scores, key=lambda recipe: handicap(recipe, balanced) - scores[recipe].db)
        if len(tier) > 1 and ranked and scores:
            notes += [_noted(recipe, score) for recipe, score in scores.items()]
            if fitter.zero_points and narrow:
                best, plain = ranked[0], replace(ranked[0], zero_points=False)
                without = fitters[False].scores(
                    [plain],
                    lambda done, total: progress("choose", done, total),
                    lambda mode, error: leave_out(mode, error, False),
                )
                notes += [_noted(recipe, score) for recipe, score in without.items()]
                ranked = [plain, *ranked] if plain in without and without[plain].db > scores[best].db else ranked
                scores |= without
        for recipe in ranked:
            if (recipe.equalize, recipe.zero_points) in lost:
                continue
            try:
                prepared = fitters[recipe.zero_points].prepare(recipe.equalize, fitter.images, trace)
                return recipe, prepared, (*notes, *prepared.notes), scores.get(recipe)
            except Unequal as error:
                leave_out(recipe.equalize, error, recipe.zero_points)
    raise AssertionError("equalize none keeps every function")


def _noted(recipe: Recipe, score: Score) -> str:
    """No error at all has an infinite SQNR, and any error where the float model gives 0 alone has none."""
    db = "exact" if score.db == math.inf else f"{score.db:.2f} dB" if math.isfinite(score.db) else "no SQNR, beside 0,"
    return f"{recipe}: {db} on held-out images"
