"""Counts of fuzzing: rows that are added, and the page that has their sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz_inputs import __main__ as fuzzing
from fuzz_inputs import counts, native
from fuzz_inputs.counts import Count
from fuzz_inputs.kinds import KINDS

PAGE = "before\n<!-- counts: here -->\nold\n<!-- end of counts -->\nafter\n"


def test_the_page_has_the_sums(root: Path, bless: bool) -> None:
    path = root / "docs" / "results.md"
    wanted = counts.with_table(path.read_text(encoding="utf-8"), counts.counts())
    if bless:
        path.write_text(wanted, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == wanted


def test_every_target_is_described() -> None:
    assert set(counts.TARGETS) == {*native.TARGETS, *KINDS, "graphs"}


def test_sums() -> None:
    rows = [
        Count("2026-01-02", "frame", 1000, 900, 90, 1),
        Count("2026-01-03", "frame", 2000, 100, None, 2),
        Count("2026-01-01", "wasm", 7, 0, 30, 0),
    ]
    assert counts.with_table(PAGE, rows).splitlines() == [
        "before",
        "<!-- counts: here -->",
        "",
        "| target | runs | sanitized | minutes | faults | last |",
        "|---|---|---|---|---|---|",
        "| lines for the parser of frames | 3,000 lines | 1,000 | 1.5+ | 3 | 2026-01-03 |",
        "| `.nmp` in nmp.wasm, against C | 7 files | | 0.5 | 0 | 2026-01-01 |",
        "| all | 3,007 inputs | 1,000 | 2.0+ | 3 | 2026-01-03 |",
        "",
        "<!-- end of counts -->",
        "after",
    ]


def test_a_run_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, page = tmp_path / "counts.csv", tmp_path / "results.md"
    file.write_text("date,target,runs,sanitized,seconds,found\n2026-01-01,onnx,5,0,60,0\n")
    page.write_text(PAGE)
    monkeypatch.setattr(counts, "FILE", file)
    counts.record("onnx", 10, 59.6, 1, page)
    assert "| ONNX | 15 files | | 2.0 | 1 |" in page.read_text()
    counts.record("frame", 10, 59.6, True, page, sanitized=True)  # libFuzzer ends at a fault
    rows = [(row.target, row.runs, row.sanitized, row.seconds, row.found) for row in counts.counts()]
    assert rows[1:] == [("onnx", 10, 0, 60, 1), ("frame", 10, 10, 60, 1)]


def test_targets_with_the_least_time_come_first() -> None:
    rows = [
        Count("2026-01-02", "a", 9, 9, 90, 0),
        Count("2026-01-02", "b", 9, 9, 30, 0),
        Count("2026-01-02", "b", 9, 9, 30, 0),
    ]
    assert counts.least_first(["a", "b", "c"], rows) == ["c", "b", "a"]


def test_a_release_wants_so_many_and_an_hour_of_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [Count("2026-01-01", target, 10**8, 0, 3600, 0) for target in counts.TARGETS]
    assert counts.release_lacks(rows) == []
    rows = [row._replace(runs=1, seconds=row.seconds - (row.target in ("wasm", "graphs"))) for row in rows]
    monkeypatch.setattr(fuzzing, "counts", lambda: rows)
    monkeypatch.setattr("sys.argv", ["fuzz_inputs", "--enough"])
    assert fuzzing.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "24 inputs were tried in all, and a release wants 1,000,000,000.",
        "wasm was fuzzed for 3,599 of 3,600 seconds: make fuzz ARGS='--record --only wasm'.",
        "graphs was fuzzed for 3,599 of 3,600 seconds: make fuzz-models ARGS=--record.",
    ]


def test_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no target is called nothing"):
        counts.table([Count("2026-01-01", "nothing", 1, 0, 1, 0)])
    with pytest.raises(ValueError, match="no place"):
        counts.with_table("a page", [])
