"""Use of GPUs by pods, out of the agents' reports: devices of EDL's trainers, and pods of others that idle.

When a pod uses none of its GPUs is the subject of `gpus.pod_uses`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.domain import ClusterView, IdlePod, JobName, JobState, NodeName, Pod, PodName, PodPhase, Role
from autoscaler.gpus.pod_uses import GpuUses, gpus_asked
from autoscaler.jobs.trainer_ledger import Device
from autoscaler.operator.idle.consent import Consent
from autoscaler.operator.idle.owner_replicas import IdleReplica, in_leaving_order

LOW_FOR_S: Final = 120.0
"""Age up to which a report may cost an EDL trainer its place: a drain loses no sample.  Of others' pods: `FRESH_S`."""
ASKED_AFTER_S: Final = 30.0
"""Age after which another is asked for, which comes within half a minute."""
MOST_ASKED: Final = 8  # nodes, each time


def devices_of(view: ClusterView, uses: GpuUses, now_unix_s: float) -> Mapping[PodName, Device]:
    """Return what the devices of EDL's trainers do, of those whose node reports.

    LOW takes a trainer's excuse away, so it needs a recent report: an older one says neither that nor the contrary.
    """
    return {pod.name: _device_of(pod, uses, now_unix_s) for pod in _trainers(view.pods, uses)}


def nodes_to_ask(
    view: ClusterView, uses: GpuUses, now_unix_s: float, *, asked: Container[NodeName] = ()
) -> tuple[NodeName, ...]:
    """Return the nodes whose report says that a trainer's device does nothing, and will soon be too old to say so.

    `asked`: nodes that were asked a moment ago, of which some never answer.
    """
    nodes = {
        pod.node
        for pod in _trainers(view.pods, uses)
        if uses.low_since_s(pod, now_unix_s) is not None and uses.age_s(pod, now_unix_s) > ASKED_AFTER_S
    }
    return tuple(sorted(node for node in nodes if node is not None and node not in asked))[:MOST_ASKED]


def idle_pods_of(
    pods: Iterable[Pod],
    uses: GpuUses,
    now_unix_s: float,
    *,
    offset_s: float,
    consent_of: Callable[[PodName], Consent],
) -> tuple[IdlePod, ...]:
    """Return those of these pods of others that hold GPUs and use none, by name.

    `pods`: with a pod all others of its owner.  `offset_s` takes Unix time to the view's clock.
    """
    found: list[IdleReplica] = []
    for pod in pods:
        if pod.role is not Role.EXTERNAL or (since_s := uses.low_since_s(pod, now_unix_s)) is None:
            continue
        if pod.phase is PodPhase.READY and pod.requests.gpu_count:
            consent = consent_of(pod.name)
            idle = IdlePod(
                pod=pod.name,
                since_s=max(since_s + offset_s, pod.created_at_s),
                after_s=None if consent.problem else consent.after_s,
                kept_until_s=None if consent.kept_until_unix_s == -inf else consent.kept_until_unix_s + offset_s,
                stays=consent.stays,
            )
            found.append((idle, consent.replicas))
    return tuple(sorted(in_leaving_order(found), key=lambda one: one.pod))


def pods_beside(view: ClusterView, name: PodName) -> Sequence[Pod]:
    """Return the pods of its namespace, among which are all of its owner."""
    first = f"{split_key(name)[0]}/"
    low = bisect_left(view.pods, first, key=lambda pod: pod.name)
    high = bisect_left(view.pods, f"{first[:-1]}0", key=lambda pod: pod.name)  # the character after the slash
    return view.pods[low:high]


def still_waits(view: ClusterView, name: PodName | JobName) -> bool:
    """True if the pod has no node, or the job is to run and no trainer of it has one."""
    pods = pods_beside(view, PodName(name))
    pod = next((one for one in pods if one.name == name), None)
    if pod is not None:
        return pod.node is None and pod.phase is not PodPhase.TERMINATING
    at = bisect_left(view.jobs, name, key=lambda job: job.name)
    is_active = at < len(view.jobs) and view.jobs[at].name == name and view.jobs[at].state is JobState.ACTIVE
    return is_active and not any(one.job == name and one.role is Role.TRAINER and one.node for one in pods)


def _trainers(pods: Iterable[Pod], uses: GpuUses) -> Iterator[Pod]:
    """Yield the trainers on nodes that report which ask for GPUs, or have one by that report, such as by a claim."""
    nodes = uses.reports.by_node
    return (
        pod
        for pod in pods
        if pod.role is Role.TRAINER and pod.node in nodes and (gpus_asked(pod.shape.requests) or uses.is_named(pod))
    )


def _device_of(pod: Pod, uses: GpuUses, now_unix_s: float) -> Device:
    if uses.low_since_s(pod, now_unix_s) is None:
        return Device.BUSY
    # Of a claim nobody here knows how many GPUs there are.
    is_known = uses.age_s(pod, now_unix_s) <= LOW_FOR_S and gpus_asked(pod.shape.requests) > 0
    return Device.LOW if is_known else Device.UNKNOWN
