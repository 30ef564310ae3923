"""What alerts and the runbook speak of exists: metrics, label values, sections.  No promtool and no helm is needed."""

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from autoscaler.operator.status.conditions import ConditionType
from tests.chart.exported import exported
from tests.documentation.reasons import REASONS

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = {
    rule["alert"]: rule
    for rule in yaml.safe_load((ROOT / "charts/edl/files/alerts.yaml").read_text())["groups"][0]["rules"]
}
RUNBOOK: Final = (ROOT / "docs/runbook.md").read_text()
ALERT: Final = pytest.mark.parametrize("alert", RULES)


@ALERT
def test_every_metric_of_an_alert_is_one_that_edl_exports(alert):
    """A metric that was renamed leaves an alert that never fires again, and nobody is told."""
    named = set(re.findall(r"\bedl_\w+", RULES[alert]["expr"]))
    assert named
    assert named <= exported()


@ALERT
def test_every_condition_and_reason_of_an_alert_is_one_that_a_status_says(alert):
    expr = RULES[alert]["expr"]
    assert set(re.findall(r'type="(\w+)"', expr)) <= {kind.value for kind in ConditionType}
    words = {word for group in re.findall(r'reason[!=]?~?"([\w|]+)"', expr) for word in group.split("|")}
    assert words <= REASONS


@ALERT
def test_every_alert_has_its_section_in_the_runbook(alert):
    """What it means, how to check, what to do: the annotation leads there."""
    assert RULES[alert]["annotations"]["runbook_url"] == f"RUNBOOK_URL#{alert.lower()}"
    section = re.search(rf"^### {alert}\n(.*?)(?=^##|\Z)", RUNBOOK, re.MULTILINE | re.DOTALL)
    assert section is not None
    for part in ("*Means*", "*Check*", "*Do*"):
        assert part in section[1], part


def test_no_section_of_the_runbook_is_of_an_alert_that_is_gone():
    assert set(re.findall(r"^### (Edl\w+)$", RUNBOOK, re.MULTILINE)) == set(RULES)
