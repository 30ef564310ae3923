"""Writes out of values.yaml the table in charts/edl/README.md, and descriptions and `required` in values.schema.json.

A comment that begins with `# --` describes the value below it.  `python tools/chart_readme.py --check` writes nothing
and ends with 1 when a file is not what values.yaml says; a value without a description ends it too.  What values.yaml
does not name (groups of values, shared definitions, settings with the planner's own defaults) is described in the
schema itself; the table lists these settings with the planner's defaults.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.domain import Policy, Reclaim
from autoscaler.operator.process.policy_file import format_policy

CHART: Final = Path(__file__).resolve().parent.parent / "charts" / "edl"
BEGIN: Final = "<!-- values: made by tools/chart_readme.py -->"
END: Final = "<!-- end of values -->"
MARK: Final = "# --"


def make_page(page: str, values: str) -> str:
    """`page` with the table of `values` between its marks.  Raises SystemExit for a value without a description."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = values.splitlines()
    rows = [f"| `{path}` | {_cell(path, lines, line)} | {default} |" for path, line, default in _values(values)]
    last = max(index for index, row in enumerate(rows) if row.startswith("| `policy."))
    rows[last + 1 : last + 1] = _settings(frozenset(yaml.safe_load(values)["policy"]))
    return "\n".join(
        [f"{before}{BEGIN}", "", "| value | meaning | default |", "|---|---|---|", *rows, "", f"{END}{after}"]
    )


def _settings(named: frozenset[str]) -> Iterator[str]:
    """Rows of the planner's settings that are not `named` in values.yaml: the schema describes them."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    defaults = format_policy(Policy(reclaim=Reclaim.SCHEDULER))
    for name, setting in schema["properties"]["policy"]["properties"].items():
        if name not in named:
            described = setting["description"].replace("|", r"\|")
            yield f"| `policy.{name}` | {described} | `{json.dumps(defaults[name])}` |"


def _cell(path: str, lines: list[str], line: int) -> str:
    return _description(path, lines, line).replace("|", r"\|")


def make_schema(schema: str, values: str) -> str:
    """`schema` with the descriptions of `values`, and each of them required: null takes a default away, unseen."""
    document: dict[str, Any] = json.loads(schema)
    lines = values.splitlines()
    _require(document, yaml.safe_load(values))
    for path, line, _ in _values(values):
        *groups, name = path.split(".")
        node = document
        for group in groups:
            node = node.get("properties", {}).get(group, {})
        if name in node.get("properties", {}):
            described = {"description": _description(path, lines, line)}
            node["properties"][name] = described | node["properties"][name] | described  # first, and new
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _require(node: dict[str, Any], values: dict[str, Any]) -> None:
    node["required"] = list(values)
    for name, value in values.items():
        if isinstance(value, dict) and "properties" in node["properties"][name]:
            _require(node["properties"][name], value)


def _values(text: str) -> Iterator[tuple[str, int, str]]:
    """Path, line and default of what a user sets: leaves, and mappings that are described as a whole."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    yield from _below(root, "", text.splitlines())


def _below(node: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[tuple[str, int, str]]:
    for key, value in node.value:
        path, line = f"{prefix}{key.value}", key.start_mark.line
        described = any(text.lstrip().startswith(MARK) for text in lines[line : _last_line(value)])
        if isinstance(value, yaml.MappingNode) and described:
            yield from _below(value, f"{path}.", lines)
        else:
            default = json.dumps(yaml.constructor.SafeConstructor().construct_document(value))
            yield path, line, f"`{default}`"


def _last_line(node: yaml.Node) -> int:
    """Of what is written there; a block's own end mark stands behind the comments that follow it."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _last_line(node.value[-1][1])
    return node.end_mark.line


def _description(path: str, lines: list[str], line: int) -> str:
    words: list[str] = []
    for above in reversed(lines[:line]):
        text = above.strip()
        if not text.startswith("#"):
            break
        if text.startswith(MARK):
            return " ".join([text.removeprefix(MARK).strip(), *words])
        words.insert(0, text.removeprefix("#").strip())
    raise SystemExit(f"values.yaml: {path} has no description: write `{MARK} ...` above it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare with the committed files")
    check_only: bool = parser.parse_args().check
    values = (CHART / "values.yaml").read_text(encoding="utf-8")
    for name, make in MADE.items():
        path = CHART / name
        there = path.read_text(encoding="utf-8")
        made = make(there, values)
        if check_only and made != there:
            raise SystemExit(f"charts/edl/{name} is not what values.yaml says: run python tools/chart_readme.py")
        if not check_only:
            path.write_text(made, encoding="utf-8")
            print(f"wrote {path}")


MADE: Final = {"README.md": make_page, "values.schema.json": make_schema}
"""By the file's name: what makes it, out of what it is and values.yaml."""

if __name__ == "__main__":
    main()
