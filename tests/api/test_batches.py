"""A batch is computed on all cores, with the results of its samples one by one."""

from __future__ import annotations

import pickle
from fractions import Fraction
from math import floor
from threading import Semaphore, active_count

import cli_files
import numpy as np
import pytest

import nmpconv
from nmpconv.base import thread_pool
from nmpconv.errors import InputError
from nmpconv.runtime import interpreter
from nmpconv.runtime.interpreter import Net
from nmpconv.runtime.ports import on_grid

COUNT = 203  # a number that no number of threads divides


@pytest.fixture(scope="module")
def floats() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(COUNT, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def file(floats: np.ndarray) -> bytes:
    return nmpconv.convert(cli_files.onnx_model(), floats[:8]).data


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose threads are always worth their start; three samples become integers at a time."""
    monkeypatch.delenv("NMP_THREADS", raising=False)
    monkeypatch.setattr(thread_pool, "_idle", Semaphore(3))
    monkeypatch.setattr(interpreter, "cpu_count", lambda: 4)
    monkeypatch.setattr(interpreter, "WORTH", 0.0)
    monkeypatch.setattr(interpreter, "AT_ONCE", 3 * 3 * 8 * 8)


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize("threads", [None, 1, 3])
def test_batches_in_threads(file: bytes, floats: np.ndarray, threads: int | None) -> None:
    net = nmpconv.load(file, threads=threads)
    alone = nmpconv.load(file, threads=1)
    wanted = np.concatenate([alone.run(x)[0] for x in floats])
    before = active_count()
    for batch in (floats, floats.transpose(0, 2, 3, 1), floats.astype(np.float64), floats[:, np.newaxis]):
        np.testing.assert_array_equal(net.run(batch)[0], wanted)
        np.testing.assert_array_equal(net.run(batch[: COUNT // 2])[0], wanted[: COUNT // 2])
    assert active_count() == before
    assert bool(net._spares) is (threads != 1)
    assert len(net._spares) <= (threads or 4)
    for other in (net.copy(), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(other.run(floats)[0], wanted)


@pytest.mark.usefixtures("four_cores")
def test_a_sample_that_is_refused(file: bytes, floats: np.ndarray) -> None:
    """Wherever it stands; the net goes on."""
    net = nmpconv.load(file)
    for i in (0, 4, COUNT - 1):
        wrong = floats.copy()
        wrong[i, 1, 2, 3] = np.nan
        with pytest.raises(InputError, match="not finite"):
            net.run(wrong)
    assert net.run(floats)[0].shape == (COUNT, 3)


@pytest.mark.usefixtures("four_cores")
def test_threads_that_share_a_net(file: bytes, floats: np.ndarray) -> None:
    net = nmpconv.load(file)
    wanted = net.run(floats)[0]
    thread_pool._idle = Semaphore(6)
    found = thread_pool.each(lambda i: net.run(floats[i:])[0], range(8))
    for i, one in enumerate(found):
        np.testing.assert_array_equal(one, wanted[i:])


def test_few_samples_are_not_worth_threads(file: bytes, floats: np.ndarray) -> None:
    net = Net(file)
    net.run(floats[:2])
    assert net._spares == []


@pytest.mark.parametrize("exponent", [-127, -126, -31, -5, 0, 3, 126, 127])
@pytest.mark.parametrize(("dtype", "lo", "hi"), [("int8", -128, 127), ("int8", -3, 90), ("int16", -32768, 32767)])
def test_numbers_on_a_grid(exponent: int, dtype: str, lo: int, hi: int) -> None:
    """In C they are the exact ones: at halves and beside them, at zero and at the ends of float32."""
    halves = np.concatenate([np.arange(-400, 400) / 2, [-32768.5, -32767.5, 32766.5, 32767.5, 1e9, -1e9]])
    with np.errstate(over="ignore"):
        at = (halves * 2.0**exponent).astype(np.float32)
    ends = np.array([0, -0.0, 1e-45, -1e-45, 1.2e-38, -1.2e-38, 3e38, -3e38], np.float32)
    x = np.concatenate([at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(-np.inf)), ends])
    x = x[np.isfinite(x)]
    wanted = [min(max(floor(Fraction(float(one)) / Fraction(2) ** exponent + Fraction(1, 2)), lo), hi) for one in x]
    for given in (x, x.astype(np.float64)):
        found = on_grid(given, exponent, lo, hi, dtype)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, wanted)
