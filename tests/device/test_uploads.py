"""Some hundred uploads of a keyword spotter over a line that harms bytes; tests/device/uploads.py makes thousands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import uploads
from zoo_quick import converted

JOBS = 4

pytestmark = [pytest.mark.slow, pytest.mark.zoo]


@pytest.mark.parametrize(("count", "share"), [(100, 0.001), (20, 0.005)])
def test_many_uploads(
    agent: Path, zoo: Path, tmp_path: Path, count: int, share: float, record_property: Callable[[str, object], None]
) -> None:
    """None is wrong, and each ends. At 0.5 % a frame of 256 bytes has every byte right in one of thirteen tries."""
    result, _ = converted(zoo, "mlperf_kws_dscnn", "8", tmp_path)
    harm = uploads.Harm(lost=share, flipped=share)
    found = list(uploads.uploads(agent, result.data, range(count), harm, JOBS))
    record_property("summary", f"{share:.1%} of the bytes lost and as many flipped: {uploads.summary(found)}")
    outcomes = {one.outcome for one in found}
    assert outcomes <= {uploads.RIGHT, uploads.GIVEN_UP} and found[0].faults > 10
    assert share > 0.001 or outcomes == {uploads.RIGHT}
