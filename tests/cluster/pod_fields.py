"""Writes autoscaler/manifests/pod_fields.json from a real API server: `python -m tests.cluster.pod_fields`.

What it holds: every type below a PodTemplateSpec, as the server's own OpenAPI document says it.  Run it when the
Kubernetes of tests/cluster is a newer one; test_pod_fields_real.py compares the two.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.cluster.control_plane import ControlPlane, start_control_plane
from tests.cluster.toolbox import find_tools

FILE: Final = Path(__file__).resolve().parents[2] / "autoscaler" / "manifests" / "pod_fields.json"
ROOT: Final = "io.k8s.api.core.v1.PodTemplateSpec"
SCALARS: Final = {"Quantity": "quantity", "IntOrString": "int-or-string", "Time": "string", "FieldsV1": "object"}


def read_table(plane: ControlPlane) -> dict[str, dict[str, str]]:
    """{type: {field: its type}}; `!` after one: required.  `[X]`: a list, `{X}`: a mapping, `a|b`: a choice."""
    schemas = json.loads(plane.kubectl("get", "--raw", "/openapi/v3/api/v1"))["components"]["schemas"]
    table: dict[str, dict[str, str]] = {}
    waiting = [ROOT]
    while waiting:
        name = waiting.pop()
        short = name.rpartition(".")[2]
        if short in table or short in SCALARS:
            continue
        schema = schemas[name]
        required = schema.get("required", ())
        table[short] = {
            field: _type_of(inner, waiting) + ("!" if field in required else "")
            for field, inner in sorted(schema.get("properties", {}).items())
        }
    return dict(sorted(table.items()))


def to_text(table: dict[str, dict[str, str]]) -> str:
    """One line a type, so that a change is a line."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in table.items())
    return f"{{\n{lines}\n}}\n"


def _type_of(schema: dict[str, Any], waiting: list[str]) -> str:
    for part in (schema, *schema.get("allOf", ())):
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            waiting.append(name)
            short = name.rpartition(".")[2]
            return SCALARS.get(short, short)
    match schema["type"]:
        case "array":
            return f"[{_type_of(schema['items'], waiting)}]"
        case "object" if "additionalProperties" in schema:
            return f"{{{_type_of(schema['additionalProperties'], waiting)}}}"
        case "string" if "enum" in schema:
            return "|".join(filter(None, schema["enum"]))
        case plain:
            return str(plain)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        start_control_plane(Path(folder), find_tools(os.environ)) as plane,
    ):
        FILE.write_text(to_text(read_table(plane)), encoding="utf-8")
    print(f"wrote {FILE}")


if __name__ == "__main__":
    main()
