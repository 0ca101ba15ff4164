"""C and Python say the same of files that know the schema, and where they do not, that is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from verified import OWN, Status, difference, in_c, in_python

from fuzz_inputs import verifiers
from nmpconv.file import flatbuffer, semantics
from nmpconv.ops import OPS

MUTANTS, VAST, MANY = 400, 1000, 12_000
DEPTHS = (Status.OK, Status.STRUCTURE, Status.TENSOR, Status.OP, Status.PLAN, Status.ORDER, Status.LIMIT)


@pytest.fixture(scope="module")
def good() -> list[bytes]:
    return verifiers.files()


def mutants(good: list[bytes], seed: int, count: int) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    return (verifiers.mutant(rng, good) for _ in range(count))


def kinds(data: bytes) -> set[str]:
    return {flatbuffer.KINDS[op["params"][0]] for op in flatbuffer.unpack(data)["ops"]}


def test_every_op_is_among_the_files(good: list[bytes]) -> None:
    assert set.union(*map(kinds, good)) == set(OPS)


def test_every_field_is_there(good: list[bytes]) -> None:
    found = {place.field for data in good for place in verifiers.seed(data).numbers}
    of_ops = {f"{table}.{f.name}" for table in flatbuffer.MEMBERS for f in flatbuffer.TABLES[table]}
    assert found > of_ops - {"Custom.op"} | {
        f"Tensor.{name}" for name in ("shape", "exponents", "axis", "clip_max", "offset", "data")
    }


def test_mutants(good: list[bytes]) -> None:
    for data in mutants(good, 1, MUTANTS):
        assert not difference(data)


def test_mutants_of_sound(good: list[bytes]) -> None:
    """All numbers of a front end are judged alike; some are legal, some are not."""
    [heard] = [data for data in good if any(place.field == "Sound.cepstrum" for place in verifiers.seed(data).numbers)]
    taken = Counter(in_c(data)[0] for data in mutants([heard], 6, MUTANTS) if not difference(data))
    assert taken.total() == MUTANTS and min(taken[Status.OK], taken[Status.TENSOR]) > 20


@pytest.mark.slow
def test_mutants_reach_the_end_of_the_arena(good: list[bytes]) -> None:
    """Next to 2^31 scratch has no room: C says so of files that are right else, and of no others."""
    count = 0
    for data in mutants(good, 4, 2 * VAST):
        assert not difference(data)
        count += in_c(data)[1] in OWN
    assert count >= 5


@pytest.mark.slow
@pytest.mark.soak
def test_many_mutants(good: list[bytes]) -> None:
    """Every depth of verification is reached."""
    found: Counter[Status] = Counter()
    for data in mutants(good, 2, MANY):
        assert not difference(data)
        found[in_python(data)] += 1
    assert all(found[status] > MANY // 200 for status in DEPTHS), found


@pytest.mark.parametrize(
    ("rule", "lost"), [("tensor_rules", "TENSOR"), ("op_rules", "OP"), ("result", "PLAN"), ("inputs_apart", "ORDER")]
)
def test_a_lost_rule_is_found(good: list[bytes], monkeypatch: pytest.MonkeyPatch, rule: str, lost: str) -> None:
    """Python without these rules differs from C, with the status of C."""
    monkeypatch.setattr(semantics._Check, rule, lambda *_: iter(()))
    for data in mutants(good, 3, MANY):
        try:
            if difference(data).split(" ")[:2][-1] == lost:
                return
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):  # what the rule keeps away
            continue
    raise AssertionError(f"{lost} is never found")
