"""The Kubernetes adapter on an API server in memory: the contract of every cluster, and what is Kubernetes' own."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
import pytest_asyncio

from autoscaler.cluster_port import WriteResult
from autoscaler.clusters.kubernetes.api.api_port import EVERYWHERE, Subresource
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import (
    DEPLOYMENTS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TRAINING_JOBS,
)
from autoscaler.clusters.kubernetes.cache.object_cache import WATCHED_KINDS, ObjectCache, StaleViewError
from autoscaler.clusters.kubernetes.cluster_view import JobRuntime
from autoscaler.clusters.kubernetes.cluster_view.workload_view import ANNOUNCED_S
from autoscaler.clusters.kubernetes.gangs.gang_starter import LIFT_LIMIT_S
from autoscaler.clusters.kubernetes.gangs.start_backoff import BIND_LIMIT_S
from autoscaler.clusters.kubernetes.kubernetes_cluster import SETTLE_EVERY_S, KubernetesCluster
from autoscaler.clusters.kubernetes.objects.labels import GATE
from autoscaler.clusters.kubernetes.objects.node_affinity import MOST_AVOIDED
from autoscaler.clusters.kubernetes.parsing.object_trimming import LONGEST, TRIMMERS, is_longer
from autoscaler.clusters.kubernetes.parsing.pod_objects import gates_of
from autoscaler.clusters.kubernetes.writes.pod_writer import pinned_node
from autoscaler.domain import AdmitGang, Cause, DeletePod, JobState, NodeName, PodPhase, Role, Tier
from autoscaler.fault_isolation import JobErrors
from tests.harness import virtual_time
from tests.unit.clusters.cluster_contract import ClusterContract, Stage, gang, leave, pods_of, seat
from tests.unit.clusters.kubernetes.objects import SETTINGS, raw_job, template
from tests.unit.clusters.kubernetes.stand_ins import MemoryApi, MemoryServer, RestOfTheCluster, add_job, observe

JOB = "team-a/digits"
WISHES = "preferredDuringSchedulingIgnoredDuringExecution"


class Bench:
    """A cluster of two nodes, whose store is brought up to date by hand."""

    def __init__(self):
        self.now_s = 1_000.0
        self.server = MemoryServer(now=lambda: self.now_s, namespaces=("team-a",))
        self.rest = RestOfTheCluster(self.server)
        self.api = MemoryApi(self.server)
        self.prepared = []
        self.state = JobState.ACTIVE
        self.avoid = frozenset()
        self.cluster = self.lead()
        self.rest.add_classes()

    def lead(self):
        """A leader that knows nothing yet."""
        errors = JobErrors(lambda: self.now_s)
        self.store = ObjectCache(errors, TRIMMERS)
        return KubernetesCluster(
            self.api,
            self.store,
            SETTINGS,
            clock=lambda: self.now_s,
            offset_s=0.0,
            facts_of=lambda _job: JobRuntime(state=self.state, avoided_nodes=self.avoid),
            prepare=self.prepare,
            errors=errors,
        )

    async def prepare(self, job):
        self.prepared.append(job.key)

    async def refresh(self):
        """What the watches would bring."""
        for kind in WATCHED_KINDS:
            self.store.apply_listing(kind, await self.api.list(kind, EVERYWHERE), asked_at_s=self.now_s)

    async def settle(self):
        """Everybody does what there is to do."""
        for _ in range(3):
            self.rest.settle()
            await self.refresh()
            self.cluster.view()
            await self.cluster._gangs.settle(self.now_s)
            await self.refresh()

    def raw(self, name):
        return self.server.get(PODS, "team-a", name)

    def names(self):
        return {pod["metadata"]["name"] for pod in self.server.all(PODS)}


@pytest_asyncio.fixture
async def bench():
    bench = Bench()
    bench.rest.add_node("n1", cpu="4")
    bench.rest.add_node("n2", cpu="4")
    add_job(bench.server, small_job())
    await bench.refresh()
    return bench


@pytest_asyncio.fixture
async def stage(bench):
    return Stage(cluster=bench.cluster, job=JOB, nodes=("n1", "n2"), per_node=3, settle=bench.settle)


class TestContract(ClusterContract):
    """Every promise of the port."""


def small_job(name="digits", **trainer):
    one = template(cpu="1", memory="256Mi")
    sizes = {"minReplicas": 1, "maxReplicas": 4, "template": one} | trainer
    return raw_job(name, trainer=sizes, master={"replicas": 1, "template": template(cpu="1", memory="256Mi")})


def gang_of(job, *, trainers=1, node="n1"):
    stage = Stage(cluster=None, job=job, nodes=(node, node), per_node=0, settle=None)
    core = [seat(stage, number, tier=Tier.CORE, cause=Cause.START) for number in range(trainers)]
    return AdmitGang(job=job, pods=(seat(stage, 0, role=Role.MASTER, tier=Tier.CORE, cause=Cause.START), *core))


@pytest.mark.asyncio
class TestViews:
    async def test_revision_rises_with_each_difference_and_with_nothing_else(self, bench):
        """A quota is a difference too: who plans on the revision would not see it else."""
        before = bench.cluster.view().revision
        await bench.refresh()
        assert bench.cluster.view().revision == before
        quota = {"metadata": {"name": "team", "namespace": "team-a"}, "spec": {"hard": {"requests.cpu": "3"}}}
        await bench.api.create(RESOURCE_QUOTAS, quota)
        await bench.refresh()
        view = bench.cluster.view()
        assert view.revision > before
        assert [one.namespace for one in view.quotas] == ["team-a"]

    async def test_a_class_of_another_value_changes_what_wants_it(self, bench):
        """The Deployment itself has not changed."""
        pod = template(cpu="1", spec={"priorityClassName": "web"})
        web = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pod}
        await bench.api.create(DEPLOYMENTS, {"metadata": {"name": "web", "namespace": "team-a"}, "spec": web})
        await bench.api.create(PRIORITY_CLASSES, {"metadata": {"name": "web"}, "value": 1_000})
        await bench.refresh()
        (load,) = bench.cluster.view().workloads
        assert load.priority == 1_000
        await bench.api.delete(PRIORITY_CLASSES, "web")
        await bench.api.create(PRIORITY_CLASSES, {"metadata": {"name": "web"}, "value": 2_000})
        await bench.refresh()
        (load,) = bench.cluster.view().workloads
        assert load.priority == 2_000

    async def test_growth_of_which_nothing_comes_is_believed_for_a_while(self, bench):
        """A Deployment whose replicas never come kept all free room, of which no quota speaks (A11)."""
        pod = template(cpu="1", memory="128Mi")
        web = {"replicas": 9_000, "selector": {"matchLabels": {"app": "web"}}, "template": pod}
        await bench.api.create(DEPLOYMENTS, {"metadata": {"name": "web", "namespace": "team-a"}, "spec": web})

        async def wanted(*, after_s=0.0, **change):
            bench.now_s += after_s
            if change:
                patch = {"spec": change} if "replicas" in change else {"status": {"replicas": change["made"]}}
                part = None if "replicas" in change else Subresource.STATUS
                await bench.api.patch(DEPLOYMENTS, "web", patch, namespace="team-a", subresource=part)
            observe(bench.server, bench.server.get(DEPLOYMENTS, "team-a", "web"))
            await bench.refresh()
            (load,) = bench.cluster.view().workloads
            return load.desired_replicas

        assert await wanted() == 9_000
        assert await wanted(after_s=ANNOUNCED_S - 1.0) == 9_000
        assert await wanted(after_s=1.0) == 0
        assert await wanted(replicas=0) == 0
        assert await wanted(replicas=8_000) == 0, "who goes back and forth is believed no more"
        assert await wanted(made=2) == 8_000, "they come"
        assert await wanted(after_s=ANNOUNCED_S - 1.0, made=3) == 8_000
        assert await wanted(after_s=ANNOUNCED_S - 1.0) == 8_000
        assert await wanted(made=8_000) == 8_000
        assert await wanted(after_s=ANNOUNCED_S, replicas=8_500) == 8_500
        assert await wanted(after_s=ANNOUNCED_S) == 8_000


@pytest.mark.asyncio
class TestGangs:
    async def test_pods_are_ungated_and_tied_in_the_write_that_starts_them(self, bench, stage):
        assert (await bench.cluster.apply(gang(stage))).result is WriteResult.DONE
        raw = bench.raw("digits-trainer-0")
        assert (gates_of(raw), pinned_node(raw)) == (frozenset(), "n1")
        assert bench.prepared == [JOB]

    async def test_masters_come_when_the_gang_is_bound_and_hold_their_seat_until_then(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        assert bench.server.all(DEPLOYMENTS) == []
        master = (await pods_of(stage))[Role.MASTER, 0]
        assert (master.place, master.phase) == ("n1", PodPhase.PENDING)
        await bench.settle()
        [made] = bench.server.all(DEPLOYMENTS)
        assert made["metadata"]["name"] == "digits-master"
        wishes = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][WISHES]
        assert [one["preference"]["matchFields"][0]["values"] for one in wishes] == [["n1"]], "its proved seat"
        master = (await pods_of(stage))[Role.MASTER, 0]
        assert master.phase is PodPhase.READY
        assert len(await pods_of(stage)) == 2

    @pytest.mark.parametrize(("trainers", "fits"), [(1, True), (2, False)])
    async def test_gangs_that_start_side_by_side_fit_together(self, bench, stage, trainers, fits):
        """Each proves its room beside what is being lifted for the others: no start waits for another (A2)."""
        add_job(bench.server, small_job("other"))
        await bench.refresh()
        bench.cluster._writer._api = Slow(bench.api)
        gangs = (gang(stage), gang_of("team-a/other", trainers=trainers))
        outcomes = await asyncio.gather(*map(bench.cluster.apply, gangs))
        verdicts = [outcome.result for outcome in outcomes]
        assert verdicts == [WriteResult.DONE, WriteResult.DONE if fits else WriteResult.REFUSED]
        await bench.settle()
        masters = [raw["metadata"]["name"] for raw in bench.server.all(DEPLOYMENTS)]
        assert masters == (["digits-master", "other-master"] if fits else ["digits-master"])

    async def test_room_of_a_lost_answer_is_held_until_the_watch_must_have_shown_it(self, bench, stage):
        """A gate may have been lifted though the answer was lost: its room is nobody else's meanwhile (A2)."""
        add_job(bench.server, small_job("other"))
        await bench.refresh()
        bench.cluster._writer._api = PatchLost(bench.api)
        assert (await bench.cluster.apply(gang(stage))).result is WriteResult.FAILED
        bench.cluster._writer._api = bench.api
        rival = gang_of("team-a/other", trainers=2)
        assert (await bench.cluster.apply(rival)).message == "the room on n1 is taken"
        bench.now_s += LIFT_LIMIT_S
        await bench.refresh()
        bench.cluster.view()
        assert (await bench.cluster.apply(rival)).message == "the room on n1 is taken", "the watch shows it now"

    async def test_room_is_held_for_as_long_as_its_gates_are_being_lifted(self, bench, stage):
        """A slow API server answers wave after wave: what is not lifted yet is nobody else's meanwhile (A2)."""
        add_job(bench.server, small_job("other"))
        await bench.refresh()
        bench.cluster._writer._api = halting = PatchesHalt(bench.api)
        lifting = asyncio.create_task(bench.cluster.apply(gang_of(JOB, trainers=3)))
        await halting.reached.wait()
        bench.now_s += LIFT_LIMIT_S + 1.0
        await bench.refresh()
        rival = gang_of("team-a/other")
        assert (await bench.cluster.apply(rival)).message == "the room on n1 is taken"
        halting.goes_on.set()
        assert (await lifting).result is WriteResult.DONE
        assert bench.cluster._gangs._lifts == {}

    async def test_room_of_a_start_that_is_cut_off_is_held_and_then_forgotten(self, bench, stage):
        """What the loop cancels may still have arrived; nothing of it is kept once that is settled (A2)."""
        add_job(bench.server, small_job("other"))
        await bench.refresh()
        bench.cluster._writer._api = halting = PatchesHalt(bench.api)
        lifting = asyncio.create_task(bench.cluster.apply(gang_of(JOB, trainers=3)))
        await halting.reached.wait()
        bench.now_s += LIFT_LIMIT_S + 1.0
        lifting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lifting
        await bench.refresh()
        bench.cluster._writer._api = bench.api
        rival = gang_of("team-a/other")
        assert (await bench.cluster.apply(rival)).message == "the room on n1 is taken"
        bench.now_s += LIFT_LIMIT_S
        await bench.refresh()
        assert (await bench.cluster.apply(rival)).result is WriteResult.DONE
        await bench.cluster._gangs.settle(bench.now_s)
        assert bench.cluster._gangs._lifts == {}

    async def test_surplus_takes_no_room_of_its_own_gang_whose_answers_were_lost(self, bench, stage):
        """The gates may be up: a pod of the very job would be tied to their room (A2)."""
        bench.cluster._writer._api = PatchLost(bench.api)
        assert (await bench.cluster.apply(gang_of(JOB, trainers=2))).result is WriteResult.FAILED
        bench.cluster._writer._api = bench.api
        outcomes = [await bench.cluster.apply(seat(stage, number)) for number in (2, 3)]
        assert [outcome.result for outcome in outcomes] == [WriteResult.DONE, WriteResult.REFUSED]
        assert outcomes[1].message == "the room on n1 is taken"

    async def test_a_refused_gang_pauses_though_its_pods_cannot_be_taken_away(self, bench, stage):
        """Else it would be tried again in a storm (A11)."""

        def refuse(kind, wanted, _before):
            if kind == PODS and wanted["metadata"]["name"] == "digits-trainer-2":
                raise ForbiddenError("exceeded quota: small", RefusedBy.QUOTA)

        bench.server.admissions = (refuse,)
        bench.cluster._writer._api = NoDeletions(bench.api)
        assert (await bench.cluster.apply(gang_of(JOB, trainers=3))).result is WriteResult.FAILED
        assert bench.cluster.start_backoff(JOB).hold_until_s == bench.now_s + 10.0

    @pytest.mark.parametrize("ordinals", [(3, 4, 5), (0, 1, 2)])
    async def test_room_that_its_own_leaving_pods_have_is_not_free(self, bench, stage, ordinals):
        """Told to leave is not gone: for the job itself neither, and not for pods of the same names (A1)."""
        assert (await bench.cluster.apply(gang_of(JOB, trainers=3))).result is WriteResult.DONE
        await bench.settle()
        for raw in list(bench.store.objects(PODS).values()):
            if raw["metadata"]["name"].startswith("digits-trainer"):
                await bench.cluster.delete_pod(raw)
        await bench.refresh()
        again = [seat(stage, number, tier=Tier.CORE, cause=Cause.START) for number in ordinals]
        outcome = await bench.cluster.apply(AdmitGang(job=JOB, pods=tuple(again)))
        assert (outcome.result, outcome.message) == (WriteResult.REFUSED, "the room on n1 is taken")

    @pytest.mark.parametrize("nodes", [0, MOST_AVOIDED])
    async def test_gang_with_as_many_terms_and_nodes_to_avoid_as_may_be_is_bound(self, bench, stage, nodes):
        """Its pods were held short, without gate and node: none of them counted, and it was neither bound nor ended."""
        bench.avoid = frozenset(NodeName(f"broken-{number:03}".ljust(253, "n")) for number in range(nodes))
        values = [f"{number}".ljust(60, "z") for number in range(10)]
        lines = [{"key": f"zone-{number}", "operator": "NotIn", "values": values} for number in range(22)]
        terms = {"nodeSelectorTerms": [{"matchExpressions": [line]} for line in lines]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        raw = small_job("wide", template=template(cpu="1", memory="256Mi", spec={"affinity": affinity}))
        add_job(bench.server, raw | {"metadata": raw["metadata"] | {"uid": "wide"}})
        await bench.refresh()
        assert (await bench.cluster.apply(gang_of("team-a/wide", trainers=2))).result is WriteResult.DONE
        assert is_longer(bench.raw("wide-trainer-0"), LONGEST)
        await bench.refresh()
        stands = [pod for pod in bench.cluster.view().pods if pod.job == "team-a/wide" and pod.role is Role.TRAINER]
        assert [pod.nominated_node for pod in stands] == ["n1", "n1"]
        await bench.settle()
        stands = [pod for pod in bench.cluster.view().pods if pod.job == "team-a/wide" and pod.role is Role.TRAINER]
        assert [pod.node for pod in stands] == ["n1", "n1"]

    async def test_a_gang_that_is_not_bound_in_time_goes_whole_and_waits(self, bench, stage):
        bench.rest.holds_back = {"digits-trainer-1"}
        await bench.cluster.apply(gang_of(JOB, trainers=2))
        await bench.settle()
        assert {"digits-trainer-0", "digits-trainer-1"} <= bench.names()
        bench.now_s += BIND_LIMIT_S
        await bench.settle()
        assert bench.names() == set()
        assert bench.cluster.start_backoff(JOB).lost == 1
        (job,) = (await bench.cluster.observe()).jobs
        assert job.hold_until_s == bench.now_s + 10.0

    async def test_a_gang_whose_binding_has_not_been_shown_for_long_is_left_alone(self, bench, stage):
        """On an old view every pod looks as if it had lost its race."""
        await bench.cluster.apply(gang(stage))
        keeping = asyncio.create_task(bench.cluster.keep())
        await asyncio.sleep(0)
        bench.rest.settle()
        bench.now_s += BIND_LIMIT_S + 1.0
        bench.cluster.touch()
        await asyncio.sleep(0)
        trainer = (await pods_of(stage))[Role.TRAINER, 0]
        assert (await bench.cluster.apply(leave(stage, trainer))).result is WriteResult.FAILED
        with pytest.raises(StaleViewError):
            await bench.cluster.delete_pod(bench.store.get(PODS, ("team-a", "digits-trainer-0")))
        keeping.cancel()
        assert "deletionTimestamp" not in bench.raw("digits-trainer-0")["metadata"]
        assert bench.cluster.start_backoff(JOB).lost == 0

    async def test_a_quota_that_refuses_one_pod_deletes_the_set(self, bench, stage):
        def refuse(kind, wanted, _before):
            if kind == PODS and wanted["metadata"]["name"] == "digits-trainer-2":
                raise ForbiddenError("exceeded quota: small", RefusedBy.QUOTA)

        bench.server.admissions = (refuse,)
        outcome = await bench.cluster.apply(gang_of(JOB, trainers=3))
        assert (outcome.result, outcome.message) == (WriteResult.REFUSED, "exceeded quota: small")
        assert bench.names() == set()
        assert bench.cluster.start_backoff(JOB).hold_until_s == bench.now_s + 10.0

    async def test_room_that_goes_while_the_gang_is_gated_leaves_it_gated(self, bench, stage):
        made = bench.cluster._writer.create_gated

        async def take_the_room(job, seat, **more):
            raw = await made(job, seat, **more)
            node = bench.server.get(NODES, None, "n1")
            bench.server.rewrite(NODES, node, node | {"spec": {"unschedulable": True}})
            await bench.refresh()
            return raw

        bench.cluster._writer.create_gated = take_the_room
        outcome = await bench.cluster.apply(gang(stage))
        assert outcome.result is WriteResult.REFUSED
        assert gates_of(bench.raw("digits-trainer-0")) == {GATE}
        assert await pods_of(stage) == {}
        bench.now_s += BIND_LIMIT_S
        await bench.settle()
        bench.now_s += BIND_LIMIT_S
        await bench.settle()
        assert bench.names() == set()

    @pytest.mark.parametrize("cut_at", range(6))
    async def test_a_crash_after_any_write_leaves_a_start_that_goes_on(self, bench, stage, cut_at):
        """A new leader, with nothing but what stands, ends where the old one would have."""
        bench.api = CutShort(bench.api, cut_at)
        bench.cluster = bench.lead()
        stage.cluster = bench.cluster
        await bench.refresh()
        await bench.cluster.apply(gang_of(JOB, trainers=3))
        bench.api = bench.api.inner
        stage.cluster = bench.cluster = bench.lead()
        await bench.refresh()
        bench.cluster.view()
        assert (await bench.cluster.apply(gang_of(JOB, trainers=3))).result is WriteResult.DONE
        await bench.settle()
        assert set(await pods_of(stage)) == {(Role.MASTER, 0), *((Role.TRAINER, number) for number in range(3))}
        assert {pod.place for pod in (await bench.cluster.observe()).pods} == {"n1"}


class PatchLost:
    """Patches are carried out, and nobody hears of it."""

    def __init__(self, inner):
        self.inner = inner

    async def patch(self, *args, **more):
        await self.inner.patch(*args, **more)
        raise UnavailableError("no answer", may_have_happened=True)

    def __getattr__(self, name):
        return getattr(self.inner, name)


class PatchesHalt:
    """The first patch of the gang is carried out; those after it wait until they may go on."""

    def __init__(self, inner):
        self.inner = inner
        self.patches = 0
        self.reached, self.goes_on = asyncio.Event(), asyncio.Event()

    async def patch(self, kind, name, *args, **more):
        self.patches += name.startswith("digits")
        if self.patches > 1 and name.startswith("digits"):
            self.reached.set()
            await self.goes_on.wait()
        return await self.inner.patch(kind, name, *args, **more)

    def __getattr__(self, name):
        return getattr(self.inner, name)


class NoDeletions:
    """An API server that does not answer deletions."""

    def __init__(self, inner):
        self.inner = inner

    async def delete(self, *_args, **_more):
        raise UnavailableError("no answer", may_have_happened=False)

    def __getattr__(self, name):
        return getattr(self.inner, name)


class Slow:
    """Creations and patches take a while, so that they overlap."""

    def __init__(self, inner):
        self.inner = inner

    async def create(self, *args, **more):
        await asyncio.sleep(0)
        return await self.inner.create(*args, **more)

    async def patch(self, *args, **more):
        await asyncio.sleep(0)
        return await self.inner.patch(*args, **more)

    def __getattr__(self, name):
        return getattr(self.inner, name)


def refuse_pods(kind, _wanted, before):
    if kind == PODS and before is None:
        raise ForbiddenError("exceeded quota: small", RefusedBy.QUOTA)


class CutShort:
    """After so many writes the API server answers nothing more, though it does what it is told once again."""

    def __init__(self, inner, writes):
        self.inner = inner
        self.left = writes

    async def create(self, *args, **more):
        return await self._do(self.inner.create, args, more)

    async def patch(self, *args, **more):
        return await self._do(self.inner.patch, args, more)

    async def delete(self, *args, **more):
        return await self._do(self.inner.delete, args, more)

    async def _do(self, write, args, more):
        if self.left < 0:
            raise UnavailableError("no answer", may_have_happened=False)
        self.left -= 1
        answer = await write(*args, **more)
        if self.left < 0:
            raise UnavailableError("no answer", may_have_happened=True)
        return answer

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.mark.asyncio
class TestPods:
    async def test_a_pod_whose_answer_was_lost_occupies_its_room(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        bench.cluster._writer._api = CutShort(bench.api, 0)
        assert (await bench.cluster.apply(seat(stage, 1))).result is WriteResult.FAILED
        assert (await pods_of(stage))[Role.TRAINER, 1].place == "n1"
        bench.cluster._writer._api = bench.api
        assert (await bench.cluster.apply(seat(stage, 1))).result is WriteResult.DONE

    async def test_room_is_given_away_once_though_creations_overlap(self, bench, stage):
        """The loop sends sixteen at a time, and the planner may have seen more room than there is by now."""
        await bench.cluster.apply(gang(stage))
        await bench.cluster.apply(seat(stage, 1))  # of four CPUs three are taken
        bench.cluster._writer._api = Slow(bench.api)
        outcomes = await asyncio.gather(*(bench.cluster.apply(seat(stage, number)) for number in (2, 3)))
        assert [outcome.result for outcome in outcomes] == [WriteResult.DONE, WriteResult.REFUSED]
        assert "the room on n1 is taken" in outcomes[1].message

    async def test_room_of_a_creation_that_was_refused_is_free_again(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        await bench.cluster.apply(seat(stage, 1))
        bench.server.admissions = (refuse_pods,)
        assert (await bench.cluster.apply(seat(stage, 2))).result is WriteResult.REFUSED
        bench.server.admissions = ()
        bench.now_s += 10.0  # the pause after a refusal
        await bench.refresh()
        assert (await bench.cluster.apply(seat(stage, 3))).result is WriteResult.DONE

    async def test_refusals_side_by_side_count_as_one(self, bench, stage):
        """Else the pause after the first would be the longest at once."""
        await bench.cluster.apply(gang(stage))
        bench.server.admissions = (refuse_pods,)
        bench.cluster._writer._api = Slow(bench.api)
        outcomes = await asyncio.gather(*(bench.cluster.apply(seat(stage, n, node=1)) for n in (1, 2, 3)))
        assert {outcome.message for outcome in outcomes} == {"exceeded quota: small"}
        bench.server.admissions = ()
        bench.now_s += 10.0
        await bench.refresh()
        assert (await bench.cluster.apply(seat(stage, 1, node=1))).result is WriteResult.DONE

    async def test_a_deletion_that_fails_holds_up_no_other_job(self, bench, stage):
        """Of a gang that lost its race one pod cannot be deleted; beside it another gang waits for its master."""
        await bench.cluster.apply(gang(stage))
        bench.rest.holds_back = {"digits-trainer-0"}
        await bench.settle()
        add_job(bench.server, small_job("other"))
        await bench.refresh()
        await bench.cluster.apply(gang_of("team-a/other", node="n2"))
        bench.rest.settle()
        bench.now_s += BIND_LIMIT_S
        await bench.refresh()
        bench.cluster.view()
        bench.cluster._writer._api = CutShort(bench.api, -1)
        with pytest.raises(UnavailableError):
            await bench.cluster._gangs.settle(bench.now_s)
        assert [raw["metadata"]["name"] for raw in bench.server.all(DEPLOYMENTS)] == ["other-master"]

    async def test_of_a_job_that_is_gone_nothing_is_kept(self, bench, stage):
        """Leaders live for weeks, jobs for hours."""
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        before = bench.cluster.views.pods.stamp(JOB)
        await bench.api.delete(TRAINING_JOBS, "digits", namespace="team-a")
        bench.now_s += 60.0  # beyond every grace
        await bench.settle()
        pods = bench.cluster.views.pods
        assert bench.names() == set()
        assert before > pods.stamp(JOB) == 0
        assert pods._labelled == pods._stamps == pods._said == pods._seats == {}

    async def test_a_name_held_by_a_pod_of_somebody_else_is_refused(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        foreign = {
            "metadata": {"name": "digits-trainer-1", "namespace": "team-a"},
            "spec": template(cpu="1")["spec"],
        }
        await bench.api.create(PODS, foreign)
        outcome = await bench.cluster.apply(seat(stage, 1))
        assert (outcome.result, outcome.message) == (
            WriteResult.REFUSED,
            "pod team-a/digits-trainer-1 stands and belongs to somebody else",
        )

    async def test_a_pod_that_changed_since_it_was_chosen_is_not_deleted(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        await bench.cluster.apply(seat(stage, 1))
        chosen = (await pods_of(stage))[Role.TRAINER, 1]
        bench.rest.settle()  # it is bound meanwhile, and the watch has not said so
        outcome = await bench.cluster.apply(leave(stage, chosen))
        assert outcome.result is WriteResult.FAILED
        assert "deletionTimestamp" not in bench.raw("digits-trainer-1")["metadata"]

    async def test_a_refusal_is_no_news(self, bench, stage):
        """Planned again at once it would be refused again at once, ten times a second."""
        await bench.cluster.apply(gang(stage))
        await bench.cluster.changed(0.0)
        assert (await bench.cluster.apply(seat(stage, 1, node=0, role=Role.MASTER))).result is WriteResult.REFUSED
        assert not await bench.cluster.changed(0.0)

    async def test_a_surplus_pod_not_bound_in_time_goes_alone(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        bench.rest.holds_back = {"digits-trainer-1"}
        await bench.cluster.apply(seat(stage, 1))
        await bench.settle()
        bench.now_s += BIND_LIMIT_S
        await bench.settle()
        assert set(await pods_of(stage)) == {(Role.MASTER, 0), (Role.TRAINER, 0)}

    async def test_a_master_that_somebody_deleted_comes_back_while_a_trainer_is_on_its_way(self, bench, stage):
        """What runs without its master is no gang that starts: it lost all its pods for the one that was late."""
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        bench.rest.holds_back = {"digits-trainer-1"}
        await bench.cluster.apply(seat(stage, 1))
        await bench.api.delete(DEPLOYMENTS, "digits-master", namespace="team-a")
        await bench.settle()
        assert len(bench.server.all(DEPLOYMENTS)) == 1
        bench.now_s += BIND_LIMIT_S
        await bench.settle()
        assert set(await pods_of(stage)) == {(Role.MASTER, 0), (Role.TRAINER, 0)}

    async def test_a_pod_that_has_ended_meanwhile_is_left_as_it_is(self, bench, stage):
        """It has no room that anybody could want, and its log may be asked for."""
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        trainer = (await pods_of(stage))[Role.TRAINER, 0]
        bench.rest.end("team-a", "digits-trainer-0", code=0)
        await bench.refresh()
        assert (await bench.cluster.apply(leave(stage, trainer))).result is WriteResult.DONE
        assert "deletionTimestamp" not in bench.raw("digits-trainer-0")["metadata"]

    async def test_masters_leave_with_their_deployment(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        bench.state = JobState.OVER
        master = (await pods_of(stage))[Role.MASTER, 0]
        action = DeletePod(pod=master.name, job=JOB, role=Role.MASTER, node=master.node, cause=Cause.EDIT, grace_s=5.0)
        assert (await bench.cluster.apply(action)).result is WriteResult.DONE
        assert bench.server.all(DEPLOYMENTS) == []
        await bench.settle()
        assert set(await pods_of(stage)) == {(Role.TRAINER, 0)}

    async def test_a_job_that_is_only_observed_is_not_touched(self, bench, stage):
        add_job(bench.server, small_job("watched") | {"spec": small_job("watched")["spec"] | {"mode": "observe"}})
        await bench.refresh()
        outcome = await bench.cluster.apply(gang_of("team-a/watched"))
        assert (outcome.result, outcome.message) == (WriteResult.REFUSED, "job team-a/watched is only observed")
        assert bench.names() == set()

    async def test_nobody_gives_room_to_a_job_that_is_only_observed(self, bench, stage):
        """It would not take it: the other jobs shrank for nothing."""
        add_job(bench.server, small_job("watched") | {"spec": small_job("watched")["spec"] | {"mode": "observe"}})
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        pod = (await pods_of(stage))[Role.TRAINER, 0]
        action = replace(leave(stage, pod), cause=Cause.GANG)
        outcome = await bench.cluster.apply(replace(action, beneficiary="team-a/watched"))
        assert outcome.result is WriteResult.REFUSED
        assert (await bench.cluster.apply(replace(action, beneficiary="team-a/other"))).result is WriteResult.DONE


class TimedBench(Bench):
    """On the loop's own clock, which jumps."""

    @property
    def now_s(self):
        return 1_000.0 + virtual_time.now()

    @now_s.setter
    def now_s(self, _):
        pass


def test_news_in_a_row_is_looked_at_together():
    """A look goes over all jobs, and while hundreds start there is news of one of them all the time."""

    async def main():
        bench = TimedBench()
        await bench.refresh()
        looks, settle = [], bench.cluster._gangs.settle

        async def counted(now_s):
            looks.append(now_s)
            await settle(now_s)

        bench.cluster._gangs.settle = counted
        keeping = asyncio.create_task(bench.cluster.keep())
        for _ in range(300):
            bench.cluster.touch()
            await asyncio.sleep(SETTLE_EVERY_S / 100)
        keeping.cancel()
        assert 3 <= len(looks) <= 4
        assert all(later - before >= SETTLE_EVERY_S for before, later in pairwise(looks))

    virtual_time.run(main())


def test_a_start_that_runs_out_of_time_is_seen_without_any_news():
    """Nothing changes in the cluster any more: the limit itself wakes whoever keeps the gangs."""

    async def main():
        bench = TimedBench()
        bench.rest.add_node("n1", cpu="4")
        add_job(bench.server, small_job())
        await bench.refresh()
        assert (await bench.cluster.apply(gang_of(JOB))).result is WriteResult.DONE
        await bench.refresh()
        keeping = asyncio.create_task(bench.cluster.keep())
        await asyncio.sleep(BIND_LIMIT_S / 2)
        await bench.refresh()
        assert bench.names() == {"digits-trainer-0"}
        await asyncio.sleep(BIND_LIMIT_S / 2 + 1.0)
        assert bench.names() == set()
        keeping.cancel()

    virtual_time.run(main())
