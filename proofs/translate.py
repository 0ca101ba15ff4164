"""Functions of a C file on terms: expressions, statements, calls, loops. The subset that integer code here uses."""

from __future__ import annotations

import contextlib
from typing import Any

import z3
from pycparser import c_ast

from proofs.execute import BreakSignal, ContinueSignal, Cut, PathEnd, ReturnSignal, Run, true
from proofs.instructions import assembly
from proofs.memory import (
    ArrayType,
    Buffer,
    Cell,
    FunctionType,
    Pointer,
    PointerType,
    Record,
    VoidType,
)
from proofs.numbers import INT32, INT64, UINT64, IntType, Number, UnsupportedError, constant
from proofs.objects import Objects
from proofs.program import Program, assigned, is_plain, number_of

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


class Translation(Objects):
    """The functions of a program on one path."""

    def __init__(self, program: Program, run: Run) -> None:
        super().__init__(program.types, run)
        self.program = program
        self.scopes: list[list[dict[str, Any]]] = []
        self.functions: list[str] = []
        self.quiet = False

    # Calls

    def call(self, name: str, *args: Any) -> Any:
        """Runs a function, or what is known of it. args: numbers, ints, pointers, records."""
        if name in self.run.contracts:
            return self.run.contracts[name](self, *args)
        if name == "asm_":
            raise UnsupportedError("assembly in an expression")
        if name in ("__builtin_memcpy", "memcpy"):
            return self.copy_bytes(*args)
        if name not in self.program.functions:
            if name.startswith("vdupq_n_s"):
                return self.theory.convert(args[0], IntType(int(name[9:]), True))
            raise UnsupportedError(f"call of {name}")
        function = self.program.functions[name]
        declared = function.decl.type
        scope: dict[str, Any] = {}
        parameters = declared.args.params if declared.args else []
        for parameter, arg in zip(parameters, args, strict=False):
            type_ = self.types.of(parameter.type)
            if isinstance(type_, ArrayType):
                type_ = PointerType(type_.of)
            if not isinstance(type_, VoidType):
                scope[parameter.name] = self.variable(type_, self.converted(arg, type_))
        self.scopes.append([scope])
        self.functions.append(name)
        try:
            self.execute(function.body)
            value = None
        except ReturnSignal as signal:
            value = self.converted(signal.value, self.types.of(declared.type)) if signal.value is not None else None
        finally:
            self.scopes.pop()
            self.functions.pop()
        return value

    def note(self, node: Any) -> None:
        """A node of a proved function has been run: a mutant of it is to be found."""
        self.run.where = f"{node.coord.file}:{node.coord.line}" if node.coord else self.run.where
        if self.functions and not self.quiet:
            self.program.seen[id(node)] = (self.functions[-1], node)

    def lookup(self, name: str) -> Any:
        for scope in reversed(self.scopes[-1]):
            if name in scope:
                return scope[name]
        if name in self.program.types.enums:
            return Cell(INT32, constant(INT32, self.program.types.enums[name]))
        if name in self.run.contracts:
            value = self.run.contracts[name]
            return value if isinstance(value, Record | Buffer | Cell) else Cell(FunctionType(), Pointer(None, value))
        if name in self.program.functions:
            return Cell(FunctionType(), Pointer(None, name))
        if name in self.program.globals:
            node = self.program.globals[name]
            return self.initialized(self.types.of(node.type), node.init)
        raise UnsupportedError(f"variable {name}")

    # Statements

    def execute(self, node: Any) -> None:
        if node is None:
            return
        method = getattr(self, f"do_{type(node).__name__}", None)
        if method is None:
            self.evaluate(node)
        else:
            method(node)

    def do_Compound(self, node: c_ast.Compound) -> None:  # noqa: N802
        self.scopes[-1].append({})
        try:
            for item in node.block_items or []:
                self.execute(item)
        finally:
            self.scopes[-1].pop()

    def do_DeclList(self, node: c_ast.DeclList) -> None:  # noqa: N802
        for item in node.decls:
            self.execute(item)

    def do_Decl(self, node: c_ast.Decl) -> None:  # noqa: N802
        type_ = self.types.of(node.type)
        if isinstance(type_, FunctionType):
            return
        self.scopes[-1][-1][node.name] = (
            self.variable(type_) if node.init is None else self.initialized(type_, node.init)
        )

    def initialized(self, type_: Any, init: Any) -> Any:
        if isinstance(init, c_ast.InitList):
            return self.initialized_list(type_, init)
        return self.variable(type_, self.converted(self.evaluate(init), type_))

    def initialized_list(self, type_: Any, init: c_ast.InitList) -> Any:
        value = self.zeros(type_)
        for place, item in enumerate(init.exprs or []):
            if isinstance(value, Record):
                name = item.name[0].name if isinstance(item, c_ast.NamedInitializer) else [*value.fields][place]
                part = item.expr if isinstance(item, c_ast.NamedInitializer) else item
                field_type = dict(self.types.fields(value.type))[name]
                value.fields[name] = self.initialized(field_type, part)
            elif isinstance(value, Buffer):
                self.store(value, constant(INT64, place), self.converted(self.evaluate(item), value.of))
            else:
                value = self.initialized(type_, item)
        return value

    def do_If(self, node: c_ast.If) -> None:  # noqa: N802
        self.execute(node.iftrue if self.holds(node.cond) else node.iffalse)

    def do_Return(self, node: c_ast.Return) -> None:  # noqa: N802
        raise ReturnSignal(self.evaluate(node.expr) if node.expr is not None else None)

    def do_Break(self, node: c_ast.Break) -> None:  # noqa: N802
        raise BreakSignal

    def do_Continue(self, node: c_ast.Continue) -> None:  # noqa: N802
        raise ContinueSignal

    def do_EmptyStatement(self, node: c_ast.EmptyStatement) -> None:  # noqa: N802
        pass

    def do_Switch(self, node: c_ast.Switch) -> None:  # noqa: N802
        value, matched = self.evaluate(node.cond), False
        try:
            for branch in node.stmt.block_items:
                if isinstance(branch, c_ast.Case) and not matched:
                    matched = self.run.decide(self.theory.compare("==", value, self.evaluate(branch.expr)).truth)
                matched = matched or isinstance(branch, c_ast.Default)
                for part in branch.stmts if matched else []:
                    self.execute(part)
        except BreakSignal:
            pass

    def do_While(self, node: c_ast.While) -> None:  # noqa: N802
        self.loop(node, node.cond, None, node.stmt)

    def do_DoWhile(self, node: c_ast.DoWhile) -> None:  # noqa: N802
        try:
            self.body(node.stmt)
            while self.holds(node.cond):
                self.body(node.stmt)
        except BreakSignal:
            pass

    def do_For(self, node: c_ast.For) -> None:  # noqa: N802
        self.scopes[-1].append({})
        try:
            self.execute(node.init)
            self.loop(node, node.cond, node.next, node.stmt)
        finally:
            self.scopes[-1].pop()

    def body(self, statement: Any) -> None:
        with contextlib.suppress(ContinueSignal):
            self.execute(statement)

    def loop(self, node: Any, condition: Any, step: Any, body: Any) -> None:
        cut = self.run.cuts.get(self.program.loops[id(node)])
        try:
            if cut is None:
                steps = 0
                while condition is None or self.holds(condition):
                    self.body(body)
                    if step is not None:
                        self.evaluate(step)
                    steps += 1
                    if steps > 400:
                        raise UnsupportedError(f"a loop without an end at {node.coord}")
                return
            self.induct(cut, node, condition, step, body)
        except BreakSignal:
            pass

    def induct(self, cut: Cut, node: Any, condition: Any, step: Any, body: Any) -> None:
        """Shows the invariant, forgets what an iteration changes, and goes on behind the loop or once through it."""
        key = self.program.loops[id(node)]
        self.run.marks[key] = len(self.run.path)
        self.invariant(cut, "before the loop")
        if cut.joins is not None:
            self.run.path = self.run.path[: self.run.marks[cut.joins]]
            way = self.run.choices[: self.run.taken]
            if self.run.settings.joined.setdefault(key, way) != way:
                raise PathEnd
        variables, inside = assigned(node)
        for name in sorted((variables | inside | set(cut.names)) - set(cut.kept)):
            place = self.find(name)
            if place is not None and name in inside and isinstance(place, Cell) and isinstance(place.value, Pointer):
                self.forget_pointed(place.value, name)
            elif place is not None and name in inside:
                self.forget(place, name)
            if place is not None and name in variables | set(cut.names):
                self.forget(place, name)
        case = cut.cases[self.run.choose(len(cut.cases))]
        for name, value in case.items():
            cell = self.lookup(name)
            cell.value = constant(cell.type, value)
        if cut.havoc is not None:
            cut.havoc(self.run)
        self.run.assume(*cut.invariant(self.run, self.visible()))
        if condition is None or self.holds(condition):
            self.body(body)
            if step is not None:
                self.evaluate(step)
            self.invariant(cut, "after an iteration")
            raise PathEnd

    def invariant(self, cut: Cut, when: str) -> None:
        values = self.visible()
        names = list(cut.cases[0])
        if names:
            among = [z3.And(*(self.theory.raw(values[name]) == case[name] for name in names)) for case in cut.cases]
            self.run.demand(z3.Or(*among), f"a case of the loop {when}")
            for name in names:
                number = values[name]
                if not number.known:
                    which = [case[name] for case in cut.cases]
                    which = [value for value in which if self.run.possible(self.theory.raw(number) == value)]
                    value = which[self.run.choose(len(which))]
                    self.run.assume(self.theory.raw(number) == value)
                    values[name] = constant(number.type, value)
        for at, condition in enumerate(cut.invariant(self.run, values)):
            self.run.demand(condition, f"invariant {at} {when}")

    def find(self, name: str) -> Any:
        return next((scope[name] for scope in reversed(self.scopes[-1]) if name in scope), None)

    def visible(self) -> dict[str, Any]:
        return {
            name: place.value if isinstance(place, Cell) else place
            for scope in self.scopes[-1]
            for name, place in scope.items()
        }

    # Expressions

    def holds(self, node: Any) -> bool:
        return self.run.decide(self.truth(self.evaluate(node)))

    def truth(self, value: Any) -> Any:
        if isinstance(value, Pointer):
            return z3.BoolVal(value.target is not None)
        return self.theory.truth(value)

    def evaluate(self, node: Any) -> Any:
        return getattr(self, f"of_{type(node).__name__}", self.unknown)(node)

    def unknown(self, node: Any) -> Any:
        raise UnsupportedError(f"{type(node).__name__} at {node.coord}")

    def of_Constant(self, node: c_ast.Constant) -> Any:  # noqa: N802
        self.note(node)
        return node if node.type == "string" else number_of(node)

    def of_ID(self, node: c_ast.ID) -> Any:  # noqa: N802
        return self.value_of(self.lookup(node.name), node.name)

    def of_ExprList(self, node: c_ast.ExprList) -> Any:  # noqa: N802
        return [self.evaluate(expression) for expression in node.exprs][-1]

    def of_BinaryOp(self, node: c_ast.BinaryOp) -> Any:  # noqa: N802
        self.note(node)
        if node.op in ("&&", "||"):
            return self.both(node)
        a, b = self.evaluate(node.left), self.evaluate(node.right)
        self.note(node)
        if isinstance(a, Pointer) or isinstance(b, Pointer):
            return self.pointers(node.op, a, b)
        if node.op in COMPARISONS:
            return self.theory.compare(node.op, a, b)
        if node.op in ("<<", ">>"):
            return self.theory.shift(node.op, a, b)
        return self.theory.arithmetic(node.op, a, b)

    def both(self, node: c_ast.BinaryOp) -> Number:
        """The right side is run where the left one lets it, on a path of its own unless it is plain."""
        left = self.truth(self.evaluate(node.left))
        if is_plain(node.right):
            right = self.truth(self.evaluate(node.right))
            return self.theory.boolean(z3.And(left, right) if node.op == "&&" else z3.Or(left, right))
        if self.run.decide(left) == (node.op == "&&"):
            return self.theory.boolean(self.truth(self.evaluate(node.right)))
        return true(node.op == "||")

    def of_UnaryOp(self, node: c_ast.UnaryOp) -> Any:  # noqa: N802
        self.note(node)
        if node.op == "&":
            return self.address_of(node.expr)
        if node.op == "*":
            return self.value_of(self.place(node), "*")
        if node.op == "sizeof":
            return constant(UINT64 if self.types.address == 64 else IntType(32, False), self.size_of(node.expr))
        if node.op in ("++", "--", "p++", "p--"):
            place = self.place(node.expr)
            before = self.get(place)
            after = self.plus(before, constant(INT32, 1), node.op[-1])
            self.set(place, after)
            return before if node.op.startswith("p") else after
        a = self.evaluate(node.expr)
        if node.op == "!":
            return self.theory.boolean(z3.Not(self.truth(a)))
        return self.theory.negated(a) if node.op == "-" else self.theory.inverted(a) if node.op == "~" else a

    def of_TernaryOp(self, node: c_ast.TernaryOp) -> Any:  # noqa: N802
        self.note(node)
        condition = self.truth(self.evaluate(node.cond))
        if is_plain(node.iftrue) and is_plain(node.iffalse) and not z3.is_true(z3.simplify(condition)):
            if z3.is_false(z3.simplify(condition)):
                return self.evaluate(node.iffalse)
            a, b = self.evaluate(node.iftrue), self.evaluate(node.iffalse)
            if isinstance(a, Number) and isinstance(b, Number):
                return self.theory.select(condition, a, b)
        return self.evaluate(node.iftrue if self.run.decide(condition) else node.iffalse)

    def of_Assignment(self, node: c_ast.Assignment) -> Any:  # noqa: N802
        self.note(node)
        place = self.place(node.lvalue)
        value = self.evaluate(node.rvalue)
        self.note(node)
        if node.op != "=":
            value = self.plus(self.get(place), value, node.op[:-1])
        self.set(place, value)
        return self.get(place)

    def plus(self, a: Any, b: Any, op: str) -> Any:
        if isinstance(a, Pointer):
            return self.pointers(op, a, b)
        return self.theory.shift(op, a, b) if op in ("<<", ">>") else self.theory.arithmetic(op, a, b)

    def of_Cast(self, node: c_ast.Cast) -> Any:  # noqa: N802
        type_ = self.types.of(node.to_type)
        value = self.evaluate(node.expr)
        return None if isinstance(type_, VoidType) else self.converted(value, type_)

    def of_CompoundLiteral(self, node: c_ast.CompoundLiteral) -> Any:  # noqa: N802
        literal = self.initialized_list(self.types.of(node.type), node.init)
        return self.value_of(literal, "literal")

    def of_ArrayRef(self, node: c_ast.ArrayRef) -> Any:  # noqa: N802
        return self.value_of(self.place(node), "[]")

    def of_StructRef(self, node: c_ast.StructRef) -> Any:  # noqa: N802
        return self.value_of(self.place(node), node.field.name)

    def of_FuncCall(self, node: c_ast.FuncCall) -> Any:  # noqa: N802
        args = node.args.exprs if node.args else []
        if isinstance(node.name, c_ast.ID) and node.name.name == "asm_":
            return assembly(self, node, args)
        if isinstance(node.name, c_ast.ID):
            target: Any = node.name.name
            place = self.find(target)
            if place is not None:
                target = self.get(place).target
        else:
            target = self.evaluate(node.name).target
        before, self.quiet = self.quiet, self.quiet or target == "nmp_fail"  # what a fault tells is left to tests
        values = [self.evaluate(arg) for arg in args]
        self.quiet = before
        where, self.run.where = self.run.where, self.run.where
        value = self.call(target, *values) if isinstance(target, str) else target(self, *values)
        self.run.where = where
        return value

    # Places

    def place(self, node: Any) -> Any:
        if isinstance(node, c_ast.ID):
            return self.lookup(node.name)
        if isinstance(node, c_ast.StructRef):
            inside = self.pointed(self.evaluate(node.name)) if node.type == "->" else self.place(node.name)
            if not isinstance(inside, Record):
                raise UnsupportedError(f"field {node.field.name} of no struct at {node.coord}")
            return inside.fields[node.field.name]
        if isinstance(node, c_ast.ArrayRef):
            base, index = self.evaluate(node.name), self.evaluate(node.subscript)
            return self.pointed(self.pointers("+", base, index))
        if isinstance(node, c_ast.UnaryOp) and node.op == "*":
            return self.pointed(self.evaluate(node.expr))
        value = self.evaluate(node)
        if isinstance(value, Record | Buffer):
            return value
        raise UnsupportedError(f"no place: {type(node).__name__} at {node.coord}")

    def address_of(self, node: Any) -> Pointer:
        if isinstance(node, c_ast.ArrayRef):
            return self.pointers("+", self.evaluate(node.name), self.evaluate(node.subscript))
        place = self.place(node)
        if isinstance(place, tuple):
            return Pointer(place[0].of, place[0], place[1])
        return Pointer(place.of if isinstance(place, Buffer) else place.type, place, constant(INT64, 0))

    def size_of(self, node: Any) -> int:
        if isinstance(node, c_ast.Typename):
            return self.types.size(self.types.of(node))
        place = self.place(node)
        if isinstance(place, tuple):
            return self.types.size(place[0].of)
        if isinstance(place, Buffer):
            return self.types.size(place.of) * place.count.term
        return self.types.size(place.type)
