"""Use of GPUs by pods, out of the agents' reports: devices of EDL's trainers, and pods of others that idle.

A pod is idle only while the report of its node names as many GPUs of it as it asks for, and every one of them is held:
what is missing, old or contradicts itself is work (promise A12).  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from autoscaler.domain import ClusterView, IdlePod, NodeName, Pod, PodName, PodPhase, Role
from autoscaler.domain.gpu_reports import GpuReports, GpuVerdict
from autoscaler.gpus.pods.device_ids import RESOURCE_PREFIX
from autoscaler.jobs.trainer_ledger import Device
from autoscaler.operator.idle.consent import Consent
from autoscaler.operator.idle.owner_replicas import IdleReplica, in_leaving_order
from autoscaler.operator.idle.report_faults import gpus_of_two_nodes

LOW_FOR_S: Final = 120.0
"""Age up to which a report may cost an EDL trainer its place: a drain loses no sample.  Of others' pods: `FRESH_S`."""
ASKED_AFTER_S: Final = 30.0
"""Age after which another is asked for, which comes within half a minute."""
MOST_ASKED: Final = 8  # nodes, each time


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """A pod's GPUs by the report of its node."""

    gpus: int = 0
    low_since_s: float = -inf  # Unix time since when none of them is used
    is_low: bool = True


Uses = Mapping[tuple[PodName, NodeName | None], PodUse]


def devices_of(view: ClusterView, reports: GpuReports, now_unix_s: float) -> Mapping[PodName, Device]:
    """Return what the devices of EDL's trainers do, of those whose node reports.

    LOW takes a trainer's excuse away, so it needs a recent report: an older one says neither that nor the contrary.
    """
    uses = use_of_pods(reports, now_unix_s)
    trainers = _trainers(view.pods, reports, uses)
    return {pod.name: _device_of(pod, uses, _age_s(pod, reports, now_unix_s)) for pod in trainers}


def nodes_to_ask(view: ClusterView, reports: GpuReports, now_unix_s: float) -> tuple[NodeName, ...]:
    """Return the nodes whose report says that a trainer's device does nothing, and will soon be too old to say so."""
    uses = use_of_pods(reports, now_unix_s)
    nodes = {
        pod.node
        for pod in _trainers(view.pods, reports, uses)
        if _is_low(pod, uses) and _age_s(pod, reports, now_unix_s) > ASKED_AFTER_S
    }
    return tuple(sorted(node for node in nodes if node is not None))[:MOST_ASKED]


def idle_pods_of(
    view: ClusterView,
    reports: GpuReports,
    now_unix_s: float,
    *,
    offset_s: float,
    consent_of: Callable[[PodName], Consent],
) -> tuple[IdlePod, ...]:
    """Return the pods of others that hold GPUs and use none.  `offset_s` takes Unix time to the view's clock."""
    uses = use_of_pods(reports, now_unix_s)
    found: list[IdleReplica] = []
    for pod in _with_gpus(view.pods, reports):
        if pod.role is Role.EXTERNAL and pod.phase is PodPhase.READY and _is_low(pod, uses):
            consent = consent_of(pod.name)
            idle = IdlePod(
                pod=pod.name,
                since_s=max(uses[pod.name, pod.node].low_since_s + offset_s, pod.created_at_s),
                after_s=None if consent.problem else consent.after_s,
                kept_until_s=None if consent.kept_until_unix_s == -inf else consent.kept_until_unix_s + offset_s,
                stays=consent.stays,
            )
            found.append((idle, consent.replicas))
    return in_leaving_order(found)


def use_of_pods(reports: GpuReports, now_unix_s: float) -> Uses:
    """Return what is known of each pod that has a GPU, by the report of each node that names it.

    Another node's report says nothing of a pod: it may be an old one of a pod of the same name, or of a hostile agent.
    A GPU that pods have by the reports of two nodes is used on both.
    """
    uses: dict[tuple[PodName, NodeName | None], PodUse] = {}
    twice = gpus_of_two_nodes(reports, now_unix_s)
    for name, node, gpu in reports.of_pods(now_unix_s):
        before = uses.get((name, node), PodUse())
        since_s = inf if gpu.low_since_s is None else gpu.low_since_s
        uses[name, node] = PodUse(
            gpus=before.gpus + 1,
            low_since_s=max(before.low_since_s, since_s),
            is_low=before.is_low and gpu.verdict is GpuVerdict.HELD and since_s < inf and gpu.uuid not in twice,
        )
    return uses


def _with_gpus(pods: Iterable[Pod], reports: GpuReports) -> Iterator[Pod]:
    return (pod for pod in pods if pod.requests.gpu_count and pod.node is not None and pod.node in reports.by_node)


def _trainers(pods: Iterable[Pod], reports: GpuReports, uses: Uses) -> Iterator[Pod]:
    """Yield the trainers on nodes that report which ask for GPUs, or have one by that report, such as by a claim."""
    return (
        pod
        for pod in pods
        if pod.role is Role.TRAINER
        and pod.node in reports.by_node
        and (_gpus_asked(pod) or (pod.name, pod.node) in uses)
    )


def _gpus_asked(pod: Pod) -> int:
    """Return how many GPUs and parts of GPUs the pod asks for by number; 0 where it has them by a claim."""
    parts = sum(count for name, count in pod.requests.extended if name.startswith(RESOURCE_PREFIX))
    return pod.requests.gpu_count + parts


def _is_low(pod: Pod, uses: Uses) -> bool:
    use = uses.get((pod.name, pod.node))
    return use is not None and use.is_low and use.gpus >= _gpus_asked(pod)


def _device_of(pod: Pod, uses: Uses, age_s: float) -> Device:
    if not _is_low(pod, uses):
        return Device.BUSY
    is_known = age_s <= LOW_FOR_S and _gpus_asked(pod) > 0  # of a claim nobody here knows how many there are
    return Device.LOW if is_known else Device.UNKNOWN


def _age_s(pod: Pod, reports: GpuReports, now_unix_s: float) -> float:
    """Return the age of the report of the pod's node; of a clock that is ahead it counts as much as of one behind."""
    return inf if pod.node is None else abs(now_unix_s - reports.by_node[pod.node].reported_at_s)
