"""C files of the interpreter as syntax trees: preprocessed by the C compiler, parsed by pycparser."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path

from pycparser import c_ast, c_parser

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
# By machine: address bits, and what its compiler defines.
MACHINES = {
    "pc": (64, ()),
    "small": (32, ("-U__x86_64__", "-U__aarch64__")),
    "dsp": (32, ("-U__x86_64__", "-U__aarch64__", "-D__ARM_FEATURE_DSP", "-D__ARM_ARCH_PROFILE='M'")),
    "mve": (32, ("-U__x86_64__", "-U__aarch64__", "-D__ARM_FEATURE_MVE")),
    "rv32": (32, ("-U__x86_64__", "-U__aarch64__", "-D__riscv", "-D__riscv_xlen=32")),
}
ASM = re.compile(r"\b(?:__asm__|__asm)\b\s*(?:volatile)?\s*\(")


@cache
def tree(path: str, machine: str = "pc", defines: tuple[str, ...] = ()) -> c_ast.FileAST:
    """The syntax tree of a C file.

    path: relative to the checkout
    machine: a key of MACHINES
    defines: NAME=VALUE of macros
    """
    return c_parser.CParser().parse(assembly_as_calls(preprocessed(path, machine, defines)), path)


def preprocessed(path: str, machine: str, defines: tuple[str, ...]) -> str:
    address, flags = MACHINES[machine]
    command = [os.environ.get("CC", "cc"), "-E", "-std=c99", "-nostdinc", f"-DPROOFS_ADDRESS={address}", *flags]
    command += [f"-I{HERE / 'include'}", f"-I{ROOT / 'interpreter/src'}", f"-I{ROOT / 'interpreter/include'}"]
    command += ["-D__attribute__(x)=", *(f"-D{define}" for define in defines), str(ROOT / path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return "\n".join("" if line.startswith("#pragma") else line.replace(f"{ROOT}/", "") for line in text.splitlines())


def assembly_as_calls(text: str) -> str:
    """Inline assembly as calls that the parser knows: asm_(template, "=r", variable, "r", value, ...).

    A named operand has its name in front of its constraint: "[x] r". What is clobbered is left out.
    """
    parts, at = [], 0
    while match := ASM.search(text, at):
        parts.append(text[at : match.start()])
        at = closing(text, match.end())
        parts.append(call_of(text[match.end() : at - 1]))
    return "".join([*parts, text[at:]])


def closing(text: str, at: int) -> int:
    """The place behind the parenthesis that closes the one before `at`; strings may hold any."""
    depth = 1
    while depth:
        if text[at] == '"':
            at = text.index('"', at + 1)
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def split(text: str, separator: str) -> list[str]:
    """The parts of a text between separators that are in no parentheses, brackets or strings."""
    parts, start, depth, at = [], 0, 0, 0
    while at < len(text):
        if text[at] == '"':
            at = text.index('"', at + 1)
        elif text[at] in "([":
            depth += 1
        elif text[at] in ")]":
            depth -= 1
        elif text[at] == separator and depth == 0:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [*parts, text[start:]]


def call_of(text: str) -> str:
    template, *rest = split(text, ":")
    operands = []
    for operand in (piece.strip() for part in rest[:2] for piece in split(part, ",")):
        if operand:
            name, constraint, value = re.fullmatch(r'(\[\w+\])?\s*"([^"]*)"\s*\((.*)\)', operand, re.DOTALL).groups()
            operands.append(f'"{name + " " if name else ""}{constraint}", {value}')
    lines = text.count("\n") - "".join(operands).count("\n") - template.count("\n")
    return f"asm_({', '.join([template, *operands])}" + "\n" * max(lines, 0) + ")"


def functions(file: c_ast.FileAST) -> dict[str, c_ast.FuncDef]:
    return {node.decl.name: node for node in file.ext if isinstance(node, c_ast.FuncDef)}
