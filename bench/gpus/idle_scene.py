"""An hour and a half of eight GPUs: a trainer whose data end, one that hangs, and a notebook whose owner agreed.

The planner, the ledger's rule and the notice are the product's; the cluster is one in memory.  What an agent would see
is given: a device is low once its pod has not computed for five minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from autoscaler.domain import IdlePod, IdleTrainer, Node, Pod, PodPhase, Policy, ReclaimMode, Resources, Role, Tier
from autoscaler.jobs.progress import JobProgress, TrainerEntry
from autoscaler.jobs.trainer_ledger import Device, LedgerHistory, judge_all, observe_ledger
from autoscaler.planner import plan
from master.api.master_status import JobPhase
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, shape

TICK_S: Final = 10.0
GPUS: Final = 8
AGREED_S: Final = 900.0
MINUTES: Final = 90
POLICY: Final = Policy(idle_reclaim=ReclaimMode.ACT, burst_window_s=0.0)

IDLES_AT: Final = 10  # minutes: the data of a trainer of `vision` end
HANGS_AT: Final = 30  # a trainer of `speech` hangs
UNUSED_FROM: Final = 40  # the notebook is left
WAITS_FROM: Final = 50  # `late` is submitted, and waits


@dataclass
class Lane:
    """What one GPU was used for: (from, to, by whom, whether it computed), in minutes."""

    spans: list[tuple[float, float, str, bool]] = field(default_factory=list)

    def add(self, at: float, whom: str, *, computes: bool) -> None:
        """Lengthen the last span, or begin one."""
        end = at + TICK_S / 60
        if self.spans and self.spans[-1][2:] == (whom, computes) and abs(self.spans[-1][1] - at) < 1e-9:
            self.spans[-1] = (self.spans[-1][0], end, whom, computes)
        else:
            self.spans.append((at, end, whom, computes))


class IdleScene:
    """`run` plays it; `lanes` is the drawing, `given` when each GPU was in other hands, in minutes."""

    def __init__(self) -> None:
        specs = [
            job("vision", low=2, high=4, gpu=1, submitted_at_s=0.0),
            job("speech", low=2, high=8, gpu=1, submitted_at_s=0.0, weight=50),
        ]
        node = Node(name="n", allocatable=Resources(cpu_milli=64_000, gpu_count=GPUS))
        self.cluster: Any = MemoryCluster([node], specs, pods=[_notebook()], now_s=1_000.0)
        self.driver: Any = Driver(self.cluster, POLICY)
        self.lanes = [Lane() for _ in range(GPUS)]
        self.given: dict[str, float] = {}
        self.told_s: float | None = None
        self._ledgers: dict[str, LedgerHistory] = {}
        self._steps: dict[str, int] = {}
        self._still_since_s: dict[str, float] = {}
        self._lane_of: dict[str, int] = {}
        self._broken: dict[str, str] = {}  # by pod: idle, or hung
        self._start_s = 0.0
        self._notice_s: float | None = None

    def run(self) -> None:
        """Play all of it."""
        self.driver.settle()
        self._start_s = self.cluster.now_s
        while self.minute < MINUTES:
            self._happen()
            self._look()
            made = plan(
                self.cluster.view(history=self.driver.history, idle_pods=self._idle_pods()), POLICY, self._now_s
            )
            self._note(made.actions)
            self.driver.apply(made, made.actions)
            self._give_back(made.idle_reclaims)
            self._draw()
            self.cluster.advance(TICK_S)

    @property
    def minute(self) -> float:
        """Minutes since the beginning."""
        found: float = (self._now_s - self._start_s) / 60
        return found

    @property
    def _now_s(self) -> float:
        found: float = self.cluster.now_s
        return found

    def _happen(self) -> None:
        """What the world does at this instant."""
        trainers = {name: pod for name, pod in self.cluster.pods.items() if pod.role is Role.TRAINER}
        if self.minute >= IDLES_AT and "idle" not in self._broken.values():
            self._broken[max(name for name in trainers if name.startswith("vision"))] = "idle"
        if self.minute >= HANGS_AT and "hung" not in self._broken.values():
            self._broken[min(name for name in trainers if name.startswith("speech"))] = "hung"
        if self.minute >= WAITS_FROM and "late" not in self.cluster.jobs:
            late = job("late", low=4, high=4, gpu=1, submitted_at_s=self._now_s)
            self.cluster.put(late)
        self._hung_pod()

    def _hung_pod(self) -> None:
        """A pod that was replaced works again."""
        for name in [name for name in self._broken if name not in self.cluster.pods]:
            self._broken[name + " (gone)"] = self._broken.pop(name)

    def _computes(self, pod: Pod) -> bool:
        if pod.role is Role.EXTERNAL:
            return self.minute < UNUSED_FROM
        return pod.phase is PodPhase.READY and pod.name not in self._broken

    def _look(self) -> None:
        """The operator asks each master, and follows its ledger."""
        for name, spec in self.cluster.jobs.items():
            pods = [pod for pod in self.cluster.pods.values() if pod.job == name and pod.role is Role.TRAINER]
            progress = JobProgress(phase=JobPhase.TRAINING, ledger=tuple(map(self._entry, pods)))
            before = self._ledgers.get(name, LedgerHistory())
            ledger = observe_ledger(before, progress, self._now_s, is_group=False, window_s=POLICY.idle_window_s)
            self._ledgers[name] = ledger
            devices = {pod.name: self._device(pod) for pod in pods}
            found = judge_all(ledger, window_s=POLICY.idle_window_s, devices=devices)
            self._note_told(found)
            idle = tuple(
                IdleTrainer(pod=one.name, since_s=one.since_s, is_hung=one.is_replaceable) for one in found if one.gives
            )
            if idle != spec.idle:
                self.cluster.put(replace(spec, idle=idle))

    def _note_told(self, found: Any) -> None:
        hung = [one for one in found if one.state == "hung"]
        if self.told_s is None and hung:
            self.told_s = self._now_s - hung[0].since_s

    def _entry(self, pod: Pod) -> TrainerEntry:
        works = self._computes(pod)
        self._steps[pod.name] = self._steps.get(pod.name, 0) + (20 if works else 0)
        is_hung = self._broken.get(pod.name) == "hung"
        return TrainerEntry(
            name=pod.name,
            steps=self._steps[pod.name],
            is_computing=works or is_hung,
            is_waiting=not works and not is_hung,
        )

    def _device(self, pod: Pod) -> Device:
        if self._computes(pod):
            self._still_since_s.pop(pod.name, None)
            return Device.BUSY
        since_s = self._still_since_s.setdefault(pod.name, self._now_s)
        return Device.LOW if self._now_s - since_s >= POLICY.idle_window_s else Device.BUSY

    def _idle_pods(self) -> tuple[IdlePod, ...]:
        since_s = self._start_s + 60.0 * UNUSED_FROM
        is_seen = "notebook" in self.cluster.pods and self._now_s - since_s >= POLICY.idle_window_s
        return (IdlePod(pod="notebook", since_s=since_s, after_s=AGREED_S),) if is_seen else ()

    def _give_back(self, reclaims: Any) -> None:
        """The notice, then the eviction."""
        if not reclaims:
            self._notice_s = None
            return
        self._notice_s = self._now_s if self._notice_s is None else self._notice_s
        if self._now_s >= self._notice_s + POLICY.idle_notice_s:
            self.given["notebook"] = self.minute
            self.cluster.lose("notebook")
            self._notice_s = None

    def _note(self, actions: Any) -> None:
        for action in actions:
            cause = str(getattr(action, "cause", ""))
            if cause in {"idle", "hung"} and type(action).__name__ == "DeletePod":
                self.given.setdefault(cause, self.minute)

    def _draw(self) -> None:
        holders = {pod.name: pod for pod in self.cluster.pods.values() if pod.node and pod.requests.gpu_count}
        for name in [name for name in self._lane_of if name not in holders]:
            del self._lane_of[name]
        for name, pod in sorted(holders.items()):
            if name not in self._lane_of:
                self._lane_of[name] = next(at for at in range(GPUS) if at not in self._lane_of.values())
            whom = str(pod.job) if pod.job else "notebook"
            self.lanes[self._lane_of[name]].add(self.minute, whom, computes=self._computes(pod))

    def sizes(self) -> dict[str, int]:
        """Trainers of each job now."""
        trainers = [pod for pod in self.cluster.pods.values() if pod.role is Role.TRAINER]
        return {name: sum(pod.job == name for pod in trainers) for name in self.cluster.jobs}


def _notebook() -> Pod:
    return Pod(
        name="notebook",
        role=Role.EXTERNAL,
        tier=Tier.EXTERNAL,
        shape=shape(100, gpu=1),
        phase=PodPhase.READY,
        node="n",
        created_at_s=0.0,
    )
