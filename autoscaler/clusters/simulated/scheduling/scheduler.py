"""kube-scheduler in virtual time: one pod after the other, bound, or refused with preemption for it.

`scheduling_queue` orders pods, `node_choice` chooses a node, `preemption` the victims; this module joins them to the
world.  Pods bound at their creation (EDL's, whose capacity was proved) never come here: the 0.02 s in which the real
scheduler could give that capacity to another pod is not emulated, nor are volumes, ports, pod affinity, extenders, DRA.
"""

from __future__ import annotations

from autoscaler.clusters.simulated.scheduling.node_choice import NodeChooser
from autoscaler.clusters.simulated.scheduling.preemption import Preemption, may_preempt
from autoscaler.clusters.simulated.scheduling.scheduler_profile import SchedulerProfile
from autoscaler.clusters.simulated.scheduling.scheduling_queue import SchedulingQueue
from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.clusters.simulated.world.world import PodChange, World
from autoscaler.domain import NodeName


class Scheduler:
    """Binds pods without a node."""

    def __init__(self, world: World, profile: SchedulerProfile) -> None:
        self._world = world
        self._profile = profile
        self._waiting = SchedulingQueue(profile)
        self._chooser = NodeChooser(world.table, profile, world.chance)
        self._preemption = Preemption(world.table, world.chance)
        self._is_deciding = False
        self._flush_at_s: float | None = None
        world.listen(self.handle_pod_change)

    def handle_pod_change(self, pod: SimPod, change: PodChange) -> None:
        """Queue a new pod, or drop a bound or removed one."""
        if change is PodChange.CREATED:
            self._waiting.add(pod, self._world.now_s)
            self._schedule_next()
        elif change is PodChange.BOUND:
            self._waiting.remove(pod)
        elif change is PodChange.GONE:
            self._waiting.remove(pod)
            if pod.node is not None:
                self.handle_freed_capacity()

    def handle_freed_capacity(self) -> None:
        """Retry unschedulable pods: a pod has gone, or a node has come."""
        self._waiting.move(self._world.now_s)
        self._schedule_next()

    def _schedule_next(self) -> None:
        """Plan the next decision and the next end of a backoff."""
        if self._waiting.has_next and not self._is_deciding:
            self._is_deciding = True
            self._world.timeline.after(self._world.physics.scheduling_s, self._decide)
        flush_at_s = self._waiting.flush_at_s()
        if flush_at_s is not None and (self._flush_at_s is None or flush_at_s < self._flush_at_s):
            self._flush_at_s = flush_at_s
            self._world.timeline.at(flush_at_s, self._flush)

    def _flush(self) -> None:
        self._flush_at_s = None
        self._waiting.flush(self._world.now_s)
        self._schedule_next()

    def _decide(self) -> None:
        self._is_deciding = False
        if self._waiting.has_next:
            pod = self._waiting.pop()
            node = self._chooser.node_for(pod) if self._world.requests_known_resources(pod.shape) else None
            if node is None:
                self._refuse(pod)
            else:
                self._world.bind(pod, node)
        self._schedule_next()

    def _refuse(self, pod: SimPod) -> None:
        """Put the pod back into the queue, nominated to a node where it preempts."""
        self._waiting.refuse(pod, self._world.now_s)
        nominated = pod.nominated_node
        if (
            self._profile.has_priorities
            and self._world.requests_known_resources(pod.shape)
            and may_preempt(self._world.table, pod)
        ):
            nominated = self._preempt_for(pod)
        self._world.mark_unschedulable(pod, nominated)

    def _preempt_for(self, pod: SimPod) -> NodeName | None:
        """Terminate the victims; pods of lower priority nominated there lose the nomination."""
        candidate = self._preemption.candidate_for(pod)
        if candidate is None:
            return None
        for victim in candidate.victims:
            self._world.terminate(victim, grace_s=victim.grace_s, reason=f"preempted for {pod.name}", is_preempted=True)
        for other in list(self._world.table.slot(candidate.node).nominated.values()):
            if other.priority < pod.priority:
                self._world.mark_unschedulable(other, None)
        return candidate.node
