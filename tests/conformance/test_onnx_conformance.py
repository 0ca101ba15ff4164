"""The onnx package's own backend tests through the converter and the C runtime, each within a bound of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx
import pytest
from conform import Outcome, outcomes
from onnx_cases import OnnxCase, in_scope

HEADING = "## Refused cases of ONNX's own tests"
# Modules of the onnx package that import quickly, and the operators that their cases are about.
QUICK = {
    "argmax": "ArgMax",
    "batch_normalization": "BatchNormalization",
    "concat": "Concat",
    "conv": "Conv",
    "convtranspose": "ConvTranspose",
    "depthtospace": "DepthToSpace",
    "div": "Div",
    "gather": "Gather",
    "gemm": "Gemm",
    "greater": "Greater",
    "gridsample": "GridSample",
    "leakyrelu": "LeakyRelu",
    "lrn": "LRN",
    "prelu": "PRelu",
    "reducemean": "ReduceMean",
    "resize": "Resize",
    "slice": "Slice",
    "softmax": "Softmax",
    "spacetodepth": "SpaceToDepth",
    "where": "Where",
}
EVERY = 3  # of the cases of each of these operators, how many there are to one that runs in the quick tests


def run(cases: Iterable[OnnxCase], folder: Path, record_property) -> list[Outcome]:
    """Outcomes of all cases, counted for the summary at the end of the run."""
    found = [outcome for case in cases for outcome in outcomes(case, folder)]
    refused, failed = (sum(bool(getattr(o, field)) for o in found) for field in ("refused", "wrong"))
    counts = f"{len(found) - refused - failed} run, {refused} refused, {failed} failed"
    record_property("summary", f"ONNX cases at 8 and 16 bits: {counts}")
    return found


def failures(found: Iterable[Outcome]) -> list[str]:
    return [f"{o.case} at {o.bits} bits: {o.wrong}" for o in found if o.wrong]


def test_quick_cases(tmp_path, record_property):
    known = list(in_scope(tuple(QUICK)))
    cases = [case for op in QUICK.values() for case in [case for case in known if case.op == op][::EVERY]]
    assert {case.op for case in cases} == set(QUICK.values())
    found = run(cases, tmp_path, record_property)
    assert failures(found) == []
    assert sum(not o.refused for o in found) > 0.8 * len(found)


@pytest.mark.slow
def test_all_cases(tmp_path, record_property, root, bless):
    """None fails, and OPS.md lists those that are refused. (Another version of onnx may have other cases.)"""
    found = run(in_scope(), tmp_path, record_property)
    assert failures(found) == []
    path = root / "OPS.md"
    before, _, listed = path.read_text(encoding="utf-8").partition(HEADING)
    made = refusals(found)
    if bless:
        path.write_text(before + made, encoding="utf-8")
    elif f"onnx {onnx.__version__}" in listed:
        assert HEADING + listed == made, "pytest --bless writes the list anew"


def refusals(found: Iterable[Outcome]) -> str:
    """The section of OPS.md, by reason."""
    found = list(found)
    rows: dict[str, list[str]] = {}
    for outcome in found:
        if outcome.refused:
            rows.setdefault(outcome.refused, []).append(outcome.case)
    total, ran = len({o.case for o in found}), len({o.case for o in found if not o.refused})
    lines = [
        HEADING,
        "",
        f"Of the backend tests of onnx {onnx.__version__}, {total} are about the operators above with float data.",
        f"{ran} of them run, at 8 and at 16 bits; these are refused:",
        "",
        "| why | cases |",
        "| --- | --- |",
    ]
    for reason, cases in sorted(rows.items()):
        lines.append(f"| {reason.replace('|', '/')} | {', '.join(dict.fromkeys(cases))} |")
    return "\n".join(lines) + "\n"
