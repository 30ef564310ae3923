"""Random orders of faults: invariants hold at each step, and trainers that obey the rules always reach the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from master.api.identities import Lineage
from master.api.messages.from_members import Declare, FinalSaved, Leave
from master.api.messages.generations import (
    BrokenGeneration,
    CopyWanted,
    Generation,
    GroupEnded,
    GroupPhase,
    GroupProgress,
    LeaveRequest,
    LeftGeneration,
    NewGeneration,
    StateId,
)
from master.api.messages.to_members import OfferAnswered, Released
from master.job.domain.durable_records import MemberKey
from tests.unit.master.group.group_driver import SPEC, START, STEPS, GroupDriver, key, offer_of, registration


@dataclass
class Member:
    """A trainer that does what rules 70 to 86 say; `own` None: it has nothing."""

    key: MemberKey
    own: StateId | None = None
    record: Generation | None = None
    prepared: Generation | None = None
    left: int = 0
    is_synced: bool = False
    is_alive: bool = True
    is_heard: bool = True
    copy: Any = None
    is_done: bool = False


class World:
    """Members and their master.  A fault is one call; `turn` lets everybody do one thing."""

    def __init__(self) -> None:
        self.driver = GroupDriver().start()
        self.members: list[Member] = []
        self.seen = 0
        self.come("t0")

    def come(self, name: str) -> None:
        process = 1 + sum(1 for one in self.members if one.key.name == name)
        for one in self.members:
            if one.key.name == name:
                one.is_alive = False
        self.members.append(Member(key=key(name, process)))
        self.register(self.members[-1])

    def register(self, one: Member) -> None:
        number = one.record.number if one.record else 0
        said = registration(one.key, generation=number, left=one.left, state=one.own, has_final_hook=True)
        self.driver.say(one.key, said)
        self.driver.say(one.key, Declare(dataset=SPEC, layout="l"))

    def alive(self) -> list[Member]:
        return [one for one in self.members if one.is_alive and one.is_heard]

    def kill(self, one: Member) -> None:
        one.is_alive = False
        self.driver.break_stream(one.key)

    def fail(self, one: Member, left: int) -> None:
        """Rule 73: aborts, keeps its replica, reports."""
        one.record, one.prepared, one.is_synced, one.left = None, None, False, max(one.left, left)
        self.driver.say(one.key, LeftGeneration(left=one.left, state=one.own))

    def peers(self, record: Generation) -> list[Member | None]:
        found = {one.key: one for one in self.members if one.is_alive}
        return [
            found.get(key_of) for key_of in (MemberKey(name=m.name, incarnation=m.incarnation) for m in record.members)
        ]

    def hear(self) -> None:
        fresh, self.seen = self.driver.sent[self.seen :], len(self.driver.sent)
        by_key = {one.key: one for one in self.alive()}
        for to, said in fresh:
            if (one := by_key.get(to)) and one.is_alive:
                self.obey(one, said)

    def obey(self, one: Member, said: object) -> None:  # noqa: C901  one message a line
        match said:
            case BrokenGeneration(number=number):
                if number > one.left and (one.record is None or one.record.number <= number):
                    self.fail(one, number)
            case NewGeneration(record=record):
                listed = any((m.name, m.incarnation) == (one.key.name, one.key.incarnation) for m in record.members)
                if one.record and record.planned_from == one.record.number and record.number > one.left:
                    one.prepared = record
                elif one.record is None and listed and record.number > one.left:
                    one.record = record
            case CopyWanted() if one.own and one.record and one.is_synced:
                one.copy = [one.own, one.record.number]
            case OfferAnswered():
                one.copy = None
            case GroupEnded(final_saver=True):
                self.driver.say(one.key, FinalSaved())
            case GroupEnded():
                one.is_done = True
            case Released():
                self.driver.say(one.key, Leave())
                one.is_alive = False

    def turn(self) -> None:
        self.hear()
        for one in self.alive():
            record = one.record
            if record is None:
                continue
            peers = self.peers(record)
            if any(peer is None or (peer.record != record and peer.left >= record.number) for peer in peers):
                self.fail(one, record.number)
        for record in {one.record.number: one.record for one in self.alive() if one.record}.values():
            peers = [one for one in self.peers(record) if one]
            if len(peers) == len(record.members) and all(one.record == record and one.is_heard for one in peers):
                self.act(record, peers)
        for one in self.alive():
            phase = GroupPhase.COMPUTE if one.record else GroupPhase.OUT
            number = one.record.number if one.record else 0
            said = GroupProgress(
                generation=number,
                phase=phase,
                state=one.own,
                is_synced=one.is_synced,
                steps_begun=one.own.step if one.own else 0,
            )
            self.driver.say(one.key, said)
            if one.copy:
                self.driver.say(one.key, offer_of(one.copy[0], one.copy[1]))
        self.driver.pass_time(0.4)

    def act(self, record: Generation, peers: list[Member]) -> None:
        """The sync, or one step (rules 70, 71, 81)."""
        if not all(one.is_synced for one in peers):
            held = [one.own for one in peers if one.own and one.own.lineage == record.lineage]
            source = max([record.head.state, *held], key=lambda own: (own.generation, own.step))
            assert source.step >= max((own.step for own in held if own.generation == source.generation), default=0)
            for one in peers:
                one.copy = [one.copy[0], record.number] if one.copy and one.own == source else None
                one.own, one.is_synced = source, True
            return
        if peers[0].own.step == STEPS:
            return
        for one in peers:
            one.own = StateId(lineage=Lineage(record.lineage), generation=record.number, step=one.own.step + 1)
        plans = {one.prepared.number if one.prepared else 0 for one in peers}
        if len(plans) == 1 and 0 not in plans:
            plan = peers[0].prepared
            for one in peers:
                one.record, one.prepared, one.is_synced = plan, None, False
                if one not in self.peers(plan):
                    self.driver.say(one.key, Leave())
                    one.is_alive = False


FAULTS = st.lists(
    st.tuples(
        st.sampled_from(["come", "kill", "fail", "drain", "take-over", "pause", "cut", "wait", "copy"]),
        st.integers(0, 3),
        st.integers(0, 4),
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FAULTS)
def test_the_end_is_reached_after_any_faults(faults):
    world = World()
    for kind, who, turns in faults:
        happen(world, kind, who)
        for _ in range(turns):
            world.turn()
    for one in world.members:
        if not one.is_heard:
            resume(world, one)
    world.come("t9")
    for _ in range(200):
        if world.driver.state.is_complete and all(one.is_done for one in world.alive()):
            break
        world.turn()
    head = world.driver.durable.head
    assert head is not None, (world.driver.state, world.members)
    assert head.step == STEPS, (head.step, world.driver.state.record, world.members)
    assert all(one.is_done for one in world.alive())
    assert head.state != START


def happen(world: World, kind: str, who: int) -> None:
    here = world.alive()
    one = here[who % len(here)] if here else None
    match kind:
        case "come":
            world.come(f"t{who}")
        case "kill" if one:
            world.kill(one)
        case "fail" if one and one.record:
            world.fail(one, one.record.number)
        case "drain" if one:
            world.driver.say(one.key, LeaveRequest(grace_s=20))
        case "take-over":
            world.driver.start()
            for other in world.alive():
                world.register(other)
        case "pause" if one:
            one.is_heard = False
        case "cut" if one:
            world.driver.break_stream(one.key)
            world.register(one)
        case "copy" if one and one.own and one.record and one.is_synced:
            one.copy = [one.own, one.record.number]


def resume(world: World, one: Member) -> None:
    """A zombie is heard again: it registers with what it was (rule 92)."""
    one.is_heard = True
    if one.is_alive:
        world.register(one)
