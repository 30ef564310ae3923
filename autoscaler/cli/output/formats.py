"""Output formats: plain content as JSON or YAML, objects in the format of -o, lines below a heading."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from autoscaler.cli.output.object_tables import ObjectList, format_table


def format_objects(found: ObjectList, output: str, *, is_single: bool, has_heading: bool = True) -> str:
    """Objects in the format of -o; `is_single`: one object by itself instead of a list; `has_heading`: of a table."""
    match output:
        case "json" | "yaml":
            listed = {"apiVersion": "v1", "kind": "List", "items": list(found.objects)}
            return format_content(found.objects[0] if is_single else listed, output)
        case "name":
            return "\n".join(f"{o['kind'].lower()}/{o['metadata']['name']}" for o in found.objects)
        case _:
            rows = [row for one in found.objects for row in found.rows(one)]
            lines = format_table(rows, is_wide=output == "wide", columns=found.columns)
            return "\n".join(lines if has_heading else lines[1:]) or "nothing there"


def format_content(content: Any, output: str) -> str:
    """Plain content as `json` or `yaml`, without the last line's end."""
    if output == "json":
        return json.dumps(content, indent=2)
    import yaml  # noqa: PLC0415 - only here, and not for --help

    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True)).rstrip()


def section(title: str, lines: Iterable[str], *, is_spaced: bool = False) -> list[str]:
    """A heading, after an empty line if `is_spaced`, with indented lines below it; empty if there are no lines."""
    indented = [f"  {line}" for text in lines for line in text.splitlines()]
    return [*([""] if is_spaced else []), f"{title}:", *indented] if indented else []
