"""Plain content as the text that -o asks for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from autoscaler.cli.output.object_tables import PlainObject, format_table
from autoscaler.cli.places import ObjectList


def render(found: ObjectList, output: str, *, is_single: bool) -> str:
    """Things as -o wants them; `is_single`: one was named, so that one is told and no list."""
    match output:
        case "json":
            return json.dumps(_content(found.objects, is_single=is_single), indent=2)
        case "yaml":
            return to_yaml(_content(found.objects, is_single=is_single))
        case "name":
            return "\n".join(f"{o['kind'].lower()}/{o['metadata']['name']}" for o in found.objects)
        case _:
            lines = format_table(found.objects, is_wide=output == "wide", columns=found.columns)
            return "\n".join(lines) or "nothing there"


def to_yaml(content: Any) -> str:
    """As YAML, without the last line's end."""
    import yaml  # noqa: PLC0415 - only here, and not for --help

    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True)).rstrip()


def _content(objects: Sequence[PlainObject], *, is_single: bool) -> Any:
    return objects[0] if is_single else {"apiVersion": "v1", "kind": "List", "items": list(objects)}
