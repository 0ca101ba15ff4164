"""Contents of a report's template: rows, pictures and words, of one file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmpconv.base.quantities import ends
from nmpconv.base.short_names import of_files
from nmpconv.conversion.report import Layer, Report
from nmpconv.exporters.html import charts
from nmpconv.exporters.html.graph_layout import BOX, HEIGHT, layout
from nmpconv.exporters.html.subject import Subject
from nmpconv.file.memory_map import Memory
from nmpconv.file.reader import FileOp, FileTensor, Model
from nmpconv.ops import layer_inputs

BEST_DB, WORST_DB = 60.0, 10.0  # the ends of the colours of SQNR
TOP_DB = 80.0  # of the chart
STEEPEST = 3  # layers that are marked
MEMORY_WIDTH, MEMORY_HEIGHT = 960, 320  # of the memory plan


@dataclass(frozen=True)
class Box:
    """An input or an op in the picture of the graph. facts: what a reader is told. number: of the op, "" for an input.
    colours: by the figure that they show, of those that are known.
    """

    x: float
    y: float
    kind: str
    name: str
    shape: str
    facts: str
    number: str
    colours: Mapping[str, str]


def number(value: float | None, digits: int = 1) -> str:
    """A dash for what is not known, "exact" for no error at all."""
    if value is None or math.isnan(value):
        return "–"
    return "exact" if value == math.inf else f"{value:.{digits}f}"


def scaled(value: float) -> str:
    """Three digits and a prefix."""
    for prefix in ("", " k", " M", " G"):
        if abs(value) < 999.5:
            return f"{value:.3g}{prefix}" if prefix else f"{value:g}"
        value /= 1000
    return f"{value:.3g} T"


def told_exponents(tensor: FileTensor) -> str:
    """With those of the float model's numbers, where they are others."""
    times = ", times factors" if tensor.float_mantissas else ""
    more = f" ({ends(tensor.float_exponents)}{times} in the float model)" if tensor.float_exponents else ""
    return f"{ends(tensor.exponents)}{more}"


def facts(subject: Subject) -> list[tuple[str, str]]:
    """Describes the conversion: what is folded away."""
    model = subject.model
    rows = [
        ("file", f"{subject.name}, {scaled(model.file_bytes)}B"),
        ("sha256", subject.sha256),
        ("format", f"{model.version[0]}.{model.version[1]}"),
        ("work", f"{len(model.ops)} ops, {scaled(sum(op.macs for op in model.ops))}MAC"),
        ("constants", f"{scaled(model.weights_bytes)}B"),
        ("activations", f"{scaled(model.arena_bytes)}B"),
        ("RAM of a run", ", ".join(f"{need.target} {scaled(need.arena)}B" for need in subject.ram)),
        ("command", subject.command),
        *_checks(subject.report),
    ]
    metadata = {key: value for key, value in model.metadata.items() if key not in ("config", "calibration")}
    rows += [(key.replace("_", " "), value) for key, value in sorted(metadata.items())]
    calibration = _json(model.metadata.get("calibration"))
    rows += [(f"calibration {key}", str(value)) for key, value in sorted(calibration.items())]
    return [(name, value) for name, value in rows if value]


def _checks(report: Report | None) -> Iterator[tuple[str, str]]:
    if report is not None and report.float_db is not None:
        yield "float graph", f"{number(report.float_db)} dB against the ONNX model"
    if report is not None and report.bias_rule_cost_db is not None:
        yield "bias rule", f"costs {round(report.bias_rule_cost_db, 2) + 0.0:.2f} dB against biases on s_x*s_w"


def results(subject: Subject) -> Iterator[tuple[str, str]]:
    """Lists the measurements of a conversion behind its verdict, and where the noise comes from."""
    if nearness := subject.verdict.nearness:
        yield "nearness", nearness
    report = subject.report
    if report is None:
        return
    short = of_files([subject.model])
    heads, others = report.shown_heads
    yield from (
        (f"SQNR of {short.get(name, name)}" if len(heads) > 1 else "SQNR", f"{number(db)} dB") for name, db in heads
    )
    if others:
        yield "SQNR of the rest", others
    shares = [
        f"{100 * share:.0f} % by {', '.join(short.get(member, member) for member in report.noise.on_grid(name))}"
        for name, share in report.costliest.items()
    ]
    if noise := "; ".join(shares) or report.noise.skipped:
        yield "most noise", noise
    if report.against_quantized is not None:
        yield "against the quantized model", report.against_quantized.sentence


def options(model: Model) -> list[tuple[str, str]]:
    """Lists the options of the conversion, as the file keeps them."""
    config = _json(model.metadata.get("config"))
    return [(key, "–" if value in (None, "", [], {}) else str(value)) for key, value in sorted(config.items())]


def _json(text: str | None) -> dict[str, Any]:
    """Reads the JSON of a file that anybody may have written."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def rows(subject: Subject) -> Iterator[dict[str, Any]]:
    """One row an op: the table of layers."""
    layers, model = subject.layers, subject.model
    steep = _steepest(subject)
    for i, op in enumerate(model.ops):
        layer, out = layers.get(op.name), model.tensors[op.outputs[0]]
        yield {
            "number": i,
            "name": op.name,
            "kind": op.kind,
            "shape": shape(out),
            "bits": "/".join(_bits(op, model)),
            "exponent": ends(out.exponents),
            "weights": _exponents_of_weights(op, model),
            "macs": scaled(op.macs) if op.macs else "–",
            "clipped": "–" if layer is None or layer.clipped is None else f"{100 * layer.clipped:.2f} %",
            "isolated": number(layer.sqnr_isolated if layer else None),
            "cumulative": number(layer.sqnr_cumulative if layer else None),
            "fall": number(layer.fall) if layer is not None and layer.fall else "–",
            "steep": op.name in steep,
            "colour": _sqnr_colour(layer),
        }


def _steepest(subject: Subject) -> list[str]:
    """The layers at which the cumulative SQNR falls most."""
    fallen = sorted((layer for layer in subject.layers.values() if layer.fall), key=lambda layer: -(layer.fall or 0))
    return [layer.name for layer in fallen[:STEEPEST]]


def levers(subject: Subject) -> list[dict[str, Any]]:
    """Lists the options to improve, the best first, and those that do not help, as they were measured."""
    measurements = subject.report.levers if subject.report else ()
    return [
        {
            "name": lever.name,
            "helps": lever.helps,
            "what": lever.words,
            "db": f"{lever.db:+.2f} dB" + ("" if lever.db_margin is None else f" ± {lever.db_margin:.2f}"),
            "agreement": "–" if lever.agreed is None else f"{lever.agreed:+d} of {lever.images}",
            "images": lever.images,
            "work": f"{100 * lever.work:+.1f} %",
            "instructions": f"{100 * lever.instructions:+.1f} %",
            "target": lever.target or "",
            "ram": f"{lever.ram:+,d} B",
            "flash": f"{lever.flash:+,d} B",
        }
        for lever in measurements
    ]


def shape(tensor: FileTensor) -> str:
    return "×".join(map(str, tensor.shape)) or "scalar"


def _exponents_of_weights(op: FileOp, model: Model) -> str:
    layer = layer_inputs(op.kind, op.inputs)
    return ends(model.tensors[layer[1]].exponents) if layer else "–"


def _bits(op: FileOp, model: Model) -> list[str]:
    read = layer_inputs(op.kind, op.inputs)[:2] or op.inputs[:1]
    widths = [model.tensors[i].dtype.removeprefix("int") for i in (*read, op.outputs[0])]
    return widths


def _sqnr_colour(layer: Layer | None) -> str:
    if layer is None or layer.sqnr_cumulative is None:
        return ""
    return charts.colour((min(layer.sqnr_cumulative, BEST_DB) - WORST_DB) / (BEST_DB - WORST_DB))


def sqnr_chart(subject: Subject) -> dict[str, Any] | None:
    """Isolated and cumulative SQNR by op, in a picture of 960 x 220."""
    layers = subject.layers
    measurements = [layers.get(op.name) for op in subject.model.ops]
    if not any(layer is not None and layer.sqnr_cumulative is not None for layer in measurements):
        return None
    width, height = 960.0, 220.0
    step = width / len(measurements)
    own = charts.line([layer.sqnr_isolated if layer else None for layer in measurements], width, height, TOP_DB)
    whole = charts.line([layer.sqnr_cumulative if layer else None for layer in measurements], width, height, TOP_DB)
    steep = set(_steepest(subject))
    marks = []
    for i, layer in enumerate(measurements):
        if layer is not None and layer.name in steep:
            at = min(max(layer.sqnr_cumulative or 0.0, 0.0), TOP_DB)
            marks.append((round((i + 0.5) * step, 1), round(height - at / TOP_DB * height, 1), layer.name, i))
    points = [
        {
            "x": round((i + 0.5) * step, 1),
            "name": op.name,
            "db": number(layer.sqnr_cumulative if layer else None),
            "own": number(layer.sqnr_isolated if layer else None),
        }
        for i, (op, layer) in enumerate(zip(subject.model.ops, measurements, strict=True))
    ]
    grid = [(db, round(height - db / TOP_DB * height, 1)) for db in range(0, int(TOP_DB) + 1, 20)]
    return {"own": own, "whole": whole, "marks": marks, "grid": grid, "last": len(measurements) - 1, "points": points}


def graph(subject: Subject) -> dict[str, Any]:
    """Inputs and ops with the lines between them."""
    model, layers = subject.model, subject.layers
    first = len(model.inputs)
    makers = {port.tensor: i for i, port in enumerate(model.inputs)}
    makers |= {tensor: first + i for i, op in enumerate(model.ops) for tensor in op.outputs}
    pairs = [(makers[i], first + n) for n, op in enumerate(model.ops) for i in dict.fromkeys(op.inputs) if i in makers]
    plan = layout(first + len(model.ops), pairs)
    seen = [t.exponents[0] for t in model.tensors if t.data is None and t.exponents]
    low, high = min(seen, default=0), max(seen, default=0)
    noise = subject.report.noise.shares if subject.report else {}
    seconds = {time.first + time.count - 1: time.seconds for time in subject.times}
    whole = sum(noise.values()) or 1.0
    loudest, slowest = max(noise.values(), default=0.0) or 1.0, max(seconds.values(), default=0.0) or 1.0
    boxes = []
    for i, (x, y) in enumerate(plan.places):
        op = model.ops[i - first] if i >= first else None
        tensor = model.tensors[op.outputs[0] if op else model.inputs[i].tensor]
        layer = layers.get(op.name) if op else None
        words = [shape(tensor), tensor.dtype, f"exponent {told_exponents(tensor)}"]
        if layer is not None and layer.sqnr_cumulative is not None:
            words.append(f"{number(layer.sqnr_cumulative)} dB, alone {number(layer.sqnr_isolated)} dB")
        fractions = {
            "width": 1.0 if tensor.dtype == "int16" else 0.0,
            "exponent": (tensor.exponents[0] - low) / ((high - low) or 1),
        }
        if tensor.name in noise:
            words.append(f"{100 * noise[tensor.name] / whole:.0f} % of the noise")
            fractions["noise"] = 1 - noise[tensor.name] / loudest
        if i - first in seconds:
            words.append(f"{seconds[i - first] * 1e6:.3g} us")
            fractions["time"] = 1 - seconds[i - first] / slowest
        boxes.append(
            Box(
                round(x, 1),
                round(y, 1),
                op.kind if op else "input",
                op.name if op else model.inputs[i].name,
                shape(tensor),
                ", ".join(words),
                str(i - first) if op else "",
                {"sqnr": _sqnr_colour(layer), **{name: charts.colour(x) for name, x in fractions.items()}},
            )
        )
    known = {name for box in boxes for name, colour in box.colours.items() if colour}
    scale = {
        "sqnr": ("SQNR", f"SQNR {WORST_DB:.0f} to {BEST_DB:.0f} dB"),
        "noise": ("noise share", f"noise {100 * loudest / whole:.0f} to 0 %"),
        "width": ("width", "int8 to int16"),
        "exponent": ("exponent", f"exponent {low} to {high}"),
        "time": ("time", f"time {slowest * 1e6:.3g} to 0 us"),
    }
    scale = {name: words_of for name, words_of in scale.items() if name in known}
    size = {"width": plan.width, "height": plan.height, "box": BOX, "tall": HEIGHT}
    return {"boxes": boxes, "edges": plan.edges, "scale": scale, **size}


def memory(subject: Subject) -> dict[str, Any] | None:
    """Tensors as rectangles: steps to the right, bytes upwards."""
    plan, model = subject.memory, subject.model
    if plan is None:
        return None
    step = MEMORY_WIDTH / len(plan.steps)
    peak = plan.steps[plan.peak]
    return {
        "rectangles": _tensors(plan, model),
        "scratch": _scratch(plan, model),
        "peak_x": round((plan.peak + 0.5) * step, 1),
        "peak_w": round(step, 1),
        "peak": plan.peak,
        "op": model.ops[plan.peak],
        "alive": [(model.tensors[i].name, model.tensors[i].nbytes) for i in peak.live],
        "arena": model.arena_bytes,
        "bound": plan.lower_bound,
        "with_scratch": plan.with_scratch,
        "height": MEMORY_HEIGHT,
        "steps": len(plan.steps),
    }


def _tensors(plan: Memory, model: Model) -> list[dict[str, Any]]:
    """Activations over the steps that they are alive at."""
    steps, size = len(plan.steps), max(plan.with_scratch, 1)
    step = MEMORY_WIDTH / steps
    rectangles = []
    for life in plan.lives:
        tensor = model.tensors[life.tensor]
        start, stop = max(life.first, 0), min(life.last, steps - 1)
        y, tall = (tensor.offset or 0) / size * MEMORY_HEIGHT, max(tensor.nbytes / size * MEMORY_HEIGHT, 1.0)
        rectangles.append(
            {
                "x": round(start * step, 1),
                "y": round(MEMORY_HEIGHT - y - tall, 1),
                "w": round(max((stop - start + 1) * step - 0.6, 0.6), 1),
                "h": round(tall, 1),
                "peak": life.alive(plan.peak),
                "op": max(life.first, 0),
                "title": f"{tensor.name}: {tensor.nbytes} bytes at {tensor.offset}, steps {life.first} to {life.last}",
            }
        )
    return rectangles


def _scratch(plan: Memory, model: Model) -> list[dict[str, Any]]:
    """Scratch memory of ops while they run."""
    step, size = MEMORY_WIDTH / len(plan.steps), max(plan.with_scratch, 1)
    rectangles = []
    for i, moment in enumerate(plan.steps):
        if moment.scratch:
            tall = max(moment.scratch / size * MEMORY_HEIGHT, 0.8)
            y = MEMORY_HEIGHT - moment.end / size * MEMORY_HEIGHT - tall
            box = {"x": round(i * step, 1), "y": round(y, 1), "w": round(max(step - 0.6, 0.6), 1), "h": round(tall, 1)}
            rectangles.append({**box, "title": f"{moment.scratch:,} bytes of scratch of {model.ops[i].name}"})
    return rectangles


def activations(subject: Subject) -> Iterator[dict[str, Any]]:
    """Histograms of all activations of which something was seen."""
    for tensor in subject.model.tensors:
        bars = subject.bars.get(tensor.name)
        if tensor.data is not None or bars is None:
            continue
        step = math.ldexp(1.0, tensor.exponents[0])
        clip = (tensor.clip_min * step + tensor.origin, tensor.clip_max * step + tensor.origin)
        yield {
            "name": tensor.name,
            "drawn": charts.histogram(bars, clip, step),
            "type": tensor.dtype,
            "exponent": told_exponents(tensor),
            "clip": f"{clip[0]:.4g} to {clip[1]:.4g}",
            "seen": f"{bars.edges[0]:.4g} to {bars.edges[-1]:.4g}",
            "origin": f"{tensor.origin:.4g}" if tensor.origin else "",
        }


def weights(subject: Subject) -> Iterator[dict[str, Any]]:
    """Weights per output channel and biases of every op that has some."""
    model = subject.model
    for i, op in enumerate(model.ops):
        layer = layer_inputs(op.kind, op.inputs)
        if not layer:
            continue
        w, b, y = (model.tensors[i] for i in (*layer[1:3], op.outputs[0]))
        if w.data is None or b.data is None:
            continue
        flat = w.data.reshape(w.shape[0], -1).astype(np.float64)
        real = np.ldexp(flat, np.broadcast_to(np.array(w.exponents), w.shape[0])[:, np.newaxis])
        bias = b.data.ravel().astype(np.int64)
        yield {
            "number": i,
            "name": op.name,
            "weights": charts.spread(list(real.min(1)), list(real.max(1))),
            "type": w.dtype,
            "exponents": ends(w.exponents),
            "bias": charts.spread(list(np.minimum(bias, 0)), list(np.maximum(bias, 0))),
            "bias_type": b.dtype,
            "bias_range": f"{bias.min()} to {bias.max()}",
            "grid": f"2^{y.exponents[0]} ({y.dtype}, {y.clip_min} to {y.clip_max})",
        }


def times(subject: Subject) -> list[dict[str, Any]]:
    total = sum(op.seconds for op in subject.times) or 1.0
    longest = max((op.seconds for op in subject.times), default=1.0)
    return [
        {
            "number": op.first,
            "kind": op.kind,
            "name": op.name,
            "us": f"{1e6 * op.seconds:.1f}",
            "share": f"{100 * op.seconds / total:.1f} %",
            "bar": round(100 * op.seconds / longest, 1),
            "rate": scaled(op.macs / op.seconds) if op.macs and op.seconds else "–",
        }
        for op in subject.times
    ]
