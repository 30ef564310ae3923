"""The page of `edl run`: each number on it is that of the command's JSON, field by field, of a run at rest."""

import json
import urllib.request
from urllib.error import HTTPError

import pytest

from tests.harness.edl_command import FILES, PROGRAMS, EdlRun, edl, ready_trainers, wait_until

REPORTS = f"""
---
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {{name: reports}}
spec:
  trainer:
    minReplicas: 1
    maxReplicas: 1
    template:
      spec:
        containers:
        - name: t
          command: [python, {PROGRAMS / "sharder.py"}]
          args: [--out, told, --size, "100", --epochs, "1", --pause-s, "0.5"]
          resources: {{requests: {{cpu: 500m, memory: 64Mi}}}}
  master:
    template:
      spec:
        containers: [{{name: m, resources: {{requests: {{cpu: 100m, memory: 64Mi}}}}}}]
"""
"""A job that reports a metric and ends."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two nodes of two cpus; one job of at most three trainers, one that has ended, one web pod, and the page."""
    started = EdlRun(tmp_path_factory.mktemp("page"), "--stay", "--page", files=FILES + REPORTS)
    line = started.process.stdout.readline()
    while not line.startswith("page: "):
        line = started.process.stdout.readline()
    started.address = line.removeprefix("page: ").strip()
    edl("wait", "--for=condition=Available", "deployment/web", "--timeout", "100s", run=started.folder)
    edl("wait", "--for=condition=Completed", "tj/reports", "--timeout", "100s", run=started.folder)
    wait_until(lambda: ready_trainers(started.folder, "idle") == 2, "growth into free room")
    yield started
    started.end()


def asked(run, path):
    """The page's JSON."""
    base, _, token = run.address.partition("/?token=")
    request = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def told(run, *words):
    """The command's JSON."""
    return json.loads(edl(*words, "-o", "json", run=run.folder))


def test_sizes_and_progress_of_jobs_are_those_of_get(run):
    """edl get tj -o json has every one of these numbers."""
    documents = {one["metadata"]["name"]: one for one in told(run, "get", "tj")["items"]}
    view = asked(run, "/api/now")
    assert [one["name"] for one in view["jobs"]] == list(documents)
    assert view["job_count"] == len(documents)
    assert documents["reports"]["status"]["progress"]["metrics"].keys() == {"batches"}
    for shown in view["jobs"]:
        spec, status = documents[shown["name"]]["spec"], documents[shown["name"]]["status"]
        trainers = status["trainers"]
        assert shown["trainers"] == {
            "ready": trainers["ready"],
            "target": trainers["target"],
            "min": spec["trainer"]["minReplicas"],
            "max": spec["trainer"]["maxReplicas"],
            "pinned": spec["trainer"].get("replicas", 0),
            "leaving": trainers["leaving"],
        }
        assert (shown["core"], shown["surplus"]) == (trainers["core"], trainers["surplus"])
        assert shown["servers"] is None
        assert shown["reason"] == status["reason"]
        assert shown["message"] in {one["message"] for one in status["conditions"]}
        assert shown["masters_ready"] == status["master"]["ready"]
        assert shown["leader"] == status["master"].get("leader", "")
        assert shown["failures"] == status["failures"]
        assert shown["share"] == status["share"]
        metrics = {one["name"]: one["value"] for one in shown["metrics"]}
        assert metrics == status.get("progress", {}).get("metrics", {})
        remaining = status.get("progress", {}).get("remaining", {})
        names = {"trainers": "trainers", "seconds": "seconds", "shortest_s": "shortestSeconds"}
        told_remaining = (shown["progress"] or {}).get("remaining") or {}
        for mine, theirs in (names | {"longest_s": "longestSeconds"}).items():
            assert told_remaining.get(mine) == remaining.get(theirs)
        fields = (("size_before", "from"), ("size_after", "to"), ("cause",) * 2, ("by",) * 2, ("message",) * 2)
        resizes = [{mine: one[theirs] for mine, theirs in fields} for one in status["resizes"]]
        assert [{mine: one[mine] for mine, _ in fields} for one in shown["resizes"]] == resizes
        held = [one["type"] for one in status["conditions"] if one["status"] == "True"]
        assert set(shown["conditions"]) == set(held)


def test_deployments_and_nodes_are_those_of_get(run):
    view = asked(run, "/api/now")
    documents = told(run, "get", "deployments")["items"]
    own = [one for one in documents if not one["metadata"].get("ownerReferences")]
    assert [(one["name"], one["wanted"], one["ready"]) for one in view["deployments"]] == [
        (one["metadata"]["name"], one["spec"]["replicas"], one["status"].get("readyReplicas", 0)) for one in own
    ]
    nodes = edl("get", "nodes", run=run.folder).splitlines()[1:]
    shown = {one["name"]: one for one in view["picture"]["nodes"]}
    for name, state, cpu, *_ in map(str.split, nodes):
        used, _, capacity = cpu.partition("/")
        assert shown[name]["state"] == state
        assert shown[name]["capacity"] == int(float(capacity) * 1000)
        assert shown[name]["used"] == (int(used[:-1]) if used.endswith("m") else int(float(used) * 1000))


def test_pods_are_those_of_get(run):
    pods = told(run, "get", "pods")["items"]
    view = asked(run, "/api/now")
    shown = {pod["name"]: pod for node in view["picture"]["nodes"] for pod in node["pods"]}
    assert set(shown) == {one["metadata"]["name"] for one in pods if one["spec"].get("nodeName")}
    for one in pods:
        if pod := shown.get(one["metadata"]["name"]):
            labels = one["metadata"].get("labels", {})
            assert pod["node"] == one["spec"]["nodeName"]
            assert pod["ordinal"] == int(labels.get("edl.dev/ordinal", 0))
            assert pod["use"] == labels.get("edl.dev/tier", "web")


def test_why_is_that_of_the_command(run):
    """The same decision, and the same counterfactuals in the same order."""
    assert asked(run, "/api/job/jobs/default/idle")["why"]["answer"] == told(run, "why", "tj/idle")


def test_what_if_is_that_of_the_command(run):
    shown = asked(run, "/api/what-if/what-if?deployment=web&replicas=3&add=2&cpu=4&memory=8Gi")
    words = ("what-if", "--web", "web=3", "--add-nodes", "2", "--shape", "4cpu,8Gi")
    assert shown["answer"] == told(run, *words)
    assert shown["nodes"] == ["node-1", "node-2"]


def test_events_are_those_of_the_command(run):
    """All of them, the newest first, within what a page shows."""
    events = [json.loads(line) for line in edl("events", "--json", run=run.folder).splitlines()]
    view = asked(run, "/api/decisions/decisions")
    lines = [(one["kind"], one["object"], one["reason"], one["message"]) for one in reversed(view["lines"])]
    assert lines == [(one["kind"], one["object"], one["reason"], one["message"]) for one in events][-200:]
    assert view["kept"] == len(events)


def test_the_snapshot_is_one_that_the_command_answers_from(run, tmp_path):
    base, _, token = run.address.partition("/?token=")
    request = urllib.request.Request(base + "/snapshot.json", headers={"Authorization": f"Bearer {token}"})
    file = tmp_path / "snapshot.json"
    with urllib.request.urlopen(request, timeout=60) as answer:
        file.write_bytes(answer.read())
    live, saved = told(run, "why", "tj/idle"), json.loads(edl("why", "tj/idle", "-o", "json", "--snapshot", str(file)))
    assert saved["decision"] == live["decision"]


def test_nobody_else_on_the_machine_reads_it(run):
    base = run.address.partition("/?")[0]
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(base + "/api/now", timeout=60)
    with refused.value as answer:
        assert answer.code == 401


def test_a_run_without_a_terminal_has_no_page_unless_asked(tmp_path):
    """Its output is what it was: a script that reads it meets no new line."""
    plain = EdlRun(tmp_path, "--duration", "1s")
    lines = plain.process.stdout.read()
    plain.end()
    assert "Stopping" in lines
    assert "page: " not in lines


def test_a_run_whose_port_is_taken_goes_on(tmp_path, run):
    port = run.address.partition("/?")[0].rpartition(":")[2]
    other = EdlRun(tmp_path, "--stay", "--page-port", port)
    try:
        line = other.process.stdout.readline()
        while "no page" not in line:
            line = other.process.stdout.readline()
        assert f"port {port} cannot be used" in line
        edl("wait", "--for=condition=Available", "deployment/web", "--timeout", "100s", run=other.folder)
    finally:
        other.end()
