"""P1: placement of pending and announced external pods; P4 places headroom with it.

A pod without a node is placed where kube-scheduler would put it: into free capacity, else into capacity that is being
vacated. A pod that finds neither stays in `ExternalDemand.unserved`, and P3 reclaims surplus for it. Headroom has the
lowest priority: P4 places it with the same functions, after the gangs, and calls P3 for it again.

Three settings ask for headroom: pods of a shape (`headroom`), a part of the cluster (`headroom_percent`), and a part
of what autoscaled workloads may still grow (`autoscaler_headroom_percent`). The largest answer for each shape counts,
not the sum. Headroom is kept as places for whole pods of the workloads' own shapes, since scattered remainders are of
no use to a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import ceil, isfinite

from autoscaler.domain import NOTHING, Cause, ClusterView, DemandState, Headroom, PodName, Policy, Resources, Shape
from autoscaler.planner.placement.node_choice import allocate_emptiest
from autoscaler.planner.working_copy.plan_records import Want
from autoscaler.planner.working_copy.ranks import CORE_VALUE, SURPLUS_RANK, full_rank
from autoscaler.planner.working_copy.shapes import sort_key
from autoscaler.planner.working_copy.working_copy import WorkingCopy


def place_external_pods(copy: WorkingCopy) -> None:
    """Place every pending and every announced pod: first those for which a node was vacated, then the most urgent."""
    wants = [*pending_wants(copy), *announced_wants(copy)]
    promised_first = {vacated.pod for vacated in copy.view.history.vacated_nodes}
    place_wants(copy, sorted(wants, key=lambda want: (want.name not in promised_first, *want.urgency)))


def pending_wants(copy: WorkingCopy) -> list[Want]:
    """Return the pending external pods; those that EDL's fit test does not model get their answer at once."""
    wants = []
    for pod in copy.external.waiting:
        want = Want(name=pod.name, shape=pod.shape, rank=full_rank(pod.priority), cause=Cause.POD, pod=pod)
        if pod.is_modelled:
            wants.append(want)
        else:
            copy.external.answer(want, DemandState.NOT_MODELLED)
    return wants


def announced_wants(copy: WorkingCopy) -> list[Want]:
    """Return a want for each replica that a workload will have and has not created yet.

    Of replicas that would not fit even without surplus only one is returned, to report the lack of capacity at
    bounded cost.
    """
    wants = []
    for workload in copy.view.workloads:
        missing = workload.desired_replicas - copy.external.pod_count_by_workload.get(workload.name, 0)
        most = copy.capacity.copies_without_surplus(copy.shapes.number(workload.shape)) if missing > 1 else None
        for number in range(1, (missing if most is None else min(missing, most + 1)) + 1):
            name, rank = PodName(f"{workload.name}+{number}"), full_rank(workload.priority)
            wants.append(Want(name=name, shape=workload.shape, rank=rank, cause=Cause.ANNOUNCED_GROWTH))
    return wants


def place_headroom(copy: WorkingCopy) -> None:
    """Place the policy's headroom; what does not fit stays unserved."""
    wants = [
        Want(
            name=PodName(f"headroom-{number}-{nth}"),
            shape=headroom.shape,
            rank=full_rank(CORE_VALUE),
            cause=Cause.HEADROOM,
        )
        for number, headroom in enumerate(headroom_of(copy.view, copy.policy))
        for nth in range(headroom.count)
    ]
    place_wants(copy, wants)


def place_wants(copy: WorkingCopy, wants: Iterable[Want]) -> None:
    """Place wants in this order; adjacent wants of one shape are placed together."""
    refused = refused_now(copy)
    for (shape, is_refused, _), row in groupby(
        wants, key=lambda want: (copy.shapes.number(want.shape), want.name in refused, want.exists)
    ):
        if not copy.capacity.fits_empty(shape):
            for want in row:
                copy.external.answer(want, DemandState.NEVER_FITS)
        elif is_refused:
            for want in row:
                copy.wake_at_s.append(refused[want.name])
                copy.external.answer(want, DemandState.SCHEDULER_REFUSED)
        else:
            place_row(copy, shape, list(row))


def place_row(copy: WorkingCopy, shape: int, wants: Sequence[Want]) -> None:
    """Place wants of one shape, all of them existing pods or none, into free capacity, then into capacity that is
    being vacated."""
    places = allocate_emptiest(copy, shape, len(wants), now=True, exists=wants[0].exists)
    for want, at in zip(wants, places, strict=False):
        if want.pod is not None and want.pod.unschedulable_since_s is not None:
            # The scheduler found no node, though EDL does: watched for a refusal (`beside-the-scheduler.md` 15).
            copy.external.unused_capacity.add(want.name)
        copy.external.answer(want, DemandState.CAPACITY_FREE, copy.capacity.names[at])
    made = {vacated.pod for vacated in copy.view.history.vacated_nodes}
    left = wants[len(places) :]
    for (is_below_core, is_promised), row in groupby(
        left, key=lambda want: (want.rank <= SURPLUS_RANK, want.name in made)
    ):
        if is_below_core:  # nothing is vacated for it: waiting gangs, which P4 places later, come first
            for want in row:
                copy.external.answer(want, DemandState.NO_CAPACITY)
        elif is_promised:
            for want in row:
                place_into_vacating_capacity(copy, shape, [want], node_vacated_for(copy, want))
        else:
            place_into_vacating_capacity(copy, shape, list(row))


def place_into_vacating_capacity(copy: WorkingCopy, shape: int, wants: Sequence[Want], at: int | None = None) -> None:
    """Reserve capacity that is being vacated, for the first want on the node `at`; the others stay unserved."""
    if at is None:
        places = allocate_emptiest(copy, shape, len(wants), now=False, exists=wants[0].exists)
    else:
        copy.capacity.allocate(at, shape, now=False)
        places = [at]
    for want, place in zip(wants, places, strict=False):
        copy.external.answer(want, DemandState.CAPACITY_DRAINING, copy.capacity.names[place])
    copy.external.unserved += wants[len(places) :]


def node_vacated_for(copy: WorkingCopy, want: Want) -> int | None:
    """Return the node that was vacated for this pod, if it still fits there."""
    for made in copy.view.history.vacated_nodes:
        at = copy.capacity.index.get(made.node) if made.pod == want.name else None
        if at is not None and copy.capacity.fits(at, copy.shapes.number(want.shape), now=False):
            return at
    return None


def refused_now(copy: WorkingCopy) -> dict[str, float]:
    """Return the pods that did not use free capacity and are in their pause, and when the pause ends."""
    until_s: dict[str, float] = {}
    for refusal in copy.view.history.refusals:
        if copy.now_s < refusal.until_s:
            until_s.setdefault(refusal.pod, refusal.until_s)
    return until_s


def headroom_of(view: ClusterView, policy: Policy) -> tuple[Headroom, ...]:
    """Return the headroom to keep, one entry per shape, fixed entries first."""
    counts: dict[Shape, int] = {}
    for entry in policy.headroom:
        counts[entry.shape] = counts.get(entry.shape, 0) + entry.count
    for wanted in (cluster_headroom(view, policy), autoscaler_headroom(view, policy)):
        for shape in sorted(wanted, key=sort_key):
            counts[shape] = max(counts.get(shape, 0), wanted[shape])
    return tuple(Headroom(shape=shape, count=count) for shape, count in counts.items() if count > 0)


def autoscaler_headroom(view: ClusterView, policy: Policy) -> Mapping[Shape, int]:
    """Return the configured part of the replicas that autoscalers may still add to what their workloads want now."""
    counts: dict[Shape, int] = {}
    for workload in view.workloads:
        ahead = max(0, workload.max_replicas - workload.desired_replicas)
        more = ceil(ahead * percent(policy.autoscaler_headroom_percent) / 100)
        counts[workload.shape] = counts.get(workload.shape, 0) + more
    return counts


def cluster_headroom(view: ClusterView, policy: Policy) -> Mapping[Shape, int]:
    """Return the configured part of the ready capacity in pods of the workloads, in the proportion of their
    replicas."""
    wanted: dict[Shape, int] = {}
    if not percent(policy.headroom_percent):
        return wanted
    for workload in view.workloads:
        wanted[workload.shape] = wanted.get(workload.shape, 0) + max(1, workload.desired_replicas)
    if not wanted:
        return wanted
    capacity = sum((node.allocatable for node in view.nodes if node.is_ready), start=NOTHING)
    parts = {shape: largest_part(shape.requests, capacity) for shape in wanted}
    mix = sum(wanted[shape] * part for shape, part in parts.items())
    if mix <= 0.0:
        return {}
    copies = percent(policy.headroom_percent) / 100 / mix  # of the present mix of pods
    return {shape: int(copies * count + 1e-9) for shape, count in wanted.items() if parts[shape] > 0.0}


def largest_part(requests: Resources, capacity: Resources) -> float:
    """Return the largest part of any resource that one such pod takes."""
    return max(
        (amount / held for name, amount in requests.amounts() if (held := capacity.amount(name)) > 0), default=0.0
    )


def percent(setting: float) -> float:
    """Return the setting, 0 if it is not finite."""
    return max(0.0, setting) if isfinite(setting) else 0.0
