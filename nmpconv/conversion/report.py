"""Report of a conversion, layer by layer, in numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from nmpconv.base import fixed_point
from nmpconv.base.quantities import NOTHING, db, decibels, percent, scaled
from nmpconv.base.sqnr import gain, sqnr_db
from nmpconv.base.summary import Chart, Summarized, Summary
from nmpconv.base.thread_pool import each
from nmpconv.base.verdict import Footprint, Quality, Verdict, widths
from nmpconv.calib import activation_cache as calibration
from nmpconv.calib.activation_cache import Evidence, Feeds
from nmpconv.calib.exponent_search import Function
from nmpconv.calib.noise_budget import Noise, budget
from nmpconv.calib.sampled_rows import Rows
from nmpconv.conversion.candidates import Candidate
from nmpconv.conversion.node_runner import step
from nmpconv.conversion.quantized_model import AgainstQuantized
from nmpconv.conversion.quantizer import Prepared
from nmpconv.conversion.sensitivity import Lever
from nmpconv.conversion.validation import LARGE, TOGETHER, Score, integer_outputs
from nmpconv.graph.reference import walk
from nmpconv.ir import Given, Graph, Node, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.common.accumulate import weight_shifts
from nmpconv.ops.common.overlap import BANDS_MAX
from nmpconv.ops.op import quant_of
from nmpconv.passes import residual_operands
from nmpconv.passes.memory.plan_memory import lower_bound, peak
from nmpconv.passes.memory.two_memories import slow_traffic
from nmpconv.passes.quantize import bias_rule, table_readers
from nmpconv.passes.quantize.matrix_form import samples
from nmpconv.passes.quantize.shared_grids import grid_groups

REPORT_IMAGES = 16  # that it is measured on
LOUD = 0.05  # of the noise: the share of a tensor that is looked for in a large net
ENOUGH_DB = 40.0  # what lies above is what one rounding to 8 bits costs
COSTLIEST = 3  # tensors that are named
MOST_HEADS, LOWEST_HEADS = 8, 5  # heads that are all named; of more, those that are
JSON_KEYS = {"sqnr_by_head": "sqnr_db"}  # those that differ from the names of the fields


@dataclass(frozen=True)
class Layer:
    """One node. Bits and exponents of its first input, weights and output; (min, max) where they are per channel.

    clipped: fraction of the float outputs that lie beyond the grid (not counting a fused activation).
    sqnr_isolated: dB of rounding the float output to its grid; sqnr_cumulative: dB of the integer output, with all
    errors before it; both after the tables where nothing else reads it. fall: by how many dB that is less than at the
    worst of its inputs. None where there were no images. channels: outputs of an op with weights, else 0.
    """

    name: str
    op: str
    bits: tuple[int, int | None, int]
    exponent_in: int
    exponent_weights: tuple[int, int] | None
    exponent_out: int
    shift: tuple[int, int] | None
    bias: tuple[int, int] | None
    bias_bits: int | None
    channels: int
    macs: int
    clipped: float | None = None
    sqnr_isolated: float | None = None
    sqnr_cumulative: float | None = None
    fall: float | None = None


@dataclass(frozen=True)
class Legalized:
    """A tensor whose grid the model gave, and the power-of-two grid that it has now.

    Ranges are in the units of this graph: equalization may have scaled the tensor. bits_lost: log2 of how much coarser
    the steps are; negative where they are finer.
    """

    name: str
    dtype: str
    scale: float
    zero_point: int
    range: tuple[float, float]
    bits: int
    exponent: int
    new_range: tuple[float, float]
    bits_lost: float

    @staticmethod
    def of(value: Value, grid: Given) -> Legalized:
        quant = quant_of(value)
        ends = (math.ldexp(quant.lo, quant.exponent), math.ldexp(quant.hi, quant.exponent))
        lost = quant.exponent - math.log2(grid.scale)
        model_range = (grid.min, grid.max)
        return Legalized(
            value.name, grid.dtype, grid.scale, grid.zero_point, model_range, quant.bits, quant.exponent, ends, lost
        )


@dataclass(frozen=True, repr=False)
class Report(Summarized):
    """Totals, and one Layer a node.

    sqnr_by_head: dB of the heads (outputs, before a final Softmax) by name. bias_rule_cost_db: how much more it would
    be with biases on s_x * s_w, the mean over the heads. arena_bytes: activations; arena_lower_bound: their least peak.
    memories: bytes of them in a fast memory, bytes that ops move in the slow one, and the least of that; None: one.
    dropped: what no result depends on and is not in the file. banded_macs: what bands of rows compute twice.
    window_macs: of the whole window, where the file is the step of a stream.
    legalized: of a model that was quantized before. float_db: of the float graph against the ONNX model in onnxruntime,
    at the output where it is worst, and the least that was required; None without a comparison. against_quantized: of a
    model that was quantized before, the outputs beside its own, rounding and all. held_out: on
    validation images, see `nmpconv.conversion.verdict_samples`. noise: where that at the heads comes from. quality: of
    validation images, and footprint: of the file, for the verdict. warnings: for people. front: what
    `nmpconv.conversion.mixed_precision` had the choice of. levers: what would help most, measured on images that it was
    not fitted to; none where that was not asked for.
    """

    quantized_nodes: int
    total_nodes: int
    arena_bytes: int
    arena_lower_bound: int
    macs: int
    layers: tuple[Layer, ...]
    file_bytes: int = 0
    recipe: str = ""
    notes: tuple[str, ...] = ()
    sqnr_by_head: Mapping[str, float] = field(default_factory=dict)
    bias_rule_cost_db: float | None = None
    dropped_channels: int = 0
    dropped_macs: int = 0
    banded_macs: int = 0
    window_macs: int = 0
    legalized: tuple[Legalized, ...] = ()
    float_db: float | None = None
    float_required_db: float | None = None
    against_quantized: AgainstQuantized | None = None
    held_out: Score | None = None
    noise: Noise = field(default_factory=Noise)
    quality: Quality = field(default_factory=Quality)
    footprint: Footprint | None = None
    warnings: tuple[str, ...] = ()
    front: tuple[Candidate, ...] = ()
    levers: tuple[Lever, ...] = ()
    memories: tuple[int, int, int] | None = None

    @staticmethod
    def of(graph: Graph) -> Report:
        """Report of a planned graph, without measurements."""
        layers = _layers_of(graph)
        quantized = sum(all(v.quant for v in graph.outs(node)) for node in graph.nodes)
        return Report(
            quantized,
            len(graph.nodes),
            peak(graph),
            _lower_bound(graph),
            sum(layer.macs for layer in layers),
            layers,
            legalized=tuple(Legalized.of(v, graph.given[v.name]) for v in graph.activations() if v.name in graph.given),
            memories=_memories(graph),
        )

    @property
    def costliest(self) -> dict[str, float]:
        """The tensors that make most of the noise at the heads, as shares of all shares; empty where not known.

        Shares that print as 0 % are left out.
        """
        shares = list(self.noise.shares.items())
        whole = sum(share for _, share in shares)
        first = [(name, share / whole) for name, share in shares[:COSTLIEST] if share]
        return dict(first[:1]) | {name: share for name, share in first[1:] if share >= 0.005}

    @property
    def shown_heads(self) -> tuple[list[tuple[str, float]], str]:
        """SQNR of the heads that tables show, and a phrase about the others: of many heads the lowest come first."""
        heads = list(self.sqnr_by_head.items())
        if len(heads) <= MOST_HEADS:
            return heads, ""
        heads.sort(key=lambda head: head[1])
        others = heads[LOWEST_HEADS:]
        low, high = decibels(others[0][1]), decibels(others[-1][1])
        return heads[:LOWEST_HEADS], f"{len(others)} other outputs: {low} to {high}"

    @property
    def steepest(self) -> Layer | None:
        """The layer at which the cumulative SQNR falls most; None without images, or where it never falls.

        It tells what is lost, not what of that reaches the heads: see `noise`.
        """
        fallen = [layer for layer in self.layers if layer.fall]
        return max(fallen, key=lambda layer: layer.fall or 0.0, default=None)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the conversion."""
        return Verdict(widths([layer.bits[2] for layer in self.layers]), self.quality, self.footprint)

    def summary(self) -> Summary:
        rows = [
            (
                layer.name,
                layer.op,
                "/".join(str(n) for n in layer.bits if n is not None),
                scaled(layer.macs).strip() if layer.macs else NOTHING,
                percent(layer.clipped),
                db(layer.sqnr_isolated),
                db(layer.sqnr_cumulative),
            )
            for layer in self.layers
        ]
        verdict = self.verdict
        tiles = [*verdict.tiles, ("work", f"{scaled(self.macs)}MAC"), ("recipe", self.recipe)]
        columns = ("layer", "op", ">bits", ">MACs", ">clipped", ">own dB", ">dB")
        return Summary("Report", verdict.sentence, tiles, "layers", columns, rows, self.warnings, verdict.word)

    def records(self) -> list[dict[str, Any]]:
        return [asdict(layer) for layer in self.layers]

    def chart(self) -> Chart:
        known = [layer for layer in self.layers if layer.sqnr_cumulative is not None] or self.layers
        return Chart("SQNR in dB", [layer.name for layer in known], [layer.sqnr_cumulative for layer in known])

    def of_file(self, slim: Graph, step: Graph, planned: Graph) -> Report:
        """The same measurements, with the sizes of the graph that is written.

        slim: the measured graph, from which channels may be gone; step: that, or what a call of a stream computes;
        planned: in bands where RAM is short.
        """
        sizes, thin = Report.of(planned), _layers_of(slim)
        thin_macs = sum(layer.macs for layer in thin)
        call_macs = thin_macs if step is slim else sum(_macs(step, node) for node in step.nodes)
        pairs = list(zip(self.layers, thin, strict=True))
        return replace(
            self,
            arena_bytes=sizes.arena_bytes,
            arena_lower_bound=sizes.arena_lower_bound,
            macs=sizes.macs,
            memories=sizes.memories,
            layers=tuple(replace(old, channels=new.channels, macs=new.macs) for old, new in pairs),
            dropped_channels=sum(old.channels - new.channels for old, new in pairs),
            dropped_macs=self.macs - thin_macs,
            banded_macs=sizes.macs - call_macs,
            window_macs=thin_macs if call_macs < thin_macs else 0,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data; a figure that is infinite (no error at all) becomes None."""
        plain = asdict(self) | {"held_out": None if self.held_out is None else self.held_out.to_json()}
        del plain["quality"], plain["footprint"]
        named = {JSON_KEYS.get(name, name): value for name, value in plain.items()}
        return _finite({"verdict": self.verdict.to_json(), **named})


def measure(
    prepared: Prepared,
    planned: Graph,
    images: Feeds,
    outputs: Callable[[Feeds], Mapping[str, np.ndarray]],
    *,
    seen: Mapping[str, np.ndarray] | None = None,
    outputs_alone: bool = False,
) -> Report:
    """The report of a planned graph, measured on the first images that it was fitted to (none: without measurements).

    What others get is `Report.held_out`. outputs: the float model's `heads` on images. seen: what the graph gives
    there, on all of them, where that is known. outputs_alone: neither layers nor where the noise comes from.
    """
    report = Report.of(planned)
    if not len(images):
        return report
    images = images[:REPORT_IMAGES]
    wanted = outputs(images)
    names = list(wanted)
    known = {name: x[: len(wanted[name])] for name, x in (seen or {}).items()}
    got = known or integer_outputs(planned, images, names)
    report = replace(report, sqnr_by_head={name: sqnr_db(wanted[name], got[name]) for name in names})
    if outputs_alone:
        return report
    large = sum(value.size for value in planned.values.values() if value.is_const) >= LARGE
    grids, session = grid_groups(prepared.ranged), partial(prepared.switched, names)
    tasks: list[Callable[[], Any]] = [
        partial(_bias_rule_cost, prepared.evidence, planned, wanted, got),
        partial(_layers, prepared.ranged, planned, report.layers, images),
        partial(budget, prepared.ranged, grids, names, images, least=LOUD, session=session),
    ]
    cost, layers, noise = each(lambda make: make(), tasks, 1 if large else TOGETHER)
    return replace(report, layers=layers, bias_rule_cost_db=cost, noise=noise)


def _layers(ranged: Graph, planned: Graph, layers: Sequence[Layer], images: Feeds) -> tuple[Layer, ...]:
    rows = calibration.collect(ranged, images, [node.op for node in ranged.nodes])
    return _measured(planned, layers, rows, table_readers.after(ranged))


def _bias_rule_cost(
    evidence: Evidence, planned: Graph, wanted: Mapping[str, np.ndarray], ours: Mapping[str, np.ndarray]
) -> float | None:
    """Cost of the bias rule, if that can be simulated, in dB: on images that the biases were fitted on, so both sides
    are measured there. wanted, ours: the heads on the first ones."""
    fitted = evidence.first(REPORT_IMAGES)
    weighted = [node.outputs[0] for node in planned.nodes if node.op in WEIGHTED]
    if any(planned[n].shape[:1] != (1,) for n in planned.inputs) or any(n not in fitted.rows for n in weighted):
        return None
    other = bias_rule.outputs(planned, fitted, list(wanted), step)
    costs = [0.0] * (len(wanted) - len(other))  # of heads that no op makes
    for name in other:
        quant = quant_of(planned[name])
        theirs = np.ldexp(other[name].astype(np.float64), quant.exponent)
        costs.append(gain(sqnr_db(wanted[name], theirs), sqnr_db(wanted[name], ours[name])))
    return float(np.mean(costs))


def _measured(
    graph: Graph, layers: Sequence[Layer], seen: Evidence, functions: Mapping[str, Sequence[Function]]
) -> tuple[Layer, ...]:
    rows = seen.rows
    env = seen.on_grids(graph)
    reached: dict[str, float] = {}
    result = []
    for node, layer in zip(walk(graph, env), layers, strict=True):
        env.update(step(graph, node, env))
        out = node.outputs[0]
        before = min((reached[name] for name in node.inputs if name in reached), default=ENOUGH_DB)
        reached.update(dict.fromkeys(node.outputs, before))
        if out in rows:
            layer = _with_errors(layer, graph, out, env[out], rows[out], functions.get(out, ()))
            assert layer.sqnr_cumulative is not None
            if OPS[node.op].grid == "free":  # what only moves data is measured at other places, and adds no error
                reached[out] = min(max(layer.sqnr_cumulative, 0.0), ENOUGH_DB)
                layer = replace(layer, fall=max(before - reached[out], 0.0))
        result.append(layer)
    return tuple(result)


def _with_errors(
    layer: Layer, graph: Graph, out: str, q: np.ndarray, rows: Rows, functions: Sequence[Function]
) -> Layer:
    """Measured in the float model's own numbers. functions: of the tables that are the only readers."""
    quant, origin = quant_of(graph[out]), graph[out].origin
    low, high = graph[out].clamp or (-math.inf, math.inf)
    wanted = np.clip(rows.values.astype(np.float64), low, high)
    grid = np.ldexp(wanted, -quant.exponent)
    clipped = float(np.mean((grid > quant.hi + 0.5) | (grid < quant.lo - 0.5)))
    isolated = np.ldexp(
        fixed_point.quantize(wanted, quant.exponent, quant.lo, quant.hi).astype(np.float64), quant.exponent
    )
    seen = q.reshape(samples(graph, out, q), -1, rows.values.shape[-1])[rows.images, rows.positions]
    got = np.ldexp(seen.astype(np.float64), quant.exponent)
    wanted, isolated, got = (
        np.stack([function(x) for function in functions]) if functions else x + origin for x in (wanted, isolated, got)
    )
    return replace(
        layer, clipped=clipped, sqnr_isolated=sqnr_db(wanted, isolated), sqnr_cumulative=sqnr_db(wanted, got)
    )


def _layers_of(graph: Graph) -> tuple[Layer, ...]:
    """Layers of an integer graph, without measurements."""
    sums = residual_operands.found(graph)  # whose layers' results nobody stores
    held = {name: graph[residual.add.outputs[0]] for name, residual in sums.items()}
    return tuple(_layer(graph, node, held.get(node.outputs[0])) for node in graph.nodes)


def _layer(graph: Graph, node: Node, held: Value | None) -> Layer:
    """held: what is stored in the place of the node's output."""
    x, y = quant_of(graph[node.inputs[0]]), quant_of(graph[node.outputs[0]])
    w = b = shifts = None
    if node.op in WEIGHTED:
        w, b = graph[node.inputs[1]], graph[node.inputs[2]]
    stored = y.bits if held is None or held.quant is None else held.quant.bits
    bits: tuple[int, int | None, int] = (x.bits, None, stored)
    if w is not None and w.quant is not None:
        bits = (x.bits, w.quant.bits, stored)
        by_channel = weight_shifts(x, w.quant, y, w.shape[0])
        shifts = (int(by_channel.min()), int(by_channel.max()))
    return Layer(
        name=node.name,
        op=node.op,
        bits=bits,
        exponent_in=x.exponent,
        exponent_weights=(min(w.quant.exponents), max(w.quant.exponents)) if w is not None and w.quant else None,
        exponent_out=y.exponent,
        shift=shifts,
        bias=(int(b.data.min()), int(b.data.max())) if b is not None and b.data is not None and b.quant else None,
        bias_bits=b.quant.bits if b is not None and b.quant else None,
        channels=0 if w is None else w.shape[0],
        macs=_macs(graph, node),
    )


def _macs(graph: Graph, node: Node) -> int:
    return OPS[node.op].macs(node.params, graph.ins(node), graph.outs(node))


def _memories(graph: Graph) -> tuple[int, int, int] | None:
    """Bytes of the fast memory, and what is moved in the slow one, and the least of that."""
    return (graph.fast_bytes, slow_traffic(graph), graph.least_slow) if graph.fast_bytes else None


def _lower_bound(graph: Graph) -> int:
    """Lower bound of RAM, of tensors apart, or where some overlap: of those; 0 of a graph without places."""
    if any(value.offset is None for value in graph.activations()):
        return 0
    apart = lower_bound(graph)
    return apart if peak(graph) >= apart else lower_bound(graph, bands=BANDS_MAX)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
