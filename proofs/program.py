"""A C file that is run, and what is known of its text without running it."""

from __future__ import annotations

from functools import cache
from typing import Any

from pycparser import c_ast

from proofs import source
from proofs.memory import Types, walk
from proofs.numbers import INT32, IntType, Number, UnsupportedError, constant


class Program:
    """A C file: its functions, types and the lines that were run."""

    def __init__(self, path: str, machine: str = "pc", defines: tuple[str, ...] = ()) -> None:
        self.path, self.machine = path, machine
        self.file = source.tree(path, machine, defines)
        self.functions = source.functions(self.file)
        self.address = source.MACHINES[machine][0]
        self.types = Types(self.file, self.constant, self.address)
        self.globals = {
            node.name: node for node in self.file.ext if isinstance(node, c_ast.Decl) and node.init is not None
        }
        self.seen: dict[int, tuple[str, Any]] = {}
        self.loops = {
            id(loop): (name, at)
            for name, function in self.functions.items()
            for at, loop in enumerate(node for node in walk(function) if isinstance(node, c_ast.For | c_ast.While))
        }

    def constant(self, node: Any) -> int:
        """Value of an expression without variables, such as an array's length."""
        if isinstance(node, c_ast.Constant):
            return number_of(node).term
        if isinstance(node, c_ast.BinaryOp):
            a, b = self.constant(node.left), self.constant(node.right)
            return {"+": a + b, "-": a - b, "*": a * b, "/": a // (b or 1), "<<": a << max(b, 0), "|": a | b}[node.op]
        if isinstance(node, c_ast.UnaryOp) and node.op == "-":
            return -self.constant(node.expr)
        if isinstance(node, c_ast.ID):
            return self.types.enums[node.name]
        raise UnsupportedError(f"constant {type(node).__name__}")


@cache
def program(path: str, machine: str = "pc", defines: tuple[str, ...] = ()) -> Program:
    return Program(path, machine, defines)


def number_of(node: c_ast.Constant) -> Number:
    text = node.value
    if node.type == "char":
        return constant(INT32, ord(text[1:-1]) if text[1] != "\\" else 0)
    digits = text.rstrip("uUlL")
    value = int(digits, 16 if digits[:2].lower() == "0x" else 8 if digits[0] == "0" and len(digits) > 1 else 10)
    ends = text[len(digits) :].lower()
    bits = 64 if "l" in ends or value >= 1 << 32 else 32
    signed = "u" not in ends and value < 1 << (bits - 1)
    if not signed and "u" not in ends and not digits.startswith("0x") and bits == 32:
        bits, signed = 64, True
    return constant(IntType(bits, signed), value)


PLAIN_NODES = (
    c_ast.Constant,
    c_ast.ID,
    c_ast.BinaryOp,
    c_ast.Cast,
    c_ast.Typename,
    c_ast.TypeDecl,
    c_ast.IdentifierType,
    c_ast.StructRef,
    c_ast.TernaryOp,
    c_ast.UnaryOp,
)


@cache
def is_plain(node: Any) -> bool:
    """No call, no store, nothing that could be undefined where the condition before does not hold."""
    return all(
        isinstance(inner, PLAIN_NODES)
        and not (isinstance(inner, c_ast.BinaryOp) and inner.op in ("/", "%", "<<", ">>", "+", "*"))
        and not (isinstance(inner, c_ast.UnaryOp) and inner.op not in ("-", "!", "~"))
        for inner in walk(node)
    )


def assigned(loop: Any) -> tuple[set[str], set[str]]:
    """Names of variables that a loop sets, and of those in which, or through which, it stores."""
    changed: set[str] = set()
    inside: set[str] = set()
    declared = {declaration.name: declaration for declaration in walk(loop.stmt) if isinstance(declaration, c_ast.Decl)}
    to_constants = {id(declaration.init) for declaration in declared.values() if is_to_constant(declaration.type)}
    for node in walk(loop):
        target = None
        if isinstance(node, c_ast.Assignment):
            target = node.lvalue
        elif isinstance(node, c_ast.UnaryOp) and node.op in ("++", "--", "p++", "p--"):
            target = node.expr
        elif isinstance(node, c_ast.UnaryOp) and node.op == "&" and id(node) not in to_constants:
            target = c_ast.ArrayRef(node.expr, None)  # whoever gets the address may store
        names = changed
        while target is not None and not isinstance(target, c_ast.ID):
            names = inside
            target = (
                target.name if isinstance(target, c_ast.ArrayRef | c_ast.StructRef) else getattr(target, "expr", None)
            )
        if target is not None:
            names.add(target.name)
    for name in inside & set(declared):
        if isinstance(declared[name].type, c_ast.PtrDecl):
            raise UnsupportedError(f"a store through {name}, an address of the loop's own")
    return changed - set(declared), inside - set(declared)


def is_to_constant(type_: Any) -> bool:
    return isinstance(type_, c_ast.PtrDecl) and "const" in getattr(type_.type, "quals", ())
