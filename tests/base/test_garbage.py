"""Collections of garbage, seldom while a graph is made."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from nmpconv.base.garbage import SELDOM, seldom_collected
from nmpconv.conversion import pipeline
from nmpconv.conversion.context import Context
from nmpconv.conversion.options import Options


def test_seldom_within_and_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with seldom_collected():
        assert gc.get_threshold() == SELDOM != before
    assert gc.get_threshold() == before


def test_two_that_overlap_leave_what_was_before() -> None:
    before = gc.get_threshold()
    first, second = seldom_collected(), seldom_collected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() == SELDOM
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_a_program_that_never_collects_does_not() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with seldom_collected():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_a_conversion_by_the_library_collects_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[int, int, int]]()

    def stop(context: Context, data: object) -> None:
        seen.append(gc.get_threshold())
        raise KeyError

    monkeypatch.setattr(pipeline, "import_model", stop)
    before = gc.get_threshold()
    with pytest.raises(KeyError):
        pipeline.convert(Path("net.onnx"), None, Options(), lambda *step: None)
    assert (seen, gc.get_threshold()) == ([SELDOM], before)
