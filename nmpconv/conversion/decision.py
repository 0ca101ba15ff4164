"""Middle stages of a conversion: the recipe, and the tensors that get 16 bits, decided on validation images."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from nmpconv.conversion import cheap_promotions, costly_widths, file_contents, mixed_precision, ram_plan
from nmpconv.conversion.calibration import FAST_IMAGES, Calibrated
from nmpconv.conversion.candidates import Candidate, CandidateEvaluator, ValidationSet, widened
from nmpconv.conversion.context import Context
from nmpconv.conversion.costly_widths import Affordable
from nmpconv.conversion.diagnostics import FEW_IMAGES
from nmpconv.conversion.options import Options
from nmpconv.conversion.quantizer import HELD_OUT, UNCHECKED, Fitter, Prepared, Recipe, is_held_out, parted
from nmpconv.conversion.recipe_search import choose
from nmpconv.conversion.validation import Score
from nmpconv.data.samples import spread
from nmpconv.errors import UsageError
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.passes import stream
from nmpconv.passes.quantize import drop_channels, recurrent_states
from nmpconv.passes.quantize.balance import fewest_bits, has_long_streams

HELD_MOST = 200  # images that candidates are measured on
COMPETING_NODES = 2500  # most nodes of all equalizations that compete, each with those of the net: see decision 050
PREFERRED = ("scalar", "vector", "none")  # equalizations of large nets, the first ones first


@dataclass(frozen=True)
class Decision:
    """The recipe of a conversion, and the reasons for it.

    fitter: with the widths that were decided. score: what it was chosen by, on validation images; None with
    too few of them. notes, warnings: for the report. front: Pareto front of the search for a goal. contenders: this
    recipe and those that were nearly as good.
    """

    fitter: Fitter
    recipe: Recipe
    prepared: Prepared
    score: Score | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    front: tuple[Candidate, ...] = ()
    contenders: tuple[Recipe, ...] = ()

    def noted(self, *notes: str) -> Decision:
        """The same with these notes more."""
        return replace(self, notes=(*self.notes, *notes))


def limit_costs(context: Context, calibrated: Calibrated) -> Calibrated:
    """Takes 16 bits from tensors that nobody asked them for, where they cost much on a microcontroller."""
    result = affordable(context.options, calibrated.fitter)
    return replace(calibrated, fitter=result.fitter, narrowed=result.note, limit=result.limit)


def affordable(options: Options, fitter: Fitter) -> Affordable:
    """Returns what `costly_widths` makes of a fitter, where it is for these options to decide."""
    has_states = bool(options.state or fitter.graph.variables)  # whose errors come back in every call
    if options.bits != "8" or options.widths != "default" or options.faithful or has_states:
        return Affordable(fitter)
    finish = finisher(replace(options, max_ram=None, ram=None, drop_channels=False, stream=None))
    return costly_widths.run(fitter, finish, options.target)


def choose_recipe(context: Context, calibrated: Calibrated) -> Decision:
    """Takes the recipe that is best on validation images; with --fast the only one."""
    fitter = calibrated.fitter
    decision = _decided(context, fitter, _recipes(context.options, fitter), context.recipe_file.convert)
    return replace(decision, notes=(calibrated.narrowed, *decision.notes)) if calibrated.narrowed else decision


def _decided(context: Context, fitter: Fitter, recipes: Sequence[Recipe], settled: Container[str]) -> Decision:
    """The best of these recipes. settled: what is not to be varied, by the keys of a recipe file."""
    recipe, prepared, notes, score, contenders = choose(
        fitter,
        recipes,
        context.progress,
        context.trace,
        context.workers,
        measured=not context.options.fast,
        decided=settled,
    )
    zero_points, corrected = recipe.zero_points and fitter.zero_points, recipe.corrected and fitter.corrects
    amplified = corrected and (recipe.amplified or bool(fitter.rounding.amplify))
    recipe = replace(recipe, zero_points=zero_points, corrected=corrected, amplified=amplified)
    return Decision(fitter.of(recipe), recipe, prepared, score, notes, contenders=contenders)


def promote_cheap_tensors(context: Context, calibrated: Calibrated, decision: Decision) -> Decision:
    """Gives 16 bits to tensors where they cost next to nothing, or what `limit_costs` has left; unless widths are
    strict, budgets are given, or one conversion is to be enough. Recipes that were nearly as good compete
    again: what those tensors lost had hidden how they differ."""
    options, images = context.options, calibrated.fitter.images
    if (
        options.bits != "8"
        or options.widths == "strict"
        or options.faithful
        or options.fast
        or options.budget
        or len(images) < HELD_OUT
    ):
        return decision
    context.progress("widths", 0, 1)
    trial = held_out(context, calibrated)
    trials = CandidateEvaluator(decision.fitter, decision.recipe, trial)
    work = inf if calibrated.narrowed else cheap_promotions.WORK
    if promoted := cheap_promotions.run(trials, decision.prepared, work, calibrated.limit, context.workers):
        before, after, score = promoted
        notes, contenders = (*decision.notes, cheap_promotions.note(before, after)), decision.contenders
        if len(contenders) > 1:
            notes = tuple(note for note in notes if note not in decision.prepared.notes)
            fitter = calibrated.fitter.with_choices(
                widened(decision.fitter.choices, after.wide, cheap_promotions.PLACE)
            )
            decision = _decided(context, fitter, contenders, ("zero_points", "bias_correction", "amplify"))
            decision = replace(decision, notes=(*notes, *decision.notes))
        else:
            decision = _promoted(decision, after, score, cheap_promotions.PLACE, context.trace)
            decision = replace(decision, notes=notes)
    context.progress("widths", 1, 1)
    return decision


def search_widths(context: Context, calibrated: Calibrated, decision: Decision) -> Decision:
    """Gives 16 bits to the tensors that the goal of --bits auto needs."""
    if context.search is None:
        return decision
    metric = context.measure(calibrated.size)
    trial = replace(held_out(context, calibrated), metadata=metadata(context, calibrated, decision), metric=metric)
    journal = mixed_precision.Journal(context.options.journal, trial.fingerprint(context.recipe_bytes()))
    search = mixed_precision.Search(
        decision.fitter, decision.recipe, trial, *context.search, journal, context.progress, context.workers
    )
    taken, front = search.run()
    score = Score(taken.db, taken.agreement, len(trial.images), taken.db_margin)
    decision = _promoted(decision, taken, score, mixed_precision.PLACE, context.trace)
    return replace(decision, warnings=search.warnings(taken), front=tuple(front))


def _promoted(decision: Decision, candidate: Candidate, score: Score, place: str, trace: Trace) -> Decision:
    """The decision with 16 bits for the tensors of a candidate. place: what decided so, for messages."""
    fitter = decision.fitter.with_choices(widened(decision.fitter.choices, candidate.wide, place))
    equalize = decision.recipe.equalize
    prepared = fitter.prepare(equalize, fitter.images, trace) if candidate.wide else decision.prepared
    return replace(decision, fitter=fitter, prepared=prepared, score=score)


def options_of(context: Context, decision: Decision) -> Options:
    """The options with what was decided of biases and weights."""
    fitter = decision.fitter
    return replace(context.options, bias_correction=fitter.corrects, amplify=bool(fitter.rounding.amplify))


def metadata(context: Context, calibrated: Calibrated, decision: Decision) -> dict[str, str]:
    """Facts about the conversion that its file holds."""
    options = options_of(context, decision)
    graph = calibrated.fitter.graph
    if graph.variables:
        pairs = recurrent_states.checked(graph, options.state or ())
        options = replace(options, state=tuple(f"{output}={name}" for name, output in pairs.items()))
    return file_contents.metadata(context.model, options, decision.recipe, len(calibrated.feeds))


def held_out(context: Context, calibrated: Calibrated) -> ValidationSet:
    """Validation images: those that nothing is fitted on, or a third of the fitted ones where too few are left."""
    feeds, images = calibrated.feeds, calibrated.fitter.images
    if len(images) < HELD_OUT:
        raise UsageError(f"--bits auto needs images to measure on: at least {HELD_OUT}, about 100 and more are right")
    held = unfitted(context, calibrated)
    measured: Sequence[Mapping[str, np.ndarray]]
    fitted: Sequence[Mapping[str, np.ndarray]]
    if held:
        subset, fitted = feeds.subset(held), images
        measured = list(subset) if context.workers.count > 1 else subset  # other processes may not find the files
    else:
        held = tuple(index for place, index in enumerate(calibrated.fitted) if is_held_out(place))
        fitted, measured = parted(images)
    labels = None if calibrated.labels is None else [calibrated.labels[i] for i in held]
    return ValidationSet(
        measured, labels, fitted, finisher(context.options), target=context.options.target, indices=held
    )


def unfitted(context: Context, calibrated: Calibrated) -> tuple[int, ...]:
    """Samples that biases and rounding are not fitted on, at most HELD_MOST, or FAST_IMAGES with --fast; () where they
    are few."""
    used = set(calibrated.fitted)
    others = [i for i in calibrated.inliers if i not in used]
    most = FAST_IMAGES if context.options.fast else HELD_MOST
    return tuple(others[i] for i in spread(len(others), most)) if len(others) >= FEW_IMAGES else ()


def finisher(options: Options) -> Callable[[Graph], Graph]:
    """Returns a function that plans an integer graph as the conversion does."""
    return partial(_finish, options)


def _finish(options: Options, graph: Graph) -> Graph:
    slim = drop_channels.run(graph) if options.drop_channels else graph
    step = one_step(slim, options, UNCHECKED)
    return ram_plan.planned(step, options.max_ram, options.target, UNCHECKED, options.memories)


def one_step(graph: Graph, options: Options, trace: Trace) -> Graph:
    """The graph of one call, where the model keeps states between calls."""
    stateful = trace(recurrent_states.run(graph, options.state or ()), "INT", "recurrent_states")
    return trace(stream.run(stateful, options.stream), "INT", "stream")


def _recipes(options: Options, fitter: Fitter) -> list[Recipe]:
    """The candidates. With 16 bits throughout, a finer grid is never worse, but where factors of spectra come with it;
    without images, only statistics speak. With --fast there is one, of scalar equalization and nearest rounding where
    nothing else is asked for. Long residual streams of int8 are filled more evenly by one recipe more. In large nets
    fewer equalizations compete.

    UsageError for options that need images where there are none.
    """
    images = len(fitter.images)
    for name, asked in (("equalize", "vector"), ("equalize", "streams"), ("rounding", "gptq"), ("amplify", True)):
        if not images and getattr(options, name) == asked:
            raise UsageError(f"{name} {asked} needs images, ranges are not enough", hint="give --data SOURCE, too")
    spectra = any(OPS[node.op].absorbs for node in fitter.graph.nodes)
    modes = ["none", "scalar", "vector"] if options.bits != "16" or spectra else ["scalar", "vector"]
    roundings = [False] if options.bits == "16" else [False, True]
    if options.fast:
        modes, roundings = ["scalar"], [False]
    if options.equalize != "auto":
        modes = [options.equalize]
    if options.rounding != "auto":
        roundings = [options.rounding == "gptq"]
    if not images:
        modes, roundings = ["none" if options.equalize == "auto" else options.equalize], [False]
    most = max(COMPETING_NODES // max(len(fitter.graph.nodes), 1), 1)
    if most < len(modes) and images >= HELD_OUT:
        modes = [mode for mode in modes if mode in PREFERRED[:most]]
    recipes = [Recipe(mode, gptq) for mode in modes for gptq in roundings]
    narrow = fewest_bits(fitter.graph, fitter.bits) == 8
    if len(modes) == 3 < most and True in roundings and narrow and has_long_streams(fitter.graph):
        recipes.append(Recipe("streams", True))
    return recipes
