"""The Deployment controller of a run: so many pods as are wanted, and whose they are."""

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from autoscaler.clusters.kubernetes.memory_api import MemoryServer, collect
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.kubernetes.objects.fields import condition_of
from autoscaler.clusters.kubernetes.parsing.deployment_objects import has_refused_pods, is_reconciled
from autoscaler.clusters.kubernetes.parsing.pod_objects import deployment_of
from autoscaler.clusters.local.control_plane.deployment_controller import plan_replicas, reconcile_deployments
from autoscaler.fault_isolation import JobErrors

USER = FieldOwner("kubectl", is_apply=False)


def web(replicas, **spec):
    pod = {"containers": [{"name": "web", "image": "web:1"}], **spec}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod}
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": replicas, "template": template}}


def started(replicas, **spec):
    server = MemoryServer(now=lambda: 0.0)
    server.create(DEPLOYMENTS, web(replicas, **spec), USER)
    reconcile_deployments(server, JobErrors(lambda: 0.0))
    return server


def scale(server, replicas):
    before = server.get(DEPLOYMENTS, "default", "web")
    after = {**before, "spec": {**before["spec"], "replicas": replicas}}
    server.change(DEPLOYMENTS, before, after, is_status=False, owner=USER)
    reconcile_deployments(server, JobErrors(lambda: 0.0))


def names(server):
    return [pod["metadata"]["name"] for pod in server.all(PODS)]


def make_ready(server, name):
    pod = server.bind("default", name, "n1")
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
    server.rewrite(PODS, pod, {**pod, "status": {**pod["status"], "phase": "Running", "conditions": conditions}})


def test_a_deployment_gets_its_replicas():
    """As many as it wants, with its labels, and each is known as a pod of this Deployment."""
    server = started(3)
    assert names(server) == ["web-local-0", "web-local-1", "web-local-2"]
    for pod in server.all(PODS):
        assert deployment_of(pod) == "default/web"
        assert pod["metadata"]["labels"]["app"] == "web"


def test_a_second_look_makes_nothing_twice():
    """The controller is level-triggered."""
    server = started(2)
    version = server.history.version
    reconcile_deployments(server, JobErrors(lambda: 0.0))
    assert names(server) == ["web-local-0", "web-local-1"]
    assert server.history.version == version


def test_pods_that_serve_nobody_leave_first():
    """Unbound ones, then those that are not ready, then the highest number."""
    server = started(4)
    for name in ("web-local-1", "web-local-2", "web-local-3"):
        make_ready(server, name)
    scale(server, 3)
    assert names(server) == ["web-local-1", "web-local-2", "web-local-3"]
    scale(server, 2)
    leaving = [pod["metadata"]["name"] for pod in server.all(PODS) if "deletionTimestamp" in pod["metadata"]]
    assert leaving == ["web-local-3"]


def test_the_name_of_a_leaving_pod_is_not_used_again():
    """A process of that name may still run."""
    server = started(1)
    make_ready(server, "web-local-0")
    scale(server, 0)
    scale(server, 1)
    assert names(server) == ["web-local-0", "web-local-1"]


def test_an_ended_pod_is_replaced():
    """One that has ended counts no more."""
    server = started(1)
    pod = server.bind("default", "web-local-0", "n1")
    server.rewrite(PODS, pod, {**pod, "status": {**pod["status"], "phase": "Failed"}})
    reconcile_deployments(server, JobErrors(lambda: 0.0))
    assert names(server) == ["web-local-0", "web-local-1"]


def test_the_status_tells_what_stands():
    """The generation that was acted upon, the replicas, and how many of them are ready."""
    server = started(2)
    make_ready(server, "web-local-0")
    reconcile_deployments(server, JobErrors(lambda: 0.0))
    deployment = server.get(DEPLOYMENTS, "default", "web")
    assert is_reconciled(deployment)
    assert deployment["status"]["replicas"] == 2
    assert deployment["status"]["readyReplicas"] == 1
    assert deployment["status"]["unavailableReplicas"] == 1
    assert condition_of(deployment, "Available")["status"] == "False"
    make_ready(server, "web-local-1")
    reconcile_deployments(server, JobErrors(lambda: 0.0))
    deployment = server.get(DEPLOYMENTS, "default", "web")
    assert deployment["status"]["unavailableReplicas"] == 0
    assert condition_of(deployment, "Available")["status"] == "True"


def test_a_refused_pod_is_told_as_a_failure_to_create():
    """Demand that cannot become pods is no demand: the planner keeps no room for it."""
    server = started(1, priorityClassName="there-is-none")
    deployment = server.get(DEPLOYMENTS, "default", "web")
    assert has_refused_pods(deployment)
    assert "there-is-none" in condition_of(deployment, "ReplicaFailure")["message"]


def test_one_deployment_that_is_refused_pods_stops_no_other():
    """A fault of one is its own (A11)."""
    server = MemoryServer(now=lambda: 0.0)
    server.create(DEPLOYMENTS, web(1, priorityClassName="there-is-none"), USER)
    other = web(1)
    server.create(DEPLOYMENTS, {**other, "metadata": {"name": "zeta", "namespace": "default"}}, USER)
    reconcile_deployments(server, JobErrors(lambda: 0.0))
    assert names(server) == ["zeta-local-0"]


def test_the_pods_of_a_deleted_deployment_go():
    """Their owner is gone: the garbage collector takes them."""
    server = started(2)
    server.delete(DEPLOYMENTS, "default", "web")
    collect(server)
    assert names(server) == []


def pod_in(state, ordinal):
    """A pod of the Deployment: leaving, ended, without a node, starting or ready."""
    metadata = {"name": f"web-local-{ordinal}", "namespace": "default"}
    if state == "leaving":
        metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    status = {"phase": "Failed" if state == "ended" else "Running"}
    if state == "ready":
        status["conditions"] = [{"type": "Ready", "status": "True"}]
    return {"metadata": metadata, "spec": {} if state == "unbound" else {"nodeName": "n1"}, "status": status}


@given(st.lists(st.sampled_from(["unbound", "starting", "ready", "leaving", "ended"]), max_size=8), st.integers(0, 12))
def test_after_the_difference_there_are_as_many_as_wanted(states, replicas):
    """Never both directions at once."""
    pods = [pod_in(state, number) for number, state in enumerate(states)]
    names = {pod["metadata"]["name"] for pod in pods}
    deployment = web(replicas)
    deployment["metadata"]["uid"] = "u"
    difference = plan_replicas(deployment, pods, names)
    standing = sum(state not in {"leaving", "ended"} for state in states)
    assert standing + len(difference.create) - len(difference.delete) == replicas
    assert not (difference.create and difference.delete)
    assert not {body["metadata"]["name"] for body in difference.create} & names
