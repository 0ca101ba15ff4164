"""Work in threads: the results of a loop, its first error, and what is left idle for what is inside."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, Semaphore, get_ident
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from nmpconv import bisection
from nmpconv.base import thread_pool
from nmpconv.base.progress import silent
from nmpconv.base.thread_pool import each
from nmpconv.conversion import candidates
from nmpconv.passes.quantize.overrides import NOTHING


@pytest.fixture(params=[0, 1, 3])
def idle(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Semaphore:
    found = Semaphore(request.param)
    monkeypatch.setattr(thread_pool, "_idle", found)
    return found


def left(idle: Semaphore) -> int:
    count = 0
    while idle.acquire(blocking=False):
        count += 1
    return count


def test_results_are_in_the_order_of_the_items(idle: Semaphore) -> None:
    before = idle._value
    assert each(lambda i: each(lambda k: 10 * i + k, range(4)), range(5)) == [
        [10 * i + k for k in range(4)] for i in range(5)
    ]
    assert each(str, []) == []
    assert left(idle) == before


def test_the_first_error_ends_it(idle: Semaphore) -> None:
    before, done = idle._value, []

    def some(i: int) -> None:
        if i in (3, 4):
            raise ValueError(i)
        done.append(i)

    with pytest.raises(ValueError, match="3"):
        each(some, range(100))
    assert set(done) >= {0, 1, 2}
    assert len(done) < 50
    assert left(idle) == before


def test_idle_cpus_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have begun before one of them ends; and where all are in use, one thread does everything."""
    monkeypatch.setattr(thread_pool, "_idle", Semaphore(1))
    both = Barrier(2)
    threads = each(lambda i: (both.wait(20), get_ident(), set(each(lambda k: get_ident(), range(9))))[1:], range(2))
    assert len({thread for thread, _ in threads}) == 2
    assert len(set(each(lambda i: get_ident(), range(9), most=1))) == 1
    assert thread_pool._idle._value == 1


def test_who_waits_leaves_its_cpu_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first item ends at once, so there are two CPUs for what is inside of the second."""
    monkeypatch.setattr(thread_pool, "_idle", Semaphore(1))
    begun, inside = Barrier(2), Barrier(2)

    def some(i: int) -> list[int]:
        begun.wait(20)
        while i == 1 and not thread_pool._idle._value:
            pass
        return each(lambda k: inside.wait(20), range(2)) if i == 1 else []

    assert sorted(each(some, range(2))[1]) == [0, 1]


class Asked:
    """Stands for trials; tells how many threads BLAS has."""

    def convert(self, *asked: object) -> Any:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_blas_has_one_thread_as_in_a_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sums depend on how many there are."""

    def rebuild(*asked: object) -> Any:
        raise LookupError(Asked().convert())

    monkeypatch.setattr(bisection, "rebuild", rebuild)
    monkeypatch.setattr(bisection.reader, "read", lambda content: content)
    with threadpool_limits(2):
        assert Asked().convert() == {2}
        assert candidates._converted(Asked(), (NOTHING, ())) == {1}  # type: ignore[arg-type]
        with pytest.raises(LookupError) as caught:
            bisection.bisect(Path("m"), Path("m.nmp"), b"", {}, recipe=None, metric=None, decoder=None, progress=silent)
    assert caught.value.args == ({1},)
