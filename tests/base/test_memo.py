"""Results that are made once: by which thread, how often, until when."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from nmpconv.base.memo import Is, Memo, Recent


def test_two_threads_make_a_result_once() -> None:
    memo, start, made = Memo(), Barrier(4), []

    def ask(_: int) -> list[int]:
        start.wait()
        return memo("list", "key", lambda: made.append(1) or [len(made)])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(4)))
    assert len(made) == 1
    assert all(one is found[0] for one in found)


def test_a_result_may_ask_for_another() -> None:
    memo = Memo()
    assert memo("sum", (1, 2), lambda: memo("one", 1, lambda: 10) + memo("one", 2, lambda: 20)) == 30
    assert memo.of("one") == [(1, 10), (2, 20)]


def test_what_fails_is_made_again() -> None:
    memo = Memo()
    with pytest.raises(ZeroDivisionError):
        memo("quotient", 0, lambda: 1 // 0)
    assert memo.find("quotient", 0) is None
    assert memo("quotient", 0, lambda: 7) == 7


def test_kinds_are_dropped_apart() -> None:
    memo = Memo()
    for key in range(4):
        memo("even", key, lambda key=key: key)
        memo("odd", key, lambda key=key: -key)
    memo.keep("even", lambda key: key % 2 == 0)
    assert [key for key, _ in memo.of("even")] == [0, 2]
    assert [key for key, _ in memo.of("odd")] == [0, 1, 2, 3]
    assert memo.find("even", 1) is None
    assert memo.find("odd", 1) == -1


def test_a_thing_is_itself_alone() -> None:
    memo, one, like = Memo(), [1], [1]
    memo("length", Is(one), lambda: 1)
    assert memo.find("length", Is(one)) == 1
    assert memo.find("length", Is(like)) is None


def test_a_pickled_copy_is_empty() -> None:
    memo = Memo()
    memo("kind", 1, lambda: object())
    assert pickle.loads(pickle.dumps(memo)).of("kind") == []


def test_recent_results_are_known_again() -> None:
    recent, made = Recent[int](2), list[int]()

    def asked(number: int) -> int:
        return recent(number, lambda: made.append(number) or 10 * number)

    assert [asked(n) for n in (1, 2, 1, 3, 1, 2)] == [10, 20, 10, 30, 10, 20]
    assert made == [1, 2, 3, 2]  # 2 was asked for longer ago than 1
