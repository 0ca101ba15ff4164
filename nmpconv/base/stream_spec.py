"""Text form of a stream: `convert --stream`, and the files that it makes."""

from __future__ import annotations

from dataclasses import dataclass

from nmpconv.errors import UsageError

KEYS = ("axis", "hop", "input")
FORM = "axis=2,hop=4, and input=NAME where there are several"


@dataclass(frozen=True)
class Stream:
    """The axis that is time, of an input ('': the only one), and the frames that a call takes."""

    axis: int
    hop: int
    input: str = ""


def parse(text: str) -> Stream:
    """'axis=2,hop=4' or 'axis=2,hop=4,input=NAME'. Raises UsageError."""
    pairs = [part.partition("=") for part in text.split(",")]
    entries = {key.strip().lower(): value for key, _, value in pairs}
    numbers = {key: entries.get(key, "") for key in KEYS[:2]}
    if len(entries) != len(pairs) or not set(entries) <= set(KEYS) or not all(n.isdecimal() for n in numbers.values()):
        raise UsageError(f"{text!r} is no stream", where="--stream", hint=FORM, found=text, allowed=FORM)
    return Stream(int(numbers["axis"]), int(numbers["hop"]), entries.get("input", ""))
