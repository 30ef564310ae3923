"""Use of GPUs by pods, out of the agents' reports: devices of EDL's trainers, and pods of others that idle.

A pod is idle only while the report of its node names as many GPUs of it as it asks for, and every one of them is held:
what is missing, old or contradicts itself is work (promise A12).  A cluster of 10,000 nodes changes some reports a
second, and the leader's other tasks wait meanwhile: so what is known is kept by node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.domain import ClusterView, IdlePod, JobName, JobState, NodeName, Pod, PodName, PodPhase, Role
from autoscaler.domain.gpu_reports import NO_REPORTS, GpuReports, GpuVerdict, NodeGpuReport
from autoscaler.gpus.pods.device_ids import RESOURCE_PREFIX
from autoscaler.jobs.trainer_ledger import Device
from autoscaler.operator.idle.consent import Consent
from autoscaler.operator.idle.owner_replicas import IdleReplica, in_leaving_order

LOW_FOR_S: Final = 120.0
"""Age up to which a report may cost an EDL trainer its place: a drain loses no sample.  Of others' pods: `FRESH_S`."""
ASKED_AFTER_S: Final = 30.0
"""Age after which another is asked for, which comes within half a minute."""
MOST_ASKED: Final = 8  # nodes, each time


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """A pod's GPUs by one report of its node, whatever its age."""

    uuids: tuple[str, ...] = ()
    low_since_s: float = -inf  # Unix time since when none of them is used
    is_low: bool = True


class GpuUses:
    """Use of GPUs by pods, by the newest report of each node; only reports that have changed are joined anew.

    Another node's report says nothing of a pod: it may be an old one of a pod of the same name, or of a hostile agent.
    A GPU that pods have by the reports of two nodes is used on both.
    """

    def __init__(self, reports: GpuReports = NO_REPORTS) -> None:
        self.reports = NO_REPORTS
        self.joined = 0  # reports, so far
        self._pods: dict[NodeName, Mapping[PodName, PodUse]] = {}
        self._low: dict[NodeName, Mapping[PodName, PodUse]] = {}  # of nodes with some, those that use none
        self._nodes_of: dict[str, set[NodeName]] = {}  # by GPU that pods have
        self.renew(reports)

    def renew(self, reports: GpuReports) -> None:
        """Take the newest reports."""
        if reports is self.reports:
            return
        before, self.reports = self.reports.by_node, reports
        changed = [node for node, report in reports.by_node.items() if before.get(node) is not report]
        for node in (*changed, *(before.keys() - reports.by_node.keys())):
            self._low.pop(node, None)
            for use in self._pods.pop(node, {}).values():
                for uuid in use.uuids:
                    self._forget(uuid, node)
        for node in changed:
            self._join(reports.by_node[node])

    def is_named(self, pod: Pod) -> bool:
        """True if the report of the pod's node names it."""
        return pod.node is not None and pod.name in self._pods.get(pod.node, ())

    def low_since_s(self, pod: Pod, now_unix_s: float) -> float | None:
        """Return the Unix time since when the pod uses none of its GPUs; None: it may use one."""
        low = None if pod.node is None else self._low.get(pod.node)
        use = None if low is None else low.get(pod.name)
        if use is None or len(use.uuids) < gpus_asked(pod):
            return None
        if not self._counts(pod.node, now_unix_s) or any(self._is_twice(uuid, now_unix_s) for uuid in use.uuids):
            return None
        return use.low_since_s

    def age_s(self, pod: Pod, now_unix_s: float) -> float:
        """Return the age of the report of the pod's node; of a clock that is ahead it counts as of one behind."""
        report = None if pod.node is None else self.reports.by_node.get(pod.node)
        return inf if report is None else abs(now_unix_s - report.reported_at_s)

    def _join(self, report: NodeGpuReport) -> None:
        self.joined += 1
        uses: dict[PodName, PodUse] = {}
        for gpu in report.gpus:
            since_s = inf if gpu.low_since_s is None else gpu.low_since_s
            for name in gpu.pods:
                before = uses.get(name, PodUse())
                uses[name] = PodUse(
                    uuids=(*before.uuids, gpu.uuid),
                    low_since_s=max(before.low_since_s, since_s),
                    is_low=before.is_low and gpu.verdict is GpuVerdict.HELD and since_s < inf,
                )
                self._nodes_of.setdefault(gpu.uuid, set()).add(report.node)
        self._pods[report.node] = uses
        if low := {name: use for name, use in uses.items() if use.is_low}:
            self._low[report.node] = low

    def _forget(self, uuid: str, node: NodeName) -> None:
        nodes = self._nodes_of.get(uuid, set())
        nodes.discard(node)
        if not nodes:
            self._nodes_of.pop(uuid, None)

    def _counts(self, node: NodeName | None, now_unix_s: float) -> bool:
        report = None if node is None else self.reports.by_node.get(node)
        return report is not None and report.counts_at(now_unix_s)

    def _is_twice(self, uuid: str, now_unix_s: float) -> bool:
        """True if pods have the GPU by the reports of two nodes; one that is too old contradicts nobody."""
        nodes = self._nodes_of[uuid]
        return len(nodes) > 1 and sum(self._counts(node, now_unix_s) for node in nodes) > 1


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


def gpus_asked(pod: Pod) -> int:
    """Return how many GPUs and parts of GPUs the pod asks for by number; 0 where it has them by a claim."""
    requests = pod.shape.requests
    if not requests.extended:
        return requests.gpu_count
    return requests.gpu_count + sum(count for name, count in requests.extended if name.startswith(RESOURCE_PREFIX))


def _trainers(pods: Iterable[Pod], uses: GpuUses) -> Iterator[Pod]:
    """Yield the trainers on nodes that report which ask for GPUs, or have one by that report, such as by a claim."""
    nodes = uses.reports.by_node
    return (
        pod
        for pod in pods
        if pod.role is Role.TRAINER and pod.node in nodes and (gpus_asked(pod) or uses.is_named(pod))
    )


def _device_of(pod: Pod, uses: GpuUses, now_unix_s: float) -> Device:
    if uses.low_since_s(pod, now_unix_s) is None:
        return Device.BUSY
    # Of a claim nobody here knows how many GPUs there are.
    is_known = uses.age_s(pod, now_unix_s) <= LOW_FOR_S and gpus_asked(pod) > 0
    return Device.LOW if is_known else Device.UNKNOWN
