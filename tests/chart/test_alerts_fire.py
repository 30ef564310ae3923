"""Each alert fires when it must and not when it must not, as promtool says (ADR 0174)."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.chart.rendering import CHART, render
from tests.cluster.families import ALERT_FAMILIES
from tests.cluster.toolbox import find_tools

CASES: Final = Path(__file__).with_name("alerts")
ALERTS: Final = CHART / "files" / "alerts.yaml"
RULES: Final = {rule["alert"]: rule for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]}
RECORDED: Final = [
    group["name"] for group in yaml.safe_load((CHART / "files" / "recording-rules.yaml").read_text())["groups"]
]
BUDGET_S: Final = 180.0


def promtool(*words):
    program = find_tools(os.environ, ALERT_FAMILIES)["promtool"]
    return subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=BUDGET_S)


@pytest.mark.parametrize("alert", RULES)
def test_alert_fires_when_it_must_and_only_then(alert):
    done = promtool("test", "rules", str(CASES / f"{alert}.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", RULES)
def test_alert_has_cases_of_both_kinds(alert):
    """Some series make it fire, and some make it stay silent from beginning to end."""
    cases = yaml.safe_load((CASES / f"{alert}.yaml").read_text())["tests"]
    checks = [[bool(check["exp_alerts"]) for check in case["alert_rule_test"]] for case in cases]
    assert any(any(fires) for fires in checks)
    assert any(not any(fires) for fires in checks)
    assert {check["alertname"] for case in cases for check in case["alert_rule_test"]} == {alert}


@pytest.mark.parametrize("group", RECORDED)
def test_what_is_recorded_is_what_its_cases_say(group):
    done = promtool("test", "rules", str(CASES.with_name("recording") / f"{group}.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_case_is_of_an_alert_that_is_gone():
    assert {path.stem for path in CASES.iterdir()} == set(RULES)


def test_a_rule_that_is_changed_fails_its_case(tmp_path):
    """The cases are run against the chart's own file: one rule turned round is noticed."""
    wrong = ALERTS.read_text().replace("seconds > 10 *", "seconds < 10 *")
    assert wrong != ALERTS.read_text()
    (tmp_path / "alerts.yaml").write_text(wrong)
    cases = (CASES / "EdlCheckpointsStopped.yaml").read_text()
    (tmp_path / "cases.yaml").write_text(cases.replace("../../../charts/edl/files/alerts.yaml", "alerts.yaml"))
    assert promtool("test", "rules", str(tmp_path / "cases.yaml")).returncode != 0


def test_alerts_name_the_runbook_where_the_values_say_it_is():
    url = "https://runbooks.example/edl.html"
    rendered = render({"metrics": {"prometheusRule": {"enabled": True, "runbookUrl": url}}})
    groups = [group for thing in rendered if thing["kind"] == "PrometheusRule" for group in thing["spec"]["groups"]]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    told = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules}
    assert told == {alert: f"{url}#{alert.lower()}" for alert in RULES}


def test_dashboards_come_in_one_map_for_the_sidecar():
    """By its label, in the folder that the annotation names; each file as it stands in the chart."""
    rendered = render({"metrics": {"dashboards": {"enabled": True, "folder": "Training"}}})
    [found] = [thing for thing in rendered if thing["metadata"]["name"] == "edl-dashboards"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"grafana_folder": "Training"}
    files = {path.name: path.read_text() for path in (CHART / "files" / "dashboards").iterdir()}
    assert {name: json.loads(text) for name, text in found["data"].items()} == {
        name: json.loads(text) for name, text in files.items()
    }
    [plain] = [
        thing
        for thing in render({"metrics": {"dashboards": {"enabled": True, "folder": ""}}})
        if thing["metadata"]["name"] == "edl-dashboards"
    ]
    assert "annotations" not in plain["metadata"]


def test_series_keep_the_labels_of_their_training_job():
    """Prometheus would put the operator's own namespace and job in their place, and alerts would name these."""
    rendered = render({"metrics": {"serviceMonitor": {"enabled": True}}})
    [monitor] = [thing for thing in rendered if thing["kind"] == "ServiceMonitor"]
    assert all(endpoint["honorLabels"] is True for endpoint in monitor["spec"]["endpoints"])
