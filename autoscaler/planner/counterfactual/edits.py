"""What-if edits: other nodes, other web load, another job, as `edl what-if` asks about them.

Each function returns the edited inputs. Pods of a removed node are re-created by their controllers: pods of external
workloads wait for capacity, and the planner places EDL's. Pods without a workload (daemons of the node,
say) do not come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from autoscaler.domain import Job, Node, NodeName, Pod, PodName, PodPhase, Resources, Role, Tier, Workload, WorkloadName
from autoscaler.planner.counterfactual.change import PlanInputs
from autoscaler.planner.counterfactual.cluster_changes import new_nodes

DELETION_ORDER: Final = (PodPhase.GATED, PodPhase.PENDING, PodPhase.STARTING, PodPhase.READY, PodPhase.TERMINATING)
"""Deletion order of the ReplicaSet controller: pods that are not ready first."""


def with_nodes(
    inputs: PlanInputs, capacity: Resources, count: int, labels: Iterable[tuple[str, str]] = ()
) -> PlanInputs:
    """Return the inputs with `count` new, empty nodes."""
    like = Node(name=NodeName("new"), allocatable=capacity, labels=frozenset(labels))
    return replace(inputs, view=inputs.view.evolve(nodes=new_nodes(inputs.view.nodes, like, count)))


def without_node(inputs: PlanInputs, name: NodeName) -> PlanInputs:
    """Return the inputs without this node. Raises KeyError."""
    if name not in {node.name for node in inputs.view.nodes}:
        raise KeyError(name)
    here = [pod for pod in inputs.view.pods if pod.place == name]
    replaced = [pod for pod in here if pod.workload is not None and pod.phase is not PodPhase.TERMINATING]
    back = [waiting(pod, inputs.now_s) for pod in replaced]
    gone = {pod.name for pod in here} - {pod.name for pod in replaced}
    return replace(inputs, view=inputs.view.evolve(gone_nodes=[name], gone_pods=gone, pods=back))


def with_replicas(inputs: PlanInputs, name: WorkloadName, count: int) -> PlanInputs:
    """Return the inputs with `count` replicas wanted of an external workload. Raises KeyError."""
    found = next((workload for workload in inputs.view.workloads if workload.name == name), None)
    if found is None:
        raise KeyError(name)
    present = [pod for pod in inputs.view.pods if pod.workload == name and pod.phase is not PodPhase.TERMINATING]
    present.sort(key=lambda pod: (DELETION_ORDER.index(pod.phase), -pod.created_at_s, pod.name))
    gone = [pod.name for pod in present[: max(0, len(present) - count)]]
    taken = {pod.name for pod in inputs.view.pods}
    numbers = (number for number in range(count + len(taken)) if f"{name}-{number}" not in taken)
    missing = range(max(0, count - len(present)))
    come = [replica(found, number, inputs.now_s) for number, _ in zip(numbers, missing, strict=False)]
    workload = replace(found, desired_replicas=count)
    return replace(inputs, view=inputs.view.evolve(workloads=[workload], pods=come, gone_pods=gone))


def without_idle_pods(inputs: PlanInputs) -> PlanInputs:
    """Return the inputs without the pods of others that hold GPUs and have not used them for `Policy.idle_window_s`,
    their owners' consent apart; a workload wants as many replicas fewer."""
    view, due_s = inputs.view, inputs.now_s - inputs.policy.idle_window_s
    idle = {one.pod for one in view.idle_pods if one.since_s <= due_s}
    gone = [pod for pod in view.pods if pod.name in idle and pod.role is Role.EXTERNAL and pod.requests.gpu_count]
    counts = Counter(pod.workload for pod in gone)
    fewer = [
        replace(workload, desired_replicas=max(0, workload.desired_replicas - counts[workload.name]))
        for workload in view.workloads
        if counts[workload.name]
    ]
    left = [one for one in view.idle_pods if one.pod not in idle]
    evolved = view.evolve(gone_pods=[pod.name for pod in gone], workloads=fewer, idle_pods=left)
    return replace(inputs, view=evolved)


def with_workload(inputs: PlanInputs, workload: Workload) -> PlanInputs:
    """Return the inputs with a new external workload, its replicas waiting. Raises ValueError if the name is taken."""
    if workload.name in {known.name for known in inputs.view.workloads}:
        raise ValueError(f"deployment {workload.name} already exists")
    known = replace(inputs, view=inputs.view.evolve(workloads=[workload]))
    return with_replicas(known, workload.name, workload.desired_replicas)


def with_submission(inputs: PlanInputs, job: Job) -> PlanInputs:
    """Return the inputs with one more job. Raises ValueError if its name is taken."""
    if job.name in {known.name for known in inputs.view.jobs}:
        raise ValueError(f"job {job.name} already exists")
    return inputs.with_job(replace(job, submitted_at_s=inputs.now_s))


def replica(workload: Workload, number: int, now_s: float) -> Pod:
    """Return a pod of the workload that waits for capacity."""
    pod = Pod(
        name=PodName(f"{workload.name}-{number}"),
        role=Role.EXTERNAL,
        tier=Tier.EXTERNAL,
        shape=workload.shape,
        phase=PodPhase.PENDING,
        priority=workload.priority,
        workload=workload.name,
    )
    return waiting(pod, now_s)


def waiting(pod: Pod, now_s: float) -> Pod:
    """Return the external pod as it is re-created: unbound, and marked unschedulable."""
    return replace(
        pod,
        phase=PodPhase.PENDING,
        node=None,
        nominated_node=None,
        created_at_s=now_s,
        unschedulable_since_s=0.0,  # long ago, so that the plan does not wait for the scheduler
    )
