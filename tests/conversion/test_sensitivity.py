"""Gains of one tensor's width: what counts as help, beside what a few images can tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nets import Net

from nmpconv.bisection import NOTHING, _recipe
from nmpconv.cli.report_tables import show_levers
from nmpconv.conversion.candidates import Candidate, EvaluatedCandidate
from nmpconv.conversion.sensitivity import Lever, Proposal, measured
from nmpconv.conversion.validation import Score
from nmpconv.passes.quantize.overrides import Choices

IMAGES = 34


def converted(db: float, agreed: int, effects: np.ndarray) -> EvaluatedCandidate:
    figures = Candidate((), db, 100 * agreed / len(effects), None, 1000, 5000, 900, 700)
    score = Score(db, None, len(effects))
    return EvaluatedCandidate(figures, None, b"", effects, score)  # type: ignore[arg-type]


def levers(*made: EvaluatedCandidate, base: EvaluatedCandidate) -> list[Lever]:
    """As they come of conversions with 16 bits at one tensor each."""
    net = Net()
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "y", 4)
    fitter = SimpleNamespace(graph=net.graph("y"))
    trials: Any = SimpleNamespace(fitter=fitter, trial=SimpleNamespace(target=None), all=lambda *_: iter(made))
    asked = [Proposal("tensors", f"t{i}", {"bits": 16}) for i in range(len(made))]
    return [lever for lever, _ in measured(trials, Choices(), base, asked, lambda *_: None)]


@pytest.fixture
def noise() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 3, IMAGES)


def test_help_is_what_gains_more_than_chance(noise: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    """The same images move both conversions alike, so a small gain that all of them have counts, and a large one that
    comes of few does not."""
    base, unlike = converted(20.0, 32, noise), np.random.default_rng(1).normal(0, 3, IMAGES)
    found = levers(
        converted(20.4, 33, noise + unlike / 20),
        converted(20.9, 31, unlike),
        converted(18.82, 31, noise),
        converted(20.2, 32, noise + unlike / 60),
        base=base,
    )
    assert [(one.name, one.helps, one.agreed) for one in found] == [
        *(("t0", True, 1), ("t3", True, 0)),
        *(("t1", False, -1), ("t2", False, -1)),
    ]
    assert [one.images for one in found] == [IMAGES] * 4
    show_levers(found, {})
    helping, others = capsys.readouterr().out.split("What was tried, and gains no more than chance")
    assert "What would help most, each alone, on 34 samples" in helping
    assert "t0" in helping and "t3" in helping and "+1 of 34" in helping
    assert "t1" in others and "-1.18" in others and "-1 of 34" in others
    assert "t1" not in _recipe(found) and "t3" in _recipe(found)
    assert _recipe(found[2:]) == NOTHING


def test_two_images_prove_nothing(noise: np.ndarray) -> None:
    [one] = levers(converted(30.0, 2, noise[:2]), base=converted(20.0, 1, noise[:2]))
    assert (one.db, one.db_margin, one.helps) == (10.0, None, False)
