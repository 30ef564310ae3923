"""Index of the names that the code defines, and of the names that its docstrings and comments quote.

The code is parsed and never imported.
"""

import ast
import builtins
import importlib
import io
import keyword
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from tests.documentation.shown import ROOT

PRODUCT: Final = ("autoscaler", "master", "trainer_sdk", "experiments")
PACKAGES: Final = (*PRODUCT, "bench", "tools", "tests")
_QUOTED: Final = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`(?!`)")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_QUOTING_COMMENT: Final = re.compile(r"#.*`")
_NAMED: Final[Mapping[type[ast.AST], str]] = {
    **dict.fromkeys((ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef), "name"),
    **dict.fromkeys((ast.arg, ast.keyword), "arg"),
    ast.Name: "id",
    ast.Attribute: "attr",
}
_WITHOUT_NAMES: Final = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop)


@dataclass(slots=True, kw_only=True)
class Module:
    """The names of one module.  `members`: what its top level defines or imports; `used`: every identifier in it;
    `words`: the words of its strings; `quoted`: the names in backticks, with their lines."""

    path: str
    members: set[str] = field(default_factory=set)
    classes: dict[str, "Class"] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    quoted: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Class:
    """The methods, fields and constructor arguments of one class, and the names of its bases."""

    attributes: set[str]
    bases: set[str]


class CodeNames:
    """All names of some modules, which those modules may quote."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self._modules = modules
        self._classes: dict[str, list[Class]] = defaultdict(list)
        self._defined: set[str] = {part for path in modules for part in path.split(".")}
        self._words: dict[str, set[str]] = defaultdict(set)
        self._ending: dict[str, list[Module]] = defaultdict(list)
        for path, module in modules.items():
            parts = path.split(".")
            for first in range(len(parts)):
                self._ending[".".join(parts[first:])].append(module)
            for name, one in module.classes.items():
                self._classes[name].append(one)
                self._defined |= {name, *one.attributes}
            self._defined |= module.members
            self._words[_package(path)] |= module.words
            self._words[""] |= module.words

    def has(self, name: str, *, quoted_in: str) -> bool:
        """True if something has this name, as the module may mean it."""
        return (self._has_path if "." in name else self._has_name)(name, quoted_in)

    def _has_path(self, name: str, module: str) -> bool:
        """A path leads to a module, or on through members and attributes; or it begins at a local name."""
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            rest = parts[count:]
            for found in self._ending.get(".".join(parts[:count]), ()):
                if not rest or (rest[0] in found.members and self._are_attributes(rest)):
                    return True
        if parts[0] in self._classes:
            return self._are_attributes(parts)
        return _is_of_library(name) or (parts[0] in self._modules[module].used and self._defined.issuperset(parts[1:]))

    def _are_attributes(self, parts: list[str]) -> bool:
        return all(map(self._is_attribute, parts, parts[1:]))

    def _is_attribute(self, owner: str, name: str) -> bool:
        """True if the class or a base has the attribute.  Where the owner is not a class, any class may have it."""
        if owner not in self._classes:
            return name in self._defined
        return any(
            name in one.attributes
            or any(base in self._classes and self._is_attribute(base, name) for base in one.bases)
            for one in self._classes[owner]
        )

    def _has_name(self, name: str, module: str) -> bool:
        """A word of plain English has to be a name nearby: it occurs in too many places to mean one far away."""
        nearby = "" if re.search("[A-Z_]", name) else _package(module)
        return (
            name in self._modules[module].used
            or name in self._defined
            or name in self._words[nearby]
            or name in sys.stdlib_module_names
            or keyword.iskeyword(name)
            or hasattr(builtins, name)
        )


@cache
def _is_of_library(name: str) -> bool:
    """True if the path begins at a module of the standard library and leads to an attribute."""
    first, *rest = name.split(".")
    if first not in sys.stdlib_module_names:
        return False
    found = importlib.import_module(first)
    for part in rest:
        found = getattr(found, part, None)
    return found is not None


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


@cache
def read_modules() -> dict[str, Module]:
    """Every module that people wrote, by dotted name: the product, its tools and its tests."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "_pb2" not in path.name]
    return {_dotted(path): read_module(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))) for path in paths}


def read_module(source: str, path: str) -> Module:
    """The names of one module's source."""
    tree = ast.parse(source)
    module = Module(path=path, members=set(_bound(tree.body)))
    prose = set()
    for node in _nodes(tree):
        match node:
            case ast.ClassDef():
                module.classes[node.name] = Class(attributes=set(_attributes(node)), bases=set(_base_names(node)))
            case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                prose.add(id(constant))
                module.quoted += quoted_in(text, node.lineno)
            case ast.Constant(value=str(text)) if id(node) not in prose and " " not in text:
                module.words.update(_WORD.findall(text))
        module.used.update(_identifiers(node))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline) if _QUOTING_COMMENT.search(source) else ()
    for token in tokens:
        if token.type == tokenize.COMMENT:
            module.quoted += quoted_in(token.string, token.start[0])
    return module


def _nodes(root: ast.AST) -> Iterator[ast.AST]:
    """In the order of the source, without the half of all nodes that have no names."""
    rest = [root]
    while rest:
        yield (node := rest.pop())
        for name in reversed(node._fields):
            value = getattr(node, name)
            if isinstance(value, list):
                rest += [one for one in reversed(value) if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, _WITHOUT_NAMES):
                rest.append(value)


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def quoted_in(text: str, line: int) -> Iterator[tuple[int, str]]:
    """The names in backticks of a text that begins at this line."""
    for match in _QUOTED.finditer(text):
        yield line + text.count("\n", 0, match.start()), match[1]


def _identifiers(node: ast.AST) -> list[str]:
    if field_name := _NAMED.get(type(node)):
        name = getattr(node, field_name)
        return [] if name is None else [name]
    match node:
        case ast.alias(name=name, asname=other):
            return (name if other is None else other).split(".")
        case ast.ImportFrom(module=str(name)):
            return name.split(".")
    return []


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """What a module's or a class's body binds, below its `if` and `try` too."""
    for statement in body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in names)
            case ast.If(body=inner, orelse=other) | ast.Try(body=inner, orelse=other):
                yield from _bound([*inner, *other])


def _attributes(definition: ast.ClassDef) -> Iterator[str]:
    yield from _bound(definition.body)
    for node in _nodes(definition):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case ast.FunctionDef(name="__init__", args=arguments):
                yield from (one.arg for one in (*arguments.args, *arguments.kwonlyargs))


def _base_names(definition: ast.ClassDef) -> Iterator[str]:
    for base in definition.bases:
        yield from (node.id for node in ast.walk(base) if isinstance(node, ast.Name))
