"""Names of tensors and nodes as people read them: the same in tables of the command line and in pages.

A long name becomes a pattern, which recipes understand. It matches no other name:

1. A name of up to WHOLE characters stays.
2. TFLite's converter joins the names of fused tensors by ;. The first one stays, with the shortest end that makes the
   pattern unique: "a/x;b/y;c/z" becomes "a/x;*" or "a/x;*/z". If that is long, case 3 shortens the first name.
3. Any other name keeps its shortest unique end: ".../block_1/project/Conv2D" becomes "*/project/Conv2D".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

WHOLE = 32  # characters of a name that is left as it is
AND = ";"  # between the parts of a joined name
PARTS = "/_.:;"  # where a name's end may begin
PART = re.compile(r"[^/_.:; ]*[/_.:; ]?")
GAP = "…"


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class _File(Protocol):
    @property
    def ops(self) -> Sequence[_Named]: ...
    @property
    def tensors(self) -> Sequence[_Named]: ...


def of_files(models: Iterable[_File]) -> dict[str, str]:
    """Short names of all ops and tensors of files, by their names: those of tables, pages and JSON."""
    files = tuple(models)
    ops, tensors = ([item.name for file in files for item in getattr(file, kind)] for kind in ("ops", "tensors"))
    return shortened(ops) | shortened(tensors)


def shortened(names: Iterable[str]) -> dict[str, str]:
    """Each name with what people read instead."""
    known = tuple(dict.fromkeys(names))
    parts = {name: name.split(AND) for name in known}
    ends = Counter(end for name in known for end in {end for part in parts[name] for end in _ends(part)})
    of_parts = Counter(end for part in {part for name in known for part in parts[name]} for end in _ends(part))
    return {name: _joined(name, known, of_parts) if AND in name else _end(name, ends) for name in known}


def folded(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` characters, which end behind a separator of a name or at a space. A longer part loses
    its middle, since names that differ do so at their ends.
    """
    lines = [""]
    for part in PART.findall(text):
        if len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part if len(part.rstrip()) <= width else _shortened_part(part, width)
    return [line.rstrip() for line in lines if line.strip()] or [""]


def _shortened_part(part: str, width: int) -> str:
    left = (width - len(GAP)) // 2
    return f"{part[:left]}{GAP}{part.rstrip()[len(GAP) + left - width :]}"


def _ends(name: str) -> Iterator[str]:
    """Ends of a name that may be left of it, the shortest first."""
    return (name[i:] for i in range(len(name) - 1, 0, -1) if name[i] in "/:")


def _end(name: str, ends: Counter[str]) -> str:
    """Case 3."""
    if len(name) <= WHOLE:
        return name
    return next((f"*{end}" for end in _ends(name) if ends[end] == 1 and len(end) + 1 < len(name)), name)


def _joined(name: str, known: Sequence[str], ends_of_parts: Counter[str]) -> str:
    """Case 2. Names that join the same tensor are told apart by their ends alone."""
    first, _, rest = name.partition(AND)
    alike = [other for other in known if f"{AND}{first}{AND}" in AND + other]
    ends = [rest[i:] for i in range(len(rest) - 1, 0, -1) if rest[i] in PARTS]
    for end in ("", *ends):
        if sum(other.endswith(end) for other in alike) == 1:
            short = min(name, f"{first}{AND}*{end}", key=len)
            return short if len(short) <= WHOLE else f"{_end(first, ends_of_parts)}{AND}*{end}"
    return name
