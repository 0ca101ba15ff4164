"""Repeats a conversion from the metadata of its file: the conversion again, as far as the file tells it, with the
file's own grids and integers.

A conversion is deterministic, so the same model, data and choices give the float graph that the file's integers stand
for, with the numbers that equalization gave it. The file has the choices, but for what a recipe says beyond bits,
exponents and origins; and grids and weights, which may be other ones than this conversion would choose.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from nmpconv.base.files import read_file
from nmpconv.base.progress import Progress
from nmpconv.base.workers import Here
from nmpconv.conversion import recipes
from nmpconv.conversion.calibration import Calibrated, calibrate, import_model
from nmpconv.conversion.context import Context
from nmpconv.conversion.option_types import is_allowed, option_flag
from nmpconv.conversion.options import Options
from nmpconv.conversion.quantizer import Fitter, Prepared, Recipe
from nmpconv.data.samples import Data, Samples, spread
from nmpconv.errors import InputError
from nmpconv.file.reader import FilePort, FileTensor, Model
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph, Quant
from nmpconv.ops import WEIGHTED, layer_inputs
from nmpconv.passes.quantize.overrides import Choices, Row, Said

IMAGES = 32  # that all is measured on
OTHER_NUMBERS = 0.02  # by how much the size of a layer's weights may differ, before they are not those of the file
PLACE = "the file"


@dataclass(frozen=True)
class Rebuilt:
    """floats: the float graph with the file's grids. integers: the same with the file's constants, which the nodes of
    ``floats`` have names for, too. chosen: with the grids that would be chosen anew. edited: nodes whose weights are no
    conversion's."""

    file: Model
    options: Options
    known: Calibrated
    fitter: Fitter
    recipe: Recipe
    floats: Graph
    integers: Graph
    chosen: Graph
    edited: tuple[str, ...]

    @property
    def measured_samples(self) -> list[int]:
        """Samples that all is measured on."""
        inliers = self.known.inliers
        return [inliers[i] for i in spread(len(inliers), IMAGES)]

    @property
    def moved(self) -> dict[str, int]:
        """The activations whose exponent is another one than would be chosen, and by how much."""
        pairs = {value.name: (value.quant, self.chosen[value.name].quant) for value in self.floats.activations()}
        shifts = {name: a.exponent - b.exponent for name, (a, b) in pairs.items() if a and b and a.bits == b.bits}
        return {name: more for name, more in shifts.items() if more}

    def cut(self, name: str) -> bool:
        """Checks that an activation saturates elsewhere than a conversion would make it, on the same grid."""
        ours, theirs = self.floats[name].quant, self.chosen[name].quant
        if ours is None or theirs is None or (ours.bits, ours.exponents) != (theirs.bits, theirs.exponents):
            return False
        return (ours.lo, ours.hi) != (theirs.lo, theirs.hi)


def rebuild(
    path: Path, model: Path, file: Model, data: Mapping[str, Data], recipe: Path | None, progress: Progress
) -> Rebuilt:
    """path: of the file, for messages. Raises InputError where model or data are not those of the file."""
    options, how, count = _told(path, model, file, recipe)
    by_name = recipes.RecipeFile() if recipe is None else recipes.load(recipe)
    context = Context(model, options, by_name, None, progress, Trace(), Here())
    imported = import_model(context, data)
    for port in file.inputs:
        _check_kind(port, imported.samples[port.name])
    known = calibrate(context, imported)
    if len(known.feeds) != count:
        raise InputError(
            f"{len(known.feeds)} samples; the file was calibrated with {count}",
            where="--data",
            hint="give the data of the conversion",
        )
    fitter = known.fitter.with_choices(_widths(known.fitter, file))
    fitter = fitter.of(how)
    progress("rebuild", 0, 2)
    prepared = fitter.prepare(how.equalize, fitter.images, Trace())
    if origins := _origins(prepared, file):
        rows = {name: {**fitter.choices.tensors.get(name, {}), "origin": origin} for name, origin in origins.items()}
        fitter = fitter.with_choices(Choices({**fitter.choices.tensors, **rows}, fitter.choices.ops))
        prepared = fitter.prepare(how.equalize, fitter.images, Trace())
    progress("rebuild", 1, 2)
    ranged = _on_grids(prepared.ranged, file)
    integer = fitter.quantize(replace(prepared, ranged=ranged), how.gptq, Trace())
    progress("rebuild", 2, 2)
    floats, rounded, edited, sizes = _constants(ranged, integer, file)
    if sizes and abs(median(sizes) - 1) > OTHER_NUMBERS:
        raise InputError(
            f"the weights of the file are {median(sizes):.2f} times those of this conversion (median over layers)",
            where="--data",
            hint="give the data that the file was calibrated with, and the --recipe that it was converted by",
        )
    return Rebuilt(file, options, known, fitter, how, floats, rounded, prepared.ranged, edited)


def _check_kind(port: FilePort, samples: Samples) -> None:
    """Refuses arrays where the file was calibrated with pictures, and the reverse."""
    theirs, ours = ("images" if looks is not None else "arrays" for looks in (samples.preprocess, port.preprocess))
    if theirs != ours:
        raise InputError(
            f"{theirs}, but input {port.name!r} was converted from {ours}",
            where="--data",
            hint="give the data of the conversion",
        )


def _told(path: Path, model: Path, file: Model, recipe: Path | None) -> tuple[Options, Recipe, int]:
    """Reads from a file's metadata how it was converted: the options, the recipe, and by how many samples."""
    digest = file.metadata.get("source_sha256")
    if digest != hashlib.sha256(read_file(model)).hexdigest():
        raise InputError(
            f"the file was made of another model ({file.metadata.get('source', 'unknown')})", where=str(path)
        )
    try:
        config = json.loads(file.metadata["config"])
        seen = json.loads(file.metadata["calibration"])
        how, count = Recipe.of(seen["recipe"]), int(seen["images"])
        options = _options(config)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        how = None
    if how is None or not count:
        raise InputError("it does not say how it was converted", where=str(path), hint="convert the model again")
    if any(port.state is not None for port in file.inputs):
        hint = "convert without --stream, or with --data for each state, and bisect that"
        raise InputError("it has states, so its layers are not those of the ONNX model", where=str(path), hint=hint)
    looks = {port.name: port.preprocess for port in file.inputs if port.preprocess is not None}
    target: Any = file.metadata.get("target")
    return replace(options, preprocess=looks, target=target, recipe=recipe, limit=count), how, count


def _options(config: Mapping[str, Any]) -> Options:
    """Options that a file records; it may be anybody's. Raises ValueError and its like for values that are none."""
    values: dict[str, Any] = {}
    for option in fields(Options):
        if (flag := option_flag(option)) is None or flag.recorded not in config:
            continue
        value = config[flag.recorded]
        known = value in flag.recipe if isinstance(flag.recipe, tuple) else is_allowed(option, value)
        if not known:
            raise ValueError(value)
        values[option.name] = value
    return Options(**values)


def _widths(fitter: Fitter, file: Model) -> Choices:
    """Returns the choices of a recipe, without exponents, and the widths of the file where they differ."""
    tensors = {name: {k: s for k, s in row.items() if k != "exponent"} for name, row in fitter.choices.tensors.items()}
    ops: dict[str, Row] = dict(fitter.choices.ops)
    for name, tensor in _activations(file).items():
        if name in fitter.bits and fitter.bits[name] != _bits(tensor):
            tensors[name] = {**tensors.get(name, {}), "bits": Said(_bits(tensor), PLACE)}
    for op in file.ops:
        layer = layer_inputs(op.kind, op.inputs)
        bits = _bits(file.tensors[layer[1]]) if layer else fitter.weight_bits
        if bits != fitter.weight_bits and any(node.name == op.name for node in fitter.graph.nodes):
            ops[op.name] = {**ops.get(op.name, {}), "weight_bits": Said(bits, PLACE)}
    return Choices(tensors, ops)


def _origins(prepared: Prepared, file: Model) -> dict[str, Said]:
    """Those of the file, where any is another one than was chosen."""
    activations = _activations(file)
    free = [name for name in prepared.free if name in activations and name in prepared.ranged.values]
    other = [name for name in free if not np.isclose(activations[name].origin, prepared.ranged[name].origin, rtol=1e-5)]
    return {name: Said(activations[name].origin, PLACE) for name in (free if other else ())}


def _on_grids(ranged: Graph, file: Model) -> Graph:
    """The float graph with the grids of the file."""
    values = []
    for name, tensor in _activations(file).items():
        value = ranged.values.get(name)
        if value is not None and value.quant is not None and len(tensor.exponents) == 1:
            quant = Quant(_bits(tensor), tensor.exponents, tensor.clip_min, tensor.clip_max)
            values.append(replace(value, quant=quant))
    return ranged.with_values(*values)


def _constants(ranged: Graph, integer: Graph, file: Model) -> tuple[Graph, Graph, tuple[str, ...], list[float]]:
    """The float graph and one with the file's constants, under the same names; the nodes whose weights are no
    conversion's; and how large weights of the file are beside the float ones, by layer."""
    layers = {op.name: layer for op in file.ops if (layer := layer_inputs(op.kind, op.inputs))}
    floats, rounded = ranged, ranged
    edited, sizes = [], []
    nodes = []
    for plain, node in zip(ranged.nodes, integer.nodes, strict=True):
        if plain.op not in WEIGHTED:
            nodes.append(plain)
            continue
        for i, (ours, name) in enumerate(zip(plain.inputs[1:], node.inputs[1:], strict=True), start=1):
            value, data = ranged[ours], _real(integer, name)
            stored = _stored(layers.get(node.name, ()), i, file, data.shape)
            wanted = value.data
            assert wanted is not None
            if stored is not None and not np.array_equal(stored, data):
                edited += [node.name] if i == 1 else []
                data = stored
            if stored is not None and i == 1 and np.square(wanted, dtype=np.float64).sum():
                product = (stored.astype(np.float64) * wanted).sum()
                sizes.append(float(product / np.square(wanted, dtype=np.float64).sum()))
            floats = floats.with_values(replace(value, name=name))
            rounded = rounded.with_values(replace(value, name=name, data=data.astype(np.float32)))
        nodes.append(replace(plain, inputs=(plain.inputs[0], *node.inputs[1:])))
    floats, rounded = (replace(graph, nodes=tuple(nodes)) for graph in (floats, rounded))
    return floats, rounded, tuple(edited), sizes


def _real(graph: Graph, name: str) -> np.ndarray:
    value = graph[name]
    assert value.data is not None and value.quant is not None
    return _scaled(value.data, value.quant.exponents)


def _stored(layer: Sequence[int], i: int, file: Model, shape: tuple[int, ...]) -> np.ndarray | None:
    """A constant of the file; None where channels are left out of it, or it is in parts."""
    tensor = None if i >= len(layer) else file.tensors[layer[i]]
    if tensor is None or tensor.data is None or tensor.data.shape != shape:
        return None
    return _scaled(tensor.data, tensor.exponents)


def _scaled(data: np.ndarray, exponents: tuple[int, ...]) -> np.ndarray:
    """Constants have one exponent, or one for each index of the first axis."""
    steps = np.array(exponents).reshape(-1, *[1] * (data.ndim - 1)) if len(exponents) > 1 else exponents[0]
    return np.ldexp(data.astype(np.float64), steps)


def _activations(file: Model) -> dict[str, FileTensor]:
    return {tensor.name: tensor for tensor in file.tensors if tensor.data is None}


def _bits(tensor: FileTensor) -> int:
    return 8 * np.dtype(tensor.dtype).itemsize
