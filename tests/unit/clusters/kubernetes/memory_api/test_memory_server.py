"""What the contract cannot ask of a real server: whose field is whose, hooks, namespaces that end, the window."""

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.api.errors import (
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RefusedBy,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, NAMESPACES, PODS, PRIORITY_CLASSES, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer, collect

N = {"namespace": "n"}


@pytest.fixture
def server():
    return MemoryServer(now=lambda: 1e9, namespaces=("n",), window=5)


@pytest.fixture
def api(server):
    return MemoryApi(server)


def config(name, **fields):
    return {"metadata": {"name": name, "namespace": "n"}, **fields}


def pod(name, **spec):
    return {"metadata": {"name": name, "namespace": "n"}, "spec": {"containers": [{"name": "main"}], **spec}}


def job(trainers):
    return {"metadata": {"name": "j", "namespace": "n"}, "spec": {"trainer": {"replicas": trainers}}}


async def test_objects_handed_out_are_copies(api):
    """As over the wire: whoever changes one changes nothing on the server."""
    made = await api.create(CONFIG_MAPS, config("one", data={"a": "1"}))
    made["data"]["a"] = "2"
    assert (await api.get(CONFIG_MAPS, "one", **N))["data"] == {"a": "1"}


async def test_what_is_no_json_does_not_pass(api):
    with pytest.raises(TypeError):
        await api.create(CONFIG_MAPS, config("one", data={"a": object()}))


async def test_applied_list_items_are_told_apart_by_their_key(api):
    """Each manager's conditions come and go by themselves."""
    await api.create(TRAINING_JOBS, job(0))
    other = MemoryApi(api._server, field_manager="somebody")

    def said(*types):
        return job(0) | {"spec": {}, "status": {"conditions": [{"type": one, "status": "True"} for one in types]}}

    await api.apply(TRAINING_JOBS, said("Ready", "Scaled"), subresource=Subresource.STATUS)
    await other.apply(TRAINING_JOBS, said("Theirs"), subresource=Subresource.STATUS)
    after = await api.apply(TRAINING_JOBS, said("Ready"), subresource=Subresource.STATUS)
    assert [one["type"] for one in after["status"]["conditions"]] == ["Ready", "Theirs"]


async def test_apply_of_a_version_that_has_passed_is_a_conflict(api):
    made = await api.apply(CONFIG_MAPS, config("one", data={"a": "1"}))
    await api.apply(CONFIG_MAPS, config("one", data={"a": "2"}))
    body = config("one", data={"a": "3"})
    body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
    with pytest.raises(ConflictError):
        await api.apply(CONFIG_MAPS, body)


async def test_scale_of_a_job_is_its_pinned_size(api):
    await api.create(TRAINING_JOBS, job(0))
    at = {"namespace": "n", "subresource": Subresource.SCALE}
    assert (await api.get(TRAINING_JOBS, "j", **at))["spec"]["replicas"] == 0
    await api.patch(TRAINING_JOBS, "j", {"spec": {"replicas": 3}}, **at)
    assert (await api.get(TRAINING_JOBS, "j", **N))["spec"] == {"trainer": {"replicas": 3}}
    assert (await api.get(TRAINING_JOBS, "j", **N))["metadata"]["generation"] == 2


async def test_hook_refuses_what_it_will(api, server):
    """As quotas, webhooks and the rules of a custom resource do."""

    def no_pods(kind, obj, before):
        if kind == PODS and before is None:
            raise ForbiddenError(f"exceeded quota: {obj['metadata']['name']}", RefusedBy.QUOTA)

    await api.create(PODS, pod("before"))
    server.admissions = (no_pods,)
    with pytest.raises(ForbiddenError):
        await api.create(PODS, pod("after"))
    await api.patch(PODS, "before", {"metadata": {"labels": {"a": "b"}}}, **N)


async def test_default_priority_class_counts_for_pods_that_name_none(api):
    await api.create(PRIORITY_CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    spec = (await api.create(PODS, pod("one")))["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (7, "usual")


async def test_bound_pod_leaves_when_its_kubelet_says_so(api, server):
    await api.create(PODS, pod("one"))
    server.bind("n", "one", "node")
    await api.delete(PODS, "one", **N)
    assert (await api.get(PODS, "one", **N))["metadata"]["deletionGracePeriodSeconds"] == 30
    server.finish("n", "one")
    with pytest.raises(NotFoundError):
        await api.get(PODS, "one", **N)


async def test_pod_that_has_ended_goes_at_once(api, server):
    await api.create(PODS, pod("one"))
    server.bind("n", "one", "node")
    await api.patch(PODS, "one", {"status": {"phase": "Failed"}}, **N, subresource=Subresource.STATUS)
    await api.delete(PODS, "one", **N)
    with pytest.raises(NotFoundError):
        await api.get(PODS, "one", **N)


async def test_gated_pod_is_not_bound(api, server):
    await api.create(PODS, pod("one", schedulingGates=[{"name": "edl.dev/gang"}]))
    with pytest.raises(InvalidError):
        server.bind("n", "one", "node")


async def test_namespace_goes_with_all_that_is_in_it(api, server):
    await api.create(CONFIG_MAPS, config("one"))
    await api.create(PODS, pod("two"))
    await api.delete(NAMESPACES, "n")
    collect(server)
    assert server.all(NAMESPACES) == server.all(CONFIG_MAPS) == server.all(PODS) == []


async def test_pod_stays_while_its_grace_lasts_though_its_owner_has_gone(api, server):
    """Garbage collection tells it to go; its kubelet ends it."""
    owner = await api.create(CONFIG_MAPS, config("owner"))
    owned = pod("owned", nodeName="node")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned["metadata"]["ownerReferences"] = [reference]
    await api.create(PODS, owned)
    await api.delete(CONFIG_MAPS, "owner", **N)
    collect(server)
    assert (await api.get(PODS, "owned", **N))["metadata"]["deletionTimestamp"]
    server.finish("n", "owned")
    assert server.all(PODS) == []


async def test_collection_reads_the_objects_once_however_many_have_owners(api, server, monkeypatch):
    """A run collects with every pod that leaves, beside all that its jobs own."""
    real, reads = server.all, []
    monkeypatch.setattr(server, "all", lambda kind: reads.append(kind) or real(kind))
    owner = await api.create(CONFIG_MAPS, config("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    counts = []
    for number in range(3):
        owned = config(f"owned-{number}")
        owned["metadata"]["ownerReferences"] = [reference]
        await api.create(CONFIG_MAPS, owned)
        reads.clear()
        collect(server)
        counts.append(len(reads))
    assert counts == [counts[0]] * 3


async def test_window_forgets_the_oldest(api, server):
    since = (await api.list(CONFIG_MAPS)).resource_version
    for number in range(20):
        await api.create(CONFIG_MAPS, config(f"c-{number}"))
    assert len(server.history.kept_changes()) <= 10
    with pytest.raises(ExpiredError):
        await anext(api.watch(CONFIG_MAPS, since=since, timeout_s=1.0, silence_s=1.0))


async def test_version_yet_to_come_is_no_error_of_ours(api, server):
    """A server that lags behind the one that told us: ask again."""
    with pytest.raises(UnavailableError):
        await anext(api.watch(CONFIG_MAPS, since=str(server.history.version + 1), timeout_s=1.0, silence_s=1.0))


async def test_log_tells_its_last_lines(api, server):
    await api.create(PODS, pod("one"))
    server.logs["n", "one"] = [b"a\n", b"b\n", b"c\n"]
    assert [line async for line in api.log("one", **N, tail_lines=2)] == [b"b\n", b"c\n"]
    assert [line async for line in api.log("one", **N)] == [b"a\n", b"b\n", b"c\n"]


async def test_the_log_of_a_pod_goes_with_it(api, server):
    """The next pod of its name begins with none."""
    await api.create(PODS, pod("one"))
    server.logs["n", "one"] = [b"a\n"]
    await api.delete(PODS, "one", **N)
    assert server.logs == {}
