"""Exports of the zoo's classifiers in onnxruntime: the interpreter's integers."""

from __future__ import annotations

from pathlib import Path

import pytest
from zoo_quick import bench_module, converted

from nmpconv.runtime.feed import Feed
from nmpconv.runtime.interpreter import load

pytestmark = [pytest.mark.zoo, pytest.mark.slow]
IMAGES = 12
BENCH = bench_module("qdq")


@pytest.mark.parametrize("name", BENCH.CLASSIFIERS)
def test_the_same_integers(name: str, zoo: Path, tmp_path: Path) -> None:
    result, samples = converted(zoo, name, "8", tmp_path)
    net = load(result.data)
    found = BENCH.compared(net, Feed(net, {"": samples}), IMAGES)
    assert found.images == IMAGES
    assert not found.fails, found
