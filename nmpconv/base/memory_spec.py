"""Text form of the memories of a machine: `convert --ram`, and the files that it makes."""

from __future__ import annotations

from dataclasses import dataclass

from nmpconv.base import units
from nmpconv.errors import UsageError

KEYS = ("fast", "slow")
FORM = "fast=256k,slow=8M"


@dataclass(frozen=True)
class Memories:
    """Bytes of a fast memory, and of a slow one."""

    fast: int
    slow: int


def parse(text: str) -> Memories:
    """'fast=256k,slow=8M'. Raises UsageError."""
    pairs = [part.partition("=") for part in text.split(",")]
    texts = {key.strip().lower(): value for key, _, value in pairs}
    if len(pairs) != len(KEYS) or texts.keys() != {*KEYS}:
        raise UsageError(f"{text!r} is no pair of memories", where="--ram", hint=FORM, found=text, allowed=FORM)
    return Memories(*(units.whole(texts[key], units.BYTES, where=f"--ram, {key}", low=1) for key in KEYS))
