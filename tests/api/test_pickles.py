"""Nets and results go to other processes by pickle, and are copied."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import cli_files
import numpy as np
import pytest

import nmpconv
from nmpconv.runtime.interpreter import Net

ARRAYS = np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)
WAYS: dict[str, Callable[[Net], Net]] = {
    "pickle": lambda net: pickle.loads(pickle.dumps(net)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "net.copy": Net.copy,
}


@pytest.fixture(scope="module")
def converted() -> nmpconv.Converted:
    return nmpconv.convert(cli_files.onnx_model(), ARRAYS)


def call(net: Net, x: np.ndarray) -> list[np.ndarray]:
    return net(x)


@pytest.mark.parametrize("way", WAYS)
def test_nets_are_copied(way: str, converted: nmpconv.Converted) -> None:
    net = converted.load(cpu="portable", threads=2)
    other = WAYS[way](net)
    assert other is not net
    assert (other.cpu, other.threads, other.data) == ("portable", 2, net.data)
    np.testing.assert_array_equal(other(ARRAYS)["y"], net(ARRAYS)["y"])
    once_more = WAYS[way](other)  # a copy of a copy
    del net, other
    assert once_more(ARRAYS)["y"].shape == (8, 3)


@pytest.mark.parametrize("way", WAYS)
def test_states_of_a_copy_are_at_their_start(way: str) -> None:
    from onnx_text import build

    model = build("(float[1,4] x, float[1,4] h) => (float[1,4] y) { y = Add(x, h) }", 17)
    net = nmpconv.convert(model, {"x": ARRAYS[:, 0, :1, :4]}, state=["y=h"]).load()
    start = net.states()["h"]
    net(ARRAYS[0, 0, :1, :4])
    assert (net.states()["h"] != start).any()
    np.testing.assert_array_equal(WAYS[way](net).states()["h"], start)


def test_levels_that_nobody_asked_for_are_not_kept(converted, monkeypatch) -> None:
    """Another machine takes its own best one."""
    monkeypatch.setenv("NMP_CPU", "portable")
    text = pickle.dumps(converted.load())
    monkeypatch.delenv("NMP_CPU")
    assert pickle.loads(text).cpu == converted.load().cpu


def test_results_are_pickled(converted) -> None:
    again = pickle.loads(pickle.dumps(converted))
    assert bytes(again) == bytes(converted)
    assert repr(again) == repr(converted)
    outputs = pickle.loads(pickle.dumps(converted.load()(ARRAYS)))
    np.testing.assert_array_equal(outputs["y"], converted.load()(ARRAYS)["y"])


def test_another_process_runs_a_net(converted) -> None:
    net = converted.load()
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found = pool.submit(call, net, ARRAYS).result()
    np.testing.assert_array_equal(found["y"], net(ARRAYS)["y"])
