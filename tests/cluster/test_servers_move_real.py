"""A server that is to move to another node, on a real control plane: made there, and given up where it cannot be.

Nobody trains here and no master answers, so nobody says that the new one holds anything: both stay.  How a move ends is
in `tests/unit/operator/controllers/test_server_replacement.py` and, with real containers, in
`tests/e2e/test_product_live.py`.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kubernetes import client

from tests.cluster.chart_control_plane import (
    LEASE,
    job_of,
    open_admin,
    start_charted,
    take_place,
    write_operator_kubeconfig,
)
from tests.cluster.kwok_nodes import Life, make_pod
from tests.cluster.operator_process import OperatorProcess
from tests.harness.waiting import BUDGET_S, wait_for

JOBS, ELSEWHERE = "team-a", "web"
HOME, BETTER = "n0", "n1"
EDL = str(Path(sys.executable).with_name("edl"))
OLD, NEW = "digits-server-0", "digits-server-1"
PORT = 7999
POLICY = """
reclaim: scheduler
victimAgeSeconds: 3
upWindowSeconds: 0
quietWindowSeconds: 0
burstWindowSeconds: 0
"""
LOOKS_S = 12.0
"""That nothing happens is seen for so long: longer than the loop rests between two plans."""


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    """A control plane of its own with the chart on it."""
    folder = tmp_path_factory.mktemp("moving")
    with start_charted(folder, cluster_tools, namespaces=[JOBS, ELSEWHERE]) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane):
    with open_admin(plane, cpu="4", nodes=2) as api:
        take_place(api)
        yield api


@pytest.fixture
def core(admin):
    return client.CoreV1Api(admin)


@pytest.fixture
def operator(plane, admin, tmp_path):
    kubeconfig = write_operator_kubeconfig(tmp_path / "kubeconfig", plane, admin)
    switch = {"EDL_MOVE_SERVERS": "true"}
    with OperatorProcess("one", tmp_path, kubeconfig, lease=LEASE, policy=POLICY, settings=switch) as process:
        yield process
    print(process.log.read_text(encoding="utf-8")[-6000:])


@pytest.fixture
def web_load(plane, core):
    """The better node is taken, all but what is left when the web load is gone: room for a trainer and a server."""
    port = {"containerPort": PORT, "hostPort": PORT}
    stays = web("stays", "1")
    stays["spec"]["containers"][0]["ports"] = [port]
    for pod in (stays, web("web-load", "2900m")):
        core.create_namespaced_pod(ELSEWHERE, pod)
    yield lambda: core.delete_namespaced_pod("web-load", ELSEWHERE, grace_period_seconds=0)
    plane.kubectl("delete", "trainingjobs", "--all", "-n", JOBS, "--ignore-not-found")
    for namespace in (JOBS, ELSEWHERE):
        plane.kubectl("delete", "pods", "--all", "-n", namespace, "--grace-period=0", "--force", "--ignore-not-found")
    wait_for("no pods", lambda: not core.list_namespaced_pod(JOBS).items)


def web(name, cpu):
    requests = {"cpu": cpu, "memory": "64Mi"}
    return make_pod(name, Life(), requests=requests, nodeSelector={"kubernetes.io/hostname": BETTER})


def submit(plane, *, ports=()):
    """One server of 0.9 cores, trainers of 1.9: a node of four holds two trainers, or one and the server."""
    job = job_of("digits", minimum=1, maximum=9, cpu="1900m")
    spec = job["spec"]
    for role, cpu in (("parameterServer", "900m"), ("master", "50m")):
        spec[role]["template"] = json.loads(json.dumps(spec[role]["template"]))
        container = spec[role]["template"]["spec"]["containers"][0]
        container["resources"]["requests"]["cpu"] = cpu
        if role == "parameterServer":
            container["ports"] = list(ports)
            spec[role] |= {"minReplicas": 1, "maxReplicas": 1}
    plane.kubectl("apply", "-n", JOBS, "-f", "-", stdin=json.dumps(job))


def servers(core):
    """Node, by name; those that are told to leave apart."""
    found = core.list_namespaced_pod(JOBS, label_selector="edl.dev/role=server").items
    return {pod.metadata.name: pod.spec.node_name for pod in found if pod.metadata.deletion_timestamp is None}


def trainers(core):
    return len(core.list_namespaced_pod(JOBS, label_selector="edl.dev/role=trainer").items)


def begin(plane, core, operator, **job):
    operator.wait_leading()
    submit(plane, **job)
    wait_for("the job stands", lambda: (servers(core), trainers(core)) == ({OLD: HOME}, 1))


def test_the_new_one_is_bound_on_its_node_and_outlives_operator_and_predecessor(plane, admin, core, operator, web_load):
    begin(plane, core, operator)
    web_load()
    wait_for("the new one beside the old one", lambda: servers(core) == {OLD: HOME, NEW: BETTER})
    wait_for("a trainer beside it", lambda: trainers(core) == 2)
    new, old = (core.read_namespaced_pod(name, JOBS) for name in (NEW, OLD))
    assert new.metadata.annotations["edl.dev/replaces"] == f"{OLD}/{old.metadata.uid}"
    wait_for("the move is told", lambda: "Moved" in reasons(plane))
    policy = client.PolicyV1Api(admin)
    wait_for(
        "the budget counts both, and a drain may take one",
        lambda: allowed(policy.read_namespaced_pod_disruption_budget("digits-core", JOBS).status) == (4 - 1, 1),
    )

    leaves, moves = "is removed once server 1 is ready on n1", "to n1, where it wastes less"
    wait_for("why says so", lambda: f"team-a/digits-server-0 {leaves}" in edl(plane, "why", "tj/digits"))
    wait_for("describe says so", lambda: f"moves team-a/digits-server-0 {moves}" in edl(plane, "describe", "tj/digits"))

    operator.kill()
    operator.start()
    operator.wait_leading()
    time.sleep(LOOKS_S)
    assert [core.read_namespaced_pod(name, JOBS).metadata.uid for name in (NEW, OLD)] == [
        new.metadata.uid,
        old.metadata.uid,
    ], "another leader has begun anew"
    assert servers(core) == {OLD: HOME, NEW: BETTER}

    core.delete_namespaced_pod(OLD, JOBS, grace_period_seconds=0)
    wait_for("the room is a trainer's", lambda: trainers(core) == 3)
    assert servers(core) == {NEW: BETTER}


def reasons(plane):
    """Of all events."""
    return " ".join(plane.event_reasons(JOBS))


def edl(plane, *words):
    where = ("--kubeconfig", str(plane.kubeconfig), "-n", JOBS)
    done = subprocess.run([EDL, *words, *where], capture_output=True, text=True, timeout=BUDGET_S, check=True)
    return done.stdout


def allowed(status):
    return status.desired_healthy, status.disruptions_allowed


def test_one_that_the_scheduler_refuses_is_given_up_and_nothing_is_lost(plane, core, operator, web_load):
    """Its port is taken there, which only the scheduler knows."""
    begin(plane, core, operator, ports=[{"containerPort": PORT, "hostPort": PORT}])
    before = core.read_namespaced_pod(OLD, JOBS).metadata.uid
    web_load()
    wait_for("it is given up", lambda: 'edl_server_moves_total{outcome="given up"} 1.0' in operator.get("/metrics")[1])
    wait_for("the new one is gone", lambda: servers(core) == {OLD: HOME})
    time.sleep(LOOKS_S)
    assert servers(core) == {OLD: HOME}, "it is tried again"
    assert core.read_namespaced_pod(OLD, JOBS).metadata.uid == before
