"""First stages of a conversion: the float graph, the samples, and the statistics of both together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from nmpconv.base import stream_spec
from nmpconv.base.files import read_lines
from nmpconv.base.progress import Progress
from nmpconv.calib import parity
from nmpconv.calib import profile as profiles
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.observers import SamplePeaks, SampleSubset, TensorStats, observe
from nmpconv.calib.outliers import PEAKS_MOST, find_outliers
from nmpconv.calib.parity import Parity
from nmpconv.conversion import import_check
from nmpconv.conversion.context import Context
from nmpconv.conversion.costly_widths import InstructionLimit
from nmpconv.conversion.inputs import open_inputs
from nmpconv.conversion.options import Options
from nmpconv.conversion.quantizer import GUARD_IMAGES, HELD_OUT, Fitter, is_held_out
from nmpconv.data import audio
from nmpconv.data.audio import FrontEnd
from nmpconv.data.images import with_layout
from nmpconv.data.samples import Data, Feeds, Samples, scattered, spread
from nmpconv.errors import InputError, UsageError
from nmpconv.evaluation.detection.decoders import Size
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.graph.text import graph_hash
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph, Preprocess
from nmpconv.passes import stream
from nmpconv.passes.float import FLOAT, fold_affine, fold_input
from nmpconv.passes.memory import plan_memory
from nmpconv.passes.quantize import (
    attention_masks,
    constant_masks,
    given_grids,
    input_grids,
    input_steps,
    joined_inputs,
    ranges,
    recurrent_states,
    saturations,
    slice_scales,
    table_readers,
)
from nmpconv.passes.quantize.exponents import Method, provisional
from nmpconv.passes.quantize.heads import heads
from nmpconv.passes.quantize.overrides import NOTHING
from nmpconv.passes.quantize.rounding import Rounding
from nmpconv.passes.quantize.widths import activation_bits, weight_bits

FIT_IMAGES = 100  # most images that biases and rounding are fitted on
FIT_LEAST = 16  # the same that are always affordable
FAST_IMAGES = 8  # most with --fast, and most that it is measured on
FIT_BYTES = 256 << 20  # most bytes of activations of those images that are alive at once


@dataclass(frozen=True)
class Imported:
    """A float graph and the data of its inputs.

    samples: by input name; empty without data. feeds: the same as arrays for the graph, at most `Options.limit`.
    """

    graph: Graph
    samples: Mapping[str, Samples]
    feeds: Feeds


@dataclass(frozen=True)
class Calibrated:
    """A float graph with statistics, before a recipe is chosen.

    samples, feeds: see `Imported`. check: compares the graph with the ONNX model, once (`import_check.compared`).
    fitter: quantizes the graph, with the images that biases and rounding are fitted on. fitted: which of the feeds
    these are. masked: tensors whose statistics are those of masks, not of samples alone. narrowed: a note on the
    tensors that got no 16 bits because of what they cost; "" where there are none. limit: of its instructions
    (`costly_widths.Affordable`). two_thirds: statistics of the samples but every third, of the tensors of the fitter's
    graph for which they are known. outliers: samples that reach much farther than the others, by index: how many times
    as far. dropped: True where statistics and the fitter have not seen them.
    """

    samples: Mapping[str, Samples]
    feeds: Feeds
    check: Callable[[], Parity | str]
    fitter: Fitter
    fitted: tuple[int, ...]
    masked: frozenset[str] = frozenset()
    narrowed: str = ""
    limit: InstructionLimit | None = None
    two_thirds: Mapping[str, TensorStats] = field(default_factory=dict)
    outliers: Mapping[int, float] = field(default_factory=dict)
    dropped: bool = False

    @property
    def inliers(self) -> list[int]:
        """Samples that statistics are of."""
        return [i for i in range(len(self.feeds)) if not self.dropped or i not in self.outliers]

    @property
    def names(self) -> list[str]:
        """Paths of the samples."""
        return next((item.paths for item in self.samples.values()), [])

    @property
    def size(self) -> Size | None:
        """Height and width of the first input's pictures."""
        return next((item.size for item in self.samples.values()), None)

    @property
    def unit(self) -> str:
        """The word for samples: "images", or "samples" of anything else."""
        return "images" if self.size is not None else "samples"

    @property
    def labels(self) -> Sequence[int] | None:
        """Classes of the samples; None where no input has one for each."""
        for item in self.samples.values():
            labels = [label for label in item.labels or () if label is not None]
            if item.labels and len(labels) == len(item.labels):
                return labels
        return None


def import_model(context: Context, data: Mapping[str, Data]) -> Imported:
    """Reads the ONNX model and opens the data. data: sources by input name, '' for the only input."""
    options = context.options
    graph = _load(context)
    samples = open_inputs(
        graph,
        data,
        options.preprocess_of,
        options.state or (),
        front_end(options),
        limit=options.limit,
        max_pixels=options.max_pixels,
        progress=context.progress,
    )
    if data:
        pictures = {name: s.preprocess for name, s in samples.items() if s.preprocess is not None}
    else:
        pictures = _image_inputs(graph, options)
    if options.faithful:
        _check_pictures(graph, pictures)
    graph = float_passes(graph, pictures, context.trace)
    stream.checked(graph, options.stream)  # a wrong stream is reported before any work
    feeds = Feeds(samples, graph.pixels)
    return Imported(graph, samples, feeds.subset(range(min(len(feeds), options.limit or len(feeds)))))


def import_without_data(context: Context) -> Graph:
    """Reads the ONNX model; inputs that have preprocessing are taken for images."""
    graph = _load(context)
    return float_passes(graph, _image_inputs(graph, context.options), context.trace)


def calibrate(context: Context, imported: Imported) -> Calibrated:
    """Observes the activations, or takes a profile's statistics, or the ranges of a quantized model."""
    known = _calibrated(context, imported, {})
    if not known.outliers or not context.options.drop_outliers:
        return known
    return without_outliers(context, imported, known.outliers)


def without_outliers(context: Context, imported: Imported, outliers: Mapping[int, float]) -> Calibrated:
    """The same of the other samples. outliers: see `Calibrated`. A profile that is saved stays that of all."""
    others = replace(context, options=replace(context.options, save_profile=None))
    return replace(_calibrated(others, imported, outliers), outliers=outliers, dropped=True)


def _calibrated(context: Context, imported: Imported, outliers: Mapping[int, float]) -> Calibrated:
    options, trace, graph = context.options, context.trace, imported.graph
    inliers = [i for i in range(len(imported.feeds)) if i not in outliers]
    feeds = imported.feeds.subset(inliers) if outliers else imported.feeds
    samples = {name: item.subset(inliers) if outliers else item for name, item in imported.samples.items()}
    two_thirds = _two_thirds(options, graph, len(feeds))
    observed, by_sample = feeds if samples else None, SamplePeaks() if len(feeds) <= PEAKS_MOST else None
    graph, stats = _statistics(graph, observed, options, context.progress, two_thirds, by_sample)
    every = dict(stats)
    trace(graph, "FLOAT", "saturations")
    peaks = {name: seen.peak for name, seen in stats.items()}
    graph = trace(fold_affine.run(graph, peaks), "FLOAT", "fold_affine")
    seen = {value.name: stats[value.name] for value in graph.activations()}
    graph, stats = constant_masks.run(graph, seen, feeds)
    trace(graph, "FLOAT", "constant_masks")
    graph, stats = attention_masks.run(graph, stats, feeds)
    trace(graph, "FLOAT", "attention_masks")
    masked = frozenset(name for name, stat in stats.items() if stat is not seen.get(name))

    check = cache(partial(import_check.compared, context.model, options, graph, samples, stats, len(feeds)))
    bits = activation_bits(graph, str(options.bits), options.widths)
    states = recurrent_states.checked(graph, options.state or ())
    # Recipes hold the equalization that was best, and exponents of inputs that are to stay as they are.
    is_plain = options.equalize == "none" and "equalize" not in context.recipe_file.convert
    if len(feeds) and not is_plain and not options.faithful:
        raw, shift = feeds, options.stream is None
        by_recipe = [line.name for line in context.recipe_file.tensors if "exponent" in line.said]
        exempt = {*states, *by_recipe}
        by_channel = input_grids.run(graph, stats, raw, exempt, shift)
        graph, stats, feeds = _stored(graph, stats, feeds, raw, *by_channel)
        trace(graph, "FLOAT", "input_grids")
        front = front_end(options)  # in integers it knows powers of two alone
        taken = graph.inputs if options.bits != "8" or (front is not None and front.integers) else exempt
        stepped, whole = input_steps.run(graph, stats, raw, taken, shift)
        graph, stats, feeds = _stored(graph, stats, feeds, raw, stepped, whole)
        if graph is stepped:
            bits = {**bits, **dict.fromkeys(whole, 8)}
        trace(graph, "FLOAT", "input_steps")
    alone = set(graph.outputs if options.stream else states.values())
    own = NOTHING
    if options.faithful:
        if not graph.given:
            raise UsageError("the model has no grids of its own to keep", where="--faithful", hint="leave it out")
        graph, stats, bits, own = given_grids.run(graph, stats, bits, options.bits == "a16w8")
        trace(graph, "FLOAT", "given_grids")
    else:
        graph, stats, bits = slice_scales.run(graph, stats, bits, alone)
        trace(graph, "FLOAT", "slice_scales")
        if options.bits == "8":
            graph, stats, bits = joined_inputs.run(graph, stats, bits, states)
            trace(graph, "FLOAT", "joined_inputs")
        stats = table_readers.counting(graph, stats, bits)
    choices = context.recipe_file.choices(graph).over(own)
    rounding = Rounding(
        weight_bits(str(options.bits)),
        options.per_tensor,
        False,
        options.bias_correction,
        options.bias_width,
        options.faithful,
        options.amplify,
    )
    most = min(_affordable(graph), FAST_IMAGES if options.fast else FIT_IMAGES)
    fitted = (scattered if states or graph.variables else spread)(len(feeds), most)
    images = [feeds[i] for i in fitted]
    all_feeds = imported.feeds.of(graph) if outliers else feeds
    method = Method(options.method, options.percentile)
    # A few images tell too little of a range to fill the type with it, and none of them can be held out.
    zero_points = options.zero_points and not 0 < len(images) < HELD_OUT
    fitter = Fitter(graph, stats, bits, method, rounding, images, zero_points, choices)
    # Of a model with large activations, fewer are fitted on than were observed.
    apart = two_thirds.stats if two_thirds is not None and len(fitted) == len(feeds) else {}
    known = {name: seen for name, seen in apart.items() if name in stats and stats[name] is every[name]}
    places = tuple(inliers[i] for i in fitted)
    far = {} if by_sample is None else find_outliers(by_sample)
    return Calibrated(imported.samples, all_feeds, check, fitter, places, masked, two_thirds=known, outliers=far)


def _stored(
    graph: Graph, stats: Mapping[str, TensorStats], feeds: Feeds, raw: Feeds, shifted: Graph, changed: Sequence[str]
) -> tuple[Graph, dict[str, TensorStats], Feeds]:
    """The graph whose inputs are stored on other grids, with the statistics and the samples of that graph; what it was
    before where it would be another function in float32. feeds: samples of the graph; raw: as they came."""
    if not changed:
        return graph, dict(stats), feeds
    stored, indices = raw.of(shifted), spread(len(feeds), GUARD_IMAGES)
    names = heads(graph)
    comparison = parity.compare(
        partial(to_onnx, graph, names), shifted, [(feeds[i], stored[i]) for i in indices], names
    )
    if not comparison.holds:
        return graph, dict(stats), feeds
    return shifted, {**stats, **observe(FloatEngine(shifted, changed, threads=1), stored, changed)}, stored


def float_passes(graph: Graph, pictures: Mapping[str, Preprocess], trace: Trace) -> Graph:
    """Simplifies an imported graph. pictures: preprocessing of the inputs that are fed from images, by name."""
    graph = trace(fold_input.run(graph, pictures), "FLOAT", "fold_input")
    for name, function in FLOAT:
        graph = trace(function(graph), "FLOAT", name)
    return graph


def _check_pictures(graph: Graph, pictures: Mapping[str, Preprocess]) -> None:
    """UsageError where pixels, folded into the first layer, are not on the grid that a quantized model has for them."""
    for name, how in pictures.items():
        grid = graph.given.get(name)
        if grid is not None and not given_grids.holds_pixels(grid, how):
            raise UsageError(
                f"pixels do not lie on the grid of input {name!r}, whose step is {grid.scale:g}: the first layer "
                "would get other integers",
                where="--faithful",
                hint="give its data as .npy, in the model's numbers, or another --mean and --std",
            )


def _load(context: Context) -> Graph:
    """The model as ONNX has it. UsageError where the audio front end does not fit the only input that is fed."""
    options = context.options
    values, shapes = options.bound_inputs
    graph = load(context.model, input_shapes=shapes, input_values=values, outputs=options.outputs or ())
    fed = [name for name in graph.inputs if name not in recurrent_states.checked(graph, options.state or ())]
    if (front := front_end(options)) is not None and len(fed) == 1:
        axis = None if options.stream is None else stream_spec.parse(options.stream).axis
        audio.time_axis(front, graph.source_shapes.get(fed[0], graph[fed[0]].shape), axis)
    graph = replace(graph, labels=class_names(options.labels), faithful=options.faithful)
    return context.trace(given_grids.of_sources(graph), "FLOAT", "import")


def class_names(labels: Path | str | Sequence[str] | None) -> tuple[str, ...]:
    """Class names, or those of a text file with one a line."""
    if labels is None or not isinstance(labels, str | Path):
        return () if labels is None else tuple(map(str, labels))
    names = tuple(row.strip() for row in read_lines(labels, "list of labels"))
    if not names:
        raise InputError("the list of labels is empty", where=str(labels), hint="one class name a line")
    return names


def front_end(options: Options) -> FrontEnd | None:
    """The front end of sound that the options name."""
    return None if options.audio is None else audio.parse(options.audio)


def _image_inputs(graph: Graph, options: Options) -> dict[str, Preprocess]:
    """Preprocessing of the inputs that could be images, where there is no data."""
    fed = [name for name in graph.inputs if name not in recurrent_states.checked(graph, options.state or ())]
    preprocessing = {name: options.preprocess_of(name) for name in fed if len(graph[name].shape) == 4}
    return {name: with_layout(p, graph[name].shape) for name, p in preprocessing.items() if p is not None}


def _statistics(
    graph: Graph,
    feeds: Feeds | None,
    options: Options,
    progress: Progress,
    subset: SampleSubset | None,
    peaks: SamplePeaks | None,
) -> tuple[Graph, dict[str, TensorStats]]:
    """Statistics of the activations: a profile's, those seen on samples, or the ranges that a model has; with the
    graph, which saturates where the model does. A profile that is saved is of the graph before that."""

    def observed(graph: Graph) -> dict[str, TensorStats]:
        if feeds is None:
            return {}
        names = [value.name for value in graph.activations()]
        engine = FloatEngine(graph, names, threads=1)
        return observe(engine, feeds, names, progress, subset=subset, peaks=peaks)

    seen = observed(graph) if options.load_profile is None else profiles.load(options.load_profile).stats_for(graph)
    rounded = given_grids.of_rounded(graph) if seen else graph
    stats = ranges.run(rounded, seen)
    if options.save_profile is not None:
        profiles.save(options.save_profile, profiles.Profile(graph_hash(graph), seen or stats))
    saturated = saturations.run(rounded, seen)
    if saturated is not rounded and seen:
        if options.load_profile is None:
            seen = observed(saturated)
        stats = ranges.run(saturated, {**seen, **saturations.unsaturated(saturated, seen)})
    return saturated, stats


def _two_thirds(options: Options, graph: Graph, count: int) -> SampleSubset | None:
    """The samples that are not held out where all are fitted on; None where no verdict reads their statistics."""
    if options.fast or not has_observed_ranges(options, graph) or not HELD_OUT <= count <= FIT_IMAGES:
        return None
    return SampleSubset(frozenset(i for i in range(count) if not is_held_out(i)))


def has_observed_ranges(options: Options, graph: Graph) -> bool:
    """Checks that ranges are those of the samples, not of a profile or a quantized model."""
    return options.load_profile is None and not graph.given


def _affordable(graph: Graph) -> int:
    """Number of images whose activations fit into FIT_BYTES, at one byte an element."""
    return max(FIT_LEAST, FIT_BYTES // max(1, plan_memory.lower_bound(provisional(graph, {}))))
