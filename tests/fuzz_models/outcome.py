"""Results of checks: failures by kind, refusals by reason."""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from nmpconv.errors import ExitCode, NmpError

T = TypeVar("T")


@dataclass
class Outcome:
    """failures: by kind, what was found. refused: why the converter does not take the case. invalid: why it is none.

    figures: dB. tight: dB at 16 bits where they are few because grids of 16 bits for the case's own tensors leave no
    more.
    """

    failures: dict[str, str] = field(default_factory=dict)
    refused: str = ""
    invalid: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    tight: float = math.inf

    def guarded(self, stage: str, work: Callable[[], T]) -> T | None:
        """None where it raised: a refusal is an error meant for a person, anything else a failure."""
        try:
            return work()
        except NmpError as error:
            if error.code != ExitCode.INTERNAL:
                self.refused = self.refused or reason(error)
                return None
            caught: BaseException = error
        except (Exception, MemoryError) as error:
            caught = error
        self.failures[f"{stage}: {type(caught).__name__} in {place(caught)}"] = f"{caught}"[:300]
        return None


def place(error: BaseException) -> str:
    """The innermost function of the package on the way to the error, and the rule that is broken."""
    codes = [
        frame.f_code
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] == "nmpconv"
    ]
    rule = re.search(r"rule '[^']*'", str(error))
    where = f"{Path(codes[-1].co_filename).stem}.{codes[-1].co_name}" if codes else "?"
    return f"{where}, {rule.group()}" if rule else where


def reason(error: NmpError) -> str:
    """The message without names and numbers."""
    line = error.message.splitlines()[1 if hasattr(error, "rows") else 0]
    line = re.sub(r"'[^']*'|\[[^\]]*\]|^\s*\S+ (?=\()", "...", line)
    return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", line).strip()
