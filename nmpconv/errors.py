"""Errors, as values: what was found, what is allowed, where, and what to do about it.

An error is raised once, where it is noticed, and formatted once, by the command line. Every class has
the exit code of the process as ``code``; the table of codes is `ExitCode`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

FLAG = re.compile(r"(?<![\w/'\"-])--(no-)?([a-z][a-z-]*)(?![\w-]|[./]\w)")  # no part of a name or path
VALUE_SHOWN = 60  # characters of a value in a message
INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended


class ExitCode(IntEnum):
    """Exit status of the command line."""

    OK = 0
    INTERNAL = 1  # a bug of nmpconv
    USAGE = 2  # the command line itself (the convention of click)
    INPUT = 3  # a file or folder handed in is missing, unreadable or not what it should be
    MISMATCH = 4  # device and host, or reference and C, disagree
    UNSUPPORTED = 5  # the model holds something that cannot be converted
    OUTPUT = 6  # the result could not be written
    MODEL = 7  # a .nmp file is refused: damaged, of another version, or not runnable here
    DEVICE = 8  # no answer, or no sensible answer, from a device
    GATE = 9  # a result does not reach what a project file wants

    @property
    def meaning(self) -> str:
        """In two or three words, for --help."""
        return {
            ExitCode.OK: "done",
            ExitCode.INTERNAL: "a bug",
            ExitCode.USAGE: "wrong command line",
            ExitCode.INPUT: "unusable input",
            ExitCode.MISMATCH: "results differ",
            ExitCode.UNSUPPORTED: "model not convertible",
            ExitCode.OUTPUT: "cannot write",
            ExitCode.MODEL: ".nmp refused",
            ExitCode.DEVICE: "device fails",
            ExitCode.GATE: "gate missed",
        }[self]


class Status(IntEnum):
    """nmp_status of interpreter/include/nmp.h: which rule a file breaks, or what it cannot have here."""

    OK = 0
    NOT_NMP, VERSION, CHECKSUM, STRUCTURE, TENSOR, OP, PLAN, ORDER, LIMIT = range(1, 10)
    ARGUMENT, ARENA = 20, 21
    UNKNOWN_OP, NOT_BUILT, CPU, CUSTOM = 40, 41, 42, 43

    @property
    def in_c(self) -> str:
        """The name that nmp.h has."""
        return f"NMP_E_{self.name}" if self else "NMP_OK"


class NmpError(Exception):
    """An error meant for a person.

    message: one sentence with what was found and what is allowed.
    where:   file, node or flag it is about ('' when the message says it all).
    hint:    what to do next ('' when there is nothing to suggest).
    node, found, allowed: for programs, where the message is about one node of the model (of several: the first), or
             about one value; '' where it is not.
    status:  `Status.in_c` of a .nmp file that is refused; '' of others, and for rules that only this program has.
    keywords: of the function that a Python program called: its text has these in place of flags.
    """

    code = ExitCode.INTERNAL
    status = ""
    keywords: Collection[str] = ()

    def __init__(
        self, message: str, *, where: str = "", hint: str = "", node: str = "", found: str = "", allowed: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.node, self.found, self.allowed = node, found, allowed

    def to_json(self) -> dict[str, Any]:
        """For programs that read the command line's JSON; keys without anything to say are left out."""
        keys = ("message", "where", "node", "found", "allowed", "status", "hint")
        fields = {key: getattr(self, key) for key in keys if getattr(self, key)}
        return {"kind": self.code.name.lower(), "exit_code": int(self.code), **fields}

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return as_keywords(f"{text} ({self.hint})" if self.hint else text, self.keywords)


def as_keywords(text: str, known: Collection[str] | None = None) -> str:
    """Text for Python programs: keywords in place of the flags of these names. None: of all flags."""

    def keyword(flag: re.Match[str]) -> str:
        name = flag[2].replace("-", "_")
        is_keyword = known is None or name in known
        return (f"{name}=False" if flag[1] else name) if is_keyword else flag[0]

    return FLAG.sub(keyword, text)


class UsageError(NmpError):
    code = ExitCode.USAGE


def refusal(value: Any, allowed: str, where: str = "", hint: str = "") -> UsageError:
    """The error of a value that a flag, a keyword or a key cannot have. allowed: in words."""
    text = repr(value) if len(repr(value)) <= VALUE_SHOWN else type(value).__name__
    message = f"{text} is not allowed; allowed: {allowed}"
    return UsageError(message, where=where, hint=hint, found=text, allowed=allowed)


class InputError(NmpError):
    code = ExitCode.INPUT


class NotBuilt(InputError, ImportError):
    """The package that Python found has no compiled part, as in a checkout that nothing was built in."""


class MismatchError(NmpError):
    """difference: where it lies and what it is, for programs."""

    code = ExitCode.MISMATCH
    difference: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | ({} if self.difference is None else {"difference": self.difference})


class OutputError(NmpError):
    code = ExitCode.OUTPUT


class ModelError(NmpError):
    code = ExitCode.MODEL

    def __init__(self, message: str, *, status: str = "", **about: str) -> None:
        super().__init__(message, **about)
        self.status = status


class DeviceError(NmpError):
    code = ExitCode.DEVICE


class GateError(NmpError):
    code = ExitCode.GATE


class Unsupported(NmpError):
    """One node that cannot be converted; the frontend collects them into one `UnsupportedModel`."""

    code = ExitCode.UNSUPPORTED


class Computed(Unsupported):
    """One node of which something is computed from the input that has to be a constant. tensor: its name."""

    def __init__(self, role: str, tensor: str, *, or_else: str = "") -> None:
        super().__init__(f"its {role} '{tensor}' is computed from the input", hint=f"a constant {role}{or_else}")
        self.tensor = tensor


class Invalid(NmpError):
    """One node that is not valid ONNX; the frontend collects them into one `InvalidModel`."""

    code = ExitCode.INPUT


Row = tuple[str, str, str, str]  # of a `RefusedNode`


class RefusedNode(NamedTuple):
    """A node that is refused. found: why. allowed: what is valid, or the nearest supported form; may be ''."""

    node: str
    op: str
    found: str
    allowed: str


class Refused(NmpError):
    """Several nodes of a model, in ``rows``. BEFORE: words in front of what is allowed."""

    WHAT, BEFORE = "refused", ""

    def __init__(self, rows: Sequence[Row], *, where: str = "", hint: str = "") -> None:
        self.rows = [RefusedNode(*(text.replace("\n", "\\n") for text in row)) for row in rows]  # names are the file's
        first = self.rows[0] if self.rows else RefusedNode("", "", "", "")
        message = _listed(self.WHAT, self.rows, self.BEFORE)
        super().__init__(message, where=where, hint=hint, node=first.node, found=first.found, allowed=first.allowed)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"nodes": [row._asdict() for row in self.rows]}


class UnsupportedModel(Refused):
    """All nodes of a model that cannot be converted.

    cut: tensors that can be outputs instead; the graph up to them can be converted.
    """

    code = ExitCode.UNSUPPORTED
    WHAT, BEFORE = "cannot be converted", "instead: "

    def __init__(self, rows: Sequence[Row], *, where: str = "", hint: str = "", cut: Sequence[str] = ()) -> None:
        super().__init__(rows, where=where, hint=hint)
        self.cut = tuple(cut)


class InvalidModel(Refused, InputError):
    """All nodes of a model that are not valid ONNX."""

    code = ExitCode.INPUT
    WHAT = "not valid ONNX"


NODES_SHOWN = 3  # of one cause


def _listed(problem: str, rows: Sequence[RefusedNode], before: str) -> str:
    """A line for each cause: nodes of one op that differ only in the names of tensors have the same one.

    before: words in front of what is allowed.
    """
    causes: dict[tuple[str, str, str], list[RefusedNode]] = {}
    for row in rows:
        _, op, why, form = row
        causes.setdefault((op, re.sub(r"'[^']*'", "''", why), form), []).append(row)
    lines = [f"{len(rows)} node(s) {problem}:"]
    for alike in causes.values():
        _, op, why, form = alike[0]
        names = ", ".join(row[0] for row in alike[:NODES_SHOWN])
        more = f" and {len(alike) - NODES_SHOWN} more" if len(alike) > NODES_SHOWN else ""
        lines.append(f"  {names}{more} ({op}): {why}" + (f"; {before}{form}" if form else ""))
    return "\n".join(lines)


class VerifyError(NmpError):
    """A pass left the graph in a state that its stage forbids: a bug of nmpconv."""
