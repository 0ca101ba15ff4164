"""From an ONNX file and images to the bytes of a .nmp file: the stages in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from nmpconv.base import stream_spec
from nmpconv.base.files import read_file
from nmpconv.base.progress import Progress
from nmpconv.base.workers import Workers, opened
from nmpconv.calib import profile as profiles
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.observers import TensorStats, observe
from nmpconv.calib.parity import Parity
from nmpconv.conversion import (
    cheap_promotions,
    diagnostics,
    file_contents,
    import_check,
    mixed_precision,
    ram_plan,
    recipes,
    sensitivity,
)
from nmpconv.conversion.candidates import Candidate, Trial, Trials, widened
from nmpconv.conversion.diagnostics import FEW_IMAGES
from nmpconv.conversion.inputs import open_inputs
from nmpconv.conversion.options import Options, with_recipe
from nmpconv.conversion.quantizer import HELD_OUT, Fitter, Prepared, Recipe
from nmpconv.conversion.recipe_search import choose
from nmpconv.conversion.report import Report, measure
from nmpconv.conversion.validation import Score
from nmpconv.data import audio
from nmpconv.data.audio import FrontEnd
from nmpconv.data.images import with_layout
from nmpconv.data.samples import Data, Feeds, Samples, spread
from nmpconv.errors import UsageError
from nmpconv.evaluation.detection.decoders import Size
from nmpconv.evaluation.task_metrics import AP, Measure, open_measure
from nmpconv.file.writer import to_bytes
from nmpconv.frontend.onnx import load
from nmpconv.graph.text import graph_hash
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph, Preprocess
from nmpconv.passes import stream
from nmpconv.passes.float import FLOAT, fold_affine, fold_input
from nmpconv.passes.memory import plan_memory
from nmpconv.passes.quantize import attention_masks, drop_channels, ranges, recurrent_states, slice_scales
from nmpconv.passes.quantize.exponents import Method, provisional
from nmpconv.passes.quantize.rounding import Rounding
from nmpconv.passes.quantize.widths import activation_bits, weight_bits

FIT_IMAGES = 100  # most images that biases and rounding are fitted on
FIT_BYTES = 256 << 20  # most bytes of activations of those images that are alive at once
HELD_MOST = 200  # images that candidates are measured on


@dataclass(frozen=True)
class Result:
    """stats: what calibration saw of the activations, in the numbers that the graph has now."""

    data: bytes
    report: Report
    graph: Graph
    stats: Mapping[str, TensorStats] = field(default_factory=dict)


def convert(model: Path, calib: Mapping[str, Data] | None, options: Options, progress: Progress) -> Result:
    """calib: a source of images or arrays by input name ('' for the only input); None: a loaded profile, or the ranges
    that a quantized model has.

    Raises InputError, UsageError, UnsupportedModel, and VerifyError where the float graph is another function than the
    model, a bug of nmpconv; nothing is written except options.dump_ir and save_profile.
    """
    # With more BLAS threads, sums of floats would depend on how many CPUs there are.
    with threadpool_limits(1), opened(options.workers) as those:
        return _convert(model, calib or {}, options, progress, those)


@dataclass(frozen=True)
class Calibrated:
    """What is known of a model before a recipe is chosen. samples: of inputs; feeds: what they are to the float graph,
    as many as may be used. same: what `sameness.compared` says. fitter: with the images that biases are fitted on."""

    samples: Mapping[str, Samples]
    feeds: Feeds
    same: Callable[[], Parity | str]
    fitter: Fitter

    @property
    def size(self) -> Size | None:
        """Of the pictures of the first input."""
        return next((one.size for one in self.samples.values()), None)


def calibrated(
    model: Path,
    calib: Mapping[str, Data],
    options: Options,
    by_name: recipes.RecipeFile,
    trace: Trace,
    progress: Progress,
) -> Calibrated:
    """The float graph of a model, and what it does on the samples. by_name: the file of options.recipe."""
    imported = _import(model, options, trace)
    look, most = options.preprocess_of, options.max_images
    front = _front_end(options)
    samples = open_inputs(
        imported, calib, look, options.state, front, limit=most, max_pixels=options.max_pixels, progress=progress
    )
    if calib:
        pictures = {name: s.preprocess for name, s in samples.items() if s.preprocess is not None}
    else:
        pictures = _given(imported, options)
    graph = float_passes(imported, pictures, trace)
    stream.checked(graph, options.stream)  # what is wrong with it is told before the work
    feeds = Feeds(samples, graph.pixels)
    feeds = feeds.subset(range(min(len(feeds), options.max_images or len(feeds))))

    stats = _statistics(graph, feeds if calib else None, options, progress)
    peaks = {name: seen.peak for name, seen in stats.items()}
    graph = trace(fold_affine.run(graph, peaks), "FLOAT", "fold_affine")
    graph, stats = attention_masks.run(graph, {value.name: stats[value.name] for value in graph.activations()}, feeds)
    trace(graph, "FLOAT", "attention_masks")

    same = cache(partial(import_check.compared, model, graph, samples, stats, len(feeds)))
    bits = activation_bits(graph, options.bits, options.widths)
    alone = set(graph.outputs if options.stream else recurrent_states.checked(graph, options.state).values())
    graph, stats, bits = slice_scales.run(graph, stats, bits, alone)
    trace(graph, "FLOAT", "slice_scales")
    rounding = Rounding(
        weight_bits(options.bits), options.per_tensor, False, options.bias_correction, options.bias_bits
    )
    images = [feeds[i] for i in spread(len(feeds), _affordable(graph))]
    method = Method(options.method, options.percentile)
    # A few images tell too little of a range to fill the type with it, and none of them can be held out.
    zero_points = options.zero_points and not 0 < len(images) < HELD_OUT
    fitter = Fitter(graph, stats, bits, method, rounding, images, zero_points, by_name.choices(graph))
    return Calibrated(samples, feeds, same, fitter)


def _statistics(graph: Graph, feeds: Feeds | None, options: Options, progress: Progress) -> dict[str, TensorStats]:
    """Of the activations: a profile's, of what they are on samples, or of the ranges that a model has."""
    if options.load_profile is not None:
        stats = profiles.load(options.load_profile).stats_for(graph)
    else:
        names = [value.name for value in graph.activations()]
        seen = {} if feeds is None else observe(FloatEngine(graph, names, threads=1), feeds, names, progress)
        stats = ranges.run(graph, seen)
    if options.save_profile is not None:
        profiles.save(options.save_profile, profiles.Profile(graph_hash(graph), stats))
    return stats


@dataclass(frozen=True)
class _Decided:
    """What a model is converted by. fitter: of all choices. score: on images that nothing was fitted to. missed: that
    the goal is. front: of the search for it."""

    fitter: Fitter
    recipe: Recipe
    prepared: Prepared
    score: Score | None
    notes: tuple[str, ...]
    missed: tuple[str, ...] = ()
    front: tuple[Candidate, ...] = ()

    def wider(self, candidate: Candidate, place: str, trial: Trial, trace: Trace) -> _Decided:
        """With 16 bits for the tensors of a candidate. place: who said so."""
        fitter = self.fitter.with_choices(widened(self.fitter.choices, candidate.wide, place))
        prepared = fitter.prepare(self.recipe.equalize, fitter.images, trace) if candidate.wide else self.prepared
        score = Score(candidate.db, candidate.agreement, len(trial.images))
        return replace(self, fitter=fitter, prepared=prepared, score=score)


def _convert(model: Path, calib: Mapping[str, Data], options: Options, progress: Progress, those: Workers) -> Result:
    by_name, options = with_recipe(options)
    wanted = _wanted(options)
    options = options if wanted is None else replace(options, bits="8")
    trace = Trace(options.dump_ir)
    found = calibrated(model, calib, options, by_name, trace, progress)
    graph, feeds, images = found.fitter.graph, found.feeds, found.fitter.images
    metric = _metric(wanted[0] if wanted else None, found.size, options.decoder)
    found.same()  # what is wrong with it is told before the work
    decided = _recipe_chosen(found.fitter, options, progress, trace, those)
    metadata = file_contents.metadata(model, options, decided.recipe, len(feeds))
    narrow = options.bits == "8" and options.widths != "strict" and not options.budget  # which is against 8 bits
    if narrow and len(images) >= HELD_OUT:
        decided = _nearly_free(decided, _trial(found, options, those), progress, trace, those)
    if wanted is not None:
        trial = replace(_trial(found, options, those), metadata=metadata, metric=metric)
        decided = _searched(decided, trial, wanted, options, progress, trace, those)

    progress("quantize", 0, 1)
    whole = slim = decided.fitter.quantize(decided.prepared, decided.recipe.gptq, trace)
    if options.drop_channels:
        slim = trace(drop_channels.run(whole), "INT", "drop_channels")
    step = _step(slim, options, trace)
    planned = ram_plan.planned(step, options.max_ram, options.target, trace)
    progress("quantize", 1, 1)
    report = measure(decided.prepared, whole, images).of_file(slim, step, planned)
    report = _told(report, found, decided, options)
    if options.levers and len(images) >= HELD_OUT:
        trials = Trials(decided.fitter, decided.recipe, replace(_trial(found, options, those), metadata=metadata))
        measured = sensitivity.helpful(trials, decided.fitter.choices, report.noise.shares, progress, those)
        report = replace(report, levers=measured)
    data = to_bytes(planned, metadata, file_contents.test_vectors(planned, feeds, options.test_vectors))
    if options.save_recipe is not None:
        recipes.save(options.save_recipe, _as_recipe(options, graph, decided))
    return Result(data, replace(report, file_bytes=len(data)), planned, decided.prepared.stats)


def _wanted(options: Options) -> tuple[mixed_precision.Goal | None, dict[str, mixed_precision.Limit]] | None:
    """The goal and the limits of --bits auto. What is wrong with them is told before the work."""
    if options.bits != "auto" and (options.goal is not None or options.budget):
        raise UsageError("a goal and a budget are for --bits auto")
    wanted = mixed_precision.wanted(options.goal, options.budget, options.target) if options.bits == "auto" else None
    _metric(wanted[0] if wanted else None, (1, 1), options.decoder)
    return wanted


def _recipe_chosen(fitter: Fitter, options: Options, progress: Progress, trace: Trace, those: Workers) -> _Decided:
    """The recipe that is best on held-out images."""
    recipe, prepared, notes, score = choose(fitter, _recipes(options, len(fitter.images)), progress, trace, those)
    recipe = replace(recipe, zero_points=recipe.zero_points and fitter.zero_points)
    fitter = fitter if recipe.zero_points else fitter.without_zero_points()
    return _Decided(fitter, recipe, prepared, score, notes)


def _nearly_free(decided: _Decided, trial: Trial, progress: Progress, trace: Trace, those: Workers) -> _Decided:
    """With 16 bits where they cost next to nothing."""
    progress("widths", 0, 1)
    found = cheap_promotions.run(Trials(decided.fitter, decided.recipe, trial), decided.prepared.ranged, those)
    if found is not None:
        before, after = found
        wider = decided.wider(after, cheap_promotions.PLACE, trial, trace)
        decided = replace(wider, notes=(*decided.notes, cheap_promotions.note(before, after)))
    progress("widths", 1, 1)
    return decided


def _searched(
    decided: _Decided,
    trial: Trial,
    wanted: tuple[mixed_precision.Goal | None, dict[str, mixed_precision.Limit]],
    options: Options,
    progress: Progress,
    trace: Trace,
    those: Workers,
) -> _Decided:
    """With 16 bits where the goal needs them."""
    journal = mixed_precision.Journal(
        options.journal, trial.fingerprint(read_file(options.recipe) if options.recipe else b"")
    )
    search = mixed_precision.Search(decided.fitter, decided.recipe, trial, *wanted, journal, progress, those)
    taken, front = search.run()
    wider = decided.wider(taken, mixed_precision.PLACE, trial, trace)
    return replace(wider, missed=search.warnings(taken), front=tuple(front))


def _told(report: Report, found: Calibrated, decided: _Decided, options: Options) -> Report:
    """With what was decided, and with warnings."""
    fitter, feeds, score, same = found.fitter, found.feeds, decided.score, found.same()
    told = diagnostics.quality(options.bits, options.widths, len(fitter.images), score, report.sqnr_by_head)
    given = next((one for one in map(options.preprocess_of, found.samples) if one is not None), None)
    told = (*diagnostics.unused(found.samples, given), *diagnostics.misnamed(fitter.graph), *told)
    warnings = (*decided.missed, *diagnostics.normalization(fitter.graph, found.samples, feeds), *told)
    notes = (same, *decided.notes) if isinstance(same, str) else decided.notes
    recipe = str(decided.recipe)
    report = replace(report, recipe=recipe, notes=notes, held_out=score, front=decided.front, warnings=warnings)
    return report if isinstance(same, str) else replace(report, float_db=same.db, float_required_db=same.required)


def plan(model: Path, options: Options) -> Result:
    """What needs no images: a conversion by the statistics of `ranges.assumed`, so its exponents and integers mean
    nothing, but sizes do. No channel is left out, for that is a matter of the integers."""
    by_name, options = with_recipe(options)
    trace = Trace(options.dump_ir)
    imported = _import(model, options, trace)
    graph = float_passes(imported, _given(imported, options), trace)
    # Most paddings are no larger than what they surround.
    peaks = {value.name: float(np.finfo(np.float32).max) for value in graph.activations()}
    graph = trace(fold_affine.run(graph, peaks), "FLOAT", "fold_affine")
    bits = activation_bits(graph, options.bits, options.widths)
    rounding = Rounding(weight_bits(options.bits), options.per_tensor, gptq=False, bias_bits=options.bias_bits)
    choices = by_name.choices(graph).widths()
    stats = ranges.run(graph, ranges.assumed(graph))
    fitter = Fitter(graph, stats, bits, Method("max"), rounding, [], choices=choices)
    recipe = Recipe("none", False)
    integer = fitter.quantize(fitter.prepare(recipe.equalize, [], trace), recipe.gptq, trace)
    step = _step(integer, options, trace)
    planned = ram_plan.planned(step, options.max_ram, options.target, trace)
    data = to_bytes(planned, file_contents.metadata(model, options, recipe, 0))
    report = Report.of(planned)
    sizes = [
        replace(layer, exponent_in=0, exponent_weights=None, exponent_out=0, shift=None, bias=None)
        for layer in report.layers
    ]
    return Result(data, replace(report, layers=tuple(sizes), legalized=(), file_bytes=len(data)), planned)


def _trial(found: Calibrated, options: Options, those: Workers) -> Trial:
    """Held out: images beyond those that are fitted on, or a third of these where there are too few others."""
    feeds, images = found.feeds, found.fitter.images
    if len(images) < HELD_OUT:
        raise UsageError(f"--bits auto needs images to measure on: at least {HELD_OUT}, about 100 and more are right")
    used = spread(len(feeds), len(images))
    others = [i for i in range(len(feeds)) if i not in set(used)]
    measured: Sequence[Mapping[str, np.ndarray]]
    fitted: Sequence[Mapping[str, np.ndarray]]
    if len(others) >= FEW_IMAGES:
        held = [others[i] for i in spread(len(others), HELD_MOST)]
        some, fitted = feeds.subset(held), images
        measured = list(some) if those.count > 1 else some  # other processes may not find the files
    else:
        held, measured, fitted = used[::3], images[::3], [image for i, image in enumerate(images) if i % 3]
    labels = labels_of(found.samples)
    known = None if labels is None else [labels[i] for i in held]
    return Trial(measured, known, fitted, finisher(options), target=options.target)


def labels_of(samples: Mapping[str, Samples]) -> Sequence[int] | None:
    """Of the samples, where any input's all have one."""
    for one in samples.values():
        found = [label for label in one.labels or () if label is not None]
        if one.labels and len(found) == len(one.labels):
            return found
    return None


def finisher(options: Options) -> Callable[[Graph], Graph]:
    """What makes the planned graph of an integer one."""
    return partial(_finished, options)


def _finished(options: Options, whole: Graph) -> Graph:
    slim = drop_channels.run(whole) if options.drop_channels else whole
    return ram_plan.planned(_step(slim, options, Trace()), options.max_ram, options.target, Trace())


def _step(graph: Graph, options: Options, trace: Trace) -> Graph:
    """What a call computes, where the model keeps something from call to call."""
    kept = trace(recurrent_states.run(graph, options.state), "INT", "recurrent_states")
    return trace(stream.run(kept, options.stream), "INT", "stream")


def _metric(
    goal: mixed_precision.Goal | None, size: Size | None, decoder: str | None
) -> tuple[Callable[[], Measure], str] | None:
    """What the goal is measured by; None where it is no metric. UsageError where its decoder is missing."""
    text = (
        mixed_precision.MEASURED[goal.kind][0] if goal is not None and goal.kind in mixed_precision.MEASURED else None
    )
    if decoder is not None and text != AP:
        raise UsageError("a decoder is for --bits auto --goal ap50", where="--decoder")
    if goal is None or text is None:
        return None
    open_measure(text, decoder, size)
    return partial(open_measure, text, decoder, size), f"{goal.kind} {decoder or ''}"


def _as_recipe(options: Options, graph: Graph, decided: _Decided) -> str:
    """The text of a recipe that converts to the same bytes. graph: before equalization."""
    fitter, prepared, recipe = decided.fitter, decided.prepared, decided.recipe
    rounding = "gptq" if recipe.gptq else "nearest"
    whole = {key: getattr(options, key) for key in recipes.CONVERT if getattr(options, key) is not None}
    whole |= {"equalize": recipe.equalize, "rounding": rounding, "zero_points": recipe.zero_points}
    ops = {"rounding": rounding, "weight_bits": fitter.weight_bits}
    return recipes.to_text(whole, graph, prepared.chosen, prepared.free, ops, fitter.choices)


def float_passes(graph: Graph, pictures: Mapping[str, Preprocess], trace: Trace) -> Graph:
    """pictures: preprocessing of the inputs that are fed from images."""
    graph = trace(fold_input.run(graph, pictures), "FLOAT", "fold_input")
    for name, function in FLOAT:
        graph = trace(function(graph), "FLOAT", name)
    return graph


def _import(model: Path, options: Options, trace: Trace) -> Graph:
    graph = load(model, input_shapes=options.input_shapes, outputs=options.outputs)
    _check_front_end(graph, options)
    return trace(replace(graph, labels=options.labels), "FLOAT", "import")


def _given(graph: Graph, options: Options) -> dict[str, Preprocess]:
    """Without images: the inputs that could be images are those that preprocessing was given for."""
    fed = [name for name in graph.inputs if name not in recurrent_states.checked(graph, options.state)]
    found = {name: options.preprocess_of(name) for name in fed if len(graph[name].shape) == 4}
    return {name: with_layout(p, graph[name].shape) for name, p in found.items() if p is not None}


def _front_end(options: Options) -> FrontEnd | None:
    """What makes inputs of sound."""
    return None if options.audio is None else audio.parse(options.audio)


def _check_front_end(graph: Graph, options: Options) -> None:
    """UsageError where it does not fit the only input that is fed."""
    front, taken = _front_end(options), recurrent_states.checked(graph, options.state)
    fed = [name for name in graph.inputs if name not in taken]
    if front is not None and len(fed) == 1:
        axis = None if options.stream is None else stream_spec.parse(options.stream).axis
        audio.time_axis(front, graph.source_shapes.get(fed[0], graph[fed[0]].shape), axis)


def _affordable(graph: Graph) -> int:
    """How many images' activations may be alive at once: at one byte an element, in FIT_BYTES."""
    return max(16, min(FIT_IMAGES, FIT_BYTES // max(1, plan_memory.lower_bound(provisional(graph, {})))))


def _recipes(options: Options, images: int) -> list[Recipe]:
    """The candidates. With 16 bits throughout, a finer grid is never worse; without images, only statistics speak.

    UsageError for what cannot be without images.
    """
    for name, asked in (("equalize", "vector"), ("rounding", "gptq")):
        if not images and getattr(options, name) == asked:
            raise UsageError(f"{name} {asked} needs images, ranges are not enough", hint="give --data SOURCE, too")
    modes = ["scalar", "vector"] if options.bits == "16" else ["none", "scalar", "vector"]
    if options.equalize != "auto":
        modes = [options.equalize]
    roundings = {"auto": [False] if options.bits == "16" else [False, True], "nearest": [False], "gptq": [True]}[
        options.rounding
    ]
    if not images:
        modes, roundings = ["none" if options.equalize == "auto" else options.equalize], [False]
    return [Recipe(mode, gptq) for mode in modes for gptq in roundings]
