"""The planner's actions on the simulated world, whole or not at all: `apply` of the port.

A pod of EDL is tied to its node, so it is bound there at once.  Its capacity is checked again here, beside the pods on
the node and pods of its priority or above that are nominated to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from autoscaler.cluster_port import WriteOutcome, WriteResult
from autoscaler.clusters.simulated.controllers.simulated_jobs import SimulatedJobs
from autoscaler.clusters.simulated.scheduling.node_scoring import accepts
from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.clusters.simulated.world.world import World
from autoscaler.domain import (
    Action,
    AdmitGang,
    CreatePod,
    DeletePod,
    Job,
    JobState,
    NodeName,
    PodName,
    Reclaim,
    Role,
    Shape,
    Tier,
)

DONE = WriteOutcome(result=WriteResult.DONE)
CORE_VALUE: Final = 0  # of the built-in class `edl-core`


class ActionWriter:
    """Carries out actions.  A refusal gives a reason and changes nothing."""

    def __init__(self, world: World, jobs: SimulatedJobs, reclaim: Reclaim, surplus_grace_s: float) -> None:
        self._world = world
        self._jobs = jobs
        self._reclaim = reclaim
        self._surplus_grace_s = surplus_grace_s

    def apply(self, action: Action) -> WriteOutcome:
        """Carry out one action."""
        match action:
            case CreatePod():
                return self._create((action,))
            case AdmitGang():
                return self._create(action.pods)
            case DeletePod():
                return self._delete(action)
            case _:
                assert_never(action)

    def _create(self, wanted: Sequence[CreatePod]) -> WriteOutcome:
        missing: list[tuple[CreatePod, SimPod]] = []
        taken: dict[NodeName, list[int]] = {}
        for want in wanted:
            life = self._jobs.by_name.get(want.job)
            if life is None or life.job.state is not JobState.ACTIVE:
                return refused(f"job {want.job} is gone or not active")
            shape = shape_of(life.job, want.role)
            if shape is None:
                return refused(f"job {want.job} has no {want.role}")
            existing = self._world.pods.get(pod_name(want))
            if existing is not None:
                if existing.is_leaving or existing.node != want.node:
                    return refused(f"pod {existing.name} already exists")
                continue
            pod = self._new_pod(want, life.job, shape)
            if not self._fits(pod, want.node, taken):
                return refused(f"node {want.node} has no capacity for {pod.name}")
            missing.append((want, pod))
        for want, pod in missing:
            self._world.create(pod, want.node)
        return DONE

    def _fits(self, pod: SimPod, name: NodeName, taken: dict[NodeName, list[int]]) -> bool:
        """True if the pod fits beside `taken`, to which it is added."""
        table = self._world.table
        amounts = table.amounts_of(pod.shape.requests)
        if amounts is None or name not in table.index:
            return False
        slot = table.slot(name)
        besides = taken.get(name) or slot.nominated_amounts(pod.priority, but=pod.name) or [0] * len(amounts)
        if not accepts(slot, pod.shape) or not slot.fits(amounts, besides=besides):
            return False
        taken[name] = [before + amount for before, amount in zip(besides, amounts, strict=True)]
        return True

    def _new_pod(self, want: CreatePod, job: Job, shape: Shape) -> SimPod:
        is_surplus = want.tier is Tier.SURPLUS
        return SimPod(
            name=pod_name(want),
            role=want.role,
            tier=want.tier,
            shape=shape,
            owner=want.job,
            priority=priority_of(job, want, self._reclaim),
            ordinal=want.ordinal,
            grace_s=min(job.grace_s, self._surplus_grace_s) if is_surplus else job.grace_s,
        )

    def _delete(self, action: DeletePod) -> WriteOutcome:
        pod = self._world.pods.get(action.pod)
        if pod is None or pod.is_leaving:
            return DONE
        if pod.is_external or pod.owner != action.job:
            return refused(f"{action.pod} is not of job {action.job}")
        self._world.terminate(pod, grace_s=action.grace_s, reason=f"{action.cause} {action.beneficiary}".strip())
        return DONE


def refused(message: str) -> WriteOutcome:
    return WriteOutcome(result=WriteResult.REFUSED, message=message)


def priority_of(job: Job, want: CreatePod, reclaim: Reclaim) -> int:
    """Return a pod's priority: core has its job's; surplus its grade's with `reclaim: scheduler`, else core's value,
    so that the scheduler preempts none (beside-the-scheduler.md 1 and 2).
    """
    if want.tier is not Tier.SURPLUS:
        return job.priority
    return -want.grade if reclaim is Reclaim.SCHEDULER else CORE_VALUE


def pod_name(want: CreatePod) -> PodName:
    return PodName(f"{want.job}-{want.role}-{want.ordinal}")


def shape_of(job: Job, role: Role) -> Shape | None:
    """Return what a pod of this role requests; None if the job has no such pods."""
    match role:
        case Role.TRAINER:
            return job.trainer.shape
        case Role.SERVER:
            return None if job.servers is None else job.servers.shape
        case Role.MASTER:
            return job.master.shape
        case Role.EXTERNAL:
            return None
        case _:
            assert_never(role)
