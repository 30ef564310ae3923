"""Every expression of dashboards and rules answers at a real Prometheus that scraped a real run."""

import asyncio
import re
import time

import pytest
import yaml

from autoscaler.cluster_page import prometheus_history
from autoscaler.cluster_page.prometheus_history import PrometheusHistory
from autoscaler.page.drawings.time_drawing import draw_time
from autoscaler.views.cluster.pod_view import NodeUnit
from autoscaler.views.documents import EVERYTHING
from autoscaler.views.history.time_view import time_view
from tests.chart.boards import BOARDS, queries, variables, with_values
from tests.chart.exported import FILES
from tests.chart.scraped_run import JOB, scraped_run
from tests.harness.waiting import BUDGET_S, wait_for

pytestmark = pytest.mark.slow

VALUES = {
    "edl": {"namespace": ".*"},
    "edl-job": {"namespace": "default", "job": JOB},
    "edl-gpus": {"namespace": ".*", "model": ".*"},
}
SILENT = {
    "edl_etcd_bytes": "a run without an etcd whose users EDL makes",
    "edl_job_efficiency_ratio": "two sizes have to be seen for minutes",
    "edl_job_errors_total": "EDL has no fault with these jobs",
    "edl_job_resize_pause_seconds": "of groups alone",
    "edl_job_start_held_up_by": "nothing is reserved: the job that waits can never start",
    "edl_server_moves_total": "servers stay on their nodes",
    "edl_server_resizes_total": "the number of servers stays as it is",
    "edl_job_waiting_since_timestamp_seconds{namespace": "the job that is shown has started",
}
"""Metrics whose expressions may be empty here, and why."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    with scraped_run(tmp_path_factory.mktemp("scraped")) as running:
        yield running


def may_be_silent(expr):
    return any(metric in expr for metric in SILENT)


def test_every_panel_has_an_answer(prometheus):
    """None is refused, and none is empty but those that are listed; legends and links name labels that exist."""
    waiting, deadline_s = list(queries()), time.monotonic() + BUDGET_S
    while waiting and time.monotonic() < deadline_s:
        answers = {query: prometheus.query(with_values(query.expr, VALUES[query.board])) for query in waiting}
        for query, series in answers.items():
            for one in series:
                assert query.labels() <= one["metric"].keys(), query
        waiting = [query for query, series in answers.items() if not series]
        if all(may_be_silent(query.expr) for query in waiting):
            break
        time.sleep(1)
    assert [str(query) for query in waiting if not may_be_silent(query.expr)] == []


def test_every_variable_has_values(prometheus):
    for board in BOARDS:
        for one in variables(board):
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", one["definition"]).groups()
            selector = with_values(metric, VALUES[board])
            found = wait_for(
                one["definition"],
                lambda label=label, selector=selector: prometheus.ask(f"label/{label}/values", match=selector),
            )
            assert set(found) & {"default", "research", JOB, "Tesla T4"}, one["definition"]


def test_every_rule_is_evaluated_without_an_error(prometheus):
    names = [
        rule.get("alert") or rule["record"]
        for file in ("alerts.yaml", "recording-rules.yaml")
        for group in yaml.safe_load((FILES / file).read_text())["groups"]
        for rule in group["rules"]
    ]

    def evaluated():
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        return rules if all(rule["health"] != "unknown" for rule in rules) else None

    told = wait_for("the rules' first evaluation", evaluated)
    assert sorted(rule["name"] for rule in told) == sorted(names)
    assert [(rule["name"], rule.get("lastError")) for rule in told if rule["health"] != "ok"] == []


def test_every_metric_of_an_alert_was_scraped(prometheus):
    """An alert on a metric that nobody exports never fires: all but the listed ones have series here."""
    rules = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"][0]["rules"]
    wanted = {name for rule in rules for name in re.findall(r"\bedl_\w+", rule["expr"])}
    silent = {name for name in SILENT if name in wanted}
    wait_for("metrics of alerts", lambda: wanted - set(prometheus.ask("label/__name__/values")) <= silent)


def test_a_job_that_fails_at_each_start_is_alerted(prometheus):
    """The alert is pending until its minute is over; a job that trains has none."""

    def alerts():
        told = prometheus.ask("alerts")["alerts"]
        return {one["labels"]["job"] for one in told if one["labels"]["alertname"] == "EdlJobCrashLoops"}

    assert wait_for("the alert", alerts) == {"broken"}


async def test_the_page_draws_the_past_from_it(prometheus, monkeypatch):
    """Samples a second apart of a real run: what web and the job held is what was in use, within what was there."""
    monkeypatch.setattr(prometheus_history, "POINTS", 3_000)
    async with asyncio.timeout(BUDGET_S):
        while True:
            history = PrometheusHistory(prometheus.url, {}, clock=time.monotonic)
            samples = await history.samples("hour", NodeUnit.CORES, now_s=time.time())
            if len(samples) > 1 and any(owner == f"default/{JOB}" for owner, _ in samples[-1].jobs):
                break
            await asyncio.sleep(1)
    last = samples[-1]
    assert last.web == 500
    assert last.web + sum(amount for _, amount in last.jobs) == last.used <= last.capacity
    assert last.wanted >= last.used + 64_000, "the job that fits nowhere wants a trainer of 64 cores at least"
    assert (last.web_wanted, last.web_running) == (1, 1)
    view = time_view(samples, [], EVERYTHING, span="hour", origin=history.name)
    assert draw_time(view, {}) is not None
