"""Writes the table of values in charts/edl/README.md out of values.yaml: `python tools/chart_readme.py`.

A comment that begins with `# --` describes the value below it.  `--check` writes nothing and ends with 1 when the page
is not that of values.yaml; a value without a description ends it too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

CHART: Final = Path(__file__).resolve().parent.parent / "charts" / "edl"
BEGIN: Final = "<!-- values: made by tools/chart_readme.py -->"
END: Final = "<!-- end of values -->"
MARK: Final = "# --"


def make_page(page: str, values: str) -> str:
    """`page` with the table of `values` between its marks.  Raises SystemExit for a value without a description."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = values.splitlines()
    rows = [f"| `{path}` | {_description(path, lines, line)} | {default} |" for path, line, default in _values(values)]
    return "\n".join(
        [f"{before}{BEGIN}", "", "| value | meaning | default |", "|---|---|---|", *rows, "", f"{END}{after}"]
    )


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
            return " ".join([text.removeprefix(MARK).strip(), *words]).replace("|", r"\|")
        words.insert(0, text.removeprefix("#").strip())
    raise SystemExit(f"values.yaml: {path} has no description: write `{MARK} ...` above it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare with the committed page")
    check_only: bool = parser.parse_args().check
    readme = CHART / "README.md"
    there = readme.read_text(encoding="utf-8")
    page = make_page(there, (CHART / "values.yaml").read_text(encoding="utf-8"))
    if check_only and page != there:
        raise SystemExit("charts/edl/README.md is not what values.yaml says: run python tools/chart_readme.py")
    if not check_only:
        readme.write_text(page, encoding="utf-8")
        print(f"wrote {readme}")


if __name__ == "__main__":
    main()
