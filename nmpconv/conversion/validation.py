"""Recipes tried on images that they were not fitted to: here, or each in a process of its own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from nmpconv.base import confidence, sqnr
from nmpconv.base.quantities import decibels
from nmpconv.base.sqnr import mean_db
from nmpconv.base.thread_pool import each
from nmpconv.base.verdict import Quality, quality
from nmpconv.base.workers import Here, Workers
from nmpconv.calib.activation_cache import Feeds, integers
from nmpconv.conversion import node_runner
from nmpconv.conversion.quantizer import EQUALIZATIONS, UNCHECKED, Fitter, Prepared, Recipe, Unequal, parted
from nmpconv.ir import Graph
from nmpconv.passes.quantize.bias import missing_factor
from nmpconv.passes.quantize.heads import heads

TOGETHER = 2  # recipes tried at a time; each holds the activations of its images
LARGE = 8 * 10**6  # weights of a net, from which on float graphs are equalized and run one by one
UNSEEN = 2 / 3  # see `scored`
HOPELESS_DB = 0.5  # by which an equalization may trail with second moments, for nearest rounding to be worth a fit


class Considered(str):
    """A note with figures of a candidate, which is for those who ask."""


class Answers(NamedTuple):
    """Best classes of images: of the float model and of the integers. classes: number of scores."""

    floats: tuple[int, ...]
    ours: tuple[int, ...]
    classes: int


Noises = tuple[tuple[float, ...], ...]
"""Sums of squares of errors, by head and image."""


class Score(NamedTuple):
    """Figures of validation images. db: SQNR of the heads, their mean. agreement: in %, of the first head; None where
    that is no vector of scores. images: number of them. db_margin: half the 95 % confidence interval of db; None where
    they are too few for one, or db is not finite. answers: see `Answers`; None where there are no scores. each_db: SQNR
    of each image. all_images: figures of these images and of those of the fit together. silent: the float model gives 0
    alone. noises: of these images. weakened: of a recipe's score; see `weakened`."""

    db: float
    agreement: float | None
    images: int
    db_margin: float | None = None
    answers: Answers | None = None
    each_db: tuple[float, ...] = ()
    all_images: Score | None = None
    silent: bool = False
    noises: Noises = ()
    weakened: bool = False

    @property
    def rank(self) -> Score:
        """Figures that recipes compete by: three times as many images tell more of a recipe, though two thirds of them
        are fitted."""
        return self.all_images or self

    @property
    def agreed(self) -> int | None:
        """Number of images with the float model's best class."""
        return None if self.agreement is None else round(self.agreement * self.images / 100)

    @property
    def worst_db(self) -> float:
        """SQNR of the worst image, not counting those of which the float model gives 0 alone; inf without any."""
        return min((db for db in self.each_db if db != -math.inf), default=math.inf)

    @property
    def agreement_range(self) -> tuple[float, float]:
        """The 95 % confidence interval of agreement, in %."""
        return confidence.proportion(self.agreed or 0, self.images if self.agreement is not None else 0)

    @property
    def words(self) -> str:
        """Agreement for people: "32 of 34 images agree (81 to 98 %)"; "" without."""
        return "" if self.agreed is None else confidence.counted(self.agreed, self.images, "images agree")

    @property
    def sentence(self) -> str:
        """Both figures for people: "31.2 dB, 32 of 34 images agree (81 to 98 %), fitted without them"."""
        if self.words:
            return f"{decibels(self.db)}, {self.words}, fitted without them"
        return f"{decibels(self.db)}, fitted without these {self.images} images"

    def to_json(self) -> dict[str, Any]:
        known = self.agreement is not None
        return {
            "db": self.db,
            "agreement": self.agreement,
            "images": self.images,
            "db_margin": self.db_margin,
            "agreed": self.agreed,
            "agreement_range": self.agreement_range if known else None,
        }

    def quality(self, names: Sequence[str], labels: Sequence[int] | None, unit: str) -> Quality:
        """The same figures for a verdict. names, labels: of the images. unit: the word for them."""
        floats, ours, classes = self.answers or Answers((), (), 0)
        return quality(
            names,
            unit,
            ours=ours,
            floats=floats,
            labels=labels,
            classes=classes,
            db=self.db,
            db_margin=self.db_margin,
            each_db=self.each_db,
            silent=self.silent,
        )


Tried = tuple[dict[Recipe, Score], dict[str, Unequal]]
"""Scores of recipes, and the equalizations that change the function, whose recipes have no score."""


def tried(
    fitter: Fitter, recipes: Sequence[Recipe], progress: Callable[[int, int], None], workers: Workers | None = None
) -> Tried:
    """On every third image, each recipe fitted on the other two thirds. workers: what fits them, where there are
    several; the scores are the same."""
    pool = workers or Here()
    if pool.count == 1 or len(recipes) == 1:
        return _RecipeScores(fitter, recipes, progress).tried()
    by_mode = [[recipe for recipe in recipes if recipe.equalize == mode] for mode in _longest_first(recipes)]
    # What recipes of an equalization have in common is made by each worker that gets one of them.
    pieces = by_mode if pool.count <= len(by_mode) else [[recipe] for group in by_mode for recipe in reversed(group)]
    scores: dict[Recipe, Score] = {}
    unequal: dict[str, Unequal] = {}
    for i, (part, left_out) in enumerate(pool.map(_tried_apart, fitter, pieces)):
        scores |= part
        unequal |= left_out
        progress(i + 1, len(pieces))
    dropped = hopeless(recipes, scores)
    return _in_order(recipes, {recipe: score for recipe, score in scores.items() if recipe not in dropped}, unequal)


def hopeless(recipes: Sequence[Recipe], scores: Mapping[Recipe, Score]) -> set[Recipe]:
    """The recipes of nearest rounding whose equalization, with second moments, trails the best one by HOPELESS_DB.

    Nearest rounding does not make up for that: decision 008 has figures. All of them, where the best one is exact.
    """
    by_moments = {recipe.equalize: score.rank.db for recipe, score in scores.items() if recipe.gptq}
    best = max(by_moments.values(), default=-math.inf)
    nearest = [recipe for recipe in recipes if not recipe.gptq]
    if best == math.inf:
        return set(nearest)
    return {recipe for recipe in nearest if by_moments.get(recipe.equalize, math.inf) < best - HOPELESS_DB}


def _tried_apart(fitter: Fitter, recipes: Sequence[Recipe]) -> Tried:
    """In a process of its own, which computes sums as a conversion does, and rows of the images that it fits alone."""
    with threadpool_limits(1):
        fitter.rows(parted(fitter.images)[0])
        return _RecipeScores(fitter, recipes, lambda done, total: None).tried()


def _longest_first(recipes: Sequence[Recipe]) -> list[str]:
    """The equalizations."""
    return sorted({recipe.equalize for recipe in recipes}, key=EQUALIZATIONS.index, reverse=True)


def _in_order(recipes: Sequence[Recipe], scores: Mapping[Recipe, Score], unequal: Mapping[str, Unequal]) -> Tried:
    modes = dict.fromkeys(recipe.equalize for recipe in recipes)
    able = {recipe: scores[recipe] for recipe in recipes if recipe in scores}
    return able, {mode: unequal[mode] for mode in modes if mode in unequal}


class _RecipeScores:
    """Recipes of a fitter, fitted on two of three images, and measured on the third and on all."""

    def __init__(self, fitter: Fitter, recipes: Sequence[Recipe], progress: Callable[[int, int], None]) -> None:
        self._fitter, self._recipes, self._progress = fitter, recipes, progress
        self._rest, self._held = parted(fitter.images)
        self._heads = heads(fitter.graph)
        fitter.rows(self._rest, others=True)
        self._wanted = [fitter.outputs(images) for images in (self._held, self._rest)]
        self._left = Counter(recipe.equalize for recipe in recipes)  # of each equalization, those that are not fitted
        self._total = len(self._left) + len(recipes)
        self._finished, self._lock = 0, Lock()
        weights = sum(value.size for value in fitter.graph.values.values() if value.is_const)
        self._together = TOGETHER if weights < LARGE else 1

    def tried(self) -> Tried:
        modes = _longest_first(self._recipes)  # what takes longest first, here and below
        by_mode = dict(zip(modes, each(self._prepared, modes, self._together), strict=True))
        pairs = [(recipe, by_mode[recipe.equalize]) for recipe in self._recipes]
        able = [(recipe, outcome) for recipe, outcome in pairs if isinstance(outcome, Prepared)]
        scores = self._scores([pair for pair in able if pair[0].gptq])
        dropped = hopeless(self._recipes, scores)
        for recipe, prepared in able:
            if recipe in dropped:
                self._fitted(recipe, prepared)
        scores |= self._scores([pair for pair in able if not pair[0].gptq and pair[0] not in dropped])
        return _in_order(
            self._recipes, scores, {m: outcome for m, outcome in by_mode.items() if isinstance(outcome, Unequal)}
        )

    def _prepared(self, mode: str) -> Prepared | Unequal:
        try:
            prepared = self._fitter.prepare(mode, self._rest, UNCHECKED, keep=True)
            prepared.seen()
        except Unequal as error:
            return error
        finally:
            self._step()
        return prepared

    def _scores(self, pairs: Sequence[tuple[Recipe, Prepared]]) -> dict[Recipe, Score]:
        return dict(zip((recipe for recipe, _ in pairs), each(self._score, pairs, TOGETHER), strict=True))

    def _score(self, pair: tuple[Recipe, Prepared]) -> Score:
        recipe, prepared = pair
        integer = self._fitter.quantize(prepared, recipe.gptq, UNCHECKED)
        self._fitted(recipe, prepared)
        file = node_runner.file_of(integer, self._heads)
        outputs = integer_outputs(integer, self._held, self._heads, file)
        score = scored(self._wanted[0], outputs, self._heads, len(self._held))
        if self._fitter.rounding.may_amplify:
            score = score._replace(weakened=weakened(self._wanted[0], outputs, self._heads, len(self._held)))
        parts = [_energies(self._wanted[0], outputs, self._heads, len(self._held))]
        del outputs  # before those of twice as many images
        outputs = self._fitter.outcome(integer) or integer_outputs(integer, self._rest, self._heads, file)
        parts.append(_energies(self._wanted[1], outputs, self._heads, len(self._rest)))
        return score._replace(all_images=pooled(np.concatenate(parts, axis=2)))

    def _fitted(self, recipe: Recipe, prepared: Prepared) -> None:
        """Counts a recipe that is fitted, or need not be; releases what no other one of its equalization needs."""
        self._step(recipe.equalize)
        if not self._left[recipe.equalize]:
            prepared.seen.let_go()

    def _step(self, fitted: str | None = None) -> None:
        with self._lock:
            self._finished += 1
            if fitted is not None:
                self._left[fitted] -= 1
            self._progress(self._finished, self._total)


def scored(
    wanted: Mapping[str, np.ndarray],
    got: Mapping[str, np.ndarray],
    names: Sequence[str],
    images: int,
    seen: Noises = (),
) -> Score:
    """Scores these heads of all images, one after the other: of the float graph, and of an integer graph.

    seen: noises of an integer graph whose grids had seen the images, where those of ``got`` had seen the other two
    thirds alone. What a sample more loses by reaching beyond those that were seen falls with their number: in a graph
    with grids of all it is UNSEEN of what ``got`` loses more than ``seen``, and so are the noises that count.
    """
    energies = _energies(wanted, got, names, images)
    noises = tuple(map(tuple, energies[1].tolist()))
    if seen:
        energies = energies[0], UNSEEN * energies[1] + (1 - UNSEEN) * np.array(seen)
    db = mean_db(sqnr.ratio_db(*sums) for sums in np.sum(energies, axis=2).T.tolist())
    first = wanted[names[0]]
    ranked = sqnr.score_count((len(first) // images, *first.shape[1:])) > 0
    best = [np.argmax(x[names[0]].reshape(images, -1), axis=1) for x in (wanted, got)]
    agreement = 100 * float(np.mean(best[0] == best[1])) if ranked else None
    sure = confidence.margin(sqnr.effects(*energies)) if math.isfinite(db) else None
    answers = Answers(tuple(best[0].tolist()), tuple(best[1].tolist()), first[0].size) if ranked else None
    silent = not any(part.any() for part in energies)
    each_db = tuple(sqnr.each_db(*energies))
    return Score(db, agreement, images, sure, answers, each_db, silent=silent, noises=noises)


def weakened(
    wanted: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray], names: Sequence[str], images: int
) -> bool:
    """Checks that one of these heads changes less than the float graph's, by a factor."""
    rows = ([x[name].reshape(images, -1) for x in (got, wanted)] for name in names)
    return any(missing_factor(*pair) > 1 for pair in rows)


def pooled(energies: np.ndarray) -> Score:
    """Scores images by sums of squares of what was wanted and of the errors, [2, heads, images]."""
    db = mean_db(sqnr.ratio_db(*sums) for sums in energies.sum(axis=2).T.tolist())
    return Score(db, None, energies.shape[2], each_db=tuple(sqnr.each_db(*energies)))


def effects(
    wanted: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray], names: Sequence[str], images: int
) -> np.ndarray:
    """`nmpconv.base.sqnr.effects` of these heads."""
    return sqnr.effects(*_energies(wanted, got, names, images))


def _energies(
    wanted: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray], names: Sequence[str], images: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of squares of what was wanted and of the errors, [heads, images]."""
    rows = []
    for name in names:
        pairs = zip(*(x[name].reshape(images, -1) for x in (wanted, got)), strict=True)
        rows.append(np.transpose([_squares(*pair) for pair in pairs]))
    signals, noises = np.array(rows).transpose(1, 0, 2)
    return signals, noises


def _squares(wanted: np.ndarray, got: np.ndarray) -> tuple[float, float]:
    """Sums of squares of what was wanted and of the error: of an image alone, as outputs may be large."""
    real = np.asarray(wanted, np.float64)
    error = real - np.asarray(got, np.float64)
    return float(np.einsum("i,i->", real, real)), float(np.einsum("i,i->", error, error))


def integer_outputs(
    graph: Graph, images: Feeds, names: Sequence[str], file: bytes | None = None
) -> dict[str, np.ndarray]:
    """Real values of these tensors for all images through the integer graph, [N, ...]. file: as `node_runner.tensors`
    has it."""
    runs = node_runner.tensors(graph, _Integers(graph, images), names, file)
    return {name: np.concatenate([np.atleast_1d(run[i]) for run in runs]) for i, name in enumerate(names)}


class _Integers(Sequence[Mapping[str, np.ndarray]]):
    """Images on the grids of a graph's inputs."""

    def __init__(self, graph: Graph, images: Feeds) -> None:
        self._graph, self._images = graph, images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:  # type: ignore[override]
        image = self._images[i]
        return {name: integers(image[name], self._graph[name]) for name in self._graph.inputs}
