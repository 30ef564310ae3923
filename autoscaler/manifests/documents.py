"""YAML files as documents that know where each field stands.

Only the text's shape is judged here (valid YAML, a mapping, no key twice, a bounded size); `parsing` judges what
it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.manifests.refusals import Refusal

_LARGEST_FILE_BYTES: Final = 4 << 20
_MOST_ALIASES: Final = 64
"""Against files that unfold without end."""

Step = str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a file: its content as plain values, and the line of every field."""

    file: str
    number: int
    content: Mapping[str, Any]
    node: yaml.MappingNode

    @property
    def kind(self) -> str:
        return str(self.content.get("kind", "?"))

    @property
    def name(self) -> str:
        metadata = self.content.get("metadata")
        return str(metadata.get("name", "?")) if isinstance(metadata, Mapping) else "?"

    def line_of(self, path: Sequence[Step]) -> int:
        """The line of the deepest field of `path` that the document has."""
        node: yaml.Node = self.node
        line = node.start_mark.line
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            line, node = found
        return line + 1

    def refuse(self, path: Sequence[Step], problem: str, hint: str = "") -> Refusal:
        """A refusal of this document's field `path`."""
        return Refusal(
            file=self.file,
            line=self.line_of(path),
            document=f"document {self.number}, {self.kind} {self.name}",
            path=format_path(path),
            problem=problem,
            hint=hint,
        )


def format_path(path: Sequence[Step]) -> str:
    """`spec.trainer.template.spec.containers[0].name`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def read_documents(path: Path) -> tuple[tuple[Document, ...], tuple[Refusal, ...]]:
    """Every document of the file that is a mapping, and what is wrong with the others.  Never raises."""
    file = str(path)
    try:
        text = _read_text(path)
    except (OSError, ValueError) as error:
        return (), (_refuse_file(file, 1, f"cannot be read: {error}"),)
    try:
        return _read_nodes(file, list(yaml.compose_all(text, Loader=yaml.SafeLoader)))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return (), (_refuse_file(file, line, f"is no YAML: {error.problem}", hint="check the indentation there"),)
    except (yaml.YAMLError, RecursionError) as error:
        return (), (_refuse_file(file, 1, f"is no YAML that EDL reads: {error}"),)


def _read_nodes(file: str, nodes: Sequence[yaml.Node]) -> tuple[tuple[Document, ...], tuple[Refusal, ...]]:
    documents: list[Document] = []
    refusals: list[Refusal] = [] if nodes else [_refuse_file(file, 1, "holds no document")]
    for number, node in enumerate(nodes, start=1):
        if not isinstance(node, yaml.MappingNode):
            line = node.start_mark.line + 1
            refusals.append(_refuse_file(file, line, f"document {number} is no mapping of fields"))
            continue
        refusals += [_refuse_file(file, line, f"{key!r} stands twice") for line, key in _repeated_keys(node)]
        documents.append(Document(file=file, number=number, content=_to_plain(node), node=node))
    return tuple(documents), tuple(refusals)


def _read_text(path: Path) -> str:
    if path.stat().st_size > _LARGEST_FILE_BYTES:
        raise ValueError(f"more than {_LARGEST_FILE_BYTES >> 20} MiB; a job description is a few kB")
    text = path.read_text(encoding="utf-8")
    if text.count("*") > _MOST_ALIASES and sum(isinstance(t, yaml.AliasToken) for t in yaml.scan(text)) > _MOST_ALIASES:
        raise ValueError(f"more than {_MOST_ALIASES} YAML aliases")
    return text


def _refuse_file(file: str, line: int, problem: str, hint: str = "") -> Refusal:
    return Refusal(file=file, line=line, document="file", path="", problem=problem, hint=hint)


def _child(node: yaml.Node, step: Step) -> tuple[int, yaml.Node] | None:
    match node:
        case yaml.MappingNode():
            for key, value in node.value:
                if key.value == step:
                    return key.start_mark.line, value
        case yaml.SequenceNode() if isinstance(step, int) and step < len(node.value):
            item = node.value[step]
            return item.start_mark.line, item
        case _:
            pass
    return None


def _to_plain(node: yaml.MappingNode) -> Mapping[str, Any]:
    constructor = yaml.constructor.SafeConstructor()
    content = constructor.construct_document(node)
    assert isinstance(content, dict)
    return content


def _repeated_keys(node: yaml.Node) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    match node:
        case yaml.MappingNode():
            seen: set[str] = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen and key.value != "<<":
                    found.append((key.start_mark.line + 1, key.value))
                seen.add(str(key.value))
                found += _repeated_keys(value)
        case yaml.SequenceNode():
            for item in node.value:
                found += _repeated_keys(item)
        case _:
            pass
    return found
