"""The profile: reads back as written, can be edited, says what is wrong and where."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nmpconv.calib import profile as profiles
from nmpconv.calib.exponent_search import choose
from nmpconv.calib.observers import TensorStats
from nmpconv.calib.profile import Profile
from nmpconv.errors import InputError, OutputError
from nmpconv.graph.text import graph_hash, parse
from nmpconv.ir import Graph

RNG = np.random.default_rng(8)


def graph(out: str = "y 1") -> Graph:
    return parse(f"""
graph g
input x : float32[1,4,4,3]
clip = requantize(x)
  {json.dumps(out)} : float32[1,4,4,3] clamp=[0.0,6.0]
output {json.dumps(out)}
""")


def stats_of(x: np.ndarray) -> TensorStats:
    return TensorStats.of(x.astype(np.float32))


def made() -> Profile:
    x = RNG.normal(size=(1, 40, 40, 3)) * 2.3
    return Profile(graph_hash(graph()), {"x": stats_of(x), "y 1": stats_of(np.clip(x, 0, 6))})


@pytest.fixture
def text() -> str:
    return profiles.to_text(made())


def edited(text: str, name: str, lo: float, hi: float) -> Profile:
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith(f'"{name}"'))
    lines[at] = f'"{name}"   {lo} {hi}'
    return profiles.from_text("\n".join(["", "# edited", *lines]).lstrip())


def test_round_trip_keeps_every_choice(tmp_path: Path) -> None:
    odd = {
        "zeros": stats_of(np.zeros((1, 3))),
        "wide": stats_of(RNG.normal(size=(1, 5000))),
        'odd "ü"\n': stats_of(RNG.normal(size=(2, 3)) * 1e-20),
        "tiny": stats_of(np.full((2, 3), 1e-35)),
        "huge": stats_of(np.array([[3e38, -3e38]])),
    }
    profile = Profile("abc", {**made().stats, **odd})
    profiles.save(tmp_path / "p.txt", profile)
    loaded = profiles.load(tmp_path / "p.txt")
    assert profiles.to_text(loaded) == profiles.to_text(profile)
    assert (tmp_path / "p.txt").read_text(encoding="utf-8") == profiles.to_text(profile)
    for name, stats in profile.stats.items():
        back = loaded.stats[name]
        assert (back.min, back.max, back.mean, back.count) == (stats.min, stats.max, stats.mean, stats.count)
        assert (back.channel_mean is None) == (stats.channel_mean is None)
        for bits, method in ((8, "mse"), (8, "kl"), (8, "percentile"), (8, "max"), (16, "mse")):
            assert choose(back, bits, method) == choose(stats, bits, method)


def test_stats_for_the_graph_that_was_calibrated(text: str) -> None:
    assert list(profiles.from_text(text).stats_for(graph())) == ["x", "y 1"]


def test_narrowing_and_widening_a_range(text: str) -> None:
    narrow = edited(text, "x", -1.5, 1.75).stats["x"]
    assert (narrow.min, narrow.max) == (-1.5, 1.75)
    assert narrow.channel_max is not None
    assert narrow.channel_max.max() == 1.75
    low, high, _ = narrow.histogram.bins()
    assert low.min() <= -1.5 < high.min()
    assert low.max() <= 1.75 < high.max()
    assert choose(narrow, 8, "max") == -6
    assert choose(narrow, 8) <= -6
    wide = edited(text, "x", -100, 2).stats["x"]
    assert choose(wide, 8, "max") == 0
    assert wide.histogram.total == narrow.histogram.total


def test_another_graphs_profile_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"hash [0-9a-f]+, the model's is [0-9a-f]+; 1 of .* missing, 'q' first; 1 .*'y 1'"
    ):
        profiles.from_text(text).stats_for(graph("q"))
    lines = [line for line in text.split("\n") if not line.startswith('"y 1"')]
    with pytest.raises(InputError, match="1 of the model's tensors are missing, 'y 1' first"):
        profiles.from_text("\n".join(lines)).stats_for(graph())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (3, '"x" 1'),
        (3, '"x" 1 2 3'),
        (3, '"x" 2 1'),
        (3, '"x" nan 1'),
        (3, '"x" -1e39 1'),
        (3, "x 1 2"),
        (3, "3 1 2"),
        (3, '"x'),
        (3, '"y 1" 0 1'),
        (1, "hash 12"),
        (6, '"x" 48 0.5 0 3 4090:1*9 -'),
        (6, '"x" 48 0.5 0 3 -1:1 -'),
        (6, '"x" 48 0.5 0 3 5:-1 -'),
        (6, '"x" 48 0.5 0 3 5:1*-1 -'),
        (6, '"x" 48 0.5 0 300 5:1 -'),
        (6, '"x" -1 0.5 0 3 5:1 -'),
        (6, '"x" 48 inf 0 3 5:1 -'),
        (6, '"x" 48 0.5 0 3 5:1'),
        (6, '"x" 48 0.5 0 3 5:one -'),
        (6, '"x" 48 0.5 0 3 5:1 AAAA'),
        (6, '"x" 48 0.5 0 3 5:1 !,!,!'),
        (6, '"x" 48 0.5 0 3 5:1 AAAAAA==,AAAAAA==,AAAAAA=='),
        (6, '"z" 48 0.5 0 3 5:1 -'),
    ],
)
def test_a_damaged_line_is_named(text: str, line: int, message: str) -> None:
    lines = text.split("\n")
    lines[line] = message
    with pytest.raises(InputError, match=rf"p\.txt:({line + 1}|5): .+\(restore the line\)"):
        profiles.from_text("\n".join(lines), where="p.txt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a profile"),
        ("hello", "not a profile"),
        ("nmpconv profile 7\n", "a profile of version 7; this nmpconv reads 1"),
        ('nmpconv profile 1\ngraph a\nranges\n"x" 0 1\nstatistics\n', "1 tensors have no statistics, 'x' first"),
    ],
)
def test_what_is_no_profile(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        profiles.from_text(text)


def test_unreadable_and_unwritable_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        profiles.load(tmp_path / "gone.txt")
    for data, message in ((b"\xff\x00", "byte 0 is not UTF-8 text"), (b"\xff\xfe\x00", "byte 2 is not UTF-16 text")):
        (tmp_path / "bytes.txt").write_bytes(data)
        with pytest.raises(InputError, match=f"not a profile: {message}"):
            profiles.load(tmp_path / "bytes.txt")
    with pytest.raises(OutputError, match=r"the folder .*no does not exist"):
        profiles.save(tmp_path / "no" / "p.txt", made())


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles.save(tmp_path / "p.txt", made())
    before = (tmp_path / "p.txt").read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OutputError, match="No space left on device"):
        profiles.save(tmp_path / "p.txt", Profile("other", {}))
    assert [p.name for p in tmp_path.iterdir()] == ["p.txt"]
    assert (tmp_path / "p.txt").read_bytes() == before


def test_a_line_without_peaks_is_read() -> None:
    stats = TensorStats.of(np.arange(12, dtype=np.float32).reshape(3, 4))
    text = profiles.to_text(Profile("hash", {"x": stats}))
    before, _, last = text.rstrip("\n").rpartition(" ")
    assert last.startswith("1:")
    old, new = (profiles.from_text(t).stats["x"] for t in (before, text))
    assert old.peak_mean is None
    assert new.peak_mean is not None
    np.testing.assert_array_equal(old.reach(), [8, 9, 10, 11])
    np.testing.assert_array_equal(new.peak_mean, [8, 9, 10, 11])


@pytest.mark.parametrize("runs", ["0:5*0", "0:5*-1", "4096:1", "0:1,2*0", "0:-1", f"0:{2**62}"])
def test_runs_that_count_nothing(runs: str) -> None:
    with pytest.raises(ValueError, match="a run "):
        profiles._counts(runs)
