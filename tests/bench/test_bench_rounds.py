"""The benchmark of peers, without peers: turns, ratios, tables, the ResNet-50, and what its processes say."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnxruntime
import pytest
from nets import small_net

from nmpconv.file.writer import to_bytes

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import models_list  # noqa: E402
from peers import __main__ as bench  # noqa: E402
from peers import chart, models, table, worker  # noqa: E402
from peers.job import MODULES, Job  # noqa: E402
from peers.rounds import (  # noqa: E402
    DEFAULT,
    OURS,
    Batch,
    Footprint,
    Row,
    Times,
    calls_for,
    calmest,
    correlation,
    geometric_mean,
    interleave,
)
from peers.spinners import awake  # noqa: E402


def row(model: str, bits: str = "int8", threads: int = 1, missing: dict[str, str] | None = None, **ms: float) -> Row:
    """Times in ms, the best round of three; '_' stands for '-'."""
    times = {
        name.replace("_", "-"): Times((2e-3 * t, 1e-3 * t, 4e-3 * t), (9e-3, 2e-3 * t, 9e-3)) for name, t in ms.items()
    }
    return Row(model, bits, threads, 10**9, times, missing or {}, {}, {"openvino": (3, 4)} if model == "B" else {})


def test_engines_take_turns_with_a_rest_before_each() -> None:
    seen: list[str] = []

    def engine(name: str, seconds: float) -> Batch:
        def batch(calls: int) -> tuple[float, float]:
            seen.append(f"{name}{calls}")
            return calls * seconds, 2 * calls * seconds

        return batch

    times = interleave({"a": engine("a", 0.25), "b": engine("b", 2.0)}, 2, 1.0, lambda: seen.append("-"))
    warm = ["-", "a1", "a1", "a1", "a1", "a4", "-", "b1", "b1", "b1", "b1", "b1"]
    assert seen == warm + ["-", "a4", "-", "b1"] * 2
    assert times == {"a": Times((0.25, 0.25), (0.5, 0.5)), "b": Times((2.0, 2.0), (4.0, 4.0))}


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_IDLE is Linux's")
def test_each_cpu_is_kept_awake_at_idle_priority() -> None:
    def children() -> set[int]:
        return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))

    before, end = children(), time.monotonic() + 20
    with awake():
        spinners = children() - before
        assert len(spinners) == len(os.sched_getaffinity(0))
        while any(os.sched_getscheduler(pid) != os.SCHED_IDLE for pid in spinners):
            assert time.monotonic() < end
            time.sleep(0.02)
    assert not spinners & children()


def test_a_disturbed_row_is_measured_again() -> None:
    calm, wild, worse = ({"a": Times((1.0, end, end), (1.0,) * 3)} for end in (1.1, 1.3, 2.0))
    for measured, taken, left in (
        ([calm, wild], calm, 1),
        ([wild, calm, worse], calm, 1),
        ([worse, wild, worse, calm], wild, 1),
    ):
        waiting = list(measured)
        assert calmest(lambda: waiting.pop(0)) == taken  # noqa: B023
        assert len(waiting) == left
    assert Row("m", "int8", 1, 1, {**wild, "b": calm["a"]}, {}, {}, {}).disturbed == ["a"]


def test_calls_of_a_round() -> None:
    assert [calls_for(t, 0.01) for t in (0.0, 0.001, 0.004, 3.0)] == [10_000_000, 10, 2, 1]


def test_best_and_median_and_the_ratio_to_the_fastest_peer() -> None:
    found = row("m", nmpconv=1.0, nmpconv_default=0.1, openvino=1.5, litert=3.0)
    assert (found.times["litert"].best, found.times["litert"].median) == (0.003, 0.006)
    assert found.best_peer == "openvino"
    assert found.ratio == pytest.approx(1.5)
    assert row("m", nmpconv=1.0).ratio is None
    assert row("m", openvino=1.0).ratio is None


def test_geometric_mean_of_what_is_there() -> None:
    assert geometric_mean([2.0, None, 0.5, 8.0]) == pytest.approx(2.0)
    assert geometric_mean([None]) is None


def test_correlation() -> None:
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert correlation([1, 2, 3], [5, 5, 5]) == 0


def test_table() -> None:
    rows = [
        row("A", nmpconv=0.05, openvino=0.2, missing={"litert": "why"}),
        row("B", nmpconv=20.0, openvino=10.0, litert=9.0),
    ]
    assert table.markdown(rows, 100e12).splitlines() == [
        "### int8, 1 thread: ms, best round (CPU ms of it)",
        "",
        "| model | nmpconv | OpenVINO | LiteRT | best peer / nmpconv | GMAC/s | % of VNNI peak |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| A (disturbed) | 0.0500 (0.100) | **0.200** (0.400) | - | 4.00 | 20000.0 | 20 |",
        "| B (disturbed) | 20.0 (40.0) | 10.0 (20.0) | **9.000** (18.0) | 0.45 | 50.0 | 0 |",
        "| geometric mean |  |  |  | 1.34 |  |  |",
    ]
    assert table.notes(rows) == [
        "LiteRT is left out of A int8 1t: why",
        "A int8 1t was disturbed: the median of nmpconv and OpenVINO is more than 15% above the best round",
        "B int8 1t was disturbed: the median of nmpconv and OpenVINO and LiteRT is more than 15% above the best round",
        "OpenVINO runs not all layers on int8 kernels: 3 of 4 in B",
    ]


def test_each_precision_and_number_of_threads_has_a_table() -> None:
    rows = [row("A", "int8", 1, nmpconv=1.0), row("A", "int8", 2, nmpconv=1.0), row("A", "int16", 1, nmpconv=1.0)]
    titles = [line for line in table.markdown(rows, None).splitlines() if line.startswith("#")]
    assert titles == [
        "### int8, 1 thread: ms, best round (CPU ms of it)",
        "### int8, 2 threads: ms, best round (CPU ms of it)",
        "### int16, peers at float32, 1 thread: ms, best round (CPU ms of it)",
    ]


def test_json_and_chart_hold_every_row() -> None:
    rows = [row("A & B", nmpconv=1.0, onnxruntime=2.0), row("C", "int16", nmpconv=1.0, onnxruntime=0.5)]
    found = json.loads(json.dumps(table.as_json(rows, {"date": "today"})))
    assert [r["ratio"] for r in found["rows"]] == pytest.approx([2.0, 0.5])
    assert found["rows"][0]["times"]["nmpconv"] == pytest.approx([0.002, 0.001, 0.004])
    texts = [text.text for text in ElementTree.fromstring(chart.measured(rows, "a < b")).iter() if text.text]
    assert {"a < b", "A & B", "C", "2.00 x ONNX Runtime", "0.50 x ONNX Runtime"} <= set(texts)


def test_the_front_page_has_a_chart_of_the_published_tables() -> None:
    """After a change of docs/speed.md: `PYTHONPATH=bench python -m peers.chart`."""
    page = (BENCH.parent / "docs" / "speed.md").read_text()
    drawn = chart.published(page)
    assert drawn == (BENCH / "chart.svg").read_text()
    texts = [text.text for text in ElementTree.fromstring(drawn).iter() if text.text]
    for _, (title, _) in chart.TABLES.items():
        assert title in texts
    [cell] = re.findall(r"^\| ResNet-18 \|.*\| ([0-9.]+) \|$", page, re.M)
    assert f"{cell} x OpenVINO" in texts


def test_every_engine_has_a_title_and_a_file() -> None:
    assert set(MODULES) == set(table.TITLES)
    assert {OURS, DEFAULT} < set(MODULES)
    assert all((BENCH / "peers" / "engines" / f"{name}.py").is_file() for name in MODULES.values())


def test_resnet50_is_the_same_every_time_and_computes() -> None:
    (model, samples), (again, _) = (models.resnet50(32, 8, (1, 1)) for _ in range(2))
    assert model.SerializeToString() == again.SerializeToString()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    logits = session.run(None, {"input": samples[0]})[0]
    assert logits.shape == (1, 1000)
    assert 0.1 < np.std(logits) < 100


def test_a_worker_runs_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx

    model, samples = models.resnet50(32, 8, (1, 1))
    onnx.save(model, tmp_path / "model.onnx")
    np.save(tmp_path / "samples.npy", samples)
    job = Job(OURS, str(tmp_path / "model.onnx"), str(tmp_path / "samples.npy"), str(tmp_path / OURS), "int8", 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO(job.to_text() + "\n3\n5\n"))
    out = io.StringIO()
    assert worker.main(out) == 0
    about, *seconds = [json.loads(line) for line in out.getvalue().splitlines()]
    assert about["kernels"] == [9, 9]
    assert np.shape(about["outputs"]) == (len(samples), 1000)
    assert np.shape(seconds) == (2, 2)
    assert np.min(seconds) > 0


def test_kinds_of_ops_as_a_table() -> None:
    found = {"A": [("conv2d", 3e-3, 6 * 10**8), ("reshape", 1e-3, 0)]}
    assert table.kinds(found).splitlines()[2:] == [
        "| model | op | ms | share | G/s |",
        "| --- | --- | ---: | ---: | ---: |",
        "| A | conv2d | 3.000 | 75 % | 200 |",
        "| A | reshape | 1.000 | 25 % | - |",
    ]
    assert table.kinds({}) == ""


def test_kinds_of_a_model_are_timed(tmp_path: Path) -> None:
    from peers.engines import ours

    (tmp_path / "int8.nmp").write_bytes(to_bytes(small_net(), {}))
    np.save(tmp_path / "samples.npy", np.zeros((1, *small_net()["x"].shape), np.float32))
    found = ours.kinds(Job(OURS, "", str(tmp_path / "samples.npy"), str(tmp_path), "int8", 1), runs=3)
    assert {kind for kind, _, _ in found} == {node.op for node in small_net().nodes}
    assert all(seconds > 0 for _, seconds, _ in found)


def test_every_exported_architecture_is_in_the_list() -> None:
    assert {row.name for row in models_list.read(models.LIST)} == set(models.EXPORTED.values())


def test_a_model_that_cannot_be_exported_is_named(tmp_path: Path) -> None:
    with pytest.raises(models.NotExported, match="cannot be started"):
        models.prepare("DeiT-tiny", tmp_path, tmp_path, str(tmp_path / "none"))
    with pytest.raises(models.NotExported, match="its export failed"):
        models.prepare("DeiT-tiny", tmp_path, tmp_path, "false")


def test_a_worker_says_why_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("onnxruntime", str(tmp_path / "none.onnx"), "none.npy", str(tmp_path), "float32", 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO(job.to_text() + "\n"))
    out = io.StringIO()
    assert worker.main(out) == 1
    assert "none.onnx" in json.loads(out.getvalue())["error"]


@pytest.mark.slow
def test_an_engine_that_cannot_be_started_is_named_and_left_out(tmp_path: Path) -> None:
    import onnx

    model, samples = models.resnet50(32, 8, (1,))
    onnx.save(model, tmp_path / "model.onnx")
    np.save(tmp_path / "samples.npy", samples)
    command = ["--peers-python", str(tmp_path / "none"), "--folder", str(tmp_path), "--engines", OURS, "litert"]
    args = bench.arguments([*command, "--rounds", "2", "--seconds", "0.001"])
    with (tmp_path / "log.txt").open("w") as log:
        found = bench.Bench(args, log).row(
            models.Model("small", tmp_path / "model.onnx", tmp_path / "samples.npy", 1), "int8", 1
        )
    assert "cannot be started" in found.missing["litert"]
    assert len(found.times[OURS].seconds) == 2
    assert found.correlation[OURS] > 0.9
    assert found.kernels[OURS] == (5, 5)


def test_loading_as_a_table() -> None:
    found = [
        Footprint("A", {OURS: (0.0123, 40_400_000), "litert": (0.005, 50_600_000)}),
        Footprint("B", {OURS: (1, 9)}),
    ]
    lines = table.loading(found).splitlines()
    assert lines[2:] == [
        "| model | nmpconv | LiteRT |",
        "| --- | ---: | ---: |",
        "| A | 12.3 / 40 | 5.0 / 51 |",
        "| B | 1000.0 / 0 | - |",
    ]
    assert table.loading([]) == ""


def test_a_fresh_process_tells_time_and_memory(tmp_path: Path) -> None:
    """Ours, which has no converter in its memory."""
    (tmp_path / "int8.nmp").write_bytes(to_bytes(small_net(), {}))
    np.save(tmp_path / "samples.npy", np.zeros((2, *small_net()["x"].shape), np.float32))
    job = Job(OURS, "", str(tmp_path / "samples.npy"), str(tmp_path), "int8", 1)
    code = "import json, sys; from peers import footprint, job; f = footprint.measure(job.Job.from_text(sys.argv[1])); "
    code += "print(json.dumps([f, 'onnx' in sys.modules]))"
    environment = bench._environment(1)
    done = subprocess.run(
        [sys.executable, "-c", code, job.to_text()], stdout=subprocess.PIPE, env=environment, check=True
    )
    measured, with_converter = json.loads(done.stdout)
    assert 0 < measured["seconds"] < 10
    assert 5e6 < measured["peak"] < 500e6
    assert not with_converter


def test_an_empty_graph_takes_no_time() -> None:
    """The bound is for the slowest machine; `make bench` prints what it is."""
    from peers.engines import ours

    assert 0 < ours.empty_run(calls=100, rounds=5) < 100e-6
