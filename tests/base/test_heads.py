"""The input of a final Softmax, as what a classifier is judged by."""

from __future__ import annotations

import pytest

from nmpconv.base.sqnr import head


@pytest.mark.parametrize(
    ("makers", "expected"),
    [
        ({}, "y"),
        ({"y": ("softmax", "x")}, "x"),
        ({"y": ("reshape", "s"), "s": ("softmax", "x")}, "x"),
        ({"y": ("reshape", "r"), "r": ("reshape", "s"), "s": ("softmax", "x")}, "x"),
        ({"y": ("reshape", "x")}, "y"),
        ({"y": ("add", "s"), "s": ("softmax", "x")}, "y"),
    ],
)
def test_head(makers: dict[str, tuple[str, str]], expected: str) -> None:
    assert head("y", makers.get) == expected
