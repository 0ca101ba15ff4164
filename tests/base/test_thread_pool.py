"""Work in threads: the results of a loop, its first error, and what is left idle for what is inside."""

from __future__ import annotations

from threading import Barrier, Semaphore, get_ident

import pytest

from nmpconv.base import thread_pool
from nmpconv.base.thread_pool import each


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
