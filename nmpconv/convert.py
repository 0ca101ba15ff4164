"""From an ONNX file and images to the bytes of a .nmp file: the stages in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from nmpconv import __version__, schedule
from nmpconv.calib import profile as profiles
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.images import with_layout
from nmpconv.calib.observers import observe
from nmpconv.calib.samples import Feeds, Samples, open_samples
from nmpconv.errors import UsageError
from nmpconv.fit import Fitter, Recipe
from nmpconv.frontend.onnx import load
from nmpconv.ir import Graph, Preprocess
from nmpconv.passes import FLOAT, drop_channels, fold_input, plan_memory, ranges
from nmpconv.passes.exponents import Method, provisional, saturating
from nmpconv.passes.quantize import Rounding, integers
from nmpconv.passes.trace import Trace
from nmpconv.passes.widths import activation_bits, weight_bits
from nmpconv.reference import run as run_reference
from nmpconv.report import Report, measure
from nmpconv.text import graph_hash
from nmpconv.writer import to_bytes

Progress = Callable[[str, int, int], None]

FIT_IMAGES = 100  # most images that biases and rounding are fitted on
FIT_BYTES = 256 << 20  # most bytes of activations of those images that are alive at once
REPORT_IMAGES = 32


@dataclass(frozen=True)
class Options:
    """What a person can choose; the command line's flags have the same names.

    bits: "8", "16" or "a16w8". widths: "default", "strict" or "precise". method: "max", "mse", "kl" or "percentile".
    equalize: "auto", "none", "scalar" or "vector". rounding: "auto", "nearest" or "gptq". bias_bits: 0 for the
    narrowest. drop_channels: leave out those that no result depends on. max_ram: bytes of activations, or of all of a
    run where the target is a microcontroller. target: of `nmpconv.targets`; the memory plan is made for it. preprocess:
    for image inputs, by input name or one for all. outputs: where to cut the graph.
    """

    bits: str = "8"
    widths: str = "default"
    per_tensor: bool = False
    method: str = "mse"
    percentile: float = 99.99
    equalize: str = "auto"
    rounding: str = "auto"
    bias_correction: bool = True
    bias_bits: int = 0
    drop_channels: bool = True
    max_ram: int | None = None
    target: str | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    preprocess: Mapping[str, Preprocess] | Preprocess | None = None
    labels: tuple[str, ...] = ()
    test_vectors: int = 0
    dump_ir: Path | None = None
    load_profile: Path | None = None
    save_profile: Path | None = None
    max_images: int | None = None

    def preprocess_of(self, name: str) -> Preprocess | None:
        if self.preprocess is None or isinstance(self.preprocess, Preprocess):
            return self.preprocess
        return self.preprocess.get(name)


@dataclass(frozen=True)
class Result:
    data: bytes
    report: Report
    graph: Graph


def convert(model: Path, calib: Mapping[str, Path] | None, options: Options, progress: Progress) -> Result:
    """calib: a source of images or arrays by input name ('' for the only input); None: a loaded profile, or the ranges
    that a quantized model has.

    Raises InputError, UsageError, UnsupportedModel; nothing is written except options.dump_ir and save_profile.
    """
    # With more BLAS threads, sums of floats would depend on how many CPUs there are.
    with threadpool_limits(1):
        return _convert(model, calib or {}, options, progress)


def _convert(model: Path, calib: Mapping[str, Path], options: Options, progress: Progress) -> Result:
    trace = Trace(options.dump_ir)
    imported = _import(model, options, trace)
    samples = _open(imported, calib, options)
    if calib:
        pictures = {name: s.preprocess for name, s in samples.items() if s.preprocess is not None}
    else:
        pictures = _given(imported, options)
    graph = float_passes(imported, pictures, trace)
    feeds = Feeds(samples, graph.pixels)
    feeds = feeds.subset(range(min(len(feeds), options.max_images or len(feeds))))

    if options.load_profile is not None:
        stats = profiles.load(options.load_profile).stats_for(graph)
    else:
        names = [value.name for value in graph.activations()]
        stats = ranges.run(graph, observe(FloatEngine(graph, names), feeds, names, progress) if calib else {})
    if options.save_profile is not None:
        profiles.save(options.save_profile, profiles.Profile(graph_hash(graph), stats))

    bits = activation_bits(graph, options.bits, options.widths)
    rounding = Rounding(
        weight_bits(options.bits), options.per_tensor, False, options.bias_correction, options.bias_bits
    )
    images = [feeds[i] for i in _spread(len(feeds), _affordable(graph))]
    fitter = Fitter(graph, stats, bits, Method(options.method, options.percentile), rounding, images)
    recipe, notes = _choose(fitter, _recipes(options, len(images)), progress)
    progress("quantize", 0, 1)
    prepared = fitter.prepare(recipe.equalize, images, trace)
    whole = slim = fitter.quantize(prepared, recipe.gptq, trace)
    if options.drop_channels:
        slim = trace(drop_channels.run(whole), "INT", "drop_channels")
    planned = schedule.planned(slim, options.max_ram, options.target, trace)
    progress("quantize", 1, 1)
    report = replace(measure(prepared, whole, images[:REPORT_IMAGES]), recipe=str(recipe), notes=notes).of_file(
        slim, planned
    )
    vectors = _test_vectors(planned, feeds, options.test_vectors)
    data = to_bytes(planned, _metadata(model, options, recipe, len(feeds)), vectors)
    return Result(data, replace(report, file_bytes=len(data)), planned)


def plan(model: Path, options: Options) -> Result:
    """What needs no images: import, float passes, widths, memory. Exponents mean nothing yet, constants are zeros."""
    trace = Trace(options.dump_ir)
    imported = _import(model, options, trace)
    graph = float_passes(imported, _given(imported, options), trace)
    bits = activation_bits(graph, options.bits, options.widths)
    width = weight_bits(options.bits)
    planned = schedule.planned(
        provisional(graph, bits), options.max_ram, options.target, lambda g, *_: g, lambda g: _blank(g, width)
    )
    data = to_bytes(_blank(planned, width), _metadata(model, options, Recipe("none", False), 0))
    return Result(data, replace(Report.of(planned), file_bytes=len(data)), planned)


def _blank(graph: Graph, bits: int) -> Graph:
    """Constants of the size that they will have, more or less."""
    quant = saturating(bits, 0, None)
    zeros = {v.name: np.zeros(v.shape, quant.dtype) for v in graph.values.values() if v.is_const}
    return graph.with_values(*(replace(graph[n], data=x, dtype=quant.dtype, quant=quant) for n, x in zeros.items()))


def float_passes(graph: Graph, pictures: Mapping[str, Preprocess], trace: Trace) -> Graph:
    """pictures: preprocessing of the inputs that are fed from images."""
    graph = trace(fold_input.run(graph, pictures), "FLOAT", "fold_input")
    for name, function in FLOAT:
        graph = trace(function(graph), "FLOAT", name)
    return graph


def _import(model: Path, options: Options, trace: Trace) -> Graph:
    graph = load(model, input_shapes=options.input_shapes, outputs=options.outputs)
    return trace(replace(graph, labels=options.labels), "FLOAT", "import")


def _open(graph: Graph, calib: Mapping[str, Path], options: Options) -> dict[str, Samples]:
    if not calib:
        return {}
    if set(calib) == {""} and len(graph.inputs) == 1:
        calib = {graph.inputs[0]: calib[""]}
    for name in calib:
        if name not in graph.inputs:
            raise UsageError(
                f"the model has no input {name!r}; it has {', '.join(graph.inputs)}", hint="give --calib INPUT=SOURCE"
            )
    missing = [name for name in graph.inputs if name not in calib]
    if missing:
        raise UsageError(f"no calibration source for input {missing[0]!r}", hint=f"give --calib {missing[0]}=SOURCE")
    return {
        name: open_samples(calib[name], graph[name].shape, options.preprocess_of(name), input_name=name)
        for name in graph.inputs
    }


def _given(graph: Graph, options: Options) -> dict[str, Preprocess]:
    """Without images: the inputs that could be images are those that preprocessing was given for."""
    found = {name: options.preprocess_of(name) for name in graph.inputs if len(graph[name].shape) == 4}
    return {name: with_layout(p, graph[name].shape) for name, p in found.items() if p is not None}


def _affordable(graph: Graph) -> int:
    """How many images' activations may be alive at once: at one byte an element, in FIT_BYTES."""
    return max(16, min(FIT_IMAGES, FIT_BYTES // max(1, plan_memory.lower_bound(provisional(graph, {})))))


def _spread(count: int, limit: int) -> list[int]:
    """At most limit indices below count, evenly spaced."""
    return list(range(count)) if count <= limit else [i * count // limit for i in range(limit)]


def _recipes(options: Options, images: int) -> list[Recipe]:
    """The candidates. With 16 bits throughout, a finer grid is never worse; without images, only statistics speak."""
    modes = ["scalar", "vector"] if options.bits == "16" else ["none", "scalar", "vector"]
    if options.equalize != "auto":
        modes = [options.equalize]
    roundings = {"auto": [False] if options.bits == "16" else [False, True], "nearest": [False], "gptq": [True]}[
        options.rounding
    ]
    if not images:
        modes, roundings = ["none"], [False]
    return [Recipe(mode, gptq) for mode in modes for gptq in roundings]


def _choose(fitter: Fitter, recipes: Sequence[Recipe], progress: Progress) -> tuple[Recipe, tuple[str, ...]]:
    """The best recipe on held-out images, and what each one reached. With fewer than 6 images: the first."""
    if len(recipes) == 1 or len(fitter.images) < 6:
        return recipes[0], ()
    scores = fitter.scores(recipes, lambda done, total: progress("choose", done, total))
    notes = tuple(f"{recipe}: {score:.2f} dB on held-out images" for recipe, score in zip(recipes, scores, strict=True))
    return recipes[int(np.argmax(scores))], notes


def _test_vectors(graph: Graph, feeds: Feeds, count: int) -> list[tuple[list[bytes], list[bytes]]]:
    """Inputs and the reference's outputs of the first samples, or of seeded random integers without samples."""
    rng = np.random.default_rng(0)
    vectors = []
    for i in range(count):
        if i < len(feeds):
            x = {name: integers(a, graph[name]) for name, a in feeds[i].items()}
        else:
            x = {n: rng.integers(-128, 128, graph[n].shape).astype(graph[n].dtype) for n in graph.inputs}
        y = run_reference(graph, x)
        vectors.append(([x[n].tobytes() for n in graph.inputs], [y[n].tobytes() for n in graph.outputs]))
    return vectors


def _metadata(model: Path, options: Options, recipe: Recipe, images: int) -> dict[str, str]:
    """Facts about the conversion; nothing that differs between two runs of the same command."""
    config = {
        f.name: getattr(options, f.name)
        for f in fields(options)
        if f.name not in ("dump_ir", "load_profile", "save_profile", "labels", "preprocess", "target")
    }
    found = {"target": options.target} if options.target else {}
    return found | {
        "producer": f"nmpconv {__version__}",
        "source": model.name,
        "source_sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
        "config": json.dumps(config, sort_keys=True, default=str),
        "calibration": json.dumps({"images": images, "method": options.method, "recipe": str(recipe)}, sort_keys=True),
    }
