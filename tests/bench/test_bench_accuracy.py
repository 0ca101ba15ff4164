"""The benchmark of accuracy, without peers: scores, tables, what is cut, and a quantizer that fails."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_text import build
from PIL import Image

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from accuracy import __main__ as bench  # noqa: E402
from accuracy import cases, table  # noqa: E402
from accuracy.table import Score  # noqa: E402

NAME = cases.CLASSIFIERS[1]
SIDE, IMAGES = 8, 12


@pytest.fixture
def zoo_folder(tmp_path: Path) -> Path:
    """A zoo of one classifier with a Softmax, and images of CIFAR's form."""
    rng = np.random.default_rng(3)
    data = tmp_path / "zoo" / "data" / "cifar10"
    data.mkdir(parents=True)
    (tmp_path / "zoo" / "models").mkdir()
    for part in ("train", "test"):
        rows = ["file,label"]
        for i in range(IMAGES):
            pixels = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(data / f"{part}{i}.png")
            rows.append(f"{part}{i}.png,{i % 3}")
        (data / f"{part}_labels.csv").write_text("\n".join(rows))
    about = {"task": "classification", "data": "cifar10", "mean": [0.0], "std": [255.0]}
    (tmp_path / "zoo" / "zoo.json").write_text(json.dumps({NAME: about}))
    weights = rng.normal(size=(3, 3 * SIDE * SIDE)).astype(np.float32)
    text = (
        f"(float[n,3,{SIDE},{SIDE}] x) => (float[n,3] y) {{ f = Flatten(x) logits = MatMul(f, w) y = Softmax(logits) }}"
    )
    build(text, 11, tmp_path / "zoo" / "models" / f"{NAME}.onnx", arrays={"w": weights.T})
    return tmp_path / "zoo"


def test_a_case_ends_before_the_softmax(zoo_folder: Path, tmp_path: Path) -> None:
    case = cases.prepare(NAME, zoo_folder, tmp_path / "case")
    model = onnx.load(case.model)
    assert [node.op_type for node in model.graph.node] == ["Flatten", "MatMul"]
    assert model.opset_import[0].version == cases.OPSET
    assert np.load(case.calib).shape == np.load(case.test).shape == (IMAGES, 1, 3, SIDE, SIDE)
    assert case.labels == tuple(i % 3 for i in range(IMAGES))
    weights = numpy_helper.to_array(model.graph.initializer[0])
    expected = np.load(case.test).reshape(IMAGES, -1) @ weights
    np.testing.assert_allclose(case.wanted["logits"][:, 0], expected, rtol=1e-4, atol=1e-4)


def test_ours_is_scored_against_float(zoo_folder: Path, tmp_path: Path) -> None:
    case = cases.prepare(NAME, zoo_folder, tmp_path / "case")
    exact = bench.score(case, list(case.wanted.values()))
    found = bench.score(case, bench.ours(case, "default", tmp_path / "case"))
    assert exact.agreement == 100
    assert found.worst_db > 30
    off = bench.score(case, [np.roll(case.wanted["logits"], 1, axis=2)])
    assert off.agreement == 0
    assert off.worst_db < 10


def test_a_peer_that_cannot_is_left_out(zoo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = cases.prepare(NAME, zoo_folder, tmp_path / "case")
    gone = bench.Peers(tmp_path / "gone", io.StringIO())
    assert bench.measure(case, "NNCF", tmp_path / "case", gone) == {}
    assert "NNCF, default: left out: " in capsys.readouterr().out
    with (tmp_path / "log").open("w") as log, pytest.raises(bench.Failed, match="KeyError: 'nobody'"):
        bench.Peers(Path(sys.executable), log).run(case, "nobody", "", tmp_path / "case" / "nobody")


def test_table() -> None:
    def row(ours: float, theirs: dict[str, float]) -> table.Row:
        peers = {setting: Score({"y": db, "z": db + 9}, 98.0, 88.0) for setting, db in theirs.items()}
        return {
            table.FLOAT: {"": Score({"y": np.inf}, 100.0, 90.0)},
            "nmpconv": {"": Score({"y": ours}, 99.0, 89.0)},
            "A": peers,
        }

    rows = {"m": row(30.0, {"plain": 20.0, "good": 25.0}), "n": row(20.0, {"good": 21.0}), "o": row(20.0, {})}
    assert table.best(rows, ["nmpconv", "A"]).splitlines()[2:] == [
        "| m | 90.0 | **30.0 / 99.0 / 89.0** | 25.0 / 98.0 / 88.0 |",
        "| n | 90.0 | 20.0 / 99.0 / 89.0 | **21.0 / 98.0 / 88.0** |",
        "| o | 90.0 | **20.0 / 99.0 / 89.0** | - |",
    ]
    assert table.settings(rows, {"A": ("a", ["plain", "good"])}).splitlines()[2:] == [
        "| m | 20.0 | 25.0 |",
        "| n | - | 21.0 |",
        "| o | - | - |",
    ]
    boxes = Score({"y": 20.0}, boxes={"ap": 30.0, "ap50": 50.04, "agreement ap50": 90.0})
    assert boxes.cell == "20.0 / 90.0 / 50.0"
    assert table.as_json(rows)["n"]["A"]["good"]["sqnr"] == {"y": 21.0, "z": 30.0}
