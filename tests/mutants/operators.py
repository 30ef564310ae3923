"""The faults that are planted: one small change of the source each, found in its syntax tree (pure).

Left alone: what is no behaviour (annotations, docstrings, texts, logging, decorators), what guards invariants
(`assert`, `assert_never`, `zip(..., strict=True)`), for a program without its assertions is the same program, and the
order of two assignments that have nothing to do with each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

LOGGERS: Final = frozenset({"_log", "log", "logger", "_logger", "logging", "warnings"})
COMPARISONS: Final = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
ARITHMETIC: Final = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*",
    ast.BitOr: "&", ast.BitAnd: "|",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault in one file: the source from `begin` to `end` (offsets in bytes) is replaced."""

    path: str
    function: str  # its qualified name; "" at the module's level
    line: int
    operator: str
    before: str
    after: str
    begin: int
    end: int
    nth: int = 0  # among equal faults of one function, in order

    @property
    def key(self) -> str:
        """Names the fault across versions of the file, as long as its function keeps the place."""
        change = f"{_one_line(self.before)} -> {_one_line(self.after)}"
        return f"{self.path}::{self.function}::{self.operator}::{change}#{self.nth}"

    def apply(self, source: bytes) -> bytes:
        """The file with this fault in it."""
        return source[: self.begin] + self.after.encode() + source[self.end :]


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """All faults of one file, in the order of its lines; a few of them do not compile."""
    found: list[Mutant] = []
    counts: dict[str, int] = {}
    for mutant in _Finder(path, source).run():
        nth = counts.get(mutant.key, 0)
        counts[mutant.key] = nth + 1
        found.append(_numbered(mutant, nth))
    return found


def _numbered(mutant: Mutant, nth: int) -> Mutant:
    values = {name: getattr(mutant, name) for name in Mutant.__slots__}
    return Mutant(**{**values, "nth": nth})


def _one_line(text: str) -> str:
    return " ".join(text.split())


class _Finder:
    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._function: list[str] = []

    def run(self) -> Iterator[Mutant]:
        yield from self._statements(ast.parse(self._source).body)

    def _statements(self, body: list[ast.stmt]) -> Iterator[Mutant]:
        for statement, following in zip_longest(body, body[1:]):
            yield from self._statement(statement)
            if (
                following is not None
                and _has_effect(statement)
                and _has_effect(following)
                and not _are_independent(statement, following)
            ):
                yield self._swapped(statement, following)

    def _statement(self, node: ast.stmt) -> Iterator[Mutant]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._function.append(node.name)
                yield from self._statements(node.body)
                self._function.pop()
                return
            case ast.Assert() | ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal():
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.Expr(value=ast.Constant()):
                return
        if not self._function and not isinstance(node, ast.If):
            return  # tables and constants of a module: a test of one would repeat it
        yield from self._whole(node)
        for value in _expressions(node):
            yield from self._expression(value)
        for body in _bodies(node):
            yield from self._statements(body)

    def _whole(self, node: ast.stmt) -> Iterator[Mutant]:
        match node:
            case ast.Expr() | ast.AugAssign() | ast.Delete() if _has_effect(node):
                yield self._replaced("statement left out", node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self._replaced("assignment left out", node, "pass")
            case ast.Raise():
                yield self._replaced("raise left out", node, "pass")
            case ast.Return(value=ast.expr() as value) if not _is_nothing(value):
                yield self._replaced("nothing returned", value, "None")
            case ast.Break():
                yield self._replaced("break to continue", node, "continue")
            case ast.Continue():
                yield self._replaced("continue to break", node, "break")
            case ast.If(test=test) | ast.While(test=test):
                yield self._replaced("condition negated", test, f"not ({self._text(test)})")

    def _expression(self, node: ast.expr) -> Iterator[Mutant]:
        match node:
            case ast.Call(func=func) if _is_logging(func) or _name(func) in {"assert_never", "cast"}:
                return
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield self._between("comparison turned", left, right, COMPARISONS[type(op)])
            case ast.BoolOp(op=op, values=[first, second, *_]):
                yield self._between("and for or", first, second, "or" if isinstance(op, ast.And) else "and")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC and not _is_text(left, right):
                yield self._between("arithmetic turned", left, right, ARITHMETIC[type(op)])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._replaced("not left out", node, f"({self._text(operand)})")
            case ast.IfExp(test=test):
                yield self._replaced("condition negated", test, f"(not ({self._text(test)}))")
            case ast.Constant(value=bool(value)):
                yield self._replaced("truth turned", node, str(not value))
            case ast.Constant(value=int() | float() as value):
                yield self._replaced("number raised", node, repr(value + 1))
            case ast.JoinedStr():
                return
        yield from self._parts(node)

    def _parts(self, node: ast.expr) -> Iterator[Mutant]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from self._expression(child)
            elif isinstance(child, ast.keyword) and child.arg != "strict":
                yield from self._expression(child.value)
            elif isinstance(child, ast.comprehension):
                yield from self._expression(child.iter)
                for test in child.ifs:
                    yield self._replaced("condition negated", test, f"not ({self._text(test)})")
                    yield from self._expression(test)

    def _between(self, operator: str, left: ast.expr, right: ast.expr, sign: str) -> Mutant:
        """The sign between two operands, with whatever stands around it: brackets and comments stay where they were."""
        begin, end = self._end(left), self._begin(right)
        gap = self._source[begin:end].decode()
        closing, opening = gap.count(")"), gap.count("(")
        return self._mutant(operator, left, begin, end, f"{')' * closing} {sign} {'(' * opening}")

    def _swapped(self, first: ast.stmt, second: ast.stmt) -> Mutant:
        begin, middle, onward, end = self._begin(first), self._end(first), self._begin(second), self._end(second)
        gap = self._source[middle:onward].decode()
        after = f"{self._text(second)}{gap}{self._text(first)}"
        return self._mutant("statements swapped", first, begin, end, after)

    def _replaced(self, operator: str, node: ast.expr | ast.stmt, after: str) -> Mutant:
        return self._mutant(operator, node, self._begin(node), self._end(node), after)

    def _mutant(self, operator: str, node: ast.expr | ast.stmt, begin: int, end: int, after: str) -> Mutant:
        return Mutant(
            path=self._path, function=".".join(self._function), line=node.lineno, operator=operator,
            before=self._source[begin:end].decode(), after=after, begin=begin, end=end,
        )  # fmt: skip

    def _begin(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> str:
        return self._source[self._begin(node) : self._end(node)].decode()


def _bodies(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if body := getattr(node, name, None):
            yield body
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """Those of the statement itself, without its bodies, targets and annotations."""
    for name in ("value", "test", "iter", "exc", "subject"):
        if isinstance(value := getattr(node, name, None), ast.expr):
            yield value
    for item in getattr(node, "items", ()):
        yield item.context_expr
    for case in getattr(node, "cases", ()):
        if case.guard is not None:
            yield case.guard


def _has_effect(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Await(value=ast.Call(func=func)) | ast.Call(func=func)):
            return not _is_logging(func) and _name(func) != "assert_never"
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()) | ast.AugAssign() | ast.Delete():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
    return False


def _are_independent(first: ast.stmt, second: ast.stmt) -> bool:
    """Assignments to two attributes of one object, of what is at hand or newly made, and not of each other."""
    match first, second:
        case (
            ast.Assign(targets=[ast.Attribute(value=ast.Name(id=owner), attr=one)], value=value),
            ast.Assign(targets=[ast.Attribute(value=ast.Name(id=other_owner), attr=other)], value=other_value),
        ):
            is_apart = owner == other_owner and one != other
            return is_apart and _is_apart(value, owner, other) and _is_apart(other_value, owner, one)
    return False


def _is_apart(value: ast.expr, owner: str, attribute: str) -> bool:
    """True if the value is made without a look at this attribute, and nothing is called but classes."""
    attributes = {id(node.value): node.attr for node in ast.walk(value) if isinstance(node, ast.Attribute)}
    for node in ast.walk(value):
        match node:
            case ast.Await() | ast.Yield() | ast.YieldFrom() | ast.NamedExpr():
                return False
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if called[0].isupper():
                pass
            case ast.Call(func=ast.Name(id="dict" | "list" | "set" | "tuple" | "frozenset")):
                pass
            case ast.Call():
                return False
            case ast.Name(id=name) if name == owner and attributes.get(id(node), attribute) == attribute:
                return False
    return True


def _is_logging(func: ast.expr) -> bool:
    while isinstance(func, ast.Attribute):
        if func.attr in LOGGERS:
            return True
        func = func.value
    return isinstance(func, ast.Name) and func.id in LOGGERS


def _name(func: ast.expr) -> str:
    return func.id if isinstance(func, ast.Name) else ""


def _is_nothing(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_text(*operands: ast.expr) -> bool:
    return any(
        isinstance(one, ast.JoinedStr) or (isinstance(one, ast.Constant) and isinstance(one.value, str))
        for one in operands
    )
