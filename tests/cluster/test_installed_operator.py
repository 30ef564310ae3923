"""The operator as the chart installs it, on a real control plane: one process, the chart's ServiceAccount."""

import contextlib
import json
import re
import signal

import pytest
from kubernetes import client

from tests.cluster.chart_control_plane import (
    LEASE,
    NAMESPACE,
    job_of,
    open_admin,
    start_charted,
    take_place,
    write_operator_kubeconfig,
)
from tests.cluster.kwok_nodes import Life
from tests.cluster.operator_process import OperatorProcess
from tests.harness.waiting import wait_for, wait_unchanged

JOBS = "team-a"


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    """A control plane of its own with the chart on it."""
    with start_charted(tmp_path_factory.mktemp("operator"), cluster_tools, namespaces=[JOBS]) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane):
    with open_admin(plane, cpu="4") as api:
        take_place(api)
        yield api


@pytest.fixture(scope="module")
def kubeconfig(plane, admin, tmp_path_factory):
    return write_operator_kubeconfig(tmp_path_factory.mktemp("rights") / "operator.kubeconfig", plane, admin)


@pytest.fixture(scope="module")
def operator_of_all(kubeconfig, tmp_path_factory):
    with OperatorProcess("one", tmp_path_factory.mktemp("operator"), kubeconfig, lease=LEASE) as process:
        yield process
    print(process.log.read_text(encoding="utf-8")[-6000:])


@pytest.fixture
def operator(operator_of_all):
    """It runs on from test to test: one that is killed leaves a Lease, until whose end the next one waits."""
    if operator_of_all.program.has_ended():
        operator_of_all.start()
    return operator_of_all


@pytest.fixture
def submit(plane, admin):
    """Create jobs; all are gone after the test."""

    def create(name, **edits):
        plane.kubectl("apply", "-n", JOBS, "-f", "-", stdin=json.dumps(job_of(name, **edits)))

    yield create
    plane.kubectl("delete", "trainingjobs", "--all", "-n", JOBS, "--ignore-not-found")
    plane.kubectl("delete", "pods", "--all", "-n", JOBS, "--grace-period=0", "--force", "--ignore-not-found")
    wait_for("no pods", lambda: not pods(admin))


def pods(admin, job=None):
    selector = f"edl.dev/job={job}" if job else "edl.dev/job"
    return client.CoreV1Api(admin).list_namespaced_pod(JOBS, label_selector=selector).items


def job(plane, name):
    return plane.read_job(name, JOBS)


def condition(plane, name, kind):
    conditions = job(plane, name).get("status", {}).get("conditions", [])
    found = next((one for one in conditions if one["type"] == kind), {})
    return found.get("status"), found.get("reason")


def ready(plane, name):
    return job(plane, name).get("status", {}).get("trainers", {}).get("ready", 0)


def wait_whole(plane, admin, name):
    """Until the job is at its size; {name: UID} of its pods, the master's too, which a controller makes."""
    wait_for("all trainers", lambda: ready(plane, name) == 4)
    wait_for("a server and a master", lambda: len(pods(admin, name)) == 6)
    return {pod.metadata.name: pod.metadata.uid for pod in pods(admin, name)}


def reasons(plane):
    """Of all events."""
    return " ".join(plane.event_reasons(JOBS))


def names(plane, kind):
    return set(plane.kubectl("get", kind, "-n", JOBS, "-o", "jsonpath={.items[*].metadata.name}").split())


def test_a_job_starts_grows_is_healed_suspended_resumed_and_deleted(plane, admin, operator, submit):
    """One job's whole life, told by its status."""
    operator.wait_leading()
    submit("digits")
    wait_for("all trainers", lambda: ready(plane, "digits") == 4)
    wait_for("started", lambda: condition(plane, "digits", "Admitted") == ("True", "Started"))
    wait_for("at its size", lambda: condition(plane, "digits", "Scaled") == ("True", "Max"))
    wait_for("all are ready", lambda: condition(plane, "digits", "Ready") == ("True", "AllReady"))
    assert {"digits-authority", "digits-member", "digits-master"} <= names(plane, "secrets")
    assert "digits-master" in names(plane, "services")
    assert "digits-core" in names(plane, "pdb")
    assert " 4 " in plane.kubectl("get", "tj", "digits", "-n", JOBS)
    wait_for("the start is told", lambda: "Started" in reasons(plane))

    plane.kubectl("scale", "deployment", "digits-master", "-n", JOBS, "--replicas=0")
    wait_for("the master is wanted again", lambda: "MastersRestored" in operator.log.read_text(encoding="utf-8"))
    assert plane.kubectl("get", "deployment", "digits-master", "-n", JOBS, "-o", "jsonpath={.spec.replicas}") == "1"

    plane.kubectl("patch", "tj", "digits", "-n", JOBS, "--type=merge", "-p", '{"spec":{"runPolicy":{"suspend":true}}}')
    wait_for("suspended", lambda: condition(plane, "digits", "Suspended")[0] == "True" and not pods(admin, "digits"))
    plane.kubectl("patch", "tj", "digits", "-n", JOBS, "--type=merge", "-p", '{"spec":{"runPolicy":{"suspend":false}}}')
    wait_for("back", lambda: ready(plane, "digits") == 4)

    plane.kubectl("delete", "tj", "digits", "-n", JOBS)
    wait_for("nothing is left", lambda: not pods(admin, "digits"))
    status, metrics = operator.get("/metrics")
    assert status == 200
    assert "edl_decision_seconds_bucket" in metrics
    assert 'verb="create"' in metrics
    assert "edl_api_server_clock_ahead_seconds 0.0" in metrics  # one machine, one clock
    assert "Traceback" not in operator.log.read_text(encoding="utf-8")

    operator.send(signal.SIGTERM)
    assert operator.wait() == 0
    lease = json.loads(plane.kubectl("get", "lease", "edl-operator", "-n", NAMESPACE, "-o", "json"))
    assert lease["spec"]["holderIdentity"] == ""


def test_servers_come_by_the_ratio_and_by_hand_and_are_drained_one_at_a_time(plane, admin, operator, submit):
    """Nobody trains here and no master answers: a server that is to go stays at first, and is wanted again."""
    operator.wait_leading()
    edits = {"minReplicas": 1, "maxReplicas": 3, "trainersPerServer": 2}
    submit("digits", **{f"spec.parameterServer.{name}": value for name, value in edits.items()})

    def servers(*fields):
        return [job(plane, "digits").get("status", {}).get("servers", {}).get(field) for field in fields]

    def pin(count):
        change = json.dumps({"spec": {"parameterServer": {"replicas": count}}})
        plane.kubectl("patch", "tj", "digits", "-n", JOBS, "--type=merge", "-p", change)

    wait_for("one for every two trainers", lambda: servers("ready", "target") == [2, 2])
    pin(3)
    wait_for("three", lambda: servers("ready", "target", "min", "max") == [3, 3, 1, 3])
    pin(2)
    wait_for("one is to go", lambda: servers("target", "draining", "ready") == [2, 1, 3])
    assert condition(plane, "digits", "Scaled") == ("False", "Shrinking")
    pin(3)
    wait_for("it stays", lambda: servers("target", "draining", "ready") == [3, 0, 3])

    policy = client.PolicyV1Api(admin)
    wait_for(
        "one may be drained",
        lambda: policy.read_namespaced_pod_disruption_budget("digits-core", JOBS).status.disruptions_allowed == 1,
    )
    core = client.CoreV1Api(admin)
    before = core.read_namespaced_pod("digits-server-1", JOBS).metadata.uid
    operator.send(signal.SIGSTOP)  # else the first may be back before the second is asked for
    try:
        for name, is_allowed in (("digits-server-1", True), ("digits-server-0", False)):
            body = {"metadata": {"name": name, "namespace": JOBS}}
            with contextlib.nullcontext() if is_allowed else pytest.raises(client.ApiException, match="429"):
                core.create_namespaced_pod_eviction(name, JOBS, body)
    finally:
        operator.send(signal.SIGCONT)  # all other tests of this file have the same operator
    wait_for("it comes back under its number", lambda: _uid_of(core, "digits-server-1") not in {before, None})
    wait_for("three again", lambda: servers("ready") == [3])
    wait_for("that is told", lambda: "Drained" in reasons(plane))


def _uid_of(core, name):
    try:
        return core.read_namespaced_pod(name, JOBS).metadata.uid
    except client.ApiException:
        return None


def test_servers_that_have_second_copies_of_one_another_stand_apart(plane, admin, operator, submit):
    """One node has room for both, and holds both where there is one copy: it is the tightest (ADR 0318)."""
    operator.wait_leading()
    for name, copies, nodes in (("plain", 1, 1), ("pair", 2, 2)):
        servers = {"minReplicas": 2, "maxReplicas": 2, "copies": copies}
        edits = {f"spec.parameterServer.{field}": value for field, value in servers.items()}
        submit(name, minimum=1, maximum=1, **edits)
        wait_for("it runs", lambda name=name: condition(plane, name, "Ready")[0] == "True")
        found = [pod.spec.node_name for pod in pods(admin, name) if pod.metadata.labels["edl.dev/role"] == "server"]
        assert (len(found), len(set(found))) == (2, nodes), name


def test_what_stands_is_left_alone(plane, admin, operator, submit):
    """Once a job has its size nothing is written any more: no status that the server keeps otherwise, no event."""
    operator.wait_leading()
    submit("digits")
    wait_for("at its size", lambda: condition(plane, "digits", "Scaled") == ("True", "Max"))
    wait_for("ready", lambda: condition(plane, "digits", "Ready")[0] == "True" and ready(plane, "digits") == 4)
    wait_unchanged(lambda: writes(operator), for_s=5.0)  # what was under way is written first


def writes(operator):
    """Requests of the operator that change something, but for its Lease."""
    lines = operator.get("/metrics")[1].splitlines()
    found = (re.match(r'edl_api_calls_total\{kind="(\w+)",outcome="ok",verb="(\w+)"\} (.+)', line) for line in lines)
    counted = {(one[1], one[2]): float(one[3]) for one in found if one}
    return {
        what: n
        for what, n in counted.items()
        if what[1] in {"create", "apply", "patch", "delete"} and what[0] != "leases"
    }


def test_a_job_whose_trainers_fail_fails(plane, admin, operator, submit):
    """backoffLimit failures in a row, with the last one told; nothing runs after it."""
    operator.wait_leading()
    submit(
        "broken",
        life=Life(fail_after_s=0.3, exit_code=3),
        **{"spec.runPolicy.backoffLimit": 2},
    )
    wait_for("failed", lambda: condition(plane, "broken", "Failed")[0] == "True")
    assert condition(plane, "broken", "Failed") == ("True", "BackoffLimitExceeded")
    wait_for("nothing runs", lambda: not pods(admin, "broken"))
    plane.wait_condition("Failed", "tj/broken", "-n", JOBS)


def test_an_operator_that_is_killed_is_followed_and_the_job_goes_on(plane, admin, operator, submit):
    """kill -9 while a job starts, again while it runs: nothing of it is made twice or lost."""
    operator.wait_leading()
    submit("digits")
    operator.send(signal.SIGKILL)
    operator.wait()
    operator.start()
    operator.wait_leading()
    before = wait_whole(plane, admin, "digits")
    operator.send(signal.SIGKILL)
    operator.wait()
    client.CoreV1Api(admin).delete_namespaced_pod("digits-trainer-3", JOBS)
    operator.start()
    operator.wait_leading()
    old = before["digits-trainer-3"]
    wait_for("another one", lambda: _uid_of(client.CoreV1Api(admin), "digits-trainer-3") not in {old, None})
    after = wait_whole(plane, admin, "digits")
    assert {name for name in before if after.get(name) != before[name]} == {"digits-trainer-3"}


def test_a_forged_status_ends_nothing_and_is_put_right(plane, admin, operator, submit):
    """Beside standing trainers it is not believed, not even by an operator that has just begun."""
    operator.wait_leading()
    submit("digits")
    before = wait_whole(plane, admin, "digits")
    operator.send(signal.SIGKILL)
    operator.wait()
    one = {"type": "Completed", "status": "True", "reason": "X", "message": "x"}
    forged = {"conditions": [one | {"lastTransitionTime": "2020-01-01T00:00:00Z"}], "failures": 99}
    patch = json.dumps({"status": forged})
    plane.kubectl("patch", "tj", "digits", "-n", JOBS, "--subresource=status", "--type=merge", "-p", patch)
    operator.start()
    operator.wait_leading()
    wait_for("put right", lambda: condition(plane, "digits", "Completed") == ("False", "NotCompleted"))
    assert {pod.metadata.name: pod.metadata.uid for pod in pods(admin, "digits")} == before


def test_a_job_that_is_only_observed_is_told_what_would_be(plane, admin, operator, submit):
    """mode: observe writes nothing but status and events."""
    operator.wait_leading()
    submit("shown", **{"spec.mode": "observe"})
    wait_for("told", lambda: condition(plane, "shown", "Admitted") == ("False", "Observed"))
    assert not pods(admin, "shown")
    assert not {name for name in names(plane, "secrets") if name.startswith("shown")}


def test_the_budget_follows_an_edit(plane, admin, operator, submit):
    """Another minimum, another number of pods that must stay, without waiting for the minute's round."""
    operator.wait_leading()
    submit("digits")
    wait_for("all trainers", lambda: ready(plane, "digits") == 4)
    plane.kubectl("patch", "tj", "digits", "-n", JOBS, "--type=merge", "-p", '{"spec":{"trainer":{"minReplicas":3}}}')

    def least():
        budget = plane.read(f"/apis/policy/v1/namespaces/{JOBS}/poddisruptionbudgets/digits-core")
        return budget["spec"]["minAvailable"]

    wait_for("the budget follows", lambda: least() == 4)


def test_a_leader_that_was_stopped_writes_nothing_when_it_goes_on(
    plane, admin, operator_of_all, kubeconfig, tmp_path, submit
):
    """SIGSTOP, another one leads, SIGCONT: the first one stands by."""
    operator_of_all.kill()  # one of these two shall lead
    with (
        OperatorProcess("first", tmp_path, kubeconfig, lease=LEASE) as first,
        OperatorProcess("second", tmp_path, kubeconfig, lease=LEASE) as second,
    ):
        wait_for("one leads", lambda: first.is_leading() or second.is_leading())
        old, new = (first, second) if first.is_leading() else (second, first)
        old.send(signal.SIGSTOP)
        wait_for("the other one leads", new.is_leading)
        submit("digits")
        wait_for("all trainers", lambda: ready(plane, "digits") == 4)
        old.send(signal.SIGCONT)
        wait_for("it knows", lambda: old.get("/readyz")[1].startswith("stands by"))
        wait_for("one leads", lambda: new.is_leading() and not old.is_leading())
