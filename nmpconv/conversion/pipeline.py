"""Pipeline from an ONNX model and calibration data to the bytes of a .nmp file: the stages in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from nmpconv.base.garbage import seldom_collected
from nmpconv.base.progress import Progress, silent
from nmpconv.base.verdict import Quality
from nmpconv.base.workers import Here, opened
from nmpconv.calib.observers import TensorStats
from nmpconv.conversion import decision as decisions
from nmpconv.conversion import (
    diagnostics,
    file_contents,
    outlier_choice,
    quantized_model,
    ram_plan,
    recipes,
    sensitivity,
    sound_ports,
    verdict_samples,
)
from nmpconv.conversion.calibration import (
    Calibrated,
    Imported,
    calibrate,
    front_end,
    import_model,
    import_without_data,
)
from nmpconv.conversion.candidates import CandidateEvaluator
from nmpconv.conversion.context import Context
from nmpconv.conversion.decision import Decision, options_of, promote_cheap_tensors, search_widths
from nmpconv.conversion.options import Options
from nmpconv.conversion.quantizer import HELD_OUT, Fitter, Recipe
from nmpconv.conversion.report import Report, measure
from nmpconv.data.samples import Data
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Graph
from nmpconv.passes.float import fold_affine
from nmpconv.passes.quantize import drop_channels, given_grids, joined_inputs, ranges
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.overrides import NOTHING
from nmpconv.passes.quantize.rounding import Rounding
from nmpconv.passes.quantize.widths import activation_bits, weight_bits
from nmpconv.runtime.costs import footprint

UNFITTED = Recipe("none", False)  # of a conversion without data


@dataclass(frozen=True)
class Result:
    """data: bytes of the file. graph: the integer graph in it. stats: observed activations, on the graph's scales."""

    data: bytes
    report: Report
    graph: Graph
    stats: Mapping[str, TensorStats] = field(default_factory=dict)


@dataclass(frozen=True)
class Fitted:
    """A conversion up to its integer graph, whole."""

    context: Context
    calibrated: Calibrated
    decision: Decision
    whole: Graph


@dataclass(frozen=True)
class Quantized:
    """The integer graph: whole; slim, without dropped channels; step, of one call; planned, with offsets in RAM."""

    whole: Graph
    slim: Graph
    step: Graph
    planned: Graph


def convert(model: Path, data: Mapping[str, Data] | None, options: Options, progress: Progress) -> Result:
    """Converts a model.

    data: sources of images or arrays by input name ('' for the only input); None: a loaded profile, or the ranges that
    a quantized model has. Nothing is written but options.dump_ir, save_profile and save_recipe. Raises InputError,
    UsageError, UnsupportedModel, and VerifyError where the float graph is another function than the model, which is a
    bug of nmpconv.
    """
    with opened(options.workers) as workers:
        fitted = fit(Context.of(model, options, progress, workers), data)
        return finish(fitted, fitted.whole)


def fit(context: Context, data: Mapping[str, Data] | None) -> Fitted:
    """The first half of `convert`: up to the integer graph."""
    with one_thread(), seldom_collected():
        return fit_imported(context, import_model(context, data or {}))


def fit_imported(context: Context, imported: Imported) -> Fitted:
    """`fit` of a model that was imported, perhaps for other --bits."""
    calibrated = calibrate(context, imported)
    context.measure(calibrated.size)
    calibrated.check()  # a wrong import is reported before the work
    context, calibrated, decision = outlier_choice.run(context, imported, calibrated)
    decision = promote_cheap_tensors(context, calibrated, decision)
    decision = search_widths(context, calibrated, decision)
    context.progress("quantize", 0, 1)
    whole = decision.fitter.quantize(decision.prepared, decision.recipe.gptq, context.trace)
    if context.options.fast:
        decision.fitter.let_go(decision.prepared)
    return Fitted(context, calibrated, decision, whole)


def finish(fitted: Fitted, whole: Graph, notes: Sequence[str] = ()) -> Result:
    """The second half of `convert`. whole: the integer graph, perhaps with other weights and biases; notes on it."""
    context, calibrated, decision = fitted.context, fitted.calibrated, fitted.decision
    with one_thread(), seldom_collected():
        quantized = place(context, whole)
        report = describe(context, calibrated, decision, quantized)
        report = replace(report, notes=(*report.notes, *notes))
        return write(context, calibrated, decision, quantized, report)


def one_thread() -> threadpool_limits:
    """With more BLAS threads, sums of floats would depend on how many CPUs there are."""
    return threadpool_limits(1)


def place(context: Context, whole: Graph) -> Quantized:
    """Places an integer graph in RAM."""
    options, trace = context.options, context.trace
    slim = whole
    if options.drop_channels:
        slim = trace(drop_channels.run(whole), "INT", "drop_channels")
    step = decisions.one_step(slim, options, trace)
    planned = ram_plan.planned(step, options.max_ram, options.target, trace, options.memories)
    context.progress("quantize", 1, 1)
    return Quantized(whole, slim, step, planned)


def describe(context: Context, calibrated: Calibrated, decision: Decision, quantized: Quantized) -> Report:
    """Measures the quantized graph, and reports the decision, warnings and levers."""
    options, fitter, check = context.options, calibrated.fitter, calibrated.check()
    count = len(calibrated.feeds)
    report = measure(
        decision.prepared,
        quantized.whole,
        fitter.images,
        fitter.outputs,
        seen=decision.fitter.outcome(quantized.whole),
        outputs_alone=options.fast,
    )
    score, quality = verdict_samples.validate(context, calibrated, decision, quantized.whole)
    quality = quality if score else verdict_samples.of_fitted(report, calibrated.unit, len(fitter.images))
    beside = quantized_model.compared(context, calibrated.samples, count, quantized.whole, decision.prepared.ranged)
    against, beside_quantized = beside or (None, None)
    if options.faithful and beside_quantized and calibrated.labels is None and options.decoder is None:
        quality = verdict_samples.beside_quantized(calibrated, beside_quantized)
    report = report.of_file(quantized.slim, quantized.step, quantized.planned)
    preprocess = next((item for item in map(options.preprocess_of, calibrated.samples) if item is not None), None)
    warnings = (
        *decision.warnings,
        *dict.fromkeys(text for input_samples in calibrated.samples.values() for text in input_samples.remarks),
        *diagnostics.normalization(fitter.graph, calibrated.samples, calibrated.feeds),
        *diagnostics.unused(calibrated.samples, preprocess),
        *diagnostics.misnamed(fitter.graph),
        *diagnostics.floats_of_sound(front_end(options)),
        *(
            (*diagnostics.other_steps(fitter.graph), *diagnostics.rounded_twice(fitter.graph))
            if options.faithful
            else ()
        ),
        *outlier_choice.warnings(calibrated, quantized.whole),
        *diagnostics.saturating(decision.prepared.ranged),
        *diagnostics.degenerate(fitter.images, fitter.graph.pixels, count),
        *diagnostics.quality(
            str(options.bits),
            options.widths,
            count,
            len(fitter.images),
            score,
            report.sqnr_by_head,
            calibrated.unit,
            (
                *outlier_choice.causes(calibrated),
                *diagnostics.unlike_ranges(decision.prepared.ranged, fitter.stats),
            ),
            faithful=options.faithful,
        ),
    )
    notes = (check, *decision.notes) if isinstance(check, str) else decision.notes
    report = replace(
        report,
        recipe=str(decision.recipe),
        notes=notes,
        held_out=score,
        quality=quality,
        against_quantized=against,
        front=decision.front,
        warnings=warnings,
    )
    if not isinstance(check, str):
        report = replace(report, float_db=check.db, float_required_db=check.required)
    if options.levers and len(fitter.images) >= HELD_OUT:
        trial = decisions.held_out(context, calibrated)
        trial = replace(trial, metadata=decisions.metadata(context, calibrated, decision))
        trials, choices = CandidateEvaluator(decision.fitter, decision.recipe, trial), decision.fitter.choices
        shares = report.noise.shares
        levers = sensitivity.helpful(trials, choices, shares, context.progress, context.workers)
        report = replace(report, levers=levers)
    return report


def write(context: Context, calibrated: Calibrated, decision: Decision, quantized: Quantized, report: Report) -> Result:
    """Serializes the graph; writes the recipe where it was asked for."""
    options, planned = context.options, quantized.planned
    vectors = file_contents.test_vectors(planned, calibrated.feeds, options.test_vectors)
    sounds, warnings = sound_ports.chosen(planned, options)
    about = decisions.metadata(context, calibrated, decision) | file_contents.traffic(planned)
    data = to_bytes(planned, about, vectors, sounds)
    if options.save_recipe is not None:
        recipes.save(options.save_recipe, _recipe_text(context, calibrated, decision))
    warnings = (*report.warnings, *warnings)
    report = replace(
        report, file_bytes=len(data), footprint=footprint(data, options.target, planned), warnings=warnings
    )
    return Result(data, report, planned, decision.prepared.stats)


def _recipe_text(context: Context, calibrated: Calibrated, decision: Decision) -> str:
    """Text of a recipe that converts to the same bytes."""
    fitter, prepared, recipe = decision.fitter, decision.prepared, decision.recipe
    rounding = "gptq" if recipe.gptq else "nearest"
    whole = options_of(context, decision).in_recipe()
    whole |= {"equalize": recipe.equalize, "rounding": rounding, "zero_points": recipe.zero_points}
    ops = {"rounding": rounding, "weight_bits": fitter.weight_bits}
    return recipes.to_text(whole, calibrated.fitter.graph, prepared.chosen, prepared.free, ops, fitter.choices)


def plan(model: Path, options: Options) -> Result:
    """Converts without data, for sizes."""
    context = Context.of(model, options, silent, Here())
    options, planned = context.options, planned_without_data(context)
    data = to_bytes(planned, file_contents.metadata(model, options, UNFITTED, 0) | file_contents.traffic(planned))
    report = Report.of(planned)
    sizes = [
        replace(layer, exponent_in=0, exponent_weights=None, exponent_out=0, shift=None, bias=None)
        for layer in report.layers
    ]
    needs = footprint(data, options.target, planned)
    report = replace(report, layers=tuple(sizes), legalized=(), file_bytes=len(data), footprint=needs)
    return Result(data, replace(report, quality=Quality(why="sizes only, nothing was calibrated")), planned)


def planned_without_data(context: Context) -> Graph:
    """The graph with the sizes of a file: ranges are `ranges.assumed`, so exponents and integers mean nothing.

    No channel is dropped, since that depends on the integers.
    """
    options, trace = context.options, context.trace
    graph = import_without_data(context)
    # Most paddings are no larger than what they surround.
    peaks = {value.name: float(np.finfo(np.float32).max) for value in graph.activations()}
    graph = trace(fold_affine.run(graph, peaks), "FLOAT", "fold_affine")
    bits = activation_bits(graph, str(options.bits), options.widths)
    rounding = Rounding(weight_bits(str(options.bits)), options.per_tensor, gptq=False, bias_bits=options.bias_width)
    stats = ranges.run(graph, ranges.assumed(graph))
    own = NOTHING
    if options.faithful:
        graph, stats, bits, own = given_grids.run(graph, stats, bits, options.bits == "a16w8")
    elif options.bits == "8":
        graph, stats, bits = joined_inputs.run(graph, stats, bits)
    choices = context.recipe_file.choices(graph).over(own).widths()
    fitter = decisions.affordable(
        options, Fitter(graph, stats, bits, Method("max"), rounding, [], choices=choices)
    ).fitter
    integer = fitter.quantize(fitter.prepare(UNFITTED.equalize, [], trace), UNFITTED.gptq, trace)
    step = decisions.one_step(integer, options, trace)
    return ram_plan.planned(step, options.max_ram, options.target, trace, options.memories)
