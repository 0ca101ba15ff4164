"""`make costs ARGS=OP`: counts that op alone, and leaves the other rows of the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from zoo_quick import bench_module

from nmpconv.runtime.costs import TABLE, counted

COSTS = bench_module("costs")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs the command with these arguments on boards that take 7 instructions an output; returns the table."""

    def counts(target: str, name: str, data: bytes, reuse: bool) -> list[int]:
        return [round(7 * work.counts["outputs"]) for work in counted(data, target)]

    def command(*args: str) -> dict[str, dict[str, dict[str, float]]]:
        monkeypatch.setattr("sys.argv", ["costs.py", *args, "--output", str(tmp_path / "costs.json")])
        COSTS.main()
        return dict(json.loads((tmp_path / "costs.json").read_text())["targets"])

    monkeypatch.setattr(COSTS, "OUT", tmp_path)
    monkeypatch.setattr(COSTS, "firmware", lambda target: tmp_path)
    monkeypatch.setattr(COSTS, "counts", counts)
    return command


@pytest.mark.slow
def test_rows_of_the_op_alone_change(run) -> None:
    before, after = json.loads(TABLE.read_text())["targets"], run("gather_elements")
    assert list(after) == list(before)
    for target, rows in after.items():
        assert list(rows) == list(before[target])
        fresh = {name: row for name, row in rows.items() if row != before[target][name]}
        assert {name.split(" ")[0] for name in fresh} == {"gather_elements"}
        assert all(sum(row.values()) == pytest.approx(7, rel=1e-3) for row in fresh.values())


def test_an_op_without_shapes_says_where_they_go(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COSTS, "imported", lambda: iter(()))
    with pytest.raises(SystemExit, match=r"bench/cost_cases\.py has no case of softmax"):
        run("softmax")


def test_an_unknown_op(run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("softmux")
    assert "no op is called softmux" in capsys.readouterr().err
