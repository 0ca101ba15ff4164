"""Warnings before a conversion is trusted, and advice."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf, isfinite
from statistics import median, mode

import numpy as np

from nmpconv.base.confidence import LUCK, counted, luck
from nmpconv.base.sqnr import mean_db
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.observers import TensorStats
from nmpconv.conversion.validation import Score
from nmpconv.data.audio import FrontEnd
from nmpconv.data.samples import Feeds, Samples, spread
from nmpconv.ir import Graph, Node, Preprocess, Value
from nmpconv.ops import OPS
from nmpconv.ops.op import quant_of
from nmpconv.passes.bounds import known
from nmpconv.passes.quantize.heads import heads
from nmpconv.passes.quantize.shared_grids import joins_grids

COARSE, NAMED = 8, 3  # steps of a grid that are few for a tensor; how many such grids are named
FEW_IMAGES, ENOUGH_IMAGES = 32, 100
DEGENERATE = "ranges, biases and SQNR say nothing of others: give about 100 different ones"
POOR_DB, POOR_AGREEMENT = 15.0, 95.0  # below which a result is poor, with all of its confidence interval
JUDGED = 16  # images, at least, that tell whether a classifier is fed right
LOOKED, LABELLED = 32, 100  # images, at most, that tell so, without and with labels
# A classifier is unsure of an image where its best class has less than this, or than so many times that of a guess.
UNSURE, CHANCE = 0.25, 1.2
Normalization = tuple[tuple[float, ...], tuple[float, ...]]  # mean and std
# Mean and std of pixels, RGB, that models are most often trained with.
USUAL: tuple[Normalization, ...] = (
    ((0.0,), (255.0,)),
    ((127.5,), (127.5,)),
    ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
)
# That a usual normalization is right: how many times the information of pixels as they are its results have, and how
# many nats more. The zoo's classifiers that want pixels reach 0.99 times, the others from 1.6 on, but for a net of two
# classes, and one that wants no std.
MORE, NATS = 1.25, 0.1
IMAGENET = (1000, 1001)  # classes: so many scores are a classifier's, without further evidence


def quality(
    bits: str,
    widths: str,
    images: int,
    fitted: int,
    score: Score | None,
    fitted_db: Mapping[str, float],
    unit: str,
    causes: Sequence[str] = (),
    *,
    faithful: bool = False,
) -> tuple[str, ...]:
    """Warnings of a poor SQNR or agreement, and of few images.

    bits, widths: of `options.Options`. images: all that calibrate. fitted: those of them that biases are fitted to.
    score: on validation images; where there are none, fitted_db counts: dB of the heads on the fitted ones. unit: the
    word for images. causes: see `unlike_ranges`; named where the result is poor. More bits cost RAM, so they are
    advised only where JUDGED images prove that it is, and never of --faithful, which keeps the model's grids.
    """
    texts = []
    if 0 < images < FEW_IMAGES:
        part = f", {fitted} of which biases were fitted to," if fitted < images else ""
        few = f"{images} calibration {unit}{part} are few"
        texts.append(f"{few}: ranges and biases may fit no others; about 100 are right")
    wider = {"strict": "without --strict", "default": "--precise, --bits a16w8"}.get(widths, "--bits a16w8")
    tries = [wider] if bits == "8" else ["--bits 16"] if bits == "a16w8" else []
    measured = fitted if score is None else score.images
    tries = tries if measured >= JUDGED else []
    tries += [f"more {unit}"] if images < ENOUGH_IMAGES else []
    advised = f"try {', '.join([*tries, 'other preprocessing'])}"
    if faithful:
        advised = "the quantized model's own rounding is part of it; without --faithful grids are chosen anew"
    if score is not None:
        if proven := _poor(score, unit):
            texts.append(f"poor on {unit} that nothing was fitted to: {proven}; {advised}")
    elif fitted and fitted_db and (db := mean_db(fitted_db.values())) < POOR_DB:
        proven = f"{db:.1f} dB"
        texts.append(f"poor, even on {unit} that it was fitted to: {proven} on {fitted} {unit}; {advised}")
    else:
        proven = ""
    return (*texts, *(causes if proven else ()))


def unlike_ranges(graph: Graph, seen: Mapping[str, TensorStats]) -> tuple[str, ...]:
    """Names what is a few steps of a grid that it shares with larger numbers: parts of a Concat, and input channels.

    graph: with grids. seen: statistics of the float graph's activations, whose ranges are told; those of the graph may
    be equalized.
    """
    texts, makers = list[str](), graph.producers()
    for node in graph.nodes:
        if not joins_grids(node):
            continue
        steps = {name: _peak(graph[name]) / _step(graph[node.outputs[0]]) for name in node.inputs}
        most = max(steps, key=lambda name: steps[name])
        few = [name for name, count in steps.items() if 0 < count < COARSE]
        if few:
            small, large = (" and ".join(_told(graph, makers, name, seen) for name in names) for names in (few, [most]))
            left = f"{max(steps[name] for name in few):.1g}"
            texts.append(f"{small} and {large} share a grid in {node.name!r}, which leaves the former {left} steps")
    for name in graph.inputs:
        stats = seen.get(name)
        if name in graph.pixels or stats is None or stats.channel_min is None or stats.channel_max is None:
            continue
        peaks = np.maximum(np.abs(stats.channel_min), np.abs(stats.channel_max))
        least, most_at = int(np.argmin(peaks)), int(np.argmax(peaks))
        if 0 < (count := float(peaks[least]) / _step(graph[name])) < COARSE:
            small, large = f"channel {least} (up to {peaks[least]:.3g})", f"{most_at} (up to {peaks[most_at]:.3g})"
            texts.append(
                f"{small} and {large} of input {name!r} share a grid, which leaves the former {count:.1g} steps"
            )
    return tuple(f"{text}; scale them alike in the model" for text in texts[:NAMED])


def _step(value: Value) -> float:
    return 2.0 ** quant_of(value).exponent


def _peak(value: Value) -> float:
    if value.data is not None:
        return float(np.abs(value.data).max())
    return 0.0 if value.observed is None else max(abs(value.observed.min), abs(value.observed.max))


def _told(graph: Graph, makers: Mapping[str, Node], name: str, seen: Mapping[str, TensorStats]) -> str:
    """A tensor and its range in the float model; a copy on another grid is called by its name."""
    while name not in seen and name in makers:
        name = makers[name].inputs[0]
    data, observed = graph[name].data, graph[name].observed
    if name in seen:
        low, high = seen[name].min, seen[name].max
    elif data is not None:
        low, high = float(data.min()), float(data.max())
    else:
        low, high = (0.0, 0.0) if observed is None else (observed.min, observed.max)
    return f"{name!r} ({low:.3g} to {high:.3g})"


def _poor(score: Score, unit: str) -> str:
    """The figures that are poor beyond doubt; "" where chance may explain them."""
    figures = []
    if score.db == -inf:
        figures.append(f"no SQNR on {score.images} {unit}")
    elif score.db_margin is not None and score.db + score.db_margin < POOR_DB:
        figures.append(f"{score.db:.1f} dB on {score.images} {unit} (give or take {score.db_margin:.1f} dB)")
    if score.agreed is not None and score.agreement_range[1] < POOR_AGREEMENT:
        figures.append(counted(score.agreed, score.images, f"{unit} agree"))
    return " and ".join(figures)


def degenerate(images: Sequence[Mapping[str, np.ndarray]], pixels: Collection[str], total: int) -> tuple[str, ...]:
    """Warnings of samples that calibrate nothing: blank ones, inputs that are never fed, copies of each other. images:
    those that a graph is fitted on, of ``total``. pixels: inputs that take pixel - 128."""
    if not images:
        return ()
    count = f"{len(images)} calibration samples" + (f" (of {total})" if len(images) < total else "")
    texts = []
    for name in images[0]:
        plain = [image[name].flat[0] for image in images if image[name].size > 1 and np.ptp(image[name]) == 0]
        ends = " to ".join(f"{x + 128 * (name in pixels):g}" for x in sorted({min(plain), max(plain)})) if plain else ""
        if len(images[0]) == 1 and len(plain) * 2 >= len(images):
            texts.append(f"{len(plain)} of {count} hold one value throughout ({ends}); {DEGENERATE}")
        elif len(plain) == len(images) and (name in pixels or not any(plain)) and min(plain) == max(plain):
            texts.append(f"input {name!r} is {ends} in all {count}; {DEGENERATE}")
    distinct = len({tuple(np.ascontiguousarray(x).tobytes() for x in image.values()) for image in images})
    if not texts and distinct * 2 <= len(images):
        texts.append(f"{len(images) - distinct} of {count} are copies of others; {DEGENERATE}")
    return tuple(texts)


def unused(samples: Mapping[str, Samples], preprocess: Preprocess | None) -> tuple[str, ...]:
    """Warns that mean and std are for images, where they are given and all samples are arrays.

    preprocess: for any input.
    """
    if preprocess is None or any(input_samples.preprocess is not None for input_samples in samples.values()):
        return ()
    if _is_plain(preprocess):
        return ()
    return ("mean and std are for images: samples that are arrays of floats go into the model as they are",)


def _is_plain(look: Preprocess) -> bool:
    """Checks that pixels go into the model as they are."""
    plain = Preprocess()
    return (look.mean, look.std, look.range) == (plain.mean, plain.std, plain.range)


def other_steps(graph: Graph) -> tuple[str, ...]:
    """Warns, where a quantized model's grids are to be kept, of those that cannot be. graph: the float graph."""
    names = {value.name for value in graph.activations()}
    grids = [grid for name, grid in graph.given.items() if name in names and not grid.is_plain]
    others = sum(not grid.is_power for grid in grids)
    if not others:
        return ()
    return (
        f"{others} of the model's {len(grids)} steps are no powers of two: the nearest are in their place, so its "
        "integers change; without --faithful grids and biases are chosen to lose less",
    )


def rounded_twice(graph: Graph) -> tuple[str, ...]:
    """Warns, where a quantized model's grids are to be kept, of inputs that it rounds to several. graph: float."""
    names = [node.inputs[0] for node in graph.nodes if graph.forks(node)]
    return tuple(
        f"the model rounds its input {name!r} to several grids; the file's has one, and goes to the others from it"
        for name in dict.fromkeys(names)
        if name in graph.inputs
    )


def saturating(graph: Graph) -> tuple[str, ...]:
    """Warns of outputs whose grid ends far below 1, since calibration saw no more of them: of a Sigmoid or Softmax, and
    others that are known to lie between 0 and 1, as what chooses between such."""
    texts, makers, ends = [], graph.producers(), known(graph, {})
    for name in graph.outputs:
        value = graph[name]
        source = name
        while source in makers and OPS[makers[source].op].grid == "same":
            source = makers[source].inputs[0]
        if source not in makers or value.quant is None or value.observed is None:
            continue
        own = OPS[makers[source].op].own_exponent(makers[source], value.quant.bits)
        if own is None and ends[source] == (0, 1):
            own = 1 - value.quant.bits
        if own is not None and value.quant.exponent < own:
            most = float(np.ldexp(value.quant.hi, value.quant.exponent) + value.origin)
            seen = f"calibration saw at most {value.observed.max + value.origin:.3g}"
            texts.append(f"output {name!r} saturates at {most:.3g}, since {seen}: give samples of every class")
    return tuple(texts)


def misnamed(graph: Graph) -> tuple[str, ...]:
    """Warns of more or fewer class names than scores, where all outputs are scores of classes."""
    outputs = [graph[name] for name in graph.outputs]
    count, sizes = len(graph.labels), {value.size for value in outputs}
    if not count or count in sizes or any(sum(dim > 1 for dim in value.shape) != 1 for value in outputs):
        return ()
    classes = " and ".join(f"{value.name!r} has {value.size} classes" for value in outputs)
    return (f"there are {count} label(s), but {classes}: no names will be shown; --labels wants a name for each class",)


def normalization(graph: Graph, samples: Mapping[str, Samples], feeds: Feeds) -> tuple[str, ...]:
    """Asks for --mean and --std, the commonest mistake, where pixels are fed as they are to a classifier: normalized
    pixels tell it more, labels say that it is right more often with them, or it is unsure of all images. Asks for
    --range where numbers are those of pixels from 0 to 1. graph: the float graph, which ``feeds`` are for.

    To a model that wants pixels, normalized ones are as good as black: its results are all the same then.
    """
    looks = [input_samples.preprocess for input_samples in samples.values()]
    if any(look is not None and look.range == Preprocess().range and max(look.std) < 1 for look in looks):
        return ("pixels from 0 to 255 are divided by less than 1; did you forget --range 0,1?",)
    if len(looks) != 1 or looks[0] is None or not _is_plain(looks[0]) or len(feeds) < JUDGED:
        return ()
    names = heads(graph)
    if len(names) != 1 or sum(dim > 1 for dim in graph[names[0]].shape) != 1:
        return ()
    [labels] = (input_samples.labels for input_samples in samples.values())
    hints = _better_fed(graph, feeds, labels, reverse=looks[0].channel_order == "bgr")
    return tuple(f"{text}; did you forget --mean and --std?" for text in hints)


def _better_fed(graph: Graph, feeds: Feeds, labels: Sequence[int | None] | None, *, reverse: bool) -> tuple[str, ...]:
    """The evidence that a classifier wants other pixels than those it is fed, which are as they are. reverse: the
    channels are in the order BGR."""
    [scores] = heads(graph)
    indices = spread(len(feeds), LABELLED if labels else LOOKED)
    images, engine = [feeds[i] for i in indices], FloatEngine(graph, [scores])

    def results(mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
        fed = [{name: _normalized(pixels, mean, std) for name, pixels in image.items()} for image in images]
        return np.stack([engine.run(feed)[scores].ravel() for feed in fed]).astype(np.float64)

    plain, order = Preprocess(), -1 if reverse else 1
    logits = results(plain.mean, plain.std)
    usual = [(mean[::order], std[::order]) for mean, std in USUAL if len(mean) in (1, graph[graph.inputs[0]].shape[-1])]
    hints = better(logits, {pair: results(*pair) for pair in usual}, [labels[i] for i in indices] if labels else None)
    is_classifier = labels or graph.labels or scores not in graph.outputs or max(graph[scores].shape) in IMAGENET
    return hints or (unsure(logits) if is_classifier else ())


def _normalized(fed: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    """Returns the input to feed instead of pixel - 128 where the model shall see normalized pixels."""
    return ((fed + 128.0 - np.array(mean)) / np.array(std) - 128.0).astype(np.float32)


def better(
    logits: np.ndarray, others: Mapping[Normalization, np.ndarray], labels: Sequence[int | None] | None
) -> tuple[str, ...]:
    """The normalization with which a classifier's results tell more, or are right more often, or (). logits: with
    pixels as they are, before the Softmax, [images, classes]. others: with normalized ones. labels: class numbers."""
    gains = {pair: information(results) for pair, results in others.items()}
    best = max(gains, key=gains.__getitem__)
    if gains[best] > max(MORE * information(logits), NATS + information(logits)):
        return (f"the float model tells images apart better with, for example, {_flags(best)}",)
    if not labels or None in labels:
        return ()
    classes = np.array(labels)
    right = {pair: results.argmax(axis=1) == classes for pair, results in others.items()}
    before, constant = logits.argmax(axis=1) == classes, classes == mode(labels)
    best = max(right, key=lambda pair: int(right[pair].sum()))
    if max(luck(right[best], before), luck(right[best], constant)) > LUCK:
        return ()
    rates = f"{right[best].sum()} of {len(classes)} images right, not {before.sum()}"
    return (f"the float model gets {rates}, with, for example, {_flags(best)}",)


def _flags(usual: Normalization) -> str:
    mean, std = (",".join(f"{x:g}" for x in values) for values in usual)
    return f"--mean {mean} --std {std}"


def information(logits: np.ndarray) -> float:
    """Information that a classifier's results give about images, in nats: from 0, for the same result for all, to
    log(classes), for sure results and all classes alike. logits: before the Softmax, [images, classes]."""
    with np.errstate(invalid="ignore"):  # no model is judged by results that overflow
        sure = np.exp(logits - logits.max(axis=1, keepdims=True))
        sure /= sure.sum(axis=1, keepdims=True)
    nats = float(_entropy(sure.mean(axis=0)) - _entropy(sure).mean())
    return nats if isfinite(nats) else 0.0


def _entropy(shares: np.ndarray) -> np.ndarray:
    """Entropy of the last axis, in nats."""
    return -np.sum(shares * np.log(np.maximum(shares, np.finfo(float).tiny)), axis=-1)


def unsure(logits: np.ndarray) -> tuple[str, ...]:
    """Warns that a classifier is unsure of its images. logits: before the Softmax, [images, classes]."""
    sure = median(1 / np.exp(row - row.max()).sum() for row in logits)
    if sure >= max(UNSURE, CHANCE / logits.shape[1]):
        return ()
    return (f"the float model is unsure of its images: the best class has {100 * sure:.0f} % (median)",)


def floats_of_sound(front: FrontEnd | None) -> tuple[str, ...]:
    """A remark where frames of sound are computed in floats though nobody asked for that."""
    if front is None or not front.bands or front.integers or not front.why_floats:
        return ()
    return (f"frames of sound are computed in floats: {front.why_floats}. No device has the same; see docs/streams.md",)
