"""Starts of gangs on an API server in memory: gates, room, refusals, lost answers, crashes."""

import asyncio

import pytest

from autoscaler.cluster_port import WriteResult
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import (
    DEPLOYMENTS,
    NODES,
    PODS,
)
from autoscaler.clusters.kubernetes.cache.object_cache import StaleViewError
from autoscaler.clusters.kubernetes.gangs.gang_starter import LIFT_LIMIT_S
from autoscaler.clusters.kubernetes.gangs.start_backoff import BIND_LIMIT_S
from autoscaler.clusters.kubernetes.objects.labels import GATE
from autoscaler.clusters.kubernetes.objects.node_affinity import MOST_AVOIDED
from autoscaler.clusters.kubernetes.objects.size_limits import LONGEST, is_longer
from autoscaler.clusters.kubernetes.parsing.pod_objects import gates_of
from autoscaler.clusters.kubernetes.writes.pod_writer import pinned_node
from autoscaler.domain import AdmitGang, Cause, NodeName, PodPhase, Role, Tier
from tests.unit.clusters.cluster_contract import gang, leave, placement, pods_of
from tests.unit.clusters.kubernetes.cluster_bench import JOB, CutShort, Slow, gang_of, small_job
from tests.unit.clusters.kubernetes.fake_controllers import add_job
from tests.unit.clusters.kubernetes.raw_objects import template

WISHES = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.asyncio
class TestGangs:
    async def test_pods_are_ungated_and_tied_in_the_write_that_starts_them(self, bench, stage):
        assert (await bench.cluster.apply(gang(stage))).result is WriteResult.DONE
        raw = bench.raw("digits-trainer-0")
        assert (gates_of(raw), pinned_node(raw)) == (frozenset(), "n1")
        assert bench.prepared == [JOB]

    async def test_masters_come_when_the_gang_is_bound_and_their_capacity_is_reserved_until_then(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        assert bench.server.all(DEPLOYMENTS) == []
        master = (await pods_of(stage))[Role.MASTER, 0]
        assert (master.place, master.phase) == ("n1", PodPhase.PENDING)
        await bench.settle()
        [made] = bench.server.all(DEPLOYMENTS)
        assert made["metadata"]["name"] == "digits-master"
        wishes = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][WISHES]
        assert [one["preference"]["matchFields"][0]["values"] for one in wishes] == [["n1"]], "its proved placement"
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
        assert (await bench.cluster.apply(rival)).message == "node n1 has no free capacity any more"
        bench.now_s += LIFT_LIMIT_S
        await bench.refresh()
        bench.cluster.view()
        assert (await bench.cluster.apply(rival)).message == "node n1 has no free capacity any more", (
            "the watch shows it now"
        )

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
        assert (await bench.cluster.apply(rival)).message == "node n1 has no free capacity any more"
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
        assert (await bench.cluster.apply(rival)).message == "node n1 has no free capacity any more"
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
        outcomes = [await bench.cluster.apply(placement(stage, number)) for number in (2, 3)]
        assert [outcome.result for outcome in outcomes] == [WriteResult.DONE, WriteResult.REFUSED]
        assert outcomes[1].message == "node n1 has no free capacity any more"

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
        again = [placement(stage, number, tier=Tier.CORE, cause=Cause.START) for number in ordinals]
        outcome = await bench.cluster.apply(AdmitGang(job=JOB, pods=tuple(again)))
        assert (outcome.result, outcome.message) == (WriteResult.REFUSED, "node n1 has no free capacity any more")

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
        assert bench.cluster.start_backoff(JOB).lost_races == 1
        (job,) = (await bench.cluster.observe()).jobs
        assert job.hold_until_s == bench.now_s + 10.0

    async def test_a_gang_whose_binding_has_not_been_shown_for_long_is_left_alone(self, bench, stage):
        """On an old view every pod looks as if it had lost its race."""
        await bench.cluster.apply(gang(stage))
        keeping = asyncio.create_task(bench.cluster.settle_gangs())
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
        assert bench.cluster.start_backoff(JOB).lost_races == 0

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

        async def take_the_room(job, placement, **more):
            raw = await made(job, placement, **more)
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
