"""nmpconv.torch.prepare and convert."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from nmpconv.api import forms
from nmpconv.api.conversion import Converted
from nmpconv.api.file_argument import sources
from nmpconv.api.keyword_checks import taking
from nmpconv.api.models import on_disk
from nmpconv.base.progress import reporter
from nmpconv.base.workers import Here
from nmpconv.conversion import pipeline
from nmpconv.conversion.context import Context
from nmpconv.conversion.keywords import Keywords
from nmpconv.conversion.pipeline import Fitted
from nmpconv.errors import UsageError
from nmpconv.file.writer import to_bytes
from nmpconv.ops import WEIGHTED
from nmpconv.passes.memory import plan_memory
from nmpconv.passes.quantize import recurrent_states, trained_exponents
from nmpconv.passes.quantize.rounding import with_weights
from nmpconv.runtime.interpreter import load
from nmpconv.torch.layers import TrainableLayer, begun
from nmpconv.torch.learned_exponents import TrainableExponents
from nmpconv.torch.module import TrainableNet, trained_behind

TRAINED = "the weights were trained: what is said of nearness compares with the model that training began with"


@dataclass(frozen=True)
class Origin:
    """The conversion that a module was prepared by. model: bytes of the ONNX file, and its name."""

    fitted: Fitted
    model: bytes
    name: str

    def __deepcopy__(self, memo: Any) -> Origin:
        """Copies of a module, such as averages of its weights, share it."""
        return self

    def __reduce__(self) -> str:
        hint = "save its state_dict(), and load that into what the same call of prepare() returns"
        raise UsageError("a prepared module cannot be pickled, nor saved as a whole", hint=hint)


class PreparedNet(TrainableNet):
    """A `TrainableNet` that knows its conversion."""

    _origin: Origin


@taking(Keywords)
def _read(keywords: Keywords) -> Keywords:
    return keywords


def prepare(
    module: Any,
    example_inputs: Any = None,
    data: Any = None,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    learn_exponents: bool = False,
    **keywords: Any,
) -> PreparedNet:
    """A module that computes with the integers that a conversion of this model would have, to be trained further.

    The module is exported to ONNX, calibrated and quantized as `nmpconv.convert` does it; grids, widths, origins and
    equalization are those. Training begins with the integers of that conversion, whichever way they were rounded, and
    rounds to nearest. Normalizations and dropout are as in eval mode.

    module: a torch module, float32, on the CPU; or an ONNX or TFLite file, as a path, bytes or an onnx.ModelProto.
    example_inputs: a tensor [n, ...], or a tuple of them, of which the first sample is traced; a file needs none. data:
    calibration samples, see `nmpconv.convert`; None: all of example_inputs. Images with ``mean`` and ``std`` make an
    input of pixels, which is still called with (pixel - mean) / std. input_names, output_names: what a module's inputs
    and outputs are called in the file, and by data and state. learn_exponents: exponents of activations are a
    parameter, too; those of inputs, states, tensors before the first layer, and of a recipe stay. keywords: those of
    `nmpconv.convert`, such as recipe, bits and state.

    Raises InputError where torch cannot export the module, UnsupportedModel with a row for each node that cannot be
    converted, or trained through, and UsageError for keywords that do not fit.
    """
    is_module = isinstance(module, nn.Module)
    examples = tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    examples = () if example_inputs is None and not is_module and data is not None else examples
    if not all(isinstance(x, torch.Tensor) and x.ndim for x in examples):
        raise UsageError("example_inputs are no tensors with samples along the first axis", where="example_inputs")
    with on_disk(module, tuple(x[:1] for x in examples), names=(input_names, output_names)) as path:
        if data is None:
            names = [port.name for port in onnx.load(str(path), load_external_data=False).graph.input]
            data = {name: x.detach().cpu().numpy() for name, x in zip(names, examples, strict=False)}
        read = _read(module, data, **keywords)
        options = replace(forms.options(read), workers=None)
        context = Context.of(path, options, reporter(read.progress), Here())
        fitted = pipeline.fit(context, sources(data))
        origin = Origin(fitted, path.read_bytes(), path.name)
    graph, ranged, factors = fitted.whole, fitted.decision.prepared.ranged, fitted.decision.prepared.factors
    ports = load(to_bytes(plan_memory.run(graph), {})).inputs
    own = {name: p.detach().cpu().numpy() for name, p in module.named_parameters()} if is_module else {}
    layers: dict[str, tuple[str, TrainableLayer]] = {}
    taken: set[str] = set()  # places of layers, and those above them
    for before, node in zip(ranged.nodes, graph.nodes, strict=True):
        if node.op not in WEIGHTED:
            continue
        weights = ranged[before.inputs[1]].data
        assert weights is not None
        place = place_of(node.name)
        begin = begun(node, graph, weights, own.get(f"{place}.weight"), factors.get(node.outputs[0], np.ones(1)))
        while place in taken or not place:
            place += "_"
        taken.update(accumulate(place.split("."), "{}.{}".format))
        layers[node.name] = place, TrainableLayer(node, graph, begin, options.bias_width or 32)
    prepared = PreparedNet(graph, ports, layers, _exponents(fitted) if learn_exponents else None)
    prepared._origin = origin
    return prepared.train(is_module and module.training)


def _exponents(fitted: Fitted) -> TrainableExponents:
    """Those that layers reach; the others have no gradient."""
    decision, graph = fitted.decision, fitted.whole
    states = recurrent_states.checked(graph, fitted.context.options.state or ()).values()
    behind = trained_behind(graph)
    fixed = {name for name, row in decision.fitter.choices.tensors.items() if "exponent" in row}
    free = trained_exponents.groups(decision.prepared.ranged, fixed.union(states))
    groups = [group for group in free if not behind.isdisjoint(group)]
    return TrainableExponents(graph, groups, lambda e: decision.fitter.regridded(decision.prepared, e)[1])


def convert(prepared: PreparedNet) -> Converted:
    """The file of a prepared module: what `nmpconv.convert` returns, with the weights and biases that it has now.

    No grid is searched anew; exponents that were trained are the parameter's, rounded. Where the file gives an integer,
    the module in eval mode gives the same one.
    """
    if not isinstance(prepared, PreparedNet):
        hint = "nmpconv.convert(module, data) converts others"
        raise UsageError(f"a {type(prepared).__name__}; prepare() makes what is converted here", hint=hint)
    origin = prepared._origin
    with tempfile.TemporaryDirectory(prefix="nmpconv-") as folder:
        path = Path(folder) / origin.name
        path.write_bytes(origin.model)
        fitted = replace(origin.fitted, context=replace(origin.fitted.context, model=path))
        weights, exponents = prepared._constants(), prepared._exponents
        if exponents is not None:
            decision = fitted.decision
            moved, whole = decision.fitter.regridded(decision.prepared, exponents.of(prepared._graph))
            fitted = replace(fitted, decision=replace(decision, prepared=moved), whole=whole)
        whole = with_weights(fitted.whole, weights, fitted.context.options.bias_width)
        result = pipeline.finish(fitted, whole, [TRAINED])
    return Converted(result.data, result.report, result.graph, result.stats)


def place_of(node: str) -> str:
    """The place of the module that torch's exporter named a node by: a.0.b of /a/a.0/b/Conv.

    Members of a Sequential say where they are in it; other names are below the one before.
    """
    path: list[str] = []
    for name in node.strip("/").split("/")[:-1]:
        if path and name.startswith(f"{path[-1]}."):
            path[-1] = name
        else:
            path.append(name)
    return ".".join(path) or node.strip("/").replace(".", "_").replace("/", "_")
