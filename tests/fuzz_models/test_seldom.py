"""Steps whose nodes are several, or of another domain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz_models import patterns, seldom
from fuzz_models.case import load, save
from fuzz_models.checks import check
from fuzz_models.net import Net


@pytest.mark.parametrize(
    "step",
    [
        seldom.frames,
        seldom.pieces,
        seldom.standardized,
        seldom.normalized,
        seldom.compressed,
        patterns.scan,
        patterns.loop,
    ],
)
def test_sequences_and_other_domains(step: Callable[[Net, str], str], tmp_path: Path) -> None:
    """They are drawn, written, read again and checked; nobody asks for the value of a sequence."""
    kinds = set()
    for seed in range(6):
        net = Net(seed)
        net.opset, net.half = 17, False
        net.input((1, 4, 6), net.noise.normal(size=(net.samples, 1, 4, 6)))
        y = net.attempt(step, next(iter(net.feeds)))
        if y is None:
            continue
        case = net.case([y])
        save(tmp_path / "a.onnx", case)
        again, _ = load(tmp_path / "a.onnx")
        assert [node.kind for node in again.nodes] == [node.kind for node in case.nodes]
        outcome = check(again, tmp_path, ("float",))
        assert outcome.figures["float"] > 90 and not outcome.failures, outcome
        kinds.update(node.kind for node in case.nodes)
    assert kinds
