"""How a group's world becomes another one: events go to the cores, and what the cores ask for is carried out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, assert_never

from master.api.group_shares import step_positions
from master.api.identities import Incarnation, MemberName
from master.api.messages.from_members import MemberMessage
from master.api.messages.generations import Generation, GroupEnded, LeftGeneration, OfferState, RegisterReplica
from master.api.messages.to_members import OfferAnswered
from master.api.positions import PositionSet, union
from master.group.group_events import GroupCoreEvent as MasterEvent
from master.group.group_state import GroupState
from master.job.domain.durable_records import Instant, MemberKey, RecordGeneration
from master.job.domain.effects import CloseStream, Send
from master.job.domain.job_events import MessageReceived, StreamBroken
from tests.protocol.group import masters
from tests.protocol.group.settings import FAULTS, LAYOUT, GroupSetting
from tests.protocol.group.world import (
    Bits,
    Collectives,
    Contribution,
    GroupWorld,
    Member,
    Presence,
    StepSum,
    put,
    with_group,
)
from tests.protocol.interning import RememberedOf, Unique
from trainer_sdk.group.core import script_work
from trainer_sdk.group.core.control_words import StepWord
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    CloseGroup,
    ConnectGroup,
    ContributeWord,
    GroupEvent,
    RefuseScript,
    ScriptWork,
    StreamOpened,
    TellMaster,
)
from trainer_sdk.group.core.member_state import MemberState, MemberStep, check_member, rank_in
from trainer_sdk.group.core.steps import share_of
from trainer_sdk.group.core.transitions import handle_member

cores: Unique[MemberState] = Unique()
"""All that stand in worlds: the same few members meet the same few events in most states."""


@RememberedOf
def member_step(core: MemberState, event: GroupEvent) -> MemberStep:
    step = handle_member(core, event)
    check_member(step.state)
    return replace(step, state=cores.same(step.state))


@RememberedOf
def work_of(core: MemberState) -> ScriptWork:
    """What the script's thread of a member does next."""
    return script_work.next_work(core)


def incarnation_of(place: int, births: int) -> Incarnation:
    """Of the process that begins in this place for the `births`-th time (rule 64)."""
    return Incarnation(f"{place}.{births}")


class GroupDraft:
    """A world in the making.  `problem`: what an invariant says of it."""

    def __init__(self, setting: GroupSetting, world: GroupWorld, *, is_calm: bool) -> None:
        self.setting, self.world, self.is_calm = setting, world, is_calm
        self.problem: str | None = None

    def has_happened(self, fault: str) -> bool:
        """True if one of these was taken from the budget."""
        return self.world.faults[FAULTS.index(fault)] < getattr(self.setting.faults, fault)

    def blame(self, problem: str) -> None:
        self.problem = self.problem or problem

    # ---- members ----------------------------------------------------------------------------------------------------

    def member(self, place: int) -> Member:
        return self.world.members[place]

    def set_member(self, place: int, **parts: Any) -> Member:
        if "core" in parts:
            parts["core"] = cores.same(parts["core"])
        member = self.world.members[place].with_parts(**parts)
        self.world = self.world._replace(members=put(self.world.members, place, member))
        return member

    def _set_core(self, place: int, core: MemberState) -> None:
        if core is not self.member(place).core:
            self.set_member(place, core=core)

    def tell(self, place: int, event: GroupEvent) -> None:
        """The member's core handles the event, and its effects are carried out in order."""
        core = self.member(place).core
        assert core is not None
        step = member_step(core, event)
        number = core.number
        self._set_core(place, step.state)
        for effect in step.effects:
            match effect:
                case TellMaster(message=message):
                    is_over = self.world.master.state.is_complete  # who ran the final hook has left
                    if isinstance(message, LeftGeneration) and self.is_calm and not is_over:
                        self.blame(f"I5: {core.name} leaves generation {number}, and no fault has happened")
                    self.say(place, message)
                case ConnectGroup(record=record):
                    self._join(record, step.state, connecting=True)
                case AbortGroup(number=aborted):
                    self.depart(place, aborted)
                case CloseGroup(number=closed):
                    self.close(place, closed)
                case ContributeWord(number=into, word=word):
                    self.contribute(place, into, share_of(step.state).positions, word)
                case RefuseScript(field=field, message=text):
                    self._refuse(place, field, text)
                case _:
                    assert_never(effect)

    def _refuse(self, place: int, field: str, text: str) -> None:
        if field == "incarnation" and self.has_happened("lose"):  # the job has begun again without it
            self.kill(place)
        elif not (field == "job" and self.has_happened("differ")):  # else the job has failed
            self.blame(f"I4: the script is refused: {field}: {text}")

    def say(self, place: int, message: MemberMessage) -> None:
        """A message to the master; offers are slow, and what follows one waits behind it."""
        member = self.member(place)
        if not member.link:
            return
        if member.outbox or isinstance(message, OfferState):
            if message not in member.outbox:
                self.set_member(place, outbox=(*member.outbox, message))
            return
        self.hear(place, message)

    def hear(self, place: int, message: MemberMessage) -> None:
        """The message arrives at the master that the stream goes to."""
        member = self.member(place)
        assert member.core is not None
        key = MemberKey(name=member.core.name, incarnation=member.core.incarnation)
        if isinstance(message, RegisterReplica):
            self.set_member(place, inbox=())
        self.master_handles(MessageReceived(sender=key, message=message), term=member.link)

    # ---- masters ----------------------------------------------------------------------------------------------------

    def master_state(self, term: int) -> GroupState | None:
        """Of the master of this term, if it is still there."""
        for master in (self.world.master, *self.world.old_masters):
            if master.state.term == term:
                return master.state
        return None

    def master_handles(
        self,
        event: MasterEvent,
        *,
        term: int | None = None,
        now: Instant = masters.NOW,
        heard: MasterEvent | None = None,
    ) -> None:
        """The master of this term, the leader if none is given, handles the event, if it is still there."""
        for master in (self.world.master, *self.world.old_masters):
            if term in (None, master.state.term):
                self.take_master_step(masters.handled(master, event, now, heard))
                return

    def put_master(self, master: masters.GroupMaster) -> None:
        if master.state.term == self.world.master.state.term:
            self.world = self.world._replace(master=master)
            return
        others = (master if one.state.term == master.state.term else one for one in self.world.old_masters)
        self.world = self.world._replace(old_masters=tuple(others))

    def take_master_step(self, step: masters.GroupMasterStep) -> None:
        self._check_listed(step.master)
        self.put_master(step.master)
        for effect in step.said:
            place = self._place_of(effect, step.master.state.term)
            if place is None:
                continue
            if isinstance(effect, Send):
                self._check_named(effect, step.master)
                self._check_final(effect, step.master.state.term)
                member = self.member(place)
                if effect.message not in member.inbox:  # hearing it twice at once changes nothing
                    self.set_member(place, inbox=(*member.inbox, effect.message))
            else:
                self.break_stream(place)

    def _check_named(self, effect: Send, master: masters.GroupMaster) -> None:
        """I11: what relies on the head is said once the folder's file HEAD names it."""
        message, head = effect.message, master.naming
        if head and (isinstance(message, GroupEnded) or (isinstance(message, OfferAnswered) and message.manifest)):
            self.blame(f"I11: {type(message).__name__}, and HEAD does not name {head}")

    def _check_final(self, effect: Send, term: int) -> None:
        """I6: END follows the record that the final hook has run, after which a leading master has it run no more."""
        message, etcd = effect.message, self.world.etcd
        if not (isinstance(message, GroupEnded) and self.setting.has_hook):
            return
        head = etcd.durable.head
        is_recorded = head is not None and etcd.durable.final_save == head.id
        if not message.final_saver and not is_recorded:
            self.blame("I6: END, and it is not durable that the final hook has run")
        if message.final_saver and is_recorded and term == etcd.term:
            self.blame("I6: the final hook is to run again, and it is durable that it has run")

    def _check_listed(self, after: masters.GroupMaster) -> None:
        """I9: no new record lists a script that is known to hang."""
        known = [
            one.writes for one in (self.world.master, *self.world.old_masters) if one.state.term == after.state.term
        ]
        behind = {one.core.incarnation for one in self.world.members if one.is_left_behind and one.core}
        for write in after.writes if behind else ():
            if isinstance(write, RecordGeneration) and not any(write in writes for writes in known):
                listed = behind & {one.incarnation for one in write.new.current.members}
                if listed:
                    self.blame(
                        f"I9: generation {write.new.current.number} waits for the script of {listed}, which hangs"
                    )

    def _place_of(self, effect: Send | CloseStream, term: int) -> int | None:
        key = effect.to if isinstance(effect, Send) else effect.member
        for place, member in enumerate(self.world.members):
            core = member.core
            if core and member.link == term and core.incarnation == key.incarnation:
                return place
        return None

    def connect(self, place: int) -> None:
        """A stream to the leader; what is on one to an older master is lost."""
        self.set_member(place, link=self.world.master.state.term, inbox=(), outbox=())
        self.tell(place, StreamOpened())

    def break_stream(self, place: int) -> None:
        """What is on it is lost, and the master hears of it."""
        member = self.member(place)
        assert member.core is not None
        key = MemberKey(name=member.core.name, incarnation=member.core.incarnation)
        term = member.link
        self.set_member(place, link=0, inbox=(), outbox=(), is_left_behind=False)
        self.master_handles(StreamBroken(member=key), term=term)

    # ---- collectives ------------------------------------------------------------------------------------------------

    def group(self, number: int, core: MemberState) -> Collectives:
        group = self.world.group(number, core.incarnation)
        assert group is not None, f"generation {number} has no connections"
        return group

    def set_group(self, group: Collectives) -> None:
        self.world = with_group(self.world, group)

    def _join(self, record: Generation, state: MemberState, *, connecting: bool) -> None:
        group = self.world.group(record.number, state.incarnation) or Collectives.of(record)
        rank = rank_in(record, state.incarnation)
        self.set_group(replace(group, connecting=put(group.connecting, rank, connecting)))

    def close(self, place: int, number: int) -> None:
        """The member leaves in an orderly way: the others can finish the step that it has completed (rule 82)."""
        self.depart(place, number, is_abort=False)

    def depart(self, place: int, number: int, *, is_abort: bool = True) -> None:
        """The member's connections of this generation end, whether they are aborted, closed or die with it."""
        core = self.member(place).core
        group = self.world.group(number, core.incarnation) if core else None
        if group is not None and core is not None:
            rank = rank_in(group.record, core.incarnation)
            left = put(group.left, rank, value=True)
            self.set_group(replace(group, left=left, is_aborted=group.is_aborted or is_abort))

    def contribute(self, place: int, number: int, positions: PositionSet, word: StepWord) -> None:
        core = self.member(place).core
        assert core is not None
        group = self.group(number, core)
        given = Contribution(step=len(self.member(place).bits) - 1, positions=positions, word=word)
        contributions = put(group.contributions, core.rank, given)
        group = replace(group, contributions=contributions)
        if all(one is not None for one in contributions) and not any(group.left):
            group = replace(group, sums=(self._sum(group),), contributions=(None,) * len(contributions))
        self.set_group(group)

    def _sum(self, group: Collectives) -> StepSum:
        """The update that the contributions make: good if it is of one step, and of each of its positions once."""
        given = [one for one in group.contributions if one is not None]
        steps = {one.step for one in given}
        number = group.record.number
        who = tuple(member.incarnation for member in group.record.members)
        if len(steps) != 1 or min(steps) >= self.setting.steps:
            return StepSum(step=-1, tag=(number, "bad", *sorted(steps)), words=tuple(one.word for one in given))
        step = min(steps)
        todo = step_positions(self.setting.dataset, step) - group.record.quarantine
        is_right = union(one.positions for one in given) == todo and sum(len(one.positions) for one in given) == len(
            todo
        )
        tag = (number, step, who) if is_right else (number, "bad", *(str(one.positions) for one in given))
        return StepSum(step=step, tag=tag, words=tuple(one.word for one in given))

    # ---- processes --------------------------------------------------------------------------------------------------

    def kill(self, place: int) -> None:
        for group in self.world.groups:
            self.depart(place, group.record.number)
        self.set_member(
            place, presence=Presence.DEAD, inbox=(), outbox=(), copying=(), is_hanging=False, is_left_behind=False
        )

    def begin_process(self, place: int) -> None:
        """A new process in this place, without a stream; its first state is its own."""
        births = self.member(place).births + 1
        incarnation = incarnation_of(place, births)
        core = MemberState(
            name=MemberName(f"t{place}"),
            ordinal=place,
            incarnation=incarnation,
            address=f"unix:/{incarnation}",
            dataset=self.setting.dataset,
            layout=LAYOUT,
            has_final_hook=self.setting.has_hook,
            can_compare=self.setting.compares,
        )
        first: Bits = (("first", incarnation, births),)
        self.set_member(
            place, presence=Presence.HERE, births=births, core=core, bits=first, link=0, inbox=(), outbox=(), copying=()
        )
