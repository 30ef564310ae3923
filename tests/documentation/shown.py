"""What the pages show: every command line and every manifest of README.md, docs/, examples/, images/ and the chart.

A fence holds commands (after `$ `, or where a line begins with a program that the pages use) and what they answer; a
span in a sentence may be a mention without arguments.  Nothing here judges or runs anything.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = ("edl", "kubectl", "helm", "make", "docker", "pip", "python", "source")
PAGES: Final = ("README.md", "docs/*.md", "docs/reports/*.md", "examples/*.md", "images/*.md", "charts/edl/README.md")
COMMENTED: Final = ("examples/*.yaml", "examples/kubernetes/*.yaml")
_FENCE: Final = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
_SPAN: Final = re.compile(r"`([^`]+)`")
_BEGINS: Final = re.compile(rf"(?:\$ )?(?P<line>(?:{'|'.join(PROGRAMS)}) .*)")
_COMMENT: Final = re.compile(rf"#\s+(?P<line>(?:{'|'.join(PROGRAMS)}) \S.*)")
_PLACEHOLDERS: Final = {"N": "3", "NAME": "digits", "NODE": "node-1", "FILE": "job.yaml", "URI": "file:///nowhere"}
_PLACEHOLDER: Final = re.compile(rf"(?<![\w-])({'|'.join(_PLACEHOLDERS)})(?![\w-])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program with its arguments, placeholders filled in.  `is_mention`: in a sentence, maybe not whole."""

    page: str
    words: tuple[str, ...]
    is_mention: bool = False

    @property
    def program(self) -> str:
        return self.words[0]

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One document of a YAML fence."""

    page: str
    content: dict[str, Any]
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.content.get('kind')}"


def shown_commands() -> list[Command]:
    """Each command once, in the order of the pages."""
    found = [command for path in _paths(PAGES) for command in _commands_of(path)]
    found += [
        command
        for path in _paths(COMMENTED)
        for match in _COMMENT.finditer(path.read_text(encoding="utf-8"))
        for command in parse_line(match["line"], page=_name(path))
    ]
    return list(dict.fromkeys(found))


def shown_spans() -> list[tuple[str, str]]:
    """(page, text) of each span in a sentence, in the order of the pages."""
    return [(_name(path), span) for path in _paths(PAGES) for span in _SPAN.findall(_without_fences(path))]


def shown_options() -> list[tuple[str, tuple[str, ...]]]:
    """(page, words) of each span that begins with an option: `--on kubernetes`."""
    found = [
        (page, tuple(shlex.split(span)))
        for page, span in shown_spans()
        if re.match(r"--?[a-z]", span) and "..." not in span
    ]
    return list(dict.fromkeys(found))


def shown_manifests() -> list[Manifest]:
    """Every document of every YAML fence."""
    return [
        Manifest(page=_name(path), content=content, text=match["body"])
        for path in _paths(PAGES)
        for match in _FENCE.finditer(path.read_text(encoding="utf-8"))
        if match["language"] == "yaml"
        for content in yaml.safe_load_all(match["body"])
        if isinstance(content, dict)
    ]


def parse_line(line: str, *, page: str, is_mention: bool = False) -> Iterator[Command]:
    """The commands of a line: `a; b`, `a && b`, `<(a)`; a remark at its end, alone or in brackets, is none."""
    if inner := re.search(r"<\((.*?)\)", line):
        yield from parse_line(inner[1], page=page, is_mention=is_mention)
        return
    line = _PLACEHOLDER.sub(lambda match: _PLACEHOLDERS[match[1]], re.sub(r"\s+\((?![^ ]*=).*\)$", "", line))
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not set(word) <= set(";&>"):
            words.append(word)
            continue
        if words and words[0] in PROGRAMS:
            for chosen in _alternatives(words):
                cut = tuple(word for word in (w.removesuffix("...") for w in chosen) if word)
                yield Command(page=page, words=cut, is_mention=is_mention)
        words = []


def _commands_of(path: Path) -> Iterator[Command]:
    for match in _FENCE.finditer(path.read_text(encoding="utf-8")):
        if match["language"] not in {"", "console"}:
            continue
        for line in match["body"].splitlines():
            if (begins := _BEGINS.fullmatch(line)) is not None:
                yield from parse_line(begins["line"], page=_name(path))
    for span in _SPAN.findall(_without_fences(path)):
        whole = " ".join(span.split()).replace("helm upgrade ...", "helm upgrade edl charts/edl")
        if (begins := _BEGINS.fullmatch(whole)) is not None:
            yield from parse_line(begins["line"], page=_name(path), is_mention=True)


def _alternatives(words: list[str]) -> Iterator[list[str]]:
    """`completion bash|zsh` is two commands."""
    for index, word in enumerate(words):
        if re.fullmatch(r"[a-z]+(\|[a-z]+)+", word):
            for choice in word.split("|"):
                yield from _alternatives([*words[:index], choice, *words[index + 1 :]])
            return
    yield words


def _without_fences(path: Path) -> str:
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def _paths(patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        found = sorted(ROOT.glob(pattern))
        assert found, f"no page is named {pattern}"
        yield from found


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))
