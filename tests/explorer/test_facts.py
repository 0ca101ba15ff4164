"""Facts of a node in words, without Model Explorer, which is not installed for quick tests."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest


def test_what_has_nothing_to_say_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("Graph", "GraphNode", "IncomingEdge", "KeyValue", "MetadataItem")
    for name in ("model_explorer", "model_explorer.graph_builder"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**dict.fromkeys(names)))
    monkeypatch.delitem(sys.modules, "nmpconv.explorer.nodes", raising=False)
    from nmpconv.explorer.nodes import _text

    facts = {"kind": "conv2d", "name": "", "note": None, "sizes": (1, 2), "none": [], "is_const": False, "clipped": 0}
    assert _text(facts) == {"kind": "conv2d", "sizes": "1, 2", "is_const": "no", "clipped": "0"}
