"""Reads the code of a document, runs its commands, and compares what they print with what the document shows.

Code is indented by four spaces or fenced. Of a block whose first line starts with `$ `, lines that start so are
commands and the others their output; a line of `...` stands for any lines, `...` in a line for any text. A block whose
lines all start with a program of `PROGRAMS` is commands without shown output, which have to succeed. A block after a
line that ends with "`NAME`:" is the content of that file. Blocks of the language python are programs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

PROGRAMS = (
    ".",
    "apt-get",
    "cd",
    "cmake",
    "gcc",
    "make",
    "nmpconv",
    "pip",
    "pytest",
    "python",
    "python3",
    "sudo",
    "qemu-system-arm",
)
SECONDS = 300
FENCE = re.compile(r"(`{3,})(\S*)$")
NAMED = re.compile(r"`([\w./-]+)`:$")
TIME = re.compile(r"(?<![\w.])\d+(\.\d+)? ?(s|ms|us|ns)\b")
LEVEL = re.compile(r"\b(portable|sse41|avx2|avxvnni|avx512vnni|amx|avx512vbmi|neon|neondot|i8mm)\b")
DRAWN = re.compile(r"[#█▉▊▋▌▍▎▏]+")
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Tolerance:
    """Tolerances of the numbers of a line: whole ones; those with a fraction, below 1 a tenth of that; or a part of
    either, where that is more."""

    whole: float = 0
    fraction: float = 0.5
    part: float = 0

    def takes(self, shown: str, got: str) -> bool:
        a, b = float(shown), float(got)
        bound = self.whole if "." not in shown + got else self.fraction * (0.1 if abs(a) < 1 else 1)
        return abs(a - b) <= max(bound, self.part * abs(a))


# By the first that matches what the document shows. Counts and sizes are exact. onnxruntime's floats differ in their
# last bits from CPU to CPU, so a bias may be another one: an SQNR of some 30 dB differs by 0.3 then, and one of the 120
# images of a test, 0.83 %, may be told as another class.
TOLERANCES = (
    (r"[#█]{3}", Tolerance(whole=2, part=0.05)),  # instructions of an op, by another compiler
    (r"^ *instructions ", Tolerance(part=0.05)),
    (r"^ *logits: ", Tolerance(whole=2, part=0.05)),  # integers of an output
    (r"\[\d+\. \d+\.\]", Tolerance(whole=1)),  # corners of boxes, in pixels
    (r"% of the noise", Tolerance(whole=5)),
    (r"\d %|^ *((float|agreement) )?ap(50)? ", Tolerance(fraction=1)),
    (r"", Tolerance()),
)


@dataclass
class Block:
    """line: of its first line in the document. before: the last line of text in front of it."""

    line: int
    language: str
    before: str
    lines: list[str] = field(default_factory=list)

    @property
    def file(self) -> str | None:
        match = NAMED.search(self.before)
        return match[1] if match else None

    @property
    def is_session(self) -> bool:
        return bool(self.lines) and self.lines[0].startswith("$ ")

    @property
    def is_commands(self) -> bool:
        names = [command.split()[0] for command in joined(self.lines) if command]
        return bool(names) and all(program in PROGRAMS for program in names)


@dataclass
class Shown:
    """A command of a document, and what it prints there; None: nothing is shown."""

    line: int
    command: str
    output: list[str] | None


def blocks(text: str) -> Iterator[Block]:
    block: Block | None = None
    fence = before = last = ""
    for number, line in enumerate([*text.splitlines(), "end"], 1):
        opened = FENCE.match(line)
        if fence:
            assert block is not None
            if line == fence:
                yield block
                block, fence, before = None, "", ""
            else:
                block.lines.append(line)
        elif opened:
            block, fence = Block(number + 1, opened[2], before), opened[1]
        elif line.startswith("    ") and (block is not None or not last.strip()):
            block = block or Block(number, "", before)
            block.lines.append(line[4:])
        elif block is not None and not line.strip():
            block.lines.append("")
        else:
            if block is not None:
                while not block.lines[-1]:
                    block.lines.pop()
                yield block
                block, before = None, ""
            before = line or before
        last = line


def joined(lines: Sequence[str]) -> list[str]:
    """Lines with those that a backslash continues, without comments."""
    whole = "\n".join(lines).replace("\\\n", " ")
    return [re.sub(r"\s+#.*", "", line).strip() for line in whole.splitlines()]


def commands(block: Block) -> Iterator[Shown]:
    if not block.is_session:
        yield from (Shown(block.line, command, None) for command in joined(block.lines) if command)
        return
    shown: Shown | None = None
    for number, line in enumerate(block.lines, block.line):
        if line.startswith("$ "):
            if shown:
                yield shown
            shown = Shown(number, line[2:], [])
        elif shown and shown.command.endswith("\\"):
            shown.command = shown.command[:-1] + line.strip()
        elif shown and shown.output is not None:
            shown.output.append(line)
    assert shown is not None
    yield shown


class Shell:
    """Runs commands one after another; a change of folder stays."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
        drop = {"NMP_CPU", "NMP_THREADS", "NMP_DEBUG", "FORCE_COLOR"}
        inherited = {name: value for name, value in os.environ.items() if name not in drop}
        self.environment = {**inherited, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", **environment}

    def run(self, command: str) -> tuple[int, str, str]:
        """The exit code, stdout and stderr."""
        place = self.folder.parent / "folder"
        script = f"{command}\ncode=$?\npwd > {shlex.quote(str(place))}\nexit $code"
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        self.folder = Path(place.read_text().strip())
        return ran.returncode, ran.stdout, ran.stderr


def words(line: str) -> list[str]:
    """Words of a line, without what differs from machine to machine and how wide its columns are."""
    line = LEVEL.sub("LEVEL", TIME.sub("TIME", line))
    return DRAWN.sub(" ", line).split()


def tolerance(line: str) -> Tolerance:
    """The tolerance for a line that a document shows."""
    return next(near for pattern, near in TOLERANCES if re.search(pattern, line))


def is_same_word(shown: str, got: str, near: Tolerance) -> bool:
    """With numbers that are nearly the same."""
    first, other = (NUMBER.split(re.sub(r"(?<=\d),(?=\d)", "", word)) for word in (shown, got))
    if first[::2] != other[::2]:
        return False
    return all(near.takes(a, b) for a, b in zip(first[1::2], other[1::2], strict=True))


def is_same_line(shown: Sequence[str], got: Sequence[str], near: Tolerance) -> bool:
    """Compares words; those with `...` stand for any."""
    if not shown:
        return not got
    if "..." in shown[0]:
        return any(is_same_line(shown[1:], got[i:], near) for i in range(len(got) + 1))
    return bool(got) and is_same_word(shown[0], got[0], near) and is_same_line(shown[1:], got[1:], near)


def is_same(shown: Sequence[str], got: Sequence[str]) -> bool:
    """Compares lines."""

    @cache
    def rest(at: int, other: int) -> bool:
        if at == len(shown):
            return other == len(got)
        if shown[at].strip() == "...":
            return any(rest(at + 1, i) for i in range(other, len(got) + 1))
        if other == len(got) or not is_same_line(words(shown[at]), words(got[other]), tolerance(shown[at])):
            return False
        return rest(at + 1, other + 1)

    return rest(0, 0)


def trimmed(lines: Sequence[str]) -> list[str]:
    """Without empty lines at either end."""
    lines = [line.rstrip() for line in lines]
    while lines and not lines[0]:
        lines = lines[1:]
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines
