"""Noise of a case's own arithmetic: the bounds that conversions are held against are computed, not listed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fuzz_models.case import Arrays, Case, Node, run_model

ULP = 2.0**-23
DRAWS = 2
HEADROOM = 2.0  # of a 16-bit grid above the largest value seen

ROOM_MAX = 16.0
# Results are up to 1 on other samples, whatever they were on these: 16 bits hold that.
UNIT = ("HardSigmoid", "Softmax")
UNIT_STEP = 2.0**-15

# (tensor, the name of its old value, that value) -> nodes that make its new one, and their constants.
Change = Callable[[str, str, np.ndarray], tuple[list[Node], Arrays]]


def sqnr(wanted: np.ndarray, got: np.ndarray) -> float:
    """10 log10(sum wanted^2 / sum (wanted - got)^2) in dB; -inf for what is not finite or where nothing was wanted."""
    if wanted.size != got.size:
        return -math.inf
    wanted, got = wanted.astype(np.float64).ravel(), got.astype(np.float64).ravel()
    with np.errstate(all="ignore"):
        noise, signal = float(np.sum((wanted - got) ** 2)), float(np.sum(wanted**2))
    if not math.isfinite(noise):
        return -math.inf
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def worst(wanted: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {name: sqnr(x, got[name]) for name, x in wanted.items()}


def float_noise(case: Case, wanted: Arrays, values: Arrays) -> dict[str, float]:
    """SQNR in dB by output where every tensor and constant is off by at most one unit of float32's last place.

    That is what any rearrangement of the arithmetic may do: the rounding of each intermediate result is random.
    InstanceNormalization is x * s - mean * s in onnxruntime, and both products are rounded. Its Sigmoid is rounded to a
    unit of 1, however small it is. Its LRN carries one sum of squares along the channels: the largest square is rounded
    into all that follow. DFT and STFT sum all of a line, so their results are off by a unit of the largest.
    """
    makers = case.makers()
    lowest = dict.fromkeys(wanted, math.inf)
    for seed in range(DRAWS):
        noise = np.random.default_rng(seed)

        def change(
            name: str, source: str, x: np.ndarray, noise: np.random.Generator = noise
        ) -> tuple[list[Node], Arrays]:
            factor = (1 + noise.uniform(-ULP, ULP, x.shape)).astype(x.dtype)
            node = makers.get(name)
            if node is not None and node.kind == "LRN":
                factor *= 1 + (_carried(node, values | case.feeds) * noise.uniform(-ULP, ULP, x.shape)).astype(x.dtype)
            if node is None or node.kind not in ("DFT", "InstanceNormalization", "STFT", "Sigmoid"):
                return [Node("Mul", (source, f"{name}/noise"), (name,))], {f"{name}/noise": factor}
            if node.kind == "InstanceNormalization":
                largest = _scaled(case, node, values)
            else:
                largest = 1.0 if node.kind == "Sigmoid" else float(np.abs(x).max())
            product = largest * noise.uniform(-ULP, ULP, x.shape)
            moved = [Node("Mul", (source, f"{name}/a/noise"), (f"{name}/moved",))]
            moved.append(Node("Add", (f"{name}/moved", f"{name}/b/noise"), (name,)))
            return moved, {f"{name}/a/noise": factor, f"{name}/b/noise": product.astype(x.dtype)}

        ratios = worst(wanted, _changed(case, values, change, True))
        lowest = {name: min(db, ratios[name]) for name, db in lowest.items()}
    return lowest


def _scaled(case: Case, node: Node, values: Arrays) -> np.ndarray:
    """x * s of an InstanceNormalization: [n, N, C, ...]."""
    x = (values | case.feeds)[node.inputs[0]].astype(np.float64)
    scale = {**values, **case.constants}[node.inputs[1]].astype(np.float64)
    var = x.var(axis=tuple(range(3, x.ndim)), keepdims=True)
    s = scale.reshape(-1, *[1] * (x.ndim - 3)) / np.sqrt(var + node.attributes.get("epsilon", 1e-5))
    return np.asarray(x * s)


def _carried(node: Node, values: Arrays) -> np.ndarray:
    """Errors of an LRN's results by one of the largest square [n, N, 1, ...], in shares of them."""
    p = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0, **node.attributes}
    squares = values[node.inputs[0]].astype(np.float64) ** 2
    around = [(0, 0)] * squares.ndim
    around[2] = ((p["size"] - 1) // 2, p["size"] // 2)
    sums = np.lib.stride_tricks.sliding_window_view(np.pad(squares, around), p["size"], axis=2).sum(axis=-1)
    share = p["alpha"] / p["size"]
    return np.asarray(p["beta"] * share * squares.max(axis=2, keepdims=True) / (p["bias"] + share * sums))


def rounded(
    case: Case, wanted: Arrays, values: Arrays, steps: Mapping[str, float], *, inputs_only: bool
) -> dict[str, float]:
    """SQNR in dB by output with inputs, or all activations, rounded to 16-bit grids: those of steps, or with HEADROOM.

    steps: of tensors to which the converter left more room, up to ROOM_MAX, as it does with few samples, or that share
    the grid of a larger one. The lowest of rounding, of DRAWS of noise within half a step of all that is not 0, and of
    rounding where biases make up for what layers lose on average: numbers may happen to lie on grids, and rows that
    lose nothing, those of zeros, have the others' correction.
    """
    ideal = {name: _step(seen) for name, seen in values.items() if seen.dtype.kind == "f" and seen.size}
    ideal |= {name: UNIT_STEP for name, node in case.makers().items() if node.kind in UNIT and name in ideal}
    # Of tensors whose names passes did not keep: that of the inputs.
    room = max((steps.get(name, 0.0) / ideal[name] for name in case.feeds if name in ideal), default=1.0)
    taken = {name: min(max(s, steps.get(name, s * room)), s * ROOM_MAX / HEADROOM) for name, s in ideal.items()}
    ways = [_on_grids(taken, {}), *(_near_grids(taken, np.random.default_rng(seed)) for seed in range(DRAWS))]
    moved = Arrays()
    for name, axis in {} if inputs_only else biases(case).items():
        [got] = _changed(replace(case, outputs=(f"{name}/raw",)), values, _on_grids(taken, moved), False).values()
        moved = {**moved, name: _mean(values[name] - got, axis)}
    if moved:
        ways.append(_on_grids(taken, moved))
    ratios = [worst(wanted, _changed(case, values, way, False, inputs_only=inputs_only)) for way in ways]
    return {name: min(db[name] for db in ratios) for name in wanted}


def biases(case: Case) -> dict[str, int]:
    """Results of layers that have a bias, in the order of the case, and their axis of channels in [n, ...]."""
    makers, axes = case.makers(), dict[str, int]()
    for node in case.nodes:
        kinds = [makers[name].kind for name in node.inputs if name in makers]
        if node.kind in ("Conv", "ConvTranspose") and len(node.inputs) == 3:
            axes[node.outputs[0]] = 2
        elif (node.kind == "Gemm" and len(node.inputs) == 3) or (
            node.kind == "Add" and "MatMul" in kinds and any(name in case.constants for name in node.inputs)
        ):
            axes[node.outputs[0]] = -1
    return axes


def _mean(off: np.ndarray, axis: int) -> np.ndarray:
    """By channel, for each sample: [n, 1, ..., C, ..., 1]."""
    mean = off.mean(axis=tuple(i for i in range(off.ndim) if i != axis % off.ndim), keepdims=True)
    return np.repeat(mean, len(off), axis=0)


def _on_grids(steps: Mapping[str, float], moved: Arrays) -> Change:
    """Rounds, first adding what is to be moved."""

    def change(name: str, source: str, x: np.ndarray) -> tuple[list[Node], Arrays]:
        a, b, c, shifted = (f"{name}/{part}" for part in ("scaled", "halves", "floor", "shifted"))
        step, more = steps[name], f"{name}/noise"
        parts = {"inverse": 1 / step, "half": 0.5, "step": step}
        arrays = {f"{name}/{part}": np.asarray(number, x.dtype) for part, number in parts.items()}
        nodes = [
            Node("Mul", (shifted if name in moved else source, f"{name}/inverse"), (a,)),
            Node("Add", (a, f"{name}/half"), (b,)),
            Node("Floor", (b,), (c,)),
            Node("Mul", (c, f"{name}/step"), (name,)),
        ]
        if name in moved:
            return [Node("Add", (source, more), (shifted,)), *nodes], arrays | {more: moved[name].astype(x.dtype)}
        return nodes, arrays

    return change


def _near_grids(steps: Mapping[str, float], chance: np.random.Generator) -> Change:
    """Adds noise within half a step."""

    def change(name: str, source: str, x: np.ndarray) -> tuple[list[Node], Arrays]:
        off = chance.uniform(-steps[name] / 2, steps[name] / 2, x.shape)
        off = np.where(np.abs(off) < np.abs(x), off, np.abs(off) * np.sign(x))  # no logarithm of less than 0
        return [Node("Add", (source, f"{name}/noise"), (name,))], {f"{name}/noise": off.astype(x.dtype)}

    return change


def _step(x: np.ndarray) -> float:
    """The step of the 16-bit grid that holds this with HEADROOM."""
    return float(2.0 ** (math.ceil(math.log2(HEADROOM * max(float(np.abs(x).max()), 1e-30))) - 15))


def _changed(
    case: Case, values: Arrays, change: Change, constants: bool, *, inputs_only: bool = False
) -> dict[str, np.ndarray]:
    """The outputs where each float tensor goes through `change` once; all readers see the same."""
    nodes: list[Node] = []
    extra: Arrays = {}
    feeds = {f"{name}/raw": x for name, x in case.feeds.items()}

    def put(name: str, source: str, x: np.ndarray, *, computed: bool = True) -> None:
        """Arrays for computed tensors are inputs of the model."""
        fresh, arrays = change(name, source, x)
        nodes.extend(fresh)
        many = {key: array for key, array in arrays.items() if computed and array.ndim}
        feeds.update(many)
        extra.update({key: array for key, array in arrays.items() if key not in many})

    for name, x in case.feeds.items():
        put(name, f"{name}/raw", x)
    fixed = {name: x for name, x in case.constants.items() if not constants or x.dtype.kind != "f"}
    for name, x in case.constants.items():
        if name not in fixed:
            fixed[f"{name}/raw"] = x
            put(name, f"{name}/raw", x, computed=False)
    for node in case.nodes:
        after = [] if inputs_only else [n for n in node.outputs if n and n in values and values[n].dtype.kind == "f"]
        nodes.append(replace(node, outputs=tuple(f"{n}/raw" if n in after else n for n in node.outputs)))
        for name in after:
            put(name, f"{name}/raw", values[name])
    changed = Case(case.opset, tuple(nodes), fixed | extra, feeds, case.outputs)
    try:
        model = changed.model()
        for value in model.graph.input:
            if value.name.endswith("/noise"):  # onnx infers other shapes for some windows than onnxruntime has
                value.type.tensor_type.ClearField("shape")
        return run_model(model, feeds, case.outputs)
    except Exception:  # a constant that must stay as it is, such as the scales of a Resize
        if not constants:
            raise
    return _changed(case, values, change, False, inputs_only=inputs_only)
