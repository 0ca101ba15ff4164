"""The search for widths: what is proposed, what is taken and what is given back, on measurements that are made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from float_nets import RELU, feeds, in_bits, observed, on_grids, residual
from nets import Net

from nmpconv.conversion import mixed_precision
from nmpconv.conversion.candidates import Candidate, CandidateEvaluator, ValidationSet, widened, work
from nmpconv.conversion.mixed_precision import CostLimit, Goal, Journal, Search
from nmpconv.conversion.quantizer import Fitter, Recipe
from nmpconv.errors import InputError, UsageError
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.overrides import NOTHING
from nmpconv.passes.quantize.rounding import Rounding

NOISE = {"a": 60.0, "d": 20.0, "s": 10.0, "t": 6.0, "p": 3.0, "e": 0.5}  # in % of the noise at 8 bits


def measured(wide: tuple[str, ...]) -> dict:
    """A net in which noise adds up: 20 dB at 8 bits. Each tensor takes 100 bytes of RAM and 10 instructions."""
    left = sum(noise for name, noise in NOISE.items() if name not in wide) + 0.5
    db = 20 - 10 * float(np.log10(left / 100))
    one = Candidate(wide, db, 100 - left / 10, left / 50, 1000 + 100 * len(wide), 5000, 100, 100 + 10 * len(wide))
    return {"candidate": asdict(one), "shares": {n: v / left for n, v in NOISE.items() if n not in wide}}


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Search]:
    net = residual()
    images = feeds(net)
    bits = in_bits(net, 8, x=16, y=16)
    fitter = Fitter(net, observed(net, images), bits, Method(), Rounding(), images)

    def made(goal: str | None = None, *budget: str, journal: Path | None = None, of: str = "net") -> Search:
        asked = None if goal is None else Goal.of(goal)
        trial = ValidationSet(images, [0] * len(images), images, lambda graph: graph)
        monkeypatch.setattr(CandidateEvaluator, "top1", lambda self, scores: 100.0)
        limits = dict(CostLimit.of(text) for text in budget)
        found = Search(fitter, Recipe("none", False), trial, asked, limits, Journal(journal, of), lambda *told: None)
        monkeypatch.setattr(Search, "_measure", lambda self, wide, shares: measured(wide))
        return found

    return made


def test_what_has_no_need_gets_nothing(search: Callable[..., Search]) -> None:
    for goal in ("sqnr=20", "agreement=89", "top1-drop=2.1"):
        taken, front = search(goal).run()
        assert (taken.wide, [one.taken for one in front]) == ((), [True])


@pytest.mark.parametrize(
    ("goal", "expected"),
    [("sqnr=23.5", {"a"}), ("sqnr=26.5", {"a", "d"}), ("agreement=95", {"a"}), ("top1-drop=0.5", {"a", "d"})],
)
def test_no_more_than_the_goal_needs(search: Callable[..., Search], goal: str, expected: set[str]) -> None:
    taken, front = search(goal).run()
    assert set(taken.wide) == expected
    assert Goal.of(goal).met(taken)
    assert [one.wide for one in front if one.taken] == [taken.wide]


def test_a_goal_out_of_reach(search: Callable[..., Search]) -> None:
    """A tensor that makes less than a hundredth of the noise that is left gets nothing; the rest does."""
    made = search("sqnr=60")
    taken, _ = made.run()
    assert set(taken.wide) == set(NOISE)
    assert made.warnings(taken)[0].startswith("the goal sqnr=60 is not reached by tensors")
    assert search("sqnr=20").warnings(taken) == ()


@pytest.mark.parametrize(
    ("budget", "most"),
    [
        ("ram=1100", 1),
        ("ram=1k", 0),
        ("ram=+25%", 2),
        ("instructions=+30%", 3),
        ("instructions=120", 2),
        ("flash=5000", 6),
    ],
)
def test_budgets_hold(search: Callable[..., Search], budget: str, most: int) -> None:
    for goal in ("sqnr=60", None):
        made = search(goal, budget)
        taken, _ = made.run()
        assert len(taken.wide) <= most
        assert bool(taken.wide) == bool(most)
        if goal:
            assert "is not reached within the budget" in made.warnings(taken)[0]


def test_a_budget_that_8_bits_break(search: Callable[..., Search]) -> None:
    with pytest.raises(UsageError, match="ram: 1000 at 8 bits already, 900 allowed"):
        search("sqnr=30", "ram=900").run()


def test_the_front_has_nothing_that_is_bettered(search: Callable[..., Search]) -> None:
    _, front = search("sqnr=31").run()
    for one in front:
        assert not any(o.ram <= one.ram and o.instructions <= one.instructions and o.db > one.db for o in front)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_only_so_many_candidates_are_measured(
    search: Callable[..., Search], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(mixed_precision, "CANDIDATES_MOST", most)
    made = search("sqnr=60")
    made.run()
    assert len(made._measured) == most


@pytest.mark.parametrize("goal", ["sqnr=60", None])
def test_what_brings_nothing_is_given_up(
    search: Callable[..., Search], monkeypatch: pytest.MonkeyPatch, goal: str | None
) -> None:
    made = search(goal)
    monkeypatch.setattr(Search, "_measure", lambda self, wide, shares: measured(wide) | {"candidate": equal(wide)})

    def equal(wide: tuple[str, ...]) -> dict:
        return measured(wide)["candidate"] | {"db": measured(())["candidate"]["db"]}

    assert made.run()[0].wide == ()


def test_widths_that_were_given_stay(search: Callable[..., Search]) -> None:
    found = widened(NOTHING, ["a"], "here")
    assert found.tensors["a"]["bits"].value == 16
    assert widened(found, ["d"], "here").tensors.keys() == {"a", "d"}


def test_a_journal_is_gone_on_with(
    search: Callable[..., Search], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, done = tmp_path / "j.json", []

    def killed(self: Search, wide: tuple[str, ...], shares: bool) -> dict:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(wide)
        return measured(wide)

    whole = search("sqnr=31").run()
    made = search("sqnr=31", journal=path)
    monkeypatch.setattr(Search, "_measure", killed)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert len(json.loads(path.read_text())["measured"]) == 2
    again = search("sqnr=31", journal=path)
    later: list[tuple[str, ...]] = []
    monkeypatch.setattr(Search, "_measure", lambda self, wide, shares: later.append(wide) or measured(wide))
    assert again.run() == whole
    assert not {*later} & {*done}
    later.clear()
    assert search("sqnr=31", journal=path, of="another net")._measured == {}
    other = search("sqnr=31", journal=path, of="another net")
    monkeypatch.setattr(Search, "_measure", lambda self, wide, shares: later.append(wide) or measured(wide))
    assert other.run() == whole
    assert () in later


@pytest.mark.parametrize("text", ["", "[]", '{"of": "net"}', "{" * 3000, '{"of": "net", "measured": 3}'])
def test_a_wrong_journal(tmp_path: Path, text: str) -> None:
    (tmp_path / "j.json").write_text(text)
    with pytest.raises(InputError, match="not a journal of --bits auto"):
        Journal(tmp_path / "j.json", "net")


@pytest.mark.parametrize("text", ["sqnr", "sqnr=", "sqnr=a", "sqnr=1e9", "ssim=3", "sqnr=30 ", "top1=1", "sqnr=-3"])
def test_goals_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not allowed; allowed: sqnr=30"):
        Goal.of(text)


@pytest.mark.parametrize("text", ["ram", "ram=+3", "ram=3%", "instructions=1t", "time=+3%", "ram=-1", "flash=1kk"])
def test_budgets_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not allowed; allowed: "):
        CostLimit.of(text)


def test_limits() -> None:
    assert CostLimit.of("ram=64k") == ("ram", CostLimit(65536.0, False))
    assert CostLimit.of("flash=1M") == ("flash", CostLimit(1048576.0, False))
    assert CostLimit.of("instructions=+10%") == ("instructions", CostLimit(1.1, True))
    assert CostLimit.of("instructions=5m") == ("instructions", CostLimit(5e6, False))


def test_work_counts_bytes() -> None:
    net = Net()
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 5, 3, clamp=RELU)
    net.conv("a", "y", 2)
    graph = net.graph("y")

    def of(bits: int) -> int:
        grids = on_grids(graph, x=(8, -4), a=(bits, -4), y=(8, -4))
        return work(grids.with_values(*(v for v in (_typed(grids, n) for n in "xay"))))

    def _typed(grids, name):
        from dataclasses import replace

        return replace(grids[name], dtype=grids[name].quant.dtype)

    assert of(8) == 16 * 27 * 5 + 16 * 5 + 16 * 10 + 32
    assert of(16) == 16 * 27 * 5 + 2 * 16 * 5 + 2 * 16 * 10 + 32


def test_work_counts_the_wider_operand() -> None:
    net = Net()
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "y", 5, 3)
    graph = on_grids(net.graph("y"), x=(8, -4), y=(8, -4))
    weight = graph.nodes[0].inputs[1]
    typed = graph.with_values(*(replace(graph[name], dtype="int8") for name in "xy"))
    wide = typed.with_values(replace(graph[weight], dtype="int16"))
    assert (work(typed), work(wide)) == (16 * 27 * 5 + 80, 2 * 16 * 27 * 5 + 80)
