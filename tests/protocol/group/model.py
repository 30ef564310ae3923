"""The model that `explore` walks: one small group with the real cores of master and trainers in it.

I1  the head's bits are those that one replica had after its steps, each position applied once or skipped as it says
I2  members of a generation which have completed the same sync or step hold the same bits; equal ids are equal bits
I3  a new head extends the old one, and the group is on its line; a sync goes on from what extends its record's head
I4  (no false suspicion so far) a sync starts at most one step behind the most that any living process ever held
I5  without a fault nobody leaves a generation but by the agreed switch, until head holds the last step
I6  END only when the head holds the last step, and it is durable that the final hook has run; then it runs no more
I7  after a user's restore, or the loss of the store, no head holds work of the lineage that was given up
I8  nobody has done a step after the one that a script ended training with, once head holds it, or all scripts ask it
I9  a script that hangs, and that the master holds for lost, is in no record until it comes back
I10 no head is of replicas that one script has made differ from the others
I11 a checkpoint is acknowledged, and END is said, once the folder's file HEAD names it

The cores' own checks are asked, too.  Of a job that has `begun`, what adds nothing but interleavings happens at once
(`prompt`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from master.api.identities import Term
from master.api.messages.generations import CopyWanted
from master.api.positions import EMPTY
from master.errors import InvariantViolationError
from master.job.domain.job_events import AdoptableFound
from tests.protocol.explore import Move
from tests.protocol.group import master_changes, masters, member_acts, member_changes, prompt
from tests.protocol.group.change import Change
from tests.protocol.group.draft import GroupDraft, work_of
from tests.protocol.group.masters import GroupEtcd
from tests.protocol.group.settings import FAULTS, FIRST, NO_FAULTS, GroupSetting
from tests.protocol.group.world import Bits, Collectives, GroupWorld, Member, Presence, put, without_astray
from trainer_sdk.group.core.member_events import DrainAsked, TakeDigest
from trainer_sdk.group.core.member_state import MemberPhase


class GroupModel:
    """One small group."""

    def __init__(self, setting: GroupSetting) -> None:
        self.setting = setting

    # ---- the model's three questions --------------------------------------------------------------------------------

    def initial(self) -> GroupWorld:
        """The trainers of the beginning are there, without a stream."""
        setting = self.setting
        etcd = GroupEtcd(term=Term(1), durable=setting.durable)
        world = GroupWorld(
            master=masters.started(setting.config, etcd, setting.durable.head).master,
            old_masters=(),
            etcd=etcd,
            storage=(setting.first_checkpoint,) if setting.has_head else (),
            files=((FIRST, (("first", FIRST),), EMPTY),) if setting.has_head else (),
            members=(Member(),) * setting.trainers,
            groups=(),
            faults=tuple(getattr(setting.faults, name) for name in FAULTS),
            copies=setting.copies,
        )
        draft = GroupDraft(setting, world, is_calm=False)
        for place in range(setting.start):
            draft.begin_process(place)
        world = self._settled(draft)
        for _ in range(50 if setting.begun else 0):
            if prompt.has_begun(world):
                break
            change = next(one for one in self._changes(world) if prompt.is_of_the_beginning(one))
            draft = GroupDraft(setting, world, is_calm=True)
            change.act(draft)
            world = self._settled(draft)
        if setting.wished:
            draft = GroupDraft(setting, world, is_calm=True)
            draft.tell(0, CopyWanted(deadline_s=30.0))
            world = draft.world
        return world

    def is_end(self, world: GroupWorld) -> bool:
        """Some trainer was told END, or has run the final hook and nobody else is there; or the job has failed."""
        return bool(world.master.state.failed) or self._has_ended(world)

    def _has_ended(self, world: GroupWorld) -> bool:
        is_left = not any(one.presence is Presence.HERE for one in world.members)
        return any(
            one.core is not None
            and one.core.ended is not None
            and (not one.core.ended.final_saver or (one.presence is Presence.GONE and is_left))
            for one in world.members
        )

    def moves(self, world: GroupWorld) -> Iterator[Move[GroupWorld]]:
        for change in self.possible(world):
            yield self.move(world, change)

    def possible(self, world: GroupWorld) -> list[Change]:
        """What can happen next, as far as the budget of its fault allows it."""
        return [one for one in self._changes(world) if not one.fault or world.faults[FAULTS.index(one.fault)]]

    def move(self, world: GroupWorld, change: Change) -> Move[GroupWorld]:
        """What the change makes of the world, and the invariant that it violates."""
        is_fault = bool(change.fault) and change.fault not in NO_FAULTS
        draft = GroupDraft(self.setting, world, is_calm=self._is_calm(world) and not is_fault)
        if change.fault:
            spent = FAULTS.index(change.fault)
            draft.world = world._replace(faults=put(world.faults, spent, world.faults[spent] - 1))
        try:
            change.act(draft)
            after = self._settled(draft)
            masters.check_state(after.master.state)
        except (AssertionError, InvariantViolationError) as error:
            return Move(change, world, is_fault=is_fault, violation=f"a core's own check: {error}")
        return Move(change, after, is_fault=is_fault, violation=draft.problem or self._problem(after))

    def _is_calm(self, world: GroupWorld) -> bool:
        return all(
            left == getattr(self.setting.faults, name)
            for name, left in zip(FAULTS, world.faults, strict=True)
            if name not in NO_FAULTS
        )

    # ---- what is certain happens at once ----------------------------------------------------------------------------

    def _settled(self, draft: GroupDraft) -> GroupWorld:
        """Streams connect, searches find nothing, a member reports that its sync is over; dead streams' words go."""
        for _ in range(50):
            before = draft.world
            master = draft.world.master
            if master.searches:
                draft.world = draft.world._replace(master=replace(master, searches=master.searches - 1))
                draft.master_handles(AdoptableFound(manifest=None))
            for place, member in enumerate(draft.world.members):
                if member.presence is Presence.HERE and not member.link and not master.has_stepped_down:
                    draft.connect(place)
            for place, member in enumerate(draft.world.members):
                if member.core is not None and isinstance(work := work_of(member.core), TakeDigest):
                    member_acts.digest(draft, place, work)
            if self.setting.begun:
                prompt.happen(draft)
            if draft.world == before:
                return _tidy(draft.world)
        raise AssertionError("streams do not settle")

    # ---- the changes ------------------------------------------------------------------------------------------------

    def _changes(self, world: GroupWorld) -> Iterator[Change]:
        for place, member in enumerate(world.members):
            yield from self._presence_changes(world, place, member)
            if member.presence is Presence.HERE:
                assert member.core is not None
                if member.is_hanging and not self.setting.hangs_for_good:
                    label = f"the script of trainer {place} comes back"
                    yield Change(label, lambda draft, place=place: member_acts.come_back(draft, place))
                yield from member_changes.stream_changes(place, member, has_reports=not self.setting.begun)
                yield from member_changes.script_changes(world, place, member, member.core)
                yield from member_changes.collective_changes(world, place, member.core)
        yield from master_changes.master_changes(self.setting, world)

    def _presence_changes(self, world: GroupWorld, place: int, member: Member) -> Iterator[Change]:
        name = f"trainer {place}"
        if member.presence is Presence.FRESH and place >= self.setting.start:
            yield Change(f"{name} comes", lambda draft: draft.begin_process(place))
        if member.presence is Presence.HERE:
            yield Change(f"{name} is KILLED", lambda draft: draft.kill(place), "kill")
            if member.core is not None and member.core.number and not member.core.is_leaving:
                yield Change(
                    f"{name} is asked to leave", lambda draft: draft.tell(place, DrainAsked(grace_s=30.0)), "drain"
                )
        is_alone = not any(one.presence in (Presence.HERE, Presence.FRESH) for one in world.members)
        if member.presence is Presence.DEAD and member.link == 0 and is_alone:
            yield Change(f"{name}, a new process, comes", lambda draft: draft.begin_process(place))
        if member.presence is Presence.DEAD and not member.link:
            yield Change(f"{name} begins again", lambda draft: draft.begin_process(place), "restart")
        if member.presence is Presence.HERE and member.link not in (0, world.master.state.term):
            yield Change(f"{name} comes to the new master", lambda draft: draft.connect(place))
        if member.presence is Presence.DEAD and member.link:
            yield Change(f"the stream of {name} breaks", lambda draft: draft.break_stream(place))
        if member.presence is Presence.HERE and member.link:
            yield Change(f"the stream of {name} BREAKS", lambda draft: draft.break_stream(place), "break_")

    def _problem(self, world: GroupWorld) -> str | None:
        held: dict[object, Bits] = {}
        for member in world.members:
            core = member.core
            if member.presence is not Presence.HERE or core is None or core.state is None:
                continue
            if len(member.bits) - 1 != core.state.step and core.phase is not MemberPhase.COMPLETE:
                return f"I1: {core.name} claims {core.state}, its bits are {member.bits}"
            bits = without_astray(member.bits)
            if held.setdefault(core.state, bits) != bits:
                return f"I2: {core.state} names two states: {held[core.state]} and {member.bits}"
        if self._has_ended(world):
            head = world.etcd.durable.head
            if head is None or head.state is None or not (head.state.is_stopped or head.step == self.setting.steps):
                return "I6: END, and head is not at the last step"
            if self.setting.has_hook and not world.is_hook_done:
                return "I6: END, and the final hook has not run"
        return self._passed_stop(world)

    def _passed_stop(self, world: GroupWorld) -> str | None:
        head, last = world.etcd.durable.head, self.setting.stops_at or self.setting.steps
        if head is not None and head.state is not None and head.state.is_stopped:
            last = min(last, head.step)
        for member in world.members:
            if member.presence is Presence.HERE and len(member.bits) - 1 > last:
                return f"I8: step {last} is the last one, and a trainer holds {member.bits}"
        return None


# ---- acts -----------------------------------------------------------------------------------------------------------


def _tidy(world: GroupWorld) -> GroupWorld:
    """Without the connections that nobody can use any more, and files that nobody names."""
    alive = {one.core.incarnation for one in world.members if one.presence is Presence.HERE and one.core}

    def is_used(group: Collectives) -> bool:
        return any(
            member.incarnation in alive and not left
            for member, left in zip(group.record.members, group.left, strict=True)
        )

    return world._replace(groups=tuple(group for group in world.groups if is_used(group)))
