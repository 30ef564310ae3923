"""A simulated group under faults: its collectives, deaths and successors, and what they cost.

A closed connection is noticed by the neighbours in the ring, which leave, so that theirs notice it; the master's word
is usually earlier.  A fault is the death of one process, whose connections close with it; another one comes for it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Final, cast

from bench.groups.simulation.cluster_model import Charge, ClusterModel
from bench.groups.simulation.simulated_master import MasterCounts, SimulatedMaster
from bench.groups.simulation.simulated_member import SimulatedMember
from bench.groups.simulation.virtual_clock import VirtualClock
from master.api.identities import DatasetSpec, Incarnation, MemberName
from master.api.messages.from_members import ReplicaMessage
from master.api.messages.generations import Generation
from master.api.messages.to_members import MasterMessage, ToReplica
from master.job.domain.durable_records import MemberKey
from master.job.domain.job_events import MessageReceived, StreamBroken
from trainer_sdk.group.core.control_words import StepWord, SyncEntry
from trainer_sdk.group.core.member_events import (
    GroupConnected,
    GroupFailed,
    ReceiveState,
    SendState,
    StateCaptured,
    StatesGathered,
    StateTaken,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState, rank_in

STEPS_PER_EPOCH: Final = 1000
UNDISTURBED_STEPS: Final = 5
MOST_WAIT_S: Final = 600.0


@dataclass(slots=True, kw_only=True)
class FaultCost:
    """What one fault cost."""

    pause_s: float  # from the last step that was completed before it to the next one, which it contains
    master: MasterCounts  # from the death to that step
    join_pause_s: float = 0.0  # the same around the switch to the group with the successor


@dataclass(slots=True, kw_only=True)
class SimulatedRun:
    """`goodput`: steps done under faults beside those of the undisturbed group in the same time."""

    goodput: float
    step_s: float
    faults: list[FaultCost]
    members: int  # in the newest generation, at the end
    master_share: float  # of the time that the master was occupied


@dataclass(eq=False, slots=True)
class _Collectives:
    """The connections of one generation: by rank."""

    record: Generation
    connecting: set[int] = field(default_factory=set)
    departed: set[int] = field(default_factory=set)
    entries: dict[int, SyncEntry] = field(default_factory=dict)
    words: dict[int, StepWord] = field(default_factory=dict)
    busy_s: float = 0.0  # until then the slowest member makes its entry

    @property
    def size(self) -> int:
        return len(self.record.members)


class SimulatedGroup:
    """`charge`: what a core's decision costs; `free_of_charge` makes a run that is the same each time."""

    def __init__(self, model: ClusterModel, charge: Charge, *, seed: int = 1, checks: bool = False) -> None:
        self._model, self._charge, self._checks = model, charge, checks
        self._rng = random.Random(seed)  # noqa: S311  for a simulation
        self.clock = VirtualClock()
        self.master = SimulatedMaster(model, self.clock, charge, self._deliver, checks)
        self._members: dict[str, SimulatedMember] = {}  # by incarnation
        self._groups: dict[int, _Collectives] = {}
        self._births = 0
        self.completed_s: list[float] = [0.0]  # by number of steps: when a member had first done so many
        batch = 8 * model.members
        self._dataset = DatasetSpec(name="simulated", size=STEPS_PER_EPOCH * batch, epochs=10_000, batch_size=batch)
        for ordinal in range(model.members):
            self._start(ordinal)

    def run(self, *, faults: int, every_s: float) -> SimulatedRun:
        """So many deaths, `every_s` apart, and as long after the last one; an undisturbed group before."""
        self._wait_for_steps(2 + UNDISTURBED_STEPS)
        begin_s, before = self.clock.now_s, len(self.completed_s) - 1
        step_s = (self.completed_s[-1] - self.completed_s[2]) / (before - 2)
        costs = []
        counts = replace(self.master.counts)
        for number in range(faults):
            costs.append(self._kill_one())
            resumed = len(self.completed_s) - 1
            self.clock.run_until(begin_s + (number + 1) * every_s)
            gaps_s = [after - one for one, after in pairwise(self.completed_s[resumed:])]
            costs[-1].join_pause_s = max(gaps_s, default=0.0)
        took_s = self.clock.now_s - begin_s
        return SimulatedRun(
            goodput=(len(self.completed_s) - 1 - before) * step_s / took_s,
            step_s=step_s,
            faults=costs,
            members=self._groups[max(self._groups)].size,
            master_share=self.master.counts.since(counts).busy_s / took_s,
        )

    def _kill_one(self) -> FaultCost:
        before, steps = replace(self.master.counts), len(self.completed_s) - 1
        self.kill(self._rng.choice([one for one in self._members.values() if one.is_alive]))
        self._wait_for_steps(steps + 1)
        pause_s = self.completed_s[steps + 1] - self.completed_s[steps]
        return FaultCost(pause_s=pause_s, master=self.master.counts.since(before))

    def _wait_for_steps(self, steps: int) -> None:
        until_s = self.clock.now_s + MOST_WAIT_S
        while len(self.completed_s) <= steps:
            self.clock.run_next()
            if self.clock.now_s > until_s:
                raise AssertionError(f"step {steps} is not done after {MOST_WAIT_S:g} s")

    # ---- processes --------------------------------------------------------------------------------------------------

    def _start(self, ordinal: int) -> None:
        self._births += 1
        incarnation = Incarnation(f"{ordinal}.{self._births}")
        core = MemberState(
            name=MemberName(f"t{ordinal}"),
            ordinal=ordinal,
            incarnation=incarnation,
            address=f"unix:/{incarnation}",
            dataset=self._dataset,
            layout="simulated",
        )
        member = SimulatedMember(
            core=core,
            model=self._model,
            clock=self.clock,
            charge=self._charge,
            around=self,
            report_after_s=self._model.report_every_s * (1.0 + self._rng.random()),
            checks=self._checks,
        )
        self._members[incarnation] = member
        member.register()

    def kill(self, member: SimulatedMember) -> None:
        """Its connections close with it, and a successor of its name registers later."""
        member.is_alive = False
        core = member.core
        for number in tuple(self._groups):
            self.depart(member, number)
        broken = StreamBroken(member=MemberKey(name=core.name, incarnation=core.incarnation))
        self.clock.after(self._model.network_s, lambda: self.master.hear(broken))
        self.clock.after(self._model.start_s, lambda: self._start(core.ordinal))

    # ---- streams ----------------------------------------------------------------------------------------------------

    def tell_master(self, member: SimulatedMember, message: ReplicaMessage) -> None:
        sender = MemberKey(name=member.core.name, incarnation=member.core.incarnation)
        event = MessageReceived(sender=sender, message=message)
        self.clock.after(self._model.network_s, lambda: self.master.hear(event))

    def _deliver(self, to: MemberKey, message: MasterMessage) -> None:
        member = self._members[to.incarnation]
        member.tell(cast(ToReplica, message))

    # ---- collectives ------------------------------------------------------------------------------------------------

    def completed(self, steps: int) -> None:
        if steps == len(self.completed_s):
            self.completed_s.append(self.clock.now_s)

    def connect(self, member: SimulatedMember, record: Generation) -> None:
        group = self._groups.setdefault(record.number, _Collectives(record))
        group.connecting.add(rank_in(record, member.core.incarnation))
        if group.departed or any(not self._at(group, rank).is_alive for rank in range(group.size)):
            self._fail(group, group.connecting)
        elif len(group.connecting) == group.size:
            connected = GroupConnected(number=record.number)
            for rank in range(group.size):
                self.clock.after(self._model.connect_s, partial(self._at(group, rank).tell, connected))

    def depart(self, member: SimulatedMember, number: int) -> None:
        group = self._groups.get(number)
        rank = -1 if group is None else rank_in(group.record, member.core.incarnation)
        if group is None or rank < 0 or rank in group.departed:
            return
        group.departed.add(rank)
        self._fail(group, {(rank - 1) % group.size, (rank + 1) % group.size})

    def _fail(self, group: _Collectives, ranks: set[int]) -> None:
        """These members notice that a connection is closed, unless they compute: then with their next collective."""
        failed = GroupFailed(number=group.record.number)

        def notice(member: SimulatedMember) -> None:
            if member.core.number != failed.number or member.core.phase is not MemberPhase.BOUNDARY:
                member.tell(failed)

        for rank in sorted(ranks):
            self.clock.after(self._model.network_s, partial(notice, self._at(group, rank)))

    def enter_sync(self, member: SimulatedMember, number: int, entry: SyncEntry, after_s: float) -> None:
        group = self._groups[number]
        rank = rank_in(group.record, member.core.incarnation)
        group.entries[rank] = entry
        group.busy_s = max(group.busy_s, self.clock.now_s + after_s)
        if group.departed:
            self._fail(group, {rank})
        elif len(group.entries) == group.size:
            entries = tuple(group.entries[one] for one in range(group.size))
            gathered = StatesGathered(number=number, entries=entries)
            self.clock.after(
                group.busy_s - self.clock.now_s + 2 * self._model.network_s, lambda: self._tell_all(group, gathered)
            )

    def transfer(self, member: SimulatedMember, work: ReceiveState | SendState) -> None:
        """A sender copies its state, then goes on, and serves its receivers one after the other, as the product does.

        The first sync, in which one member gives its first state to all others, takes no time: no fault has happened.
        """
        group = self._groups[work.number]
        if isinstance(work, ReceiveState):
            return  # its sender's turn says when
        is_first = work.number == min(self._groups)
        one_s = 0.0 if is_first else self._model.state_bytes / self._model.bytes_per_s
        for turn, rank in enumerate(work.to):
            give = partial(self._give, member, self._at(group, rank), work.number)
            self.clock.after(one_s * (turn + 1), give)
        captured = StateCaptured(number=work.number)
        self.clock.after(0.0 if is_first else self._model.capture_s, lambda: member.tell(captured))

    def _give(self, sender: SimulatedMember, receiver: SimulatedMember, number: int) -> None:
        transfer = receiver.core.transfer
        if sender.is_alive and transfer is not None and receiver.core.number == number:
            receiver.tell(StateTaken(number=number, state=transfer.state, skipped=transfer.skipped))

    def contribute(self, member: SimulatedMember, number: int, word: StepWord) -> None:
        group = self._groups[number]
        rank = rank_in(group.record, member.core.incarnation)
        group.words[rank] = word
        if group.departed:
            self._fail(group, {rank})
        elif len(group.words) == group.size:
            words = tuple(group.words[one] for one in range(group.size))
            group.words.clear()
            gathered = WordsGathered(number=number, words=words)
            self.clock.after(self._model.reduce_s, lambda: self._tell_all(group, gathered))

    def _tell_all(self, group: _Collectives, event: StatesGathered | WordsGathered) -> None:
        """The collective ends at all members, unless one of them has gone: then it fails where it is noticed."""
        if group.departed:
            self._fail(group, set(range(group.size)) - group.departed)
            return
        for rank in range(group.size):
            self._at(group, rank).tell(event)

    def _at(self, group: _Collectives, rank: int) -> SimulatedMember:
        return self._members[group.record.members[rank].incarnation]
