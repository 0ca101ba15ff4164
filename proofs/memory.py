"""Types and objects of C: variables, structs, arrays, and addresses of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pycparser import c_ast

from proofs.numbers import INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, IntType, Number, UnsupportedError

NAMED = {
    "char": INT8,
    "signed char": INT8,
    "char signed": INT8,
    "unsigned char": UINT8,
    "short": INT16,
    "unsigned short": UINT16,
    "int": INT32,
    "signed": INT32,
    "unsigned": UINT32,
    "unsigned int": UINT32,
    "long": INT64,
    "unsigned long": UINT64,
    "long long": INT64,
    "unsigned long long": UINT64,
}


@dataclass(frozen=True)
class VoidType:
    pass


@dataclass(frozen=True)
class PointerType:
    to: Any


@dataclass(frozen=True)
class ArrayType:
    of: Any
    count: int | None


@dataclass(frozen=True)
class FunctionType:
    pass


@dataclass(frozen=True)
class StructType:
    name: str
    fields: tuple[tuple[str, Any], ...] | None = None


class Types:
    """The types of a file, by its declarations. constant: evaluates an expression without variables."""

    def __init__(self, file: c_ast.FileAST, constant: Callable[[Any], int], address: int) -> None:
        self.constant, self.address = constant, address
        self.names: dict[str, Any] = {}
        self.structs: dict[str, c_ast.Struct] = {}
        self.known: dict[str, StructType] = {}
        self.enums: dict[str, int] = {}
        for node in file.ext:
            self.learn(node)

    def learn(self, node: Any) -> None:
        for kind in walk(node):
            if isinstance(kind, c_ast.Struct | c_ast.Union) and kind.decls:
                self.structs[kind.name or f"at {kind.coord}"] = kind
            elif isinstance(kind, c_ast.Enum) and kind.values:
                self.learn_enum(kind)
        if isinstance(node, c_ast.Typedef):
            self.names[node.name] = node.type

    def learn_enum(self, node: c_ast.Enum) -> None:
        value = -1
        for enumerator in node.values.enumerators:
            value = self.constant(enumerator.value) if enumerator.value is not None else value + 1
            self.enums[enumerator.name] = value

    def of(self, node: Any) -> Any:
        """The type that a declaration's tree says."""
        if isinstance(node, c_ast.TypeDecl | c_ast.Typename | c_ast.Decl):
            return self.of(node.type)
        if isinstance(node, c_ast.IdentifierType):
            return self.named(node.names)
        if isinstance(node, c_ast.PtrDecl):
            return PointerType(self.of(node.type))
        if isinstance(node, c_ast.ArrayDecl):
            return ArrayType(self.of(node.type), self.constant(node.dim) if node.dim is not None else None)
        if isinstance(node, c_ast.Struct | c_ast.Union):
            return self.struct(node.name or f"at {node.coord}")
        if isinstance(node, c_ast.Enum):
            return UINT32
        if isinstance(node, c_ast.FuncDecl):
            return FunctionType()
        raise UnsupportedError(f"type {type(node).__name__}")

    def named(self, names: list[str]) -> Any:
        text = " ".join(names)
        if text in NAMED:
            return NAMED[text]
        return VoidType() if text == "void" else self.of(self.names[text])

    def struct(self, name: str) -> StructType:
        if name not in self.known:
            self.known[name] = StructType(name)  # of itself, by pointers
            node = self.structs.get(name)
            if node is not None:
                self.known[name] = StructType(name, tuple((decl.name, self.of(decl.type)) for decl in node.decls))
        return self.known[name]

    def fields(self, type_: StructType) -> tuple[tuple[str, Any], ...]:
        fields = self.struct(type_.name).fields
        if fields is None:
            raise UnsupportedError(f"struct {type_.name} is not known")
        return fields

    def size(self, type_: Any) -> int:
        """Bytes of a type that has no gaps."""
        if isinstance(type_, IntType):
            return type_.bits // 8
        if isinstance(type_, PointerType):
            return self.address // 8
        if isinstance(type_, ArrayType):
            return self.size(type_.of) * (type_.count or 0)
        if isinstance(type_, StructType):
            return sum(self.size(of) for _, of in self.fields(type_))
        return 1


def walk(node: Any) -> Iterator[Any]:
    yield node
    for _, child in node.children():
        yield from walk(child)


class Cell:
    """A variable, or a field of a struct."""

    def __init__(self, type_: Any, value: Any = None) -> None:
        self.type, self.value = type_, value


class Record:
    """A struct: cells, records and buffers by field."""

    def __init__(self, type_: StructType, fields: dict[str, Any]) -> None:
        self.type, self.fields = type_, fields

    def copy(self) -> Record:
        return Record(self.type, {name: copied(place) for name, place in self.fields.items()})


class Buffer:
    """An array. count: elements, where they are known; load: what an element holds that nobody has written.

    written: (index, value) in the order of the writes; read: the indices that were read
    """

    def __init__(self, of: Any, count: Any = None, load: Callable[[Any], Any] | None = None, name: str = "") -> None:
        self.of, self.count, self.load, self.name = of, count, load, name
        self.written: list[tuple[Any, Any]] = []
        self.read: list[Any] = []

    def copy(self) -> Buffer:
        other = Buffer(self.of, self.count, self.load, self.name)
        other.written = list(self.written)
        return other


@dataclass(frozen=True)
class Pointer:
    """target: a Cell, a Record, a Buffer, a function's name, or None for NULL; index: of a buffer's element."""

    to: Any
    target: Any
    index: Any = 0


def copied(place: Any) -> Any:
    return Cell(place.type, place.value) if isinstance(place, Cell) else place.copy()


def is_zero(value: Any) -> bool:
    return isinstance(value, Number) and value.known and value.term == 0
