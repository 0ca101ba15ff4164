"""One case through the converter and the C runtime, held against its expected output and a bound of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import error_bounds
import numpy as np
import onnx
from onnx_cases import OnnxCase, Variant, choices, narrowed, precision, variant

from nmpconv.base.fixed_point import dequantize
from nmpconv.base.progress import silent
from nmpconv.base.workers import Here
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.observers import TensorStats, observe
from nmpconv.conversion import calibration
from nmpconv.conversion.context import Context
from nmpconv.conversion.options import Options
from nmpconv.conversion.pipeline import fit_imported, place
from nmpconv.errors import InputError, InvalidModel, NmpError, UnsupportedModel, UsageError
from nmpconv.file.writer import to_bytes
from nmpconv.frontend.onnx import load
from nmpconv.ir import Graph
from nmpconv.ops.op import quant_of
from nmpconv.passes.quantize import attention_masks, constant_masks, exact_square_roots, offsets, table_resolution
from nmpconv.runtime import interpreter

BITS = (8, 16)
TINY = 2.0**-100  # so that no error over no bound is none
REFUSALS = (InputError, UnsupportedModel, UsageError)


@dataclass(frozen=True)
class Outcome:
    """refused: why, '' when it ran. worst: the largest error in units of its bound. wrong: what is not right."""

    case: str
    op: str
    bits: int
    refused: str = ""
    worst: float = 0.0
    wrong: str = ""


def outcomes(case: OnnxCase, folder: Path) -> Iterator[Outcome]:
    """At 8 and at 16 bits, the worst of its variants that convert; refused when none does."""
    attempts = [_attempts(narrow, computed, folder) for narrow in narrowed(case) for computed in choices(case)]
    for results in zip(*attempts, strict=True):
        ran = [result for result in results if not result.refused]
        yield max(ran, key=lambda result: (bool(result.wrong), result.worst)) if ran else results[-1]


def _attempts(case: OnnxCase, computed: list[str], folder: Path) -> list[Outcome]:
    """Outcomes of one variant, at each of BITS."""
    try:
        imported = Imported.of(variant(case, computed), folder)
    except REFUSALS as error:
        return [Outcome(case.name, case.op, bits, refused=_reason(error)) for bits in BITS]
    return [_attempt(case, imported, bits) for bits in BITS]


def _attempt(case: OnnxCase, imported: Imported, bits: int) -> Outcome:
    try:
        worst, wrong = run(imported, bits, precision(case))
    except REFUSALS as error:
        return Outcome(case.name, case.op, bits, refused=_reason(error))
    return Outcome(case.name, case.op, bits, worst=worst, wrong=wrong)


def _reason(error: NmpError) -> str:
    """ "Op: why" of the first node that is refused, without the names and shapes of the case."""
    if isinstance(error, UnsupportedModel | InvalidModel):
        _, kind, why, _ = error.rows[0]
        why = re.sub(r"'[^']*'", "'...'", re.sub(r"\[[^]]*\]", "[...]", why))
        return f"{kind}: {why}"
    return error.message


@dataclass(frozen=True)
class Imported:
    """A case, and what both widths share of its conversion: the float graph and the data.

    masked, stats: the graph whose bounds are computed, and its statistics.
    """

    case: Variant
    model: Path
    found: calibration.Imported
    masked: Graph
    stats: Mapping[str, TensorStats]

    @staticmethod
    def of(case: Variant, folder: Path) -> Imported:
        """Writes the files of a case into the folder, over those of the last one."""
        for wanted in case.expected:
            if any(not np.isfinite(y).all() for y in wanted.values()):
                raise InputError("expected values that are not finite")
        path = folder / "model.onnx"
        onnx.save(case.model, path)
        data: dict[str, Path] = {}
        for i, name in enumerate(case.samples[0]):
            np.save(folder / f"{i}.npy", np.stack([sample[name] for sample in case.samples]))
            data[name] = folder / f"{i}.npy"
        context = _context(case, path, BITS[0])
        try:
            found = calibration.import_model(context, data)
        except UsageError:  # of an input on which no output depends
            inputs = load(path, input_shapes=case.shapes).inputs
            found = calibration.import_model(context, {name: data[name] for name in inputs if name in data})
        names = [value.name for value in found.graph.activations()]
        observed = observe(FloatEngine(found.graph, names), case.samples, names)
        masked, stats = constant_masks.run(found.graph, observed, case.samples)
        return Imported(case, path, found, *attention_masks.run(masked, stats))


def _context(case: Variant, model: Path, bits: int) -> Context:
    """Plain rounding: what --rounding, --equalize and bias correction do to make results better on average has no
    bound for the single element."""
    options = Options(
        bits=str(bits),
        widths="strict",
        method="max",
        equalize="none",
        rounding="nearest",
        bias_correction=False,
        drop_channels=False,
        input_shape=case.shapes,
    )
    return Context.of(model, options, silent, Here())


def run(imported: Imported, bits: int, noise: float = 0.0) -> tuple[float, str]:
    """(largest error in units of its bound, what is wrong). noise: of an expected value, what it may be off itself."""
    case = imported.case
    net, integer, floats = converted(imported, bits)
    worst, wrong = 0.0, ""
    for feeds, wanted in zip(case.samples, case.expected, strict=True):
        reference, bounds = error_bounds.bounds(integer, floats, feeds)
        for port, q in zip(net.outputs, net.run(feeds), strict=True):
            if q.tobytes() != reference[port.name].tobytes():
                return np.inf, f"{port.name}: C and reference differ"
            if q.shape != wanted[port.name].shape:
                return np.inf, f"{port.name}: shape {q.shape}, {wanted[port.name].shape} expected"
            off = np.abs(dequantize(q, port.exponent) - wanted[port.name])
            ratio = off / (bounds[port.name] + noise * np.abs(wanted[port.name]) + TINY)
            if ratio.max() > worst:
                worst, at = float(ratio.max()), np.unravel_index(ratio.argmax(), ratio.shape)
                wrong = f"{port.name}{list(map(int, at))}: off by {off[at]:g}, {bounds[port.name][at]:g} allowed"
    return worst, wrong if worst > 1 else ""


def converted(imported: Imported, bits: int) -> tuple[interpreter.Net, Graph, Graph]:
    """(what runs, its integer graph, the float graph that it was made from); ranges are those of the case's own data.

    The stages of `convert` but its report, which takes a third of the time.
    """
    floats, context = imported.found.graph, _context(imported.case, imported.model, bits)
    graph = place(context, fit_imported(context, imported.found).whole).planned
    origins = {v.name: v.origin for v in graph.activations() if v.origin and v.name in floats.values}
    widths = dict.fromkeys(floats.values, bits) | {v.name: quant_of(v).bits for v in graph.activations()}
    seen = {v.name: TensorStats(v.observed.min, v.observed.max, 1) for v in graph.activations() if v.observed}
    apart, stats, widths = table_resolution.run(imported.masked, imported.stats, widths)
    exact, _, _ = exact_square_roots.run(apart, {**stats, **seen}, widths)
    return interpreter.load(to_bytes(graph, {}, [])), graph, offsets.store(exact, origins)
