"""The master of a simulated group: the real core behind a queue, one event after another, over a store in memory.

Each event occupies the master for the CPU time of the core's decision and for what the process pays for messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from bench.groups.simulation.cluster_model import Charge, ClusterModel
from bench.groups.simulation.virtual_clock import VirtualClock
from master import group
from master.api.identities import Term
from master.api.messages.to_members import MasterMessage
from master.group.group_events import GroupCoreEvent
from master.group.group_state import GroupStep
from master.job.domain.durable_records import (
    SECOND,
    Durable,
    DurableWrite,
    Instant,
    MemberKey,
    RaiseLineage,
    RecordDataset,
    RecordGeneration,
    RecordQuarantine,
)
from master.job.domain.effects import Persist, Send
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import Persisted
from master.term.term_runtime import DEADLINE_GRAIN_NS

NO_CHECKPOINTS_NS: Final = 10**6 * SECOND


@dataclass(slots=True)
class MasterCounts:
    """Work of the master: events, messages that it sent, seconds that it was occupied."""

    events: int = 0
    sent: int = 0
    busy_s: float = 0.0

    def since(self, before: MasterCounts) -> MasterCounts:
        return MasterCounts(self.events - before.events, self.sent - before.sent, self.busy_s - before.busy_s)


@dataclass
class SimulatedMaster:
    """`deliver` gets what it says, after the network's delay."""

    model: ClusterModel
    clock: VirtualClock
    charge: Charge
    deliver: Callable[[MemberKey, MasterMessage], None]
    checks: bool = False
    counts: MasterCounts = field(default_factory=MasterCounts)
    durable: Durable = field(default_factory=Durable)

    def __post_init__(self) -> None:
        config = JobConfig(
            servers=0,
            checkpoint_every_ns=NO_CHECKPOINTS_NS,
            report_every_ns=int(self.model.report_every_s * SECOND),
        )
        self._queue: deque[GroupCoreEvent] = deque()
        self._is_busy, self._alarm_s = False, inf
        step = group.initial(config, self.durable, Term(1), self._now())
        self._state = step.state
        self._carry_out(step)

    def _now(self) -> Instant:
        return Instant(int(self.clock.now_s * SECOND))

    def hear(self, event: GroupCoreEvent) -> None:
        """The event arrives, and is handled after those before it."""
        self._queue.append(event)
        if not self._is_busy:
            self._serve()

    def _serve(self) -> None:
        """Handles the next event; what it asks for leaves when its time is over."""
        event = self._queue.popleft()
        steps: list[GroupStep] = []
        took_s = self.charge(lambda: steps.append(group.handle(self._state, event, self._now())))
        (step,) = steps
        self._state = step.state
        if self.checks:
            group.check_invariants(self._state)
        sent = sum(isinstance(effect, Send) for effect in step.effects)
        took_s += self.model.message_s * (1 + sent)
        self.counts = MasterCounts(self.counts.events + 1, self.counts.sent + sent, self.counts.busy_s + took_s)
        self._is_busy = True
        self.clock.after(took_s, lambda: self._end(step))

    def _end(self, step: GroupStep) -> None:
        self._is_busy = False
        self._carry_out(step)
        if self._queue and not self._is_busy:
            self._serve()
        self._check_deadlines_after(DEADLINE_GRAIN_NS / SECOND)

    def _check_deadlines_after(self, delay_s: float) -> None:
        if self.clock.now_s + delay_s < self._alarm_s:
            self._alarm_s = self.clock.now_s + delay_s
            self.clock.after(delay_s, self._check_deadlines)

    def _check_deadlines(self) -> None:
        """As the master's process does: at a grain after a change, and at the next deadline."""
        if self.clock.now_s < self._alarm_s:  # an earlier check has seen to it
            return
        self._alarm_s = inf
        now = self._now()
        pending: list[tuple[Instant, GroupCoreEvent]] = []
        self.counts.busy_s += self.charge(lambda: pending.extend(group.deadlines(self._state)))
        for at, event in pending:
            if at <= now:
                self.hear(event)
        if later := [at for at, _ in pending if at > now]:
            self._check_deadlines_after((min(later) - now) / SECOND)

    def _carry_out(self, step: GroupStep) -> None:
        for effect in step.effects:
            match effect:
                case Send(to=to, message=message):
                    self.clock.after(self.model.network_s, lambda to=to, said=message: self.deliver(to, said))
                case Persist(write=write):
                    self.clock.after(self.model.commit_s, lambda write=write: self._commit(write))

    def _commit(self, write: DurableWrite) -> None:
        match write:
            case RaiseLineage() | RecordQuarantine():
                self.durable = replace(self.durable, lineage=write.new)
            case RecordDataset():
                self.durable = replace(self.durable, dataset=write.record)
            case RecordGeneration():
                self.durable = replace(self.durable, generation=write.new)
            case _:
                raise AssertionError(f"a group without checkpoints writes no {type(write).__name__}")
        self.hear(Persisted(write=write))
