"""Faults are planted into ten nets: by a line of a recipe, and by another file than the conversion wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_net import Net

import nmpconv
from nmpconv.base.progress import silent
from nmpconv.bisection import Bisected, minimal_model
from nmpconv.bisection.reconversion import rebuild
from nmpconv.errors import InputError
from nmpconv.file import reader
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Graph

PLAIN = {"equalize": "none", "rounding": "nearest"}
FULL = {"equalize": "vector", "rounding": "gptq"}
COARSER = 4  # of an exponent


def net(seed: int) -> Net:
    """Six layers: dense, depthwise and 1x1 convolutions, a sum, a pool; in other orders by the seed."""
    made = Net((1, 4, 8, 8), seed)
    x = made.add("Relu", made.conv("x", 8))
    for i in range(3):
        if (seed + i) % 3 == 0:
            x = made.add("Relu", made.conv(x, 8, group=8))
        elif (seed + i) % 3 == 1:
            x = made.add("Add", x, made.add("Relu", made.conv(x, 8)))
        else:
            x = made.add("Relu", made.conv(x, 8, 1))
    made.conv(made.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 6)
    return made


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, np.ndarray]:
    """The model of a seed, and calibration data."""
    one = net(request.param)
    one.save(tmp_path / "m.onnx", one.nodes[-1].output[0])
    return tmp_path / "m.onnx", np.random.default_rng(request.param).normal(0, 1, (12, 4, 8, 8)).astype(np.float32)


def narrow(converted: nmpconv.Converted) -> list[str]:
    """Tensors of a layer in the middle of the net."""
    found = [node.outputs[0] for node in converted.graph.nodes if node.op == "conv2d"]
    return [name for name in found[1:] if converted.graph[name].quant.bits == 8]  # type: ignore[union-attr]


def ten(*seeds: int) -> pytest.MarkDecorator:
    """Those of the ten nets that have one kind of fault; all but the first one take their time."""
    options = [FULL if seed % 2 else PLAIN for seed in seeds]
    marks: list[tuple[pytest.MarkDecorator, ...]] = [(), *[(pytest.mark.slow,)] * (len(seeds) - 1)]
    rows = [pytest.param(*row[:2], marks=row[2]) for row in zip(seeds, options, marks, strict=True)]
    return pytest.mark.parametrize(("made", "options"), rows, indirect=["made"])


@pytest.mark.slow
@ten(0, 1, 2, 3)
def test_an_exponent_by_a_recipe(made: tuple[Path, np.ndarray], options: dict, tmp_path: Path) -> None:
    model, data = made
    plain = nmpconv.convert(model, data, **options)
    name = narrow(plain)[0]
    recipe, exponent = tmp_path / "r.toml", plain.graph[name].quant.exponent + COARSER  # type: ignore[union-attr]
    recipe.write_text(f'[tensors]\n"{name}" = {{ exponent = {exponent} }}\n')
    bad = nmpconv.convert(model, data, recipe=recipe, **options)
    output = tmp_path / "found"
    told: list[tuple[Any, ...]] = []
    found = nmpconv.bisect(model, bad, data, output=output, progress=lambda *stage: told.append(stage))
    assert ("rank", len(found.rows), len(found.rows)) in told
    assert (found.rows[0].name, found.rows[0].moved, found.rows[0].table) == (name, COARSER, "tensors")
    assert found.rows[0].db > 3
    close(found)
    best = found.levers[0]
    assert best.name == name
    assert best.db > 3
    assert {one.words for one in found.levers if one.name == name} == {"tensor at 16 bits", "tensor as chosen anew"}
    mended = nmpconv.convert(model, data, recipe=output / "recipe.toml", **options)
    after = nmpconv.evaluate(mended, data, reference=model).mean_sqnr_db
    assert after == pytest.approx(found.score.db + best.db, abs=0.01)
    small_shows_it(found, output, name)


@ten(5, 4, 6)
def test_weights_that_lost_bits(made: tuple[Path, np.ndarray], options: dict) -> None:
    model, data = made
    plain = nmpconv.convert(model, data, **options)
    node = next(node for node in plain.graph.nodes if node.outputs[0] == narrow(plain)[0])
    weights = plain.graph[node.inputs[1]]
    assert weights.data is not None
    coarse = np.clip(np.rint(weights.data / 32) * 32, -128, 127).astype(np.int8)
    found = nmpconv.bisect(model, written(plain.graph.with_values(replace(weights, data=coarse)), plain), data)
    assert (found.rows[0].name, found.rows[0].edited, found.rows[0].table) == (node.name, True, "ops")
    changed_since(found, plain, model, data)


@pytest.mark.slow
@ten(7, 8, 9)
def test_a_grid_that_was_cut(made: tuple[Path, np.ndarray], options: dict) -> None:
    model, data = made
    plain = nmpconv.convert(model, data, **options)
    name = narrow(plain)[-1]
    value = plain.graph[name]
    assert value.quant is not None
    quant = replace(value.quant, hi=value.quant.lo + (value.quant.hi - value.quant.lo) // 3)
    graph = plain.graph.with_values(replace(value, quant=quant))
    found = nmpconv.bisect(model, written(graph, plain), data)
    assert (found.rows[0].name, found.rows[0].edited, found.rows[0].table) == (name, True, "tensors")
    changed_since(found, plain, model, data)


def test_all_tensors_of_a_grid_are_named(tmp_path: Path) -> None:
    """A Concat joins small and large ones: the loss is that of either, and the first one alone is not to blame."""
    one, model = Net((1, 4, 8, 8), 3), tmp_path / "m.onnx"
    small, large = one.add("Tanh", one.conv("x", 4)), one.add("Relu", one.conv("x", 4))
    one.conv(one.add("Concat", small, large, axis=1), 3)
    one.save(model, one.nodes[-1].output[0])
    data = np.random.default_rng(3).normal(0, 1, (12, 4, 8, 8)).astype(np.float32)
    found = nmpconv.bisect(model, nmpconv.convert(model, data, widths="strict", **PLAIN), data)
    joined = [row for row in found.rows if len(row.grid) > 1]
    assert [set(row.grid) for row in joined] == [{small, large}]
    assert all(row.grid == (row.name,) for row in found.rows if row.table == "tensors" and row not in joined)
    assert all(not row.grid for row in found.rows if row.table == "ops")


def written(graph: Graph, like: nmpconv.Converted) -> bytes:
    return to_bytes(graph, reader.read(like.data).metadata)


def close(found: Bisected) -> None:
    """The simulation is the interpreter, but for sums that float32 rounds."""
    assert found.simulated_db == pytest.approx(found.score.db, abs=0.05)


def changed_since(found: Bisected, plain: nmpconv.Converted, model: Path, data: np.ndarray) -> None:
    close(found)
    healthy = nmpconv.evaluate(plain, data, reference=model).mean_sqnr_db
    assert healthy is not None
    assert found.anew_db == pytest.approx(healthy - found.score.db, abs=0.01)
    assert found.rows[0].db > 1
    assert found.small is None


def small_shows_it(found: Bisected, output: Path, name: str) -> None:
    assert found.small is not None
    assert found.small.nodes < found.small.of
    assert sorted(path.name for path in output.iterdir()) == sorted(found.files)
    part, data = output / "small.onnx", output / "small.npz"
    lossy = nmpconv.convert(part, data, recipe=output / "small.toml")
    fixed = output.parent / "fixed.toml"
    fixed.write_text(f'[convert]\nequalize = "none"\nrounding = "nearest"\n[tensors]\n"{name}" = {{ bits = 16 }}\n')
    good = nmpconv.convert(part, data, recipe=fixed)
    db = [np.mean(list(one.report.sqnr_by_head.values())) for one in (lossy, good)]
    assert db[1] - db[0] == pytest.approx(found.small.db)
    assert found.small.db > found.rows[0].db / 2


@pytest.mark.slow
@pytest.mark.parametrize("made", [1], indirect=True)
def test_a_healthy_file_is_rebuilt(made: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    model, data = made
    plain = nmpconv.convert(model, data)
    rebuilt = rebuild(tmp_path / "m.nmp", model, reader.read(plain.data), {"": data}, None, silent)
    assert (rebuilt.moved, rebuilt.edited) == ({}, ())
    found = nmpconv.bisect(model, plain, data, metric="psnr")
    close(found)
    assert found.anew_db is None
    # What is tried: the first rows, and what makes most of the noise.
    costliest = {name for name in plain.report.costliest if plain.graph[name].quant.bits == 8}  # type: ignore[union-attr]
    tried = {one.name for one in found.levers}
    assert costliest and costliest <= tried
    assert not tried <= costliest
    assert found.metric is not None
    assert [row.metric for row in found.rows] == sorted((row.metric for row in found.rows), reverse=True)  # type: ignore[type-var]


@pytest.mark.parametrize("made", [1], indirect=True)
def test_a_file_with_less_saturation_is_rebuilt(made: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    model, data = made
    plain, less = (nmpconv.convert(model, data**3, **FULL, method=method) for method in ("mse", "mse4"))
    assert less.data != plain.data
    rebuilt = rebuild(tmp_path / "m.nmp", model, reader.read(less.data), {"": data**3}, None, silent)
    assert (rebuilt.moved, rebuilt.edited) == ({}, ())


@pytest.mark.parametrize("made", [2], indirect=True)
def test_what_is_not_the_file_s(made: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    model, data = made
    plain = nmpconv.convert(model, data, **FULL)
    other = tmp_path / "other.onnx"
    net(3).save(other, net(3).nodes[-1].output[0])
    with pytest.raises(InputError, match="made of another model"):
        nmpconv.bisect(other, plain, data)
    with pytest.raises(InputError, match="11 samples; the file was calibrated with 12"):
        nmpconv.bisect(model, plain, data[:11])
    with pytest.raises(InputError, match=r"weights of the file are .* times those"):
        nmpconv.bisect(model, plain, 40 * data**3)
    with pytest.raises(InputError, match="does not say how it was converted"):
        nmpconv.bisect(
            model, to_bytes(plain.graph, {"source_sha256": reader.read(plain.data).metadata["source_sha256"]}), data
        )


@pytest.mark.parametrize("made", [2], indirect=True)
def test_a_file_may_be_anybody_s(made: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    """Its notes on the conversion name no file to write, and have the types of the options."""
    model, data = made
    plain = nmpconv.convert(model, data, **PLAIN)
    told, kept = reader.read(plain.data).metadata, tmp_path / "kept"
    kept.write_text("precious")

    def saying(**more: object) -> bytes:
        return to_bytes(plain.graph, {**told, "config": json.dumps({**json.loads(told["config"]), **more})})

    same = nmpconv.bisect(model, plain, data)
    assert nmpconv.bisect(model, saying(save_profile=str(kept), dump_ir=str(kept)), data).rows == same.rows
    assert kept.read_text() == "precious"
    for wrong in ({"percentile": "x"}, {"stream": 7}, {"max_ram": "7"}, {"bits": "banana"}, {"outputs": [[]]}):
        with pytest.raises(InputError, match="does not say how it was converted"):
            nmpconv.bisect(model, saying(**wrong), data)


@pytest.mark.parametrize("made", [2], indirect=True)
def test_int8_by_a_recipe_among_16_bits(made: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    """A lever widens the grid of what the recipe made narrow."""
    model, data = made
    name = narrow(nmpconv.convert(model, data, **PLAIN))[0]
    (tmp_path / "r.toml").write_text(f'[tensors]\n"{name}" = {{ bits = 8 }}\n')
    wide = nmpconv.convert(model, data, bits=16, recipe=tmp_path / "r.toml")
    found = nmpconv.bisect(model, wide, data, recipe=tmp_path / "r.toml")
    assert found.rows[0].name == name
    assert any(lever.name == name and lever.said == {"bits": 16} and lever.db > 1 for lever in found.levers)


@pytest.mark.parametrize(("shape", "joined"), [((1, 3), (4, 3)), ((2, 3), (4, 2, 3)), ((), (4,))])
def test_a_batch_of_one_is_no_axis_of_a_sample(shape: tuple[int, ...], joined: tuple[int, ...]) -> None:
    assert minimal_model._stacked([np.zeros(shape, np.float32)] * 4).shape == joined
