"""The values of the chart that README and docs name in sentences are values that the chart takes."""

import json
import re

import pytest
import yaml

from tests.documentation.shown import ROOT, shown_spans

CHART = ROOT / "charts" / "edl"
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
GROUPS = [name for name, value in VALUES.items() if isinstance(value, dict)]
_NAMED = re.compile(rf"(?<![\w./-])(?:{'|'.join(GROUPS)})(?:\.[A-Za-z]\w*)+")
SHOWN = sorted({(page, named) for page, span in shown_spans() for named in _NAMED.findall(span)})


def test_the_pages_name_values():
    """What looks for them finds them: a changed way to write them must not empty the test below."""
    assert len(SHOWN) >= 60


@pytest.mark.parametrize(("page", "named"), SHOWN)
def test_a_value_that_a_page_names_is_the_charts(page, named):
    """By its whole path, and spelt as `--set` takes it."""
    found = SCHEMA
    for step in named.split("."):
        found = found.get("properties", {})
        assert step in found, f"{page} names {named}, which charts/edl/values.schema.json does not know"
        found = found[step]
        if "$ref" in found:
            found = SCHEMA["definitions"][found["$ref"].rpartition("/")[2]]
