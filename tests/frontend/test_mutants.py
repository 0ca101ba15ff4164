"""Models with one thing wrong: what onnxruntime refuses is refused, and what is converted means the same."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
import test_lowering
import test_lowering_normalization
import test_lowering_sampling
import test_lowering_truth
from mutants import Onnxruntime, mutants
from onnx import helper
from onnx_text import build

from nmpconv.calib.engine import FloatEngine
from nmpconv.conversion.pipeline import Options, plan
from nmpconv.errors import ExitCode, NmpError
from nmpconv.frontend.onnx import load

REFUSED = (ExitCode.INPUT, ExitCode.UNSUPPORTED, ExitCode.USAGE)
TOLERANCE = 1e-3  # of the largest output
# Nodes that become one are looked at by their form alone: a constant of another type among them is not found.
TYPES_UNSEEN = "written out"


def bases() -> Iterator[tuple[str, int, str]]:
    for name, opsets, text in test_lowering.CASES:
        yield from ((f"{name}@{opset}", opset, text) for opset in opsets)
    for module in (test_lowering_normalization, test_lowering_sampling, test_lowering_truth):
        yield from ((f"{module.__name__}/{case[0]}", case[1], case[2]) for case in module.CASES)


@pytest.mark.parametrize("count", [1, pytest.param(6, marks=[pytest.mark.slow, pytest.mark.soak])])
def test_mutants(count, tmp_path):
    """count: of each model."""
    onnxruntime, path, found = Onnxruntime(), tmp_path / "model.onnx", []
    with np.errstate(all="ignore"):
        for name, opset, text in bases():
            made = mutants(build(text, opset), np.random.default_rng([zlib.crc32(name.encode()), count]))
            for _ in range(count):
                description, model = next(made)
                onnx.save(model, path)
                if fault := _fault(path, model, onnxruntime):
                    found.append(f"{name}: {description}: {fault}")
    onnxruntime.close()
    left = [row for row in found if TYPES_UNSEEN not in row]
    assert not left, "\n".join(left)


def _fault(path, model: onnx.ModelProto, onnxruntime: Onnxruntime) -> str:
    feeds = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        x = np.random.default_rng(1).normal(0, 2, [dim.dim_value for dim in kind.shape.dim])
        feeds[value.name] = x.astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    theirs = onnxruntime.run(model, feeds)
    try:
        graph = load(path)
        plan(path, Options(widths="strict"))
    except NmpError as error:
        return "" if error.code in REFUSED else f"exit code {error.code}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(theirs, str):
        return "" if "NOT_IMPLEMENTED" in theirs else f"converted, but onnxruntime says {theirs}"
    ours = FloatEngine(graph, graph.outputs).run({name: feeds[name] for name in graph.inputs})
    for name, wanted in zip(graph.outputs, theirs, strict=True):
        got = ours[name]
        if got.shape != wanted.shape:
            return f"shape {got.shape}, not {wanted.shape}"
        if np.isfinite(wanted).all() and np.abs(got - wanted).max() > TOLERANCE * max(np.abs(wanted).max(), TOLERANCE):
            return f"off by {np.abs(got - wanted).max()} of {np.abs(wanted).max()}"
    return ""


def test_the_models_themselves(tmp_path):
    """None of them is refused, which would leave nothing to compare."""
    for _, opset, text in bases():
        build(text, opset, tmp_path / "model.onnx")
        load(tmp_path / "model.onnx")
