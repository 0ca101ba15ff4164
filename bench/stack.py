"""Bounds the stack of each public function on a Cortex-M4, for any file: `make stack`.

The compiler tells what every function takes and whom it calls (-fcallgraph-info=su). A call through a pointer may reach
every function of the pointer's type: that of the member or parameter that is called, as the debug information says. A
function without source (libgcc, libc) takes what its instructions push. The only recursion is the walk through a file,
which is as deep as the schema. So the sums are bounds, not measurements; `measure.c` measures.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from nmpconv.file import flatbuffer

ROOT = Path(__file__).resolve().parent.parent
FIRMWARE = ROOT / "interpreter" / "firmware"
CROSS = "arm-none-eabi-"
WALK = "base/fb.c"  # whose functions call each other, table in table
POINTING = ("typedef", "const_type", "volatile_type", "pointer_type", "array_type")
WRAPPERS = ("ops/common/overlap.c",)  # kernels that call others for a part of their work, and never themselves
USERS = "nmp_custom_call*"  # a custom op: what that takes is not counted, and this firmware has none
LINK = ("agent_init", "agent_push")
NODE = re.compile(r'node: \{ title: "([^"]+)" label: "([^"]*)"')
EDGE = re.compile(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"(?: label: "([^"]*)")?')
BYTES = re.compile(r"(\d+) bytes \((static|dynamic|dynamic,bounded)\)")
DIE = re.compile(r"^ <(\d+)><([0-9a-f]+)>: Abbrev Number: \d+ \(DW_TAG_(\w+)\)")
ATTRIBUTE = re.compile(r"^\s+<[0-9a-f]+>\s+DW_AT_(name|type|abstract_origin)\s*: (?:\([^)]*\): )?(.*?)\s*$")
PUBLIC = re.compile(r"^\w[\w *]*?\b(nmp_\w+)\(", re.M)


@dataclass
class Function:
    """bytes: of its own frame. pointers: places (file:line:column) where it calls through a pointer."""

    name: str
    bytes: int | None = None
    place: str = ""
    calls: set[str] = field(default_factory=set)
    pointers: set[str] = field(default_factory=set)


@dataclass
class Entry:
    """Lines of the debug information."""

    tag: str
    name: str = ""
    type: str = ""
    origin: str = ""
    inner: list[Entry] = field(default_factory=list)


def build(folder: Path) -> Path:
    """The firmware of the simulated M4, with what the compiler tells beside its objects, which ccache does not keep."""
    flags = "-fcallgraph-info=su"
    subprocess.run(
        ["make", "-s", "-C", FIRMWARE, "BOARD=mps2-an386", f"OUT={folder}", f"DEFINES={flags}"],
        env={**os.environ, "CCACHE_DISABLE": "1"},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return folder / "mps2-an386.elf"


def functions(folder: Path) -> dict[str, Function]:
    """By name; of static ones the name has the file in front."""
    by_name: dict[str, Function] = {}
    for path in sorted(folder.rglob("*.ci")):
        text = path.read_text()
        for name, label in NODE.findall(text):
            function = by_name.setdefault(name, Function(name))
            if size := BYTES.search(label):
                if size[2] == "dynamic":
                    raise SystemExit(f"{name} takes as much stack as its input says")
                function.bytes, function.place = int(size[1]), label.split("\\n")[1]
        for caller, called, place in EDGE.findall(text):
            if called == "__indirect_call":
                by_name[caller].pointers.add(place)
            else:
                by_name[caller].calls.add(called)
    return by_name


class Types:
    """Functions, and pointers to functions, by what they take and return."""

    def __init__(self, elf: Path) -> None:
        dump = subprocess.run([f"{CROSS}objdump", "--dwarf=info", elf], check=True, capture_output=True, text=True)
        self._entries: dict[str, Entry] = {}
        above: list[Entry] = []
        for line in dump.stdout.splitlines():
            if start := DIE.match(line):
                entry = self._entries[start[2]] = Entry(start[3])
                del above[int(start[1]) :]
                if above:
                    above[-1].inner.append(entry)
                above.append(entry)
            elif above and (attribute := ATTRIBUTE.match(line)):
                value = attribute[2].strip("<>").removeprefix("0x") if attribute[1] != "name" else attribute[2]
                setattr(above[-1], {"abstract_origin": "origin"}.get(attribute[1], attribute[1]), value)
        self._of_member: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._structs: dict[str, set[str]] = defaultdict(set)
        self.of_function: dict[str, set[str]] = defaultdict(set)
        self.of_pointer: dict[str, set[str]] = defaultdict(set)
        for entry in self._entries.values():
            if entry.tag == "subprogram" and entry.name:
                self.of_function[entry.name].add(self._signature(entry))
            elif entry.tag in ("member", "formal_parameter", "variable"):
                if call := self._called(entry.type):
                    self.of_pointer[entry.name].add(self._signature(call))
                self._structs[entry.name].add(self._name(entry.type).rstrip("*"))
            for member in entry.inner if entry.tag == "structure_type" else ():
                if call := self._called(member.type):
                    self._of_member[entry.name, member.name].add(self._signature(call))

    def of_call(self, call: Called) -> set[str]:
        """The types that a function has which is called so."""
        owned = {s for struct in self._structs.get(call.of, ()) for s in self._of_member.get((struct, call.name), ())}
        return {s for s in owned or self.of_pointer.get(call.name, ()) if _count(s) == call.count}

    def _called(self, offset: str) -> Entry | None:
        """The kind of function that a pointer of this type, or an array of such, leads to."""
        entry = self._entries.get(offset)
        while entry is not None and entry.tag in POINTING:
            entry = self._entries.get(entry.type)
        return entry if entry is not None and entry.tag == "subroutine_type" else None

    def _signature(self, entry: Entry) -> str:
        taken = [self._name(parameter.type) for parameter in entry.inner if parameter.tag == "formal_parameter"]
        return f"{self._name(entry.type)}({', '.join(taken)})"

    def _name(self, offset: str, depth: int = 0) -> str:
        entry = self._entries.get(offset)
        if entry is None:
            return "void"
        if entry.tag in ("typedef", "volatile_type", "const_type", "restrict_type"):
            return self._name(entry.type, depth)
        if entry.tag == "pointer_type":
            return self._name(entry.type, depth + 1) + "*"
        if entry.tag == "subroutine_type":
            return self._signature(entry) if depth < 3 else "function"
        return entry.name or entry.tag


class Called(NamedTuple):
    """A name that is called, what it is a member of ('' for nothing), and the number of arguments."""

    name: str
    of: str
    count: int


def _statement(place: str) -> str:
    """The source of the statement there."""
    file, line, column = place.rsplit(":", 2)
    lines = (FIRMWARE / file).read_text().splitlines(keepends=True)
    at = sum(map(len, lines[: int(line) - 1])) + int(column) - 1
    text = "".join(lines)
    start = max(text.rfind(end, 0, at) for end in ";{}")
    return text[start + 1 : text.index(";", at)]


def chosen_at(place: str) -> list[str]:
    """Returns the callees of a statement that chooses: (condition ? this : that)(arguments)."""
    return re.findall(r"[?:]\s*(\w+)\s*(?=[:)])", _statement(place))


def called_at(place: str) -> list[Called]:
    """Returns the names called in the statement there, the pointer among them."""
    text, calls = _statement(place), []
    named = r"(?:(\w+)(?:\[\w+\])*(?:->|\.))?(\w+)(?:\[\w+\])*\)?\s*\("
    for call in re.finditer(named, text):
        start = call.end() - 1
        if member := re.match(r"NMP_BY_\d\(.*?\.(\w+),", text[call.start() :], re.S):  # (one of a table)(arguments)
            start += _end(text[start:])
            calls.append(Called(member[1], "", _arguments(text[start:].lstrip())))
        else:
            calls.append(Called(call[2], call[1] or "", _arguments(text[start:])))
    return calls


def _end(text: str) -> int:
    """Behind the bracket that closes the first one."""
    depth = 0
    for i, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return i + 1
    return len(text)


def _arguments(text: str) -> int:
    """Counts the arguments of a call. text: from its bracket on."""
    depth, commas = 0, 0
    for i, character in enumerate(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        commas += character == "," and depth == 1
        if depth == 0:
            return commas + 1 if text[1:i].strip() else 0
    return 0


def _count(signature: str) -> int:
    """Counts the parameters of a signature."""
    return 0 if signature.endswith("()") else 1 + signature.count(", ")


def pushed(elf: Path, names: Iterable[str]) -> dict[str, int]:
    """Bytes that functions without source take: all that their instructions ever push."""
    dump = subprocess.run([f"{CROSS}objdump", "-d", elf], check=True, capture_output=True, text=True).stdout
    by_name = {}
    for block in dump.split("\n\n"):
        head = re.search(r"^[0-9a-f]+ <([^>]+)>:", block, re.M)
        if head and head[1] in set(names):
            bytes_ = 0
            for registers in re.findall(r"\b(?:push|stmdb\s+sp!,|stmfd\s+sp!,)\S*\s+\{([^}]*)\}", block):
                bytes_ += 4 * len(registers.split(","))
            bytes_ += sum(map(int, re.findall(r"\bsub(?:\.w|w)?\s+sp, (?:sp, )?#(\d+)", block)))
            bytes_ += 4 * len(re.findall(r"str(?:\.w)?\s+\w+, \[sp, #-4\]!", block))
            by_name[head[1]] = bytes_
    return by_name


def deepest() -> int:
    """Tables in each other, at most, in a file."""

    @cache
    def below(name: str) -> int:
        kinds = [flatbuffer.MEMBERS if entry.kind == "union" else (entry.type,) for entry in flatbuffer.TABLES[name]]
        return 1 + max((below(kind) for kind in chain(*kinds) if kind in flatbuffer.TABLES), default=0)

    return below("Model")


class Bounds:
    def __init__(self, elf: Path, folder: Path) -> None:
        self.functions, self.types = functions(folder), Types(elf)
        missing = [
            name for name, function in self.functions.items() if function.bytes is None and name != "__indirect_call"
        ]
        self._outside = pushed(elf, missing)
        self._by_type: dict[str, set[str]] = defaultdict(set)
        for name, function in self.functions.items():
            plain = name.rpartition(":")[2]
            for signature in self.types.of_function.get(plain, ()) if function.bytes is not None else ():
                self._by_type[signature].add(name)
        self._depth = deepest()
        self._known: dict[str, tuple[int, list[str]]] = {}

    def called(self, function: Function) -> set[str]:
        callees = set(function.calls)
        for place in function.pointers:
            file = place.partition(":")[0]
            wraps = any(file.endswith(name) for name in WRAPPERS)
            own = self.types.of_function.get(function.name.rpartition(":")[2], set())
            kernel = any("nmp_conv*" in signature for signature in own)  # which knows no ops
            signatures = [signature for call in called_at(place) for signature in self.types.of_call(call)]
            reached = {
                target
                for signature in signatures
                if not (kernel and "nmp_op*" in signature)
                for target in self._by_type[signature]
                if not (wraps and self.functions[target].place.startswith(file))
            }
            reached |= {own for name in chosen_at(place) for own in (name, f"{file}:{name}") if own in self.functions}
            if not reached and not any(USERS in signature for signature in signatures):
                raise SystemExit(f"{place}: this call leads nowhere that is known")
            callees |= reached
        return callees

    def of(self, name: str, above: tuple[str, ...] = ()) -> tuple[int, list[str]]:
        """Bytes of a function and all below it, and the way down that takes most."""
        if name in self._known:
            return self._known[name]
        function = self.functions.get(name)
        if function is None or function.bytes is None:
            return self._outside.get(name, 0), [name]
        if name in above:
            raise SystemExit(f"a recursion: {' > '.join([*above[above.index(name) :], name])}")
        if WALK in function.place and (walk := self._walk(name)):
            self._known[name] = walk
            return walk
        deepest_ = max((self.of(called, (*above, name)) for called in self.called(function)), default=(0, []))
        self._known[name] = function.bytes + deepest_[0], [name, *deepest_[1]]
        return self._known[name]

    def _walk(self, name: str) -> tuple[int, list[str]] | None:
        """The functions of the walk that reach each other, each as often as tables lie in tables."""

        def reach(start: str) -> set[str]:
            reached, left = set(), [start]
            while left:
                for called in self.functions[left.pop()].calls:
                    if called in self.functions and called not in reached:
                        reached.add(called)
                        left.append(called)
            return reached

        round_ = {other for other in reach(name) if name in reach(other)}
        if not round_:
            return None
        own = sum(self.functions[other].bytes or 0 for other in round_) * self._depth
        below = {called for other in round_ for called in self.functions[other].calls} - round_
        most = max((self.of(called) for called in below), default=(0, []))
        return own + most[0], [f"{self._depth} x ({' + '.join(sorted(round_))})", *most[1]]


def bounds(stack: Bounds) -> dict[str, tuple[int, list[str]]]:
    """By public function of nmp.h and of the agent: bytes, and the way down that takes them."""
    header = (ROOT / "interpreter" / "include" / "nmp.h").read_text()
    names = [name for name in [*PUBLIC.findall(header), *LINK] if name in stack.functions]
    return {name: stack.of(name) for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/stack"), help="for the firmware")
    parser.add_argument("--ways", action="store_true", help="show the way down, too")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    folder = asked.folder.resolve()
    for name, (most, way) in bounds(Bounds(build(folder), folder)).items():
        print(f"{most:6} bytes  {name}" + (f": {' > '.join(way)}" if asked.ways else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
