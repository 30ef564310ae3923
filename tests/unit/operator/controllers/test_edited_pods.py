"""What people do to pods of EDL's by hand: no edit ends the operator, and the job says what stands in its way."""

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.api.decorators import ApiDecorator
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.kubernetes.parsing.deployment_objects import MOST_REPLICAS
from autoscaler.domain import PodPhase
from tests.unit.clusters.kubernetes.fake_controllers import add_job, observe
from tests.unit.clusters.kubernetes.raw_objects import raw_job, template
from tests.unit.operator.term import Term


class Meanwhile(ApiDecorator):
    """After a master has been brought back, something else happens before the next look at what stands."""

    happens = None

    async def create(self, kind, body):
        raw = await super().create(kind, body)
        if kind == DEPLOYMENTS and self.happens is not None:
            await self.happens()
        return raw


SOMEBODY = FieldOwner("kubectl", is_apply=False)


async def running(**job):
    term = Term(job=job or None)
    await term.step(14)
    assert term.told("Scaled") == ("True", "Max")
    return term


def edit(term, name, *, labels=(), annotations=()):
    raw = term.server.get(PODS, "team-a", name)
    metadata = raw["metadata"]
    edited = {
        "labels": {**metadata["labels"], **dict(labels)},
        "annotations": {**metadata.get("annotations", {}), **dict(annotations)},
    }
    term.server.rewrite(PODS, raw, raw | {"metadata": metadata | edited})


@pytest.mark.parametrize(
    ("label", "value"),
    [("ordinal", "0"), ("ordinal", "9" * 40), ("role", "server"), ("role", "master"), ("job", "other")],
)
async def test_a_pod_whose_labels_were_edited_is_left_alone_and_told(label, value):
    """Two pods with one ordinal were a view that contradicts itself: the operator ended, again at each start."""
    term = await running()
    edit(term, "digits-trainer-3", labels={f"edl.dev/{label}": value})
    await term.step(10)
    assert "digits-trainer-3" in term.bench.pods("trainer")
    assert "NameTaken" in term.reasons()
    assert term.status()["trainers"]["ready"] == 3
    edit(term, "digits-trainer-3", labels={"edl.dev/ordinal": "3", "edl.dev/role": "trainer", "edl.dev/job": "digits"})
    await term.step(10)
    assert term.told("Scaled") == ("True", "Max")


async def test_a_copy_of_a_trainer_is_somebody_elses_pod():
    """`kubectl get -o yaml`, another name, `kubectl create`: labels and owner are those of the pod that was copied."""
    term = await running()
    raw = term.server.get(PODS, "team-a", "digits-trainer-0")
    kept = {name: raw["metadata"][name] for name in ("namespace", "labels", "ownerReferences")}
    term.server.create(PODS, {"metadata": {**kept, "name": "digits-copy"}, "spec": raw["spec"]}, SOMEBODY)
    await term.step(5)
    view = term.leading.cluster.view()
    assert next(pod.job for pod in view.pods if pod.name == "team-a/digits-copy") is None
    assert term.status()["trainers"]["ready"] == 4
    assert "digits-copy" in term.bench.names(PODS)


async def test_reserved_masters_are_no_more_than_masters_whatever_an_annotation_says():
    term = await running()
    for name in ("digits-trainer-0", "digits-trainer-1", "digits-trainer-2", "digits-trainer-3", "digits-server-0"):
        edit(term, name, annotations={"edl.dev/master-nodes": ",".join(["n1", "n2"] * 50)})
    await term.step(3)
    assert not [pod for pod in term.leading.cluster.view().pods if "+" in pod.name]


async def test_the_first_of_two_masters_goes_at_once_and_its_reservation_is_kept():
    """`--force --grace-period=0`: for a moment the other one alone has an ordinal."""
    term = await running(master={"replicas": 2})
    ordinals = {pod.name: pod.ordinal for pod in term.leading.cluster.view().pods if pod.role == "master"}
    first = next(name for name, ordinal in ordinals.items() if ordinal == 0)
    await term.bench.api.delete(PODS, first.split("/")[1], namespace="team-a", grace_s=0)
    await term.watch()
    placements = {pod.ordinal: pod.name for pod in term.leading.cluster.view().pods if pod.role == "master"}
    assert placements[0] == "team-a/digits-master+0"
    await term.step(3)
    assert term.status()["master"]["ready"] == 2


async def test_a_gang_whose_name_is_taken_says_so_for_as_long_as_it_is():
    """After three tries it said that others took its room, which they had not."""
    term = Term()
    spec = template(cpu="1")["spec"] | {"nodeName": "n1"}
    term.server.create(PODS, {"metadata": {"name": "digits-trainer-0", "namespace": "team-a"}, "spec": spec}, SOMEBODY)
    await term.step(60)
    assert term.told("Admitted") == ("False", "NameTaken")


async def test_two_thousand_million_replicas_are_not_asked_about_one_by_one():
    term = await running()
    term.bench.rest._replicate = lambda _deployment: None  # a quota of its namespace lets none come
    spec = {"replicas": 2**31 - 1, "template": template(cpu="1")}
    body = {"metadata": {"name": "huge", "namespace": "team-a"}, "spec": spec}
    observe(term.server, term.server.create(DEPLOYMENTS, body, SOMEBODY))
    await term.watch()
    [workload] = term.leading.cluster.view().workloads
    assert workload.desired_replicas == MOST_REPLICAS


async def test_what_somebody_wrote_into_a_status_is_gone_whole():
    """An apply takes away its own fields alone: a forged `completionTime` stood for ever."""
    term = await running()
    before = term.status()
    forged = {"completionTime": "9999-12-31T23:59:59Z", "master": {**before["master"], "leader": "me"}, "failures": 7}
    await term.bench.api.patch(
        TRAINING_JOBS, "digits", {"status": forged}, namespace="team-a", subresource=Subresource.STATUS
    )
    await term.step(12)
    assert term.status() == before


async def test_a_server_that_cannot_go_is_what_the_job_is_said_to_lack():
    """A finalizer of somebody's holds it; it said that 4 of at least 2 trainers were too few."""
    term = await running()
    raw = term.server.get(PODS, "team-a", "digits-server-0")
    term.server.rewrite(PODS, raw, raw | {"metadata": raw["metadata"] | {"finalizers": ["example.com/hold"]}})
    await term.bench.api.delete(PODS, "digits-server-0", namespace="team-a")
    await term.step(5)
    told = next(one for one in term.status()["conditions"] if one["type"] == "Degraded")
    assert (told["status"], told["message"].split(":")[0]) == ("True", "0 parameter servers of at least 1")


async def test_a_job_may_be_deleted_while_the_master_of_another_is_brought_back():
    """It was looked up once more, and the operator ended: seen with 200 jobs that were deleted at once."""
    term = Term(around=lambda bench: Meanwhile(bench.api))
    await term.step(14)
    add_job(term.server, raw_job("watched"))
    await term.bench.api.delete(DEPLOYMENTS, "digits-master", namespace="team-a")
    await term.watch()

    async def happens():
        await term.bench.api.delete(TRAINING_JOBS, "watched", namespace="team-a")
        await term.watch()

    term.api.happens = happens
    await term.leading.cluster._gangs.settle(term.bench.now_s)
    assert term.bench.names(DEPLOYMENTS) == {"digits-master"}


@pytest.mark.parametrize("replicas", [0, 2])
async def test_masters_that_somebody_scaled_are_as_many_as_before(replicas):
    """`kubectl scale deploy/digits-master --replicas=0`: the trainers stood idle for ever."""
    term = await running()
    scaled = {"spec": {"replicas": replicas}}
    await term.bench.api.patch(DEPLOYMENTS, "digits-master", scaled, namespace="team-a", subresource=Subresource.SCALE)
    term.bench.rest.settle()
    assert len(term.bench.pods("master")) == replicas
    await term.step(3)
    assert len(term.bench.pods("master")) == 1
    assert term.reasons().count("MastersRestored") == 1
    owners = term.server.owners(DEPLOYMENTS, "team-a", "digits-master")["spec", "replicas"]
    assert FieldOwner("edl", is_apply=True) in owners


async def test_whoever_scales_masters_all_the_time_is_answered_now_and_then():
    term = await running()
    for _ in range(10):
        raw = term.server.get(DEPLOYMENTS, "team-a", "digits-master")
        term.server.rewrite(DEPLOYMENTS, raw, raw | {"spec": raw["spec"] | {"replicas": 0}})
        await term.step()
    assert [event["reason"] for event in term.bench.events()].count("MastersRestored") <= 2


async def test_a_suspended_job_is_not_given_masters():
    term = await running()
    term.bench.edit(runPolicy={"suspend": True})
    await term.step(2)
    raw = term.server.get(DEPLOYMENTS, "team-a", "digits-master")
    term.server.rewrite(DEPLOYMENTS, raw, raw | {"spec": raw["spec"] | {"replicas": 0}})
    await term.step(2)
    assert "MastersRestored" not in term.reasons()


async def test_trainer_that_somebody_lets_leave_in_a_year_leaves_in_its_own_grace():
    """It worked on as one that leaves, with another in its place, and the web waited for its room (A11)."""
    term = await running()
    await term.bench.api.delete(PODS, "digits-trainer-3", namespace="team-a", grace_s=31_536_000)
    await term.watch()
    await term.leading.jobs.reconcile("team-a/digits")
    raw = term.server.get(PODS, "team-a", "digits-trainer-3")
    assert raw["metadata"]["deletionGracePeriodSeconds"] == raw["spec"]["terminationGracePeriodSeconds"]
    await term.step(1)
    assert "GraceRestored" in term.reasons()


async def test_somebody_elses_pod_that_leaves_in_a_year_is_not_counted_on():
    term = await running()
    spec = template(cpu="1")["spec"] | {"nodeName": "n1"}
    for name, grace_s in (("soon", 30), ("late", 31_536_000)):
        term.server.create(PODS, {"metadata": {"name": name, "namespace": "team-a"}, "spec": spec}, SOMEBODY)
        await term.bench.api.delete(PODS, name, namespace="team-a", grace_s=grace_s)
    await term.watch()
    phases = {pod.name.split("/")[1]: pod.phase for pod in term.leading.cluster.view().pods}
    assert (phases["soon"], phases["late"]) == (PodPhase.TERMINATING, PodPhase.STARTING)


async def test_grace_that_cannot_be_shortened_holds_up_nothing_else(monkeypatch):
    """A webhook refused that deletion at each look, before anything else was done for the job."""
    term = await running()
    await term.bench.api.delete(PODS, "digits-trainer-3", namespace="team-a", grace_s=31_536_000)
    master = term.server.get(DEPLOYMENTS, "team-a", "digits-master")
    term.server.rewrite(DEPLOYMENTS, master, master | {"spec": master["spec"] | {"replicas": 0}})
    await term.watch()

    async def refuse(_pod, _grace_s):
        raise ForbiddenError("a webhook refuses it", RefusedBy.ADMISSION)

    monkeypatch.setattr(term.leading.jobs._writer, "shorten_grace", refuse)
    with pytest.raises(ForbiddenError):
        await term.leading.jobs.reconcile("team-a/digits")
    assert term.server.get(DEPLOYMENTS, "team-a", "digits-master")["spec"]["replicas"] == 1
