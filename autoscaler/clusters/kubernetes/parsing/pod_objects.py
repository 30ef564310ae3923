"""Pod -> domain Pod: its owner, its node, what it requests, and whether EDL can help it.

A pod is EDL's only if its labels and its name agree *and* its controller is an existing TrainingJob (for a master: the
Deployment of one).  A pod with forged or edited labels, or a copy, is external.  Ended pods occupy nothing and are in
no view; nor are EDL's own pods behind the gang's gate, which count neither for sizes nor for capacity (ADR 0150).

EDL does nothing for a pod that it does not model (`is_modelled`, `beside-the-scheduler.md` 14 and 15): with a volume
claim (claims are not watched, so any might wait for its consumer), resource claims, another scheduler, gates of others,
group scheduling, or operators unknown to this version.  Spread constraints, pod affinity and host ports are left to
`SchedulerRefused`: they cost at most two trainers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import (
    ENDED_PHASES,
    Raw,
    condition_of,
    controller_of,
    created_at_s,
    integer,
    key_of,
    part,
    parts,
    text,
    unix_s,
)
from autoscaler.clusters.kubernetes.objects.labels import API_GROUP, GATE, JOB, ORDINAL, ROLE, TIER
from autoscaler.clusters.kubernetes.objects.names import job_key, pod_name
from autoscaler.clusters.kubernetes.parsing.pod_shapes import (
    is_understood,
    occupied_shape,
    shape_of_spec,
    split_node_pin,
)
from autoscaler.domain import JobName, NodeName, Pod, PodName, PodPhase, Reclaim, Role, Shape, Tier, WorkloadName

LOWEST_SURPLUS: Final = -8
LONGEST_COUNTED_GRACE_S: Final = 3_600
"""Longest grace period of an external pod whose capacity the planner counts on: users may set a year (A11)."""

DEFAULT_SCHEDULER: Final = "default-scheduler"
LONGEST_VERDICT: Final = 500  # characters: the scheduler counts nodes by reason, with every taint's name

_CAPACITY_REASONS: Final = ("Insufficient", "Too many pods")
"""What kube-scheduler's NodeResourcesFit says of a node that is full, as in "2 Insufficient cpu, 1 Too many pods"."""

_ROLES: Final = {role.value: role for role in (Role.TRAINER, Role.SERVER, Role.MASTER)}
_TIERS: Final = {tier.value: tier for tier in (Tier.CORE, Tier.SURPLUS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext:
    """Facts that a pod's own object lacks.  The mappings may be live; they are read at each call."""

    jobs: Mapping[str, JobName] = field(default_factory=dict)  # by the TrainingJob's UID
    masters: Mapping[str, str] = field(default_factory=dict)  # NAMESPACE/DEPLOYMENT -> UID of the job that controls it
    master_ordinals: Mapping[str, int] = field(default_factory=dict)  # by the pod's UID, from `assign_master_ordinals`
    reclaim: Reclaim = Reclaim.SCHEDULER
    lowest_surplus: int = LOWEST_SURPLUS  # pods of a higher priority can preempt surplus
    offset_s: float = 0.0  # the cluster's clock less Unix time


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """Job, role, tier and ordinal of one of EDL's pods."""

    job: JobName
    role: Role
    tier: Tier
    ordinal: int


def parse_pod(raw: Raw, context: PodContext) -> Pod | None:
    """Return the pod; None for one that does not count: it has ended, or waits behind the gate of its gang."""
    if text(raw, "status", "phase") in ENDED_PHASES:
        return None
    identity = _identity_of(raw, context)
    if identity is None:
        return _external_pod(raw, context)
    phase = _phase_of(raw)
    if phase is PodPhase.GATED:
        if GATE in gates_of(raw):
            return None
        phase = PodPhase.PENDING  # held by somebody else's gate: the pod keeps its proved capacity
    spec, status = part(raw, "spec"), part(raw, "status")
    shape, pin = shape_of_spec(spec, status), None
    if identity.role is not Role.MASTER:
        shape, pin = split_node_pin(shape)
    node = NodeName(text(spec, "nodeName")) or None
    disruption = condition_of(raw, "DisruptionTarget")
    is_preempted = disruption.get("status") == "True" and disruption.get("reason") == "PreemptionByScheduler"
    if is_preempted:
        phase = PodPhase.TERMINATING  # the scheduler sets the condition a moment before it deletes the pod
    return Pod(
        name=PodName(key_of(raw)),
        role=identity.role,
        tier=identity.tier,
        shape=shape,
        phase=phase,
        priority=integer(spec, "priority"),
        node=node,
        nominated_node=None if node else pin or _nominated(raw, phase),
        job=identity.job,
        ordinal=identity.ordinal,
        created_at_s=created_at_s(raw) + context.offset_s,
        unschedulable_since_s=_unschedulable_since(raw, phase, context),
        is_preempted=is_preempted,
    )


def gates_of(raw: Raw) -> frozenset[str]:
    """Return the scheduling gates that the pod still has."""
    return frozenset(text(gate, "name") for gate in parts(raw, "spec", "schedulingGates"))


def deployment_of(raw: Raw) -> WorkloadName | None:
    """Return NAMESPACE/NAME of a pod's Deployment, from its ReplicaSet's name less the hash; None without one."""
    owner = controller_of(raw)
    name, build = text(owner, "name"), text(raw, "metadata", "labels", "pod-template-hash")
    if owner.get("kind") != "ReplicaSet" or not build or not name.endswith(f"-{build}"):
        return None
    return WorkloadName(f"{text(raw, 'metadata', 'namespace')}/{name[: -len(build) - 1]}")


def assign_master_ordinals(known: Mapping[str, int], uids: Iterable[str]) -> dict[str, int]:
    """Return an ordinal for each pod of a Deployment: known ones keep theirs, others get the lowest free ones."""
    live = sorted(uids)
    ordinals = {uid: known[uid] for uid in live if uid in known}
    free = (number for number in range(len(live)) if number not in set(ordinals.values()))
    return ordinals | {uid: next(free) for uid in live if uid not in ordinals}


def _external_pod(raw: Raw, context: PodContext) -> Pod:
    spec, status = part(raw, "spec"), part(raw, "status")
    node = NodeName(text(spec, "nodeName")) or None
    phase = PodPhase.STARTING if node and _has_long_grace(raw) else _phase_of(raw)
    priority = integer(spec, "priority")
    return Pod(
        name=PodName(key_of(raw)),
        role=Role.EXTERNAL,
        tier=Tier.EXTERNAL,
        shape=_external_shape(spec, status, is_bound=node is not None),
        phase=phase,
        priority=priority,
        node=node,
        nominated_node=None if node else _nominated(raw, phase),
        workload=deployment_of(raw),
        created_at_s=created_at_s(raw) + context.offset_s,
        unschedulable_since_s=_unschedulable_since(raw, phase, context),
        can_preempt=node is None
        and context.reclaim is Reclaim.SCHEDULER
        and spec.get("preemptionPolicy") != "Never"
        and priority > context.lowest_surplus,
        is_modelled=node is not None or _is_modelled(raw),
    )


def _external_shape(spec: Raw, status: Raw, *, is_bound: bool) -> Shape:
    return occupied_shape(spec, status) if is_bound else shape_of_spec(spec, status)


def _identity_of(raw: Raw, context: PodContext) -> PodIdentity | None:
    labels = part(raw, "metadata", "labels")
    job, role, tier = text(labels, JOB), _ROLES.get(text(labels, ROLE)), _TIERS.get(text(labels, TIER))
    if not job or role is None or tier is None:
        return None
    owner = controller_of(raw)
    if role is Role.MASTER:
        uid = context.masters.get(deployment_of(raw) or "", "")
        ordinal = context.master_ordinals.get(text(raw, "metadata", "uid"), 0)
    else:
        is_ours = owner.get("kind") == "TrainingJob" and text(owner, "apiVersion").startswith(f"{API_GROUP}/")
        uid = text(owner, "uid") if is_ours else ""
        number = text(labels, ORDINAL)
        if not (number.isascii() and number.isdigit()):
            return None
        ordinal = int(number)
        if text(raw, "metadata", "name") != pod_name(job, role, ordinal):
            return None  # names are unique, labels are not: no two pods may claim one ordinal
    named = job_key(text(raw, "metadata", "namespace"), job)
    if not uid or context.jobs.get(uid) != named:
        return None
    return PodIdentity(job=named, role=role, tier=tier, ordinal=ordinal)


def _has_long_grace(raw: Raw) -> bool:
    """True if the pod's grace period is too long to count on its capacity."""
    return integer(raw, "metadata", "deletionGracePeriodSeconds") > LONGEST_COUNTED_GRACE_S


def _phase_of(raw: Raw) -> PodPhase:
    if part(raw, "metadata").get("deletionTimestamp"):
        return PodPhase.TERMINATING
    if text(raw, "spec", "nodeName"):
        is_ready = condition_of(raw, "Ready").get("status") == "True"
        return PodPhase.READY if is_ready else PodPhase.STARTING
    return PodPhase.GATED if gates_of(raw) else PodPhase.PENDING


def _nominated(raw: Raw, phase: PodPhase) -> NodeName | None:
    if phase is not PodPhase.PENDING:
        return None
    return NodeName(text(raw, "status", "nominatedNodeName")) or None


def _unschedulable_since(raw: Raw, phase: PodPhase, context: PodContext) -> float | None:
    verdict = condition_of(raw, "PodScheduled")
    if phase is not PodPhase.PENDING or verdict.get("status") != "False" or verdict.get("reason") != "Unschedulable":
        return None
    since_s = unix_s(text(verdict, "lastTransitionTime"))
    return (created_at_s(raw) if since_s is None else since_s) + context.offset_s


def unschedulable_reason(raw: Raw) -> str:
    """Return why kube-scheduler finds no node for a pod, if the reason is not lack of capacity; else an empty text.

    An unbound volume claim is such a reason: no capacity that EDL could prove helps.
    """
    verdict = condition_of(raw, "PodScheduled")
    reason = text(verdict, "message")
    is_reported = verdict.get("status") == "False" and verdict.get("reason") == "Unschedulable"
    lacks_capacity = any(phrase in reason for phrase in _CAPACITY_REASONS)
    return f"pod {key_of(raw)}: {reason}"[:LONGEST_VERDICT] if is_reported and reason and not lacks_capacity else ""


def _is_modelled(raw: Raw) -> bool:
    spec = part(raw, "spec")
    return (
        (text(spec, "schedulerName") or DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER
        and not gates_of(raw)
        and not spec.get("resourceClaims")
        and not spec.get("workloadRef")
        and not spec.get("schedulingGroup")
        and not any(volume.keys() & {"persistentVolumeClaim", "ephemeral"} for volume in parts(spec, "volumes"))
        and is_understood(spec)
    )
