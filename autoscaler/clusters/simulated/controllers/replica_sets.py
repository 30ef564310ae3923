"""Arithmetic of controllers: replicas of a template, rollouts, and an HPA.  Pure but for a token bucket.

A controller keeps `wanted` pods alive.  A terminating pod counts as gone, so a preempted web pod is replaced at once.
Deployments have controllers, and roles of a job that another system runs (2017: ReplicaSets of servers and master, a
batch Job of trainers).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, log2

from autoscaler.clusters.simulated.world.physics import Physics
from autoscaler.clusters.simulated.world.sim_pods import SimPod
from autoscaler.domain import PodName, PodPhase, Role, Shape, Tier
from autoscaler.errors import InvalidSpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class SimDeployment:
    """Replicated external pods, which spread over the nodes."""

    name: str
    shape: Shape
    replicas: int = 0
    priority: int = 0
    can_preempt: bool = True
    grace_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hpa:
    """Horizontal pod autoscaler: keeps each replica's load near `load_per_replica`, in any unit."""

    deployment: str
    min_replicas: int
    max_replicas: int
    load_per_replica: float

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas or not self.load_per_replica > 0:
            raise InvalidSpecError(f"hpa.{self.deployment}", f"is {self}", "1 <= min <= max, load_per_replica above 0")


@dataclass(slots=True, kw_only=True, eq=False)
class ReplicaController:
    """State of one controller."""

    name: str
    owner: str
    role: Role
    tier: Tier
    shape: Shape
    wanted: int
    priority: int = 0
    can_preempt: bool = False
    grace_s: float = 30.0
    spread_group: str | None = None
    generation: int = 0
    pods: dict[PodName, SimPod] = field(default_factory=dict)  # not terminating
    ready: set[PodName] = field(default_factory=set)
    victims: deque[SimPod] = field(default_factory=deque)  # chosen, not yet terminated
    is_queued: bool = False  # for a token


class TokenBucket:
    """Rate limit: a burst of calls, then a number per second."""

    def __init__(self, rate_per_s: float, burst: int) -> None:
        self._rate_per_s = rate_per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._counted_s = 0.0

    def try_take(self, now_s: float) -> bool:
        """Take a token; False without one."""
        self._tokens = min(self._burst, self._tokens + (now_s - self._counted_s) * self._rate_per_s)
        self._counted_s = now_s
        if self._tokens < 1.0 - 1e-9:
            return False
        self._tokens -= 1.0
        return True

    def next_in_s(self) -> float:
        """Return how long after the last try the next one succeeds."""
        return max(0.0, 1.0 - self._tokens) / self._rate_per_s


def pods_to_create(replicas: ReplicaController) -> int:
    """Return how many pods of the current template to create now.  A rollout may exceed the replicas by a quarter."""
    if not replicas.generation:
        return max(0, replicas.wanted - len(replicas.pods))
    new = sum(pod.generation == replicas.generation for pod in replicas.pods.values())
    is_rolling = new < len(replicas.pods)
    most = replicas.wanted + (ceil(replicas.wanted / 4) if is_rolling else 0)
    return max(0, min(replicas.wanted - new, most - len(replicas.pods)))


def pods_to_delete(replicas: ReplicaController, physics: Physics, now_s: float) -> list[SimPod]:
    """Return the pods that the controller terminates now, first ones first.

    A roll ends old pods that never ran at once, others as long as three quarters of what is wanted stay ready.
    """
    if not replicas.generation and len(replicas.pods) <= replicas.wanted:
        return []
    old = [pod for pod in replicas.pods.values() if pod.generation != replicas.generation]
    new = [pod for pod in replicas.pods.values() if pod.generation == replicas.generation]
    leaving = removal_order(new, physics, now_s)[: max(0, len(new) - replicas.wanted)]
    if not old:
        return leaving
    ready = sum(pod.phase is PodPhase.READY for pod in replicas.pods.values())
    spare = max(0, ready - (replicas.wanted - replicas.wanted // 4))
    for pod in removal_order(old, physics, now_s):
        if pod.phase is not PodPhase.READY:
            leaving.append(pod)
        elif spare > 0:
            spare -= 1
            leaving.append(pod)
    return leaving


def removal_order(pods: Iterable[SimPod], physics: Physics, now_s: float) -> list[SimPod]:
    """Return pods in the order of removal: unbound, not ready, today those on nodes with many replicas, young."""
    all_pods = list(pods)
    crowd = Counter(pod.node for pod in all_pods) if physics.spreads_scale_down else Counter()

    def place(pod: SimPod) -> tuple[object, ...]:
        is_ready = pod.phase is PodPhase.READY
        age_s = now_s - pod.running_at_s if is_ready and pod.running_at_s is not None else 0.0
        if physics.spreads_scale_down:
            return pod.node is not None, is_ready, -crowd[pod.node], int(log2(age_s + 1.0)), pod.tie_break
        return pod.node is not None, is_ready, age_s, -pod.created_at_s, pod.tie_break

    return sorted(all_pods, key=place)


class HpaState:
    """State of one HPA.  Source: pkg/controller/podautoscaler/horizontal.go with the default behaviour."""

    def __init__(self, hpa: Hpa, physics: Physics) -> None:
        self.hpa = hpa
        self.load = 0.0
        self._physics = physics
        self._recent: deque[tuple[float, int]] = deque()

    def desired_replicas(self, current: int) -> int:
        """Return the replicas that the load requires, within the HPA's bounds."""
        ratio = self.load / (current * self.hpa.load_per_replica) if current else 0.0
        wanted = current
        if not current or abs(ratio - 1.0) > self._physics.hpa_tolerance:
            wanted = ceil(self.load / self.hpa.load_per_replica - 1e-9)
        return min(max(wanted, self.hpa.min_replicas), self.hpa.max_replicas)

    def update(self, current: int, now_s: float) -> int:
        """Return the replicas from now on: up at most twice as many or four more, down to the highest recent value."""
        wanted = self.desired_replicas(current)
        self._recent.append((now_s, wanted))
        while self._recent[0][0] < now_s - self._physics.hpa_stabilization_s:
            self._recent.popleft()
        if wanted > current:
            return min(wanted, max(2 * current, current + 4))
        return min(current, max(known for _, known in self._recent))
