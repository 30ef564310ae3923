"""Writes `docs/reference/`: the trainer SDK out of its docstrings, the TrainingJob out of its definition, all metrics.

`python -m tools.reference --check` writes nothing and ends with 1 when a page is not what the sources say.  A public
name without a docstring, or a field without a description, ends it too.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

import trainer_sdk
from tools.metrics_reference import make_metrics_page
from trainer_sdk import errors
from trainer_sdk.dataset import Batch, Data
from trainer_sdk.launching.job_handle import JobHandle, LaunchStatus
from trainer_sdk.session import Session
from trainer_sdk.tables import Tables

ROOT: Final = Path(__file__).resolve().parent.parent
DEFINITION: Final = ROOT / "charts" / "edl" / "files" / "trainingjobs.yaml"
MADE: Final = "<!-- made by tools/reference.py: `make reference` -->"
TORCH_SURFACE: Final = (
    ("host_staging", "device"),
    ("training_replica", "replicate"),
    ("group_loader", "loader"),
    ("group_loader", "GroupLoader"),
)
READ_SPECIAL: Final = ("__iter__", "__len__")
CLASSES: Final = (Session, Data, Batch, Tables, JobHandle, LaunchStatus)


class UndescribedError(Exception):
    """A public name or field has no description; the message names it."""


def make_pages() -> dict[Path, str]:
    """Return the pages by their paths.  Raises UndescribedError."""
    folder = ROOT / "docs" / "reference"
    definition = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))
    return {
        folder / "trainer_sdk.md": make_sdk_page(),
        folder / "trainer_sdk_torch.md": make_torch_page(),
        folder / "metrics.md": make_metrics_page(MADE),
        folder / "trainingjob.md": make_definition_page(definition),
    }


# ---- the trainer SDK -------------------------------------------------------------------------------------------------


def make_sdk_page() -> str:
    """Every function of the package, every public method and property of its classes, every error."""
    lines = ["# Trainer SDK", "", MADE, "", "What `import trainer_sdk as edl` gives to a training script.", ""]
    functions = [getattr(trainer_sdk, name) for name in trainer_sdk.__all__]
    for function in functions:
        if inspect.isfunction(function):
            lines += _entry("##", f"edl.{function.__name__}", function)
    for kind in CLASSES:
        lines += [f"## {kind.__name__}", "", _documentation(kind.__name__, kind), ""]
        for name, member in vars(kind).items():
            if not name.startswith("_") and (isinstance(member, property) or inspect.isfunction(member)):
                lines += _entry("###", f"{kind.__name__}.{name}", member)
    lines += ["## Errors", "", "| error | kind of | when |", "|---|---|---|"]
    for error in vars(errors).values():
        if inspect.isclass(error) and issubclass(error, BaseException) and error.__module__ == errors.__name__:
            parent = error.__mro__[1].__name__
            told = " ".join(_documentation(error.__name__, error).split())
            lines.append(f"| `{error.__name__}` | `{parent}` | {_cell(told)} |")
    return "\n".join(lines) + "\n"


def _entry(mark: str, name: str, member: property | Callable[..., object]) -> list[str]:
    if isinstance(member, property):
        assert member.fget is not None
        heading = f"{name}: {inspect.signature(member.fget).return_annotation}"
    else:
        signature = inspect.signature(member)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
        heading = f"{name}{signature.replace(parameters=own)}".replace("'", "")
    return [f"{mark} `{name}`", "", "```python", heading, "```", "", _documentation(name, member), ""]


def _documentation(name: str, documented: object) -> str:
    text = inspect.getdoc(documented)
    if not text:
        raise UndescribedError(f"{name} has no docstring")
    return text


# ---- its torch layer, read and not imported: a machine without torch writes the same page ---------------------------


def make_torch_page() -> str:
    """The functions of `trainer_sdk.torch`, and the public methods of the loader."""
    folder = ROOT / "trainer_sdk" / "torch"
    package = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    lines = ["# PyTorch in a group", "", MADE, "", _read_documentation("trainer_sdk.torch", package), ""]
    for module, name in TORCH_SURFACE:
        tree = ast.parse((folder / f"{module}.py").read_text(encoding="utf-8"))
        (node,) = [one for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == name]
        if isinstance(node, ast.FunctionDef):
            lines += _read_entry("##", f"edl_torch.{name}", node)
            continue
        lines += [f"## {name}", "", _read_documentation(name, node), ""]
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and (not member.name.startswith("_") or member.name in READ_SPECIAL):
                lines += _read_entry("###", f"{name}.{member.name}", member)
    return "\n".join(lines).rstrip() + "\n"


def _read_entry(mark: str, name: str, node: ast.FunctionDef) -> list[str]:
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    if any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list):
        heading = f"{name}: {returns}"
    else:
        node.args.args = [one for one in node.args.args if one.arg != "self"]
        heading = f"{name}({ast.unparse(node.args)}) -> {returns}"
    return [f"{mark} `{name}`", "", "```python", heading, "```", "", _read_documentation(name, node), ""]


def _read_documentation(name: str, node: ast.FunctionDef | ast.ClassDef | ast.Module) -> str:
    text = ast.get_docstring(node)
    if not text:
        raise UndescribedError(f"{name} has no docstring")
    return text


# ---- the definition of TrainingJob -----------------------------------------------------------------------------------


def make_definition_page(definition: Mapping[str, Any]) -> str:
    """Every field of `spec` and `status`, with its type, default and bounds, and the rules between fields."""
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    group = f"{definition['spec']['group']}/{version['name']}"
    lines = [f"# TrainingJob ({group})", "", MADE, "", schema["description"], ""]
    lines += ["`kubectl explain tj.spec --recursive` shows the same on a cluster.", ""]
    for part in ("spec", "status"):
        lines += [f"## {part}", "", schema["properties"][part]["description"], ""]
        lines += ["| field | type | meaning |", "|---|---|---|"]
        lines += [_row(path, field) for path, field in _fields(schema["properties"][part], "")]
        lines.append("")
    lines += ["## Rules between fields", "", "What the API server refuses, in its words.", ""]
    rules = dict.fromkeys(" ".join(rule["message"].split()) for rule in _rules(schema))
    return "\n".join([*lines, *(f"- {message}" for message in rules)]) + "\n"


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, field
        yield from _fields(field, here)
        if isinstance(field.get("items"), Mapping):
            yield from _fields(field["items"], f"{here}[]")
        if isinstance(field.get("additionalProperties"), Mapping):
            yield from _fields(field["additionalProperties"], f"{here}.*")


def _row(path: str, field: Mapping[str, Any]) -> str:
    if not field.get("description"):
        raise UndescribedError(f"{path} has no description in {DEFINITION.name}")
    kind = field.get("type") or ("integer or string" if field.get("x-kubernetes-int-or-string") else "any")
    if kind == "array":
        kind = f"list of {field.get('items', {}).get('type', 'any')}"
    bounds = [f"one of {', '.join(map(str, field['enum']))}"] if "enum" in field else []
    bounds += [
        f"{word} {field[key]}" for key, word in (("minimum", "at least"), ("maximum", "at most")) if key in field
    ]
    bounds += [f"default {field['default']}"] if "default" in field else []
    told = " ".join(str(field["description"]).split())
    limits = f" ({'; '.join(bounds)})" if bounds else ""
    return f"| `{path}` | {kind} | {_cell(told + limits)} |"


def _rules(schema: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    yield from schema.get("x-kubernetes-validations", ())
    for field in schema.get("properties", {}).values():
        yield from _rules(field)


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")


def main() -> int:
    """Write the pages, or with `--check` say which of them is stale."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 when a page is stale")
    is_check = parser.parse_args().check
    stale = [path for path, page in make_pages().items() if not path.exists() or path.read_text() != page]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'stale, run `make reference`' if is_check else 'written'}")
        if not is_check:
            path.write_text(make_pages()[path], encoding="utf-8")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
