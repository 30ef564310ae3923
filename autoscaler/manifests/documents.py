"""YAML documents with the line of every field.

Only syntax is checked here (valid YAML, a mapping, no key twice, a bounded size); `parsing` checks the content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.manifests.field_errors import FieldError

_LARGEST_FILE_BYTES: Final = 256 << 10
"""A job description is a few kB; the time to check a file grows with the square of its fields."""

NO_DOCUMENT: Final = "contains no document"
_MOST_NODES: Final = 50_000
"""Most YAML nodes, aliases expanded: a few lines of aliases can expand beyond any memory."""

PathStep = str | int


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

    def line_of(self, path: Sequence[PathStep]) -> int:
        """The line of the deepest field of `path` that the document has."""
        node: yaml.Node = self.node
        line = node.start_mark.line
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            line, node = found
        return line + 1

    def field_error(self, path: Sequence[PathStep], problem: str, hint: str = "") -> FieldError:
        """An error of this document's field `path`."""
        return FieldError(
            file=self.file,
            line=self.line_of(path),
            document=f"document {self.number}, {self.kind} {self.name}",
            path=format_path(path),
            problem=problem,
            hint=hint,
        )


def format_path(path: Sequence[PathStep]) -> str:
    """`spec.trainer.template.spec.containers[0].name`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def read_documents(path: Path) -> tuple[tuple[Document, ...], tuple[FieldError, ...]]:
    """The documents of the file that are mappings, and the errors of the others.  Empty documents are skipped.

    Never raises.
    """
    file = str(path)
    try:
        text = _read_text(path)
    except UnicodeDecodeError:
        return (), (_file_error(file, 1, "is not a UTF-8 text file"),)
    except OSError as error:
        return (), (_file_error(file, 1, f"cannot be read: {error.strerror}"),)
    except ValueError as error:
        return (), (_file_error(file, 1, f"is too large: {error}"),)
    return read_text(file, text)


def read_text(file: str, text: str) -> tuple[tuple[Document, ...], tuple[FieldError, ...]]:
    """`read_documents` of a text that no file holds; `file` is what errors call it."""
    try:
        return _read_nodes(file, list(yaml.compose_all(text, Loader=yaml.SafeLoader)))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return (), (_file_error(file, line, f"is not YAML: {error.problem}", hint=_yaml_hint(str(error.problem))),)
    except RecursionError:
        return (), (_file_error(file, 1, "is nested too deeply"),)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number of 5,000 digits, a 13th month
        return (), (_file_error(file, 1, f"is not YAML that EDL can read: {' '.join(str(error).split())}"),)


def _read_nodes(file: str, nodes: Sequence[yaml.Node]) -> tuple[tuple[Document, ...], tuple[FieldError, ...]]:
    documents: list[Document] = []
    written = [node for node in nodes if not _is_empty(node)]
    errors: list[FieldError] = [] if written else [_file_error(file, 1, NO_DOCUMENT)]
    for number, node in enumerate(written, start=1):
        if not isinstance(node, yaml.MappingNode):
            line = node.start_mark.line + 1
            errors.append(_file_error(file, line, f"document {number} is not a mapping of fields"))
            continue
        if _count_nodes(node, {}) > _MOST_NODES:
            errors.append(_file_error(file, node.start_mark.line + 1, f"has more than {_MOST_NODES} fields and items"))
            continue
        errors += [_file_error(file, line, f"{key!r} is a duplicate key") for line, key in _repeated_keys(node)]
        documents.append(Document(file=file, number=number, content=_to_plain(node), node=node))
    return tuple(documents), tuple(errors)


def _is_empty(node: yaml.Node) -> bool:
    """True if nothing is between two `---`, or after the last: templates produce that, and kubectl skips it."""
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null" and not node.value


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_LARGEST_FILE_BYTES + 1)  # a device or a pipe has size 0 for stat
    if len(content) > _LARGEST_FILE_BYTES:
        raise ValueError(f"more than {_LARGEST_FILE_BYTES >> 10} KiB; a job description is a few kB")
    return content.decode("utf-8").replace("\r\n", "\n")


def _yaml_hint(problem: str) -> str:
    return "indent with spaces, not with tabs" if r"'\t'" in problem else "check the indentation there"


def _file_error(file: str, line: int, problem: str, hint: str = "") -> FieldError:
    return FieldError(file=file, line=line, document="file", path="", problem=problem, hint=hint)


def _child(node: yaml.Node, step: PathStep) -> tuple[int, yaml.Node] | None:
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


class _Constructor(yaml.constructor.SafeConstructor):
    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """The scalar's text.  JSON escapes what is beyond U+FFFF as a surrogate pair, which YAML keeps as two."""
        value = super().construct_scalar(node)
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _to_plain(node: yaml.MappingNode) -> Mapping[str, Any]:
    content = _Constructor().construct_document(node)
    assert isinstance(content, dict)
    return content


def _count_nodes(node: yaml.Node, counted: dict[int, int]) -> int:
    """Number of YAML nodes below this one, aliases unfolded.  Raises RecursionError for one that contains itself."""
    if id(node) not in counted:
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            inner = node.value
        counted[id(node)] = 1 + sum(_count_nodes(part, counted) for part in inner)
    return counted[id(node)]


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
