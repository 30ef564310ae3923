"""Trouble around the operator on a real control plane: nothing shrinks, nothing is lost, it says so and catches up.

One process with the ServiceAccount of the chart, as in `test_installed_operator`; its control plane is maltreated.
"""

import json
import re
import secrets
import signal
import time

import pytest
from kubernetes import client

from autoscaler.domain.policy import Policy
from tests.cluster.api_call_costs import Cost, calls_in
from tests.cluster.chart_control_plane import CHART, has_right, job_of, open_admin, start_charted
from tests.cluster.kwok_nodes import make_pod
from tests.harness.waiting import wait_for, wait_unchanged

JOBS = "team-a"  # of the test's own
STANDING = "team-b"  # where one job runs all the time
BINDING = "edl-operator"
DEFINITION = CHART / "files" / "trainingjobs.yaml"
STALE_LIMIT_S = Policy().stale_limit_s
# Longer than a Lease lasts (15 s), a view may be old (10 s) and the longest pause of a watch (10 s).
SERVER_STILL_S = 25.0
SERVER_AWAY_S = 60.0  # and than nodes may be silent (50 s)
STILL_S = 3.5  # longer than a status waits for others
SETTLED_S = 5.0  # for what it would do by mistake, with a view that is fresh again


@pytest.fixture(scope="module")
def plane(cluster_tools, tmp_path_factory):
    with start_charted(tmp_path_factory.mktemp("trouble"), cluster_tools, namespaces=[JOBS, STANDING]) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane):
    with open_admin(plane, cpu="6") as api:
        yield api


@pytest.fixture
def submit(plane, admin, operator):
    """Create jobs; all are gone after the test."""

    def create(name, **edits):
        plane.kubectl("apply", "-n", JOBS, "-f", "-", stdin=json.dumps(job_of(name, **edits)))

    yield create
    plane.kubectl("delete", "trainingjobs", "--all", "-n", JOBS, "--ignore-not-found")
    plane.kubectl("delete", "pods", "--all", "-n", JOBS, "--grace-period=0", "--force", "--ignore-not-found")
    wait_for("no pods", lambda: not pods(admin, JOBS))


@pytest.fixture(scope="module")
def standing(plane, admin, operator):
    """A job that runs all the time."""
    plane.kubectl("apply", "-n", STANDING, "-f", "-", stdin=json.dumps(job_of("digits")))


@pytest.fixture
def running(plane, admin, standing):
    """{name: UID} of the pods of the job that runs all the time, at its size."""
    pin(plane, 4)
    wait_for("at its size", lambda: ready(plane, "digits", STANDING) == 4)
    wait_for("its master", lambda: len(pods(admin, STANDING)) == 6)
    return pods(admin, STANDING)


def pods(admin, namespace):
    found = client.CoreV1Api(admin).list_namespaced_pod(namespace, label_selector="edl.dev/job").items
    return {pod.metadata.name: pod.metadata.uid for pod in found}


def job(plane, name, namespace=JOBS):
    return plane.read_job(name, namespace)


def condition(plane, name, kind):
    conditions = job(plane, name).get("status", {}).get("conditions", [])
    found = next((one for one in conditions if one["type"] == kind), {})
    return found.get("status"), found.get("reason"), found.get("message", "")


def ready(plane, name, namespace=JOBS):
    return job(plane, name, namespace).get("status", {}).get("trainers", {}).get("ready", 0)


def pin(plane, replicas):
    change = json.dumps({"spec": {"trainer": {"replicas": replicas}}})
    plane.kubectl("patch", "tj", "digits", "-n", STANDING, "--type=merge", "-p", change)


def value(operator, name):
    return float(re.search(rf"^{name} (\S+)$", operator.get("/metrics")[1], re.MULTILINE)[1])


def test_rights_that_are_taken_away_cost_no_pod_and_are_told(plane, admin, operator, running):
    """An edit meanwhile is carried out when they are back."""
    rbac = client.RbacAuthorizationV1Api(admin)
    binding = rbac.read_cluster_role_binding(BINDING)
    rbac.delete_cluster_role_binding(BINDING)
    try:
        wait_for("the API server knows", lambda: not has_right(plane, "delete", "pods", "-n", STANDING))
        pin(plane, 2)
        wait_for("told in /readyz", lambda: "is forbidden" in operator.get("/readyz")[1])
        # A watch that was granted before is heard until its turn ends: the age grows from then on.
        wait_for("a view too old", lambda: value(operator, "edl_view_age_seconds") > STALE_LIMIT_S)
        assert 'outcome="ForbiddenError"' in operator.get("/metrics")[1]
        wait_for("logged", lambda: "pods are not followed" in operator.log.read_text(encoding="utf-8"))
        assert pods(admin, STANDING) == running
    finally:
        binding.metadata = client.V1ObjectMeta(name=BINDING, labels=binding.metadata.labels)
        rbac.create_cluster_role_binding(binding)
    wait_for("caught up", lambda: len(pods(admin, STANDING)) == 4)
    wait_for("well again", lambda: operator.get("/readyz") == (200, "leads\n"))
    assert {name: uid for name, uid in running.items() if name in pods(admin, STANDING)} == pods(admin, STANDING)
    wait_for("logged", lambda: "pods are followed again" in operator.log.read_text(encoding="utf-8"))


def test_an_api_server_that_stands_still_costs_no_pod(plane, admin, operator, running):
    """Nothing answers, connections stay open: the Lease runs out meanwhile, and is won again."""
    server = plane.programs["kube-apiserver"]
    server.send(signal.SIGSTOP)
    try:
        time.sleep(SERVER_STILL_S)
        wait_for("it leads no more", lambda: not operator.is_leading())
        assert operator.get("/healthz")[0] == 200  # a restart would not help
    finally:
        server.send(signal.SIGCONT)
    wait_for("nobody left", lambda: pods(admin, STANDING) == running)
    operator.wait_leading()
    pin(plane, 3)
    wait_for("caught up", lambda: len(pods(admin, STANDING)) == 5)
    assert pods(admin, STANDING).items() <= running.items()


def test_a_namespace_that_is_deleted_takes_its_job_along(plane, admin, operator, running):
    """EDL makes no pod there again, and the jobs of other namespaces are not touched."""
    name, core = f"leaving-{secrets.token_hex(4)}", client.CoreV1Api(admin)
    plane.kubectl("create", "namespace", name)
    plane.kubectl("apply", "-n", name, "-f", "-", stdin=json.dumps(job_of("short", maximum=3)))
    wait_for("it runs", lambda: ready(plane, "short", name) == 3)
    core.create_namespaced_config_map(name, {"metadata": {"name": "holds", "finalizers": ["edl.dev/test"]}})
    core.delete_namespace(name)
    wait_for("no pods", lambda: not pods(admin, name))
    before, since_s = refusals(operator), time.monotonic()
    time.sleep(3)  # the namespace is still there, and the job may be
    assert not pods(admin, name)
    assert refusals(operator) - before <= time.monotonic() - since_s, "more than one a second"
    core.patch_namespaced_config_map("holds", name, {"metadata": {"finalizers": None}})
    wait_for("gone", lambda: name not in plane.kubectl("get", "namespaces", "-o", "name"))
    assert pods(admin, STANDING) == running
    wait_for("well again", lambda: operator.get("/readyz") == (200, "leads\n"))


def refusals(operator):
    found = re.findall(
        r'edl_api_calls_total\{kind="pods",outcome="ForbiddenError",verb="create"\} (\S+)', operator.get("/metrics")[1]
    )
    return float(found[0]) if found else 0.0


def test_an_older_definition_is_told_and_makes_no_pod(plane, admin, operator, submit, running):
    """The operator would write and read fields that the server drops: what runs goes on, nothing is begun."""
    text = DEFINITION.read_text(encoding="utf-8")
    older = re.sub(r'edl.dev/crd-revision: "\d+"', 'edl.dev/crd-revision: "0"', text)
    plane.kubectl("apply", "-f", "-", stdin=older)
    try:
        operator.send(signal.SIGTERM)  # one that begins beside it, as after an upgrade of the image alone
        assert operator.wait() == 0
        operator.start()
        operator.wait_leading()
        wait_for("told", lambda: "older than this operator" in operator.get("/readyz")[1])
        submit("late", maximum=2)
        wait_for("the job says why", lambda: condition(plane, "late", "Admitted")[:2] == ("False", "OldDefinition"))
        assert not pods(admin, JOBS)
        assert pods(admin, STANDING) == running
    finally:
        plane.kubectl("apply", "-f", str(DEFINITION))
    wait_for("it starts", lambda: ready(plane, "late") == 2)
    wait_for("well again", lambda: operator.get("/readyz") == (200, "leads\n"))


UNFIT = {
    "a class that is not there": ({"spec.priorityClassName": "gold"}, "PriorityClassMissing", "gold"),
    "a GPU that nobody has": (
        {"spec.trainer.template.spec.containers.0.resources.limits": {"example.com/gpu": "1"}},
        "NeverFits",
        "example.com/gpu",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_needs_the_cluster_to_be_judged_is_a_condition(plane, admin, operator, submit, case):
    edits, reason, words = UNFIT[case]
    submit("unfit", **edits)
    wait_for("told", lambda: condition(plane, "unfit", "Admitted")[:2] == ("False", reason))
    assert words in condition(plane, "unfit", "Admitted")[2]
    assert not pods(admin, JOBS)


def test_what_others_made_under_a_jobs_names_is_theirs(plane, admin, operator, submit):
    """A Secret, and a pod: the job says whose name is taken, and starts when it is free."""
    core = client.CoreV1Api(admin)
    core.create_namespaced_secret(JOBS, {"metadata": {"name": "digits-member"}, "stringData": {"key": "theirs"}})
    core.create_namespaced_pod(JOBS, make_pod("digits-trainer-0", requests={"cpu": "100m"}))
    submit("digits")
    for kind, delete in (("Secret", core.delete_namespaced_secret), ("pod", core.delete_namespaced_pod)):
        name = {"Secret": "digits-member", "pod": "digits-trainer-0"}[kind]
        wait_for(f"the {kind} is told", lambda kind=kind: taken(plane, kind))
        if kind == "Secret":
            assert set(core.read_namespaced_secret(name, JOBS).data) == {"key"}
        assert not pods(admin, JOBS)
        delete(name, JOBS, grace_period_seconds=0)
    wait_for("it starts", lambda: ready(plane, "digits") == 4)


def taken(plane, kind):
    status, reason, message = condition(plane, "digits", "Admitted")
    return (status, reason) == ("False", "NameTaken") and message.startswith(f"{kind} {JOBS}/digits-")


def test_a_resize_costs_its_pods_writes_a_status_and_an_event(plane, admin, operator, running):
    """At most 2 x core pods created + surplus created + pods deleted + 2, with nothing else written meanwhile."""
    before_pods = running
    wait_unchanged(lambda: calls_in(operator.get("/metrics")[1]), for_s=STILL_S)
    for size in (2, 4, 3):
        before = calls_in(operator.get("/metrics")[1])
        pin(plane, size)
        wait_for("resized", lambda size=size: len(pods(admin, STANDING)) == size + 2)
        wait_for("told", lambda size=size: ready(plane, "digits", STANDING) == size)
        wait_unchanged(lambda: calls_in(operator.get("/metrics")[1]), for_s=STILL_S)
        now = pods(admin, STANDING)
        cost = Cost(
            core_created=0,
            surplus_created=len(now.items() - before_pods.items()),
            deleted=len(before_pods.items() - now.items()),
            calls=calls_in(operator.get("/metrics")[1]) - before,
        )
        assert cost.surplus_created + cost.deleted > 0
        assert cost.total <= cost.most, cost
        before_pods = now


# The last one: the scheduler and the controllers ask again ever more seldom, and take their time to come back.
@pytest.mark.parametrize("away_s", [0.0, SERVER_AWAY_S], ids=["restarted", "away for a minute"])
def test_an_api_server_that_is_killed_costs_no_pod(plane, admin, operator, running, away_s):
    """Every watch and connection breaks, new ones are refused; what is edited afterwards is heard and carried out."""
    plane.kill_api_server()
    try:
        time.sleep(away_s)
        if away_s:
            wait_for("it leads no more", lambda: not operator.is_leading())
        assert operator.get("/healthz")[0] == 200  # a restart would not help
    finally:
        plane.start_api_server()
    operator.wait_leading()
    assert pods(admin, STANDING) == running
    wait_for("well again", lambda: operator.get("/readyz") == (200, "leads\n"))
    time.sleep(SETTLED_S)
    assert pods(admin, STANDING) == running
    pin(plane, 3)
    wait_for("caught up", lambda: len(pods(admin, STANDING)) == 5)
    assert pods(admin, STANDING).items() <= running.items()
