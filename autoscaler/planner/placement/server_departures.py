"""Departures of servers by moves, so that moves end: none goes back while nothing else has changed (ADR 0269).

What a move gains is counted in trainers that jobs lack, and what jobs lack changes with what moves bring. So two moves
may undo each other for ever, each with a gain of its own. The planner therefore remembers the nodes that each job's
servers have left by moves. As long as neither the load of others on the two nodes of such a move nor any job's
document or quota changes, no server of the job goes back there by a move, and the job leaves that node no more often
than it may have servers. So there are finitely many moves, whatever trainers do meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from autoscaler.domain import Job, NodeName, Pod, Quota, Resources, Role, ServerDeparture, ServerMove
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy

NOTHING: Final = Resources()


class ServerDepartures:
    """The departures that still count in this plan; the others are forgotten, so a tide that returns is answered."""

    def __init__(self, copy: WorkingCopy) -> None:
        remembered = copy.carried.server_departures
        if remembered:
            conditions = Conditions(copy, {node for one in remembered for node in one.nodes})
            remembered[:] = [one for one in remembered if one.conditions == conditions.on(one.nodes)]
        self._copy = copy
        self._left = Counter((one.job, one.nodes[0]) for one in remembered)

    def closed_nodes(self, job: PlannedJob) -> set[int]:
        """Return the nodes that servers of the job have left, and to which none goes back."""
        index = self._copy.capacity.index
        return {index[node] for owner, node in self._left if owner == job.spec.name and node in index}

    def may_leave(self, job: PlannedJob, node: NodeName) -> bool:
        """True if the job's servers have left this node less often than it may have servers."""
        most = 0 if job.spec.servers is None else job.spec.servers.max_replicas
        return self._left[job.spec.name, node] < most


def record_departure(copy: WorkingCopy, move: ServerMove, old: Pod, new: Pod) -> None:
    """Remember that a server leaves its node for that of the new one, unless an earlier plan has recorded this move.

    Names do not tell moves apart: two moves later a server may have its first name again.
    """
    known = any((one.pod, one.since_s) == (move.pod, move.since_s) for one in copy.carried.server_departures)
    if old.place is None or new.place is None or known:
        return
    nodes = (old.place, new.place)
    conditions = Conditions(copy, set(nodes)).on(nodes)
    copy.carried.server_departures.append(
        ServerDeparture(job=move.job, pod=move.pod, since_s=move.since_s, nodes=nodes, conditions=conditions)
    )


class Conditions:
    """What stays while only surplus trainers and servers come and go: nodes, the load of others, documents, quotas."""

    def __init__(self, copy: WorkingCopy, names: set[NodeName]) -> None:
        view = copy.view
        self._everywhere = hash((tuple(map(terms_of, view.jobs)), tuple(map(limits_of, view.quotas))))
        self._nodes = {node.name: node for node in view.nodes if node.name in names}
        self._loads: dict[NodeName, Resources] = {}
        for pod in view.pods:
            if pod.role is Role.EXTERNAL and pod.node in names:
                self._loads[pod.node] = self._loads.get(pod.node, NOTHING) + pod.shape.requests

    def on(self, names: tuple[NodeName, NodeName]) -> int:
        """Return a hash of two nodes, all documents and all quotas: the same as long as nothing of them has changed."""
        loads = tuple((self._nodes.get(name), self._loads.get(name, NOTHING)) for name in names)
        return hash((self._everywhere, loads))


def terms_of(job: Job) -> Hashable:
    """Return what of a job's document decides how many trainers it may have, and how soon."""
    trainer = job.trainer
    sizes = (trainer.shape, trainer.min_replicas, trainer.ceiling)
    return (job.name, job.state, job.namespace, job.priority, job.weight, sizes)


def limits_of(quota: Quota) -> Hashable:
    """Return a quota's limits, without what is used of them."""
    return (quota.namespace, quota.name, tuple((limit.resource, limit.hard) for limit in quota.limits))
