"""What alerts and the runbook speak of exists: metrics, label values, sections.  No promtool and no helm is needed."""

import json
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from autoscaler.operator.metrics import Metrics
from autoscaler.operator.status.conditions import ConditionType
from master.process.metrics import MasterCollector
from master.term.counters import Counters
from tests.documentation.reasons import REASONS

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = {
    rule["alert"]: rule
    for rule in yaml.safe_load((ROOT / "charts/edl/files/alerts.yaml").read_text())["groups"][0]["rules"]
}
RUNBOOK: Final = (ROOT / "docs/runbook.md").read_text()
ALERT: Final = pytest.mark.parametrize("alert", RULES)


class Standby:
    """A master that does not lead."""

    counts, stream_count, waiting_write_count = Counters(), 0, 0

    def try_status(self):
        return None


def exported():
    """The names of series, counters with their suffix."""
    told = [*Metrics().registry.collect(), *MasterCollector(Standby()).collect()]
    return {f"{one.name}_total" if one.type == "counter" else one.name for one in told}


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


def test_every_metric_of_the_dashboard_is_one_that_edl_exports():
    """A panel of a metric that is gone stays empty, and looks like a quiet day."""
    board = json.loads((ROOT / "charts/edl/files/dashboard.json").read_text())
    exprs = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    named = {re.sub(r"_(bucket|sum|count)$", "", name) for expr in exprs for name in re.findall(r"\bedl_\w+", expr)}
    assert named
    assert named <= exported()
