"""Every field that a user may write or read says what it is: `kubectl explain tj`, an editor, `helm show values`."""

import json
from pathlib import Path

import pytest
import yaml

CHART = Path("charts/edl")
DEFINITION = yaml.safe_load((CHART / "files" / "trainingjobs.yaml").read_text())
VALUES = json.loads((CHART / "values.schema.json").read_text())


def fields(node, path=""):
    """(path, field) of every one below `node`, those of lists and maps too."""
    for name, field in node.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(node.get(inner), dict):
            yield from fields(node[inner], f"{path}[]")


THE_API_SERVERS = {".metadata"}
"""Kubernetes describes it itself, and refuses a definition that does."""

SCHEMAS = {
    **{version["name"]: version["schema"]["openAPIV3Schema"] for version in DEFINITION["spec"]["versions"]},
    "values": VALUES,
    **{f"#{name}": definition for name, definition in VALUES["definitions"].items()},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_field_is_described(name):
    """With a sentence, not with its own name."""
    bare = {path for path, field in fields(SCHEMAS[name]) if len(field.get("description", "")) < 5}
    assert bare - THE_API_SERVERS == set()


def test_the_schemas_have_fields():
    """So that the test above cannot pass on nothing."""
    assert sum(1 for schema in SCHEMAS.values() for _ in fields(schema)) > 300


@pytest.mark.parametrize("name", SCHEMAS)
def test_no_part_of_a_description_is_a_key_of_its_own(name):
    """A comma ends a plain text in a flow mapping: the API server refused the whole definition."""
    assert [path for path, field in fields(SCHEMAS[name]) if any(" " in key for key in field)] == []
