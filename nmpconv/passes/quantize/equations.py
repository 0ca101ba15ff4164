"""Linear equations of a number of each activation: its row says how it follows from the numbers that are free.

Every equation takes one of the free numbers away, the newest in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

Row = dict[str, float]
"""A sum: the share of each free number, by name, and under ONE a constant."""

ONE = ""
ROUNDED = 1e-12  # what is left of shares that cancel out


class Equations:
    """rows: by activation."""

    def __init__(self, names: Iterable[str]) -> None:
        """names: of those whose number is 0, as inputs'."""
        self.rows: dict[str, Row] = {name: {} for name in names}
        self._age: dict[str, int] = {}
        self._having: dict[str, dict[str, None]] = {}  # by free number: the activations whose rows it is in

    def free(self, name: str) -> Row:
        """A new free number, as a row."""
        self._age[name] = len(self._age)
        return {name: 1.0}

    def age(self, number: str) -> int:
        """Number of free numbers that came before this one."""
        return self._age[number]

    def newest(self, row: Row) -> str:
        """The free number of the row that came last."""
        return max(row.keys() - {ONE}, key=self.age)

    def zero(self, row: Row) -> None:
        """The sum is 0 from now on."""
        if not row:
            return
        newest = self.newest(row)
        rest = {name: -share / row[newest] for name, share in row.items() if name != newest}
        for name in list(self._having[newest]):
            other = self.rows[name]
            self.set(name, total({n: s for n, s in other.items() if n != newest}, rest, other[newest]))

    def set(self, name: str, row: Row) -> None:
        """The number of an activation is this sum."""
        for gone in self.rows.get(name, {}).keys() - row.keys():
            self._having[gone].pop(name, None)
        for number in row:
            self._having.setdefault(number, {})[name] = None
        self.rows[name] = row

    def drop(self, numbers: Collection[str]) -> None:
        """Free numbers are 0, and gone from all rows."""
        names: dict[str, None] = {}
        for number in numbers:
            names |= self._having.pop(number)
        gone = frozenset(numbers)
        for name in names:
            self.rows[name] = {number: share for number, share in self.rows[name].items() if number not in gone}


def total(a: Row, b: Row, times: float) -> Row:
    """a + times * b. What cancels out is left out; b is the shorter one, if one is."""
    shares = dict(a)
    for name, share in b.items():
        shares[name] = a.get(name, 0.0) + times * share
        if abs(shares[name]) <= (0.0 if name == ONE else ROUNDED):
            del shares[name]
    return shares
