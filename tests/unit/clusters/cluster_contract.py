"""What every adapter of `Cluster` must do, as tests: subclass `ClusterContract` and give it a fixture `stage`.

A stage is a cluster with two empty nodes, named in `nodes`, and one job `job` (1 to 4 trainers, one master, no
servers) of which no pod runs yet; each node holds exactly `per_node` trainers beside a master.  `await
stage.settle()` lets every pod that was told to leave be gone.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from autoscaler.cluster_port import WriteResult
from autoscaler.domain import AdmitGang, Cause, CreatePod, DeletePod, PodPhase, Role, Tier


@dataclass
class Stage:
    cluster: Any
    job: str
    nodes: tuple[str, str]
    per_node: int
    settle: Any


def placement(stage, ordinal, *, role=Role.TRAINER, node=0, tier=Tier.SURPLUS, cause=Cause.FREE_CAPACITY):
    return CreatePod(job=stage.job, role=role, ordinal=ordinal, tier=tier, node=stage.nodes[node], cause=cause)


def gang(stage):
    pods = (
        placement(stage, 0, role=Role.MASTER, tier=Tier.CORE, cause=Cause.START),
        placement(stage, 0, tier=Tier.CORE, cause=Cause.START),
    )
    return AdmitGang(job=stage.job, pods=pods)


def leave(stage, pod, *, job=None):
    return DeletePod(
        pod=pod.name, job=job or stage.job, role=pod.role, node=pod.node, cause=Cause.POD, grace_s=5.0, beneficiary="w"
    )


async def pods_of(stage):
    view = await stage.cluster.observe()
    return {(pod.role, pod.ordinal): pod for pod in view.pods if pod.job == stage.job}


@pytest.mark.asyncio
class ClusterContract:
    async def test_view_has_nodes_and_job_and_leaves_history_empty(self, stage):
        """`observe` tells what stands; the planner's memory is the loop's."""
        view = await stage.cluster.observe()
        assert set(stage.nodes) <= {node.name for node in view.nodes}
        assert [job.name for job in view.jobs] == [stage.job]
        assert view.is_synced
        assert view.history.resizes == ()
        assert view.observed_at_s <= stage.cluster.now()

    async def test_started_gang_is_in_the_next_view(self, stage):
        """DONE means that every pod stands on its node, with the role, ordinal and tier that were asked for."""
        outcome = await stage.cluster.apply(gang(stage))
        pods = await pods_of(stage)
        assert outcome.result is WriteResult.DONE
        assert set(pods) == {(Role.MASTER, 0), (Role.TRAINER, 0)}
        assert {pod.place for pod in pods.values()} == {stage.nodes[0]}
        assert {pod.tier for pod in pods.values()} == {Tier.CORE}

    async def test_writes_repeated_change_nothing(self, stage):
        """A lost reply is answered by the same write again (A9)."""
        await stage.cluster.apply(gang(stage))
        before = await pods_of(stage)
        assert (await stage.cluster.apply(gang(stage))).result is WriteResult.DONE
        assert set(await pods_of(stage)) == set(before)

    async def test_creation_beyond_the_room_is_refused(self, stage):
        """Capacity is guarded at the instant of writing (A2)."""
        await stage.cluster.apply(gang(stage))
        for ordinal in range(1, stage.per_node):
            assert (await stage.cluster.apply(placement(stage, ordinal))).result is WriteResult.DONE
        before = await pods_of(stage)
        assert (await stage.cluster.apply(placement(stage, 9))).result is WriteResult.REFUSED
        assert set(await pods_of(stage)) == set(before)

    async def test_gang_that_does_not_fit_starts_nothing(self, stage):
        """All or none (A1)."""
        trainers = tuple(placement(stage, number, tier=Tier.CORE) for number in range(stage.per_node + 2))
        outcome = await stage.cluster.apply(AdmitGang(job=stage.job, pods=trainers))
        assert outcome.result is WriteResult.REFUSED
        assert await pods_of(stage) == {}

    async def test_creation_on_an_unknown_node_is_refused(self, stage):
        """A node that has gone takes nothing."""
        wanted = CreatePod(
            job=stage.job, role=Role.TRAINER, ordinal=0, tier=Tier.CORE, node="no-such-node", cause=Cause.FREE_CAPACITY
        )
        assert (await stage.cluster.apply(wanted)).result is WriteResult.REFUSED

    async def test_creation_for_an_unknown_job_is_refused(self, stage):
        """A job that has been deleted gets nothing."""
        wanted = CreatePod(
            job="no-such-job", role=Role.TRAINER, ordinal=0, tier=Tier.CORE, node=stage.nodes[0], cause=Cause.START
        )
        assert (await stage.cluster.apply(wanted)).result is WriteResult.REFUSED

    async def test_leaving_pod_stands_until_it_is_gone(self, stage):
        """It occupies its node as TERMINATING or is gone for good; it never counts as a trainer again."""
        await stage.cluster.apply(gang(stage))
        await stage.cluster.apply(placement(stage, 1, node=1))
        pod = (await pods_of(stage))[Role.TRAINER, 1]
        assert (await stage.cluster.apply(leave(stage, pod))).result is WriteResult.DONE
        left = (await pods_of(stage)).get((Role.TRAINER, 1))
        assert left is None or (left.phase is PodPhase.TERMINATING and left.node in {stage.nodes[1], None})
        await stage.settle()
        assert (Role.TRAINER, 1) not in await pods_of(stage)
        assert (await stage.cluster.apply(leave(stage, pod))).result is WriteResult.DONE

    async def test_deletion_names_the_right_job_or_is_refused(self, stage):
        """A pod is never deleted on behalf of another job."""
        await stage.cluster.apply(gang(stage))
        pod = (await pods_of(stage))[Role.TRAINER, 0]
        outcome = await stage.cluster.apply(leave(stage, pod, job="another"))
        assert outcome.result is WriteResult.REFUSED
        assert (Role.TRAINER, 0) in await pods_of(stage)

    async def test_changes_between_two_waits_are_not_lost(self, stage):
        """`changed` is level-triggered."""
        await stage.cluster.changed(0.0)
        before = (await stage.cluster.observe()).revision
        await stage.cluster.apply(gang(stage))
        assert await stage.cluster.changed(5.0)
        assert (await stage.cluster.observe()).revision > before
