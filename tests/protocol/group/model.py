"""The model that `explore` walks: one small group with the real cores of master and trainers in it.

I1  the head's bits are those that one replica had after its steps, each position applied once or skipped as it says
I2  members of a generation which have completed the same sync or step hold the same bits; equal ids are equal bits
I3  a new head extends the old one
I4  (no false suspicion so far) a sync starts at most one step behind the most that any living process ever held
I5  without a fault nobody leaves a generation but by the agreed switch
I6  END only when the head holds the last step
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from master import group as master_group
from master.api.group_shares import data_of
from master.api.identities import Term
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.from_members import Leave
from master.api.positions import PositionSet
from master.group import group_events
from master.job.domain.durable_records import Instant, SwapHead
from master.job.domain.frozen_map import FrozenMap
from master.job.domain.job_events import (
    AdoptableFound,
    ManifestWritten,
    Persisted,
    PersistRefused,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
)
from tests.protocol import masters as plain_masters
from tests.protocol.explore import Move
from tests.protocol.group import masters
from tests.protocol.group.draft import GroupDraft
from tests.protocol.group.masters import GroupEtcd
from tests.protocol.group.settings import GroupFaults, GroupSetting
from tests.protocol.group.world import Bits, Collectives, GroupWorld, Member, Presence, Tag, put
from trainer_sdk.group.core.member_events import (
    Await,
    CopyTaken,
    CopyWritten,
    DrainAsked,
    FinalHookDone,
    FinishScript,
    GatherStates,
    GiveStep,
    GroupConnected,
    GroupFailed,
    LoadHead,
    ReceiveState,
    ReportRequested,
    SendState,
    StatesGathered,
    StatesSent,
    StateTaken,
    StepApplied,
    StepReduced,
    StreamOpened,
    TakeCopy,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState, rank_in
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.transitions import give
from trainer_sdk.protocol.trainer_events import FinishReason

FAULTS = tuple(GroupFaults.__dataclass_fields__)
NO_FAULT = ("drain",)


class Change(NamedTuple):
    """What happens; `fault`: of which budget it is taken."""

    label: str
    act: Callable[[GroupDraft], None]
    fault: str = ""


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
            master=masters.started(setting.config, etcd).master,
            old_masters=(),
            etcd=etcd,
            storage=(),
            files=(),
            members=(Member(),) * setting.trainers,
            groups=(),
            faults=tuple(getattr(setting.faults, name) for name in FAULTS),
            copies=setting.copies,
        )
        draft = GroupDraft(setting, world, is_calm=False)
        for place in range(setting.start):
            draft.begin_process(place)
        return self._settled(draft)

    def is_end(self, world: GroupWorld) -> bool:
        """Some trainer was told END."""
        return any(member.core is not None and member.core.ended is not None for member in world.members)

    def moves(self, world: GroupWorld) -> Iterator[Move[GroupWorld]]:
        for change in self._changes(world):
            spent = FAULTS.index(change.fault) if change.fault else -1
            if change.fault and not world.faults[spent]:
                continue
            is_fault = bool(change.fault) and change.fault not in NO_FAULT
            draft = GroupDraft(self.setting, world, is_calm=self._is_calm(world) and not is_fault)
            if change.fault:
                draft.world = world._replace(faults=put(world.faults, spent, world.faults[spent] - 1))
            try:
                change.act(draft)
                after = self._settled(draft)
                master_group.check_invariants(after.master.state)
            except AssertionError as error:
                yield Move(change.label, world, is_fault=is_fault, violation=f"a core's own check: {error}")
                continue
            yield Move(change.label, after, is_fault=is_fault, violation=draft.problem or self._problem(after))

    def _is_calm(self, world: GroupWorld) -> bool:
        return all(
            left == getattr(self.setting.faults, name)
            for name, left in zip(FAULTS, world.faults, strict=True)
            if name not in NO_FAULT
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
                    draft.set_member(place, link=draft.world.master.state.term)
                    draft.tell(place, StreamOpened())
            if draft.world == before:
                return _tidy(draft.world)
        raise AssertionError("streams do not settle")

    # ---- the changes ------------------------------------------------------------------------------------------------

    def _changes(self, world: GroupWorld) -> Iterator[Change]:
        for place, member in enumerate(world.members):
            yield from self._presence_changes(world, place, member)
            if member.presence is Presence.HERE:
                assert member.core is not None
                yield from _stream_changes(place, member)
                yield from self._script_changes(world, place, member, member.core)
                yield from _collective_changes(world, place, member.core)
        yield from self._master_changes(world)

    def _presence_changes(self, world: GroupWorld, place: int, member: Member) -> Iterator[Change]:
        name = f"trainer {place}"
        if member.presence is Presence.FRESH and place >= self.setting.start:
            yield Change(f"{name} comes", lambda draft: draft.begin_process(place))
        if member.presence is Presence.HERE:
            yield Change(f"{name} is KILLED", lambda draft: _kill(draft, place), "kill")
            if member.core is not None and member.core.number and not member.core.is_leaving:
                yield Change(
                    f"{name} is asked to leave", lambda draft: draft.tell(place, DrainAsked(grace_s=30.0)), "drain"
                )
        is_alone = not any(one.presence in (Presence.HERE, Presence.FRESH) for one in world.members)
        if member.presence is Presence.DEAD and member.link == 0 and is_alone:
            yield Change(f"{name}, a new process, comes", lambda draft: draft.begin_process(place))
        if member.presence is Presence.DEAD and member.link:
            yield Change(f"the stream of {name} breaks", lambda draft: draft.break_stream(place))
        if member.presence is Presence.HERE and member.link:
            yield Change(f"the stream of {name} BREAKS", lambda draft: draft.break_stream(place), "break_")

    def _script_changes(self, world: GroupWorld, place: int, member: Member, core: MemberState) -> Iterator[Change]:  # noqa: C901  one case a kind of work
        name, work = f"trainer {place}", next_work(core)
        if core.phase is MemberPhase.COMPLETE:
            yield Change(f"{name} applies step {core.step}", lambda draft: _apply(draft, place))
        for at, (copy, _) in enumerate(member.copying):
            yield Change(
                f"{name} has written its copy of {copy.state}", lambda draft, at=at: _written(draft, place, at)
            )
        match work:
            case Await():
                pass
            case GatherStates():
                yield from _gather_changes(world, place, work, core)
            case ReceiveState() | LoadHead():
                yield from self._take_changes(world, place, work, core)
            case SendState():
                group = world.group(work.number)
                if group is not None and all(group.taken[rank] for rank in work.to):
                    yield Change(
                        f"{name} has sent its state", lambda draft: draft.tell(place, StatesSent(number=work.number))
                    )
            case TakeCopy():
                yield Change(f"{name} copies {work.state}", lambda draft: _copy(draft, place, work))
            case GiveStep(share=share):
                group = world.group(share.generation)
                if group is not None and not any(group.left):
                    yield Change(f"{name} computes step {share.step}", lambda draft: _compute(draft, place))
            case FinishScript(finish=finish):
                yield Change(f"{name} ends: {finish.reason}", lambda draft: _finish(draft, place, finish))

    def _take_changes(
        self, world: GroupWorld, place: int, work: ReceiveState | LoadHead, core: MemberState
    ) -> Iterator[Change]:
        name = f"trainer {place}"
        if isinstance(work, LoadHead):
            yield Change(f"{name} loads the head", lambda draft: _load(draft, place, work))
            return
        group = world.group(work.number)
        if group is not None and not group.left[work.source]:
            sender = _place_of(world, group, work.source)
            if sender is not None and isinstance(next_work(sender), SendState) and sender.number == work.number:
                yield Change(f"{name} has received {work.state}", lambda draft: _receive(draft, place, work, core))

    def _master_changes(self, world: GroupWorld) -> Iterator[Change]:
        master = world.master
        if master.writes:
            yield Change(f"master's {type(master.writes[0]).__name__} is answered", self._write)
        if master.manifests:
            yield Change(f"manifest of {master.manifests[0].state} is written", _manifest)
        yield Change("a new master TAKES OVER", self._take_over, "take_over")
        if master.has_stepped_down:
            yield Change("the master has stepped down, another one leads", self._take_over)
        if world.old_masters:
            yield Change("the old master's write arrives", self._old_write)
        for at, deadline in master_group.deadlines(master.state):
            yield from self._deadline_changes(world, at, deadline)

    def _deadline_changes(
        self, world: GroupWorld, at: Instant, deadline: group_events.GroupDeadline
    ) -> Iterator[Change]:
        def act(draft: GroupDraft) -> None:
            draft.master_handles(deadline, now=at)

        label = type(deadline).__name__
        match deadline:
            case group_events.JoinersGathered():
                yield Change(label, act)
            case group_events.CheckpointDue():
                if world.copies:
                    yield Change(label, lambda draft: _copy_due(draft, act))
            case ReconnectWindowEnded(member=key) | group_events.ReplicaSilent(member=key):
                member = next(
                    (one for one in world.members if one.core and one.core.incarnation == key.incarnation), None
                )
                is_dead = member is None or member.presence is not Presence.HERE
                yield Change(f"{label} {key.name}", act, "" if is_dead else "suspect")
            case group_events.LeaveDue(member=key):
                member = next(
                    (one for one in world.members if one.core and one.core.incarnation == key.incarnation), None
                )
                is_dead = member is None or member.presence is not Presence.HERE
                if is_dead:
                    yield Change(f"{label} {key.name}", act)
            case ReclaimWindowEnded():
                yield Change(label, act)

    def _write(self, draft: GroupDraft) -> None:
        master = draft.world.master
        write = master.writes[0]
        draft.world = draft.world._replace(master=replace(master, writes=master.writes[1:]))
        after = self._try_write(draft, write, master.state.term)
        draft.master_handles(
            Persisted(write=write) if after else PersistRefused(write=write, reason="compared"), term=master.state.term
        )

    def _try_write(self, draft: GroupDraft, write: object, term: Term) -> bool:
        etcd = draft.world.etcd
        plain = plain_masters.Etcd(term=etcd.term, durable=etcd.durable)
        after = plain_masters.try_write(plain, term, write, draft.world.storage)
        if after is None:
            return False
        if isinstance(write, SwapHead):
            self._check_head(draft, after.durable.head)
        draft.world = draft.world._replace(etcd=GroupEtcd(term=after.term, durable=after.durable))
        return True

    def _check_head(self, draft: GroupDraft, head: object) -> None:
        bits, skipped = _content(draft.world, head.files[0].name)
        if len(bits) - 1 != head.state.step or any(tag[1] == "bad" for tag in bits):
            draft.blame(f"I1: head {head.state} has had the updates {bits}")
        if skipped != head.quarantine:
            draft.blame(f"I1: head says that it skips {head.quarantine}, its file skips {skipped}")
        before = draft.world.etcd.durable.head
        if before is not None:
            old, _ = _content(draft.world, before.files[0].name)
            if bits[: len(old)] != old:
                draft.blame(f"I3: head goes from {old} to {bits}, which does not extend it")

    def _take_over(self, draft: GroupDraft) -> None:
        old = draft.world.master
        etcd = replace(draft.world.etcd, term=Term(draft.world.etcd.term + 1))
        keeps = (old,) if old.writes else ()
        step = masters.started(self.setting.config, etcd)
        draft.world = draft.world._replace(etcd=etcd, master=step.master, old_masters=keeps)
        for place, member in enumerate(draft.world.members):
            if member.link:
                draft.set_member(place, link=0, inbox=(), outbox=())
        draft.take_master_step(step)

    def _old_write(self, draft: GroupDraft) -> None:
        old = draft.world.old_masters[0]
        self._try_write(draft, old.writes[0], old.state.term)
        draft.world = draft.world._replace(old_masters=())

    # ---- what must hold ---------------------------------------------------------------------------------------------

    def _problem(self, world: GroupWorld) -> str | None:
        held: dict[object, Bits] = {}
        for member in world.members:
            core = member.core
            if member.presence is not Presence.HERE or core is None or core.state is None:
                continue
            if len(member.bits) - 1 != core.state.step and core.phase is not MemberPhase.COMPLETE:
                return f"I1: {core.name} claims {core.state}, its bits are {member.bits}"
            if held.setdefault(core.state, member.bits) != member.bits:
                return f"I2: {core.state} names two states: {held[core.state]} and {member.bits}"
        if self.is_end(world):
            head = world.etcd.durable.head
            if head is None or head.state is None or head.state.step != self.setting.steps:
                return "I6: END, and head is not at the last step"
        return None


# ---- acts -----------------------------------------------------------------------------------------------------------


def _kill(draft: GroupDraft, place: int) -> None:
    for group in draft.world.groups:
        draft.depart(place, group.record.number)
    draft.set_member(place, presence=Presence.DEAD, inbox=(), outbox=(), copying=())


def _stream_changes(place: int, member: Member) -> Iterator[Change]:
    core = member.core
    assert core is not None
    if member.inbox:
        first = member.inbox[0]

        def deliver(draft: GroupDraft) -> None:
            draft.set_member(place, inbox=member.inbox[1:])
            draft.tell(place, first)

        yield Change(f"trainer {place} hears {first}", deliver)
    if member.outbox:

        def arrive(draft: GroupDraft) -> None:
            offer, *rest = member.outbox
            draft.set_member(place, outbox=())
            draft.hear(place, offer)
            for message in rest:
                draft.say(place, message)

        yield Change(f"master hears {member.outbox[0]}", arrive)
    if core.is_registered and core.phase is not MemberPhase.GONE:
        report = ReportRequested(metrics=FrozenMap())
        yield Change(f"trainer {place} reports", lambda draft: draft.tell(place, report))


def _collective_changes(world: GroupWorld, place: int, core: MemberState) -> Iterator[Change]:
    name = f"trainer {place}"
    for group in world.groups:
        number, rank = group.record.number, rank_in(group.record, core.incarnation)
        if rank < 0 or group.left[rank] or not group.connecting[rank]:
            continue
        is_current = number == core.number
        is_waiting = (is_current and not core.is_connected) or (
            core.plan is not None and core.plan.number == number and not core.is_prepared
        )
        if is_waiting and all(group.connecting) and not any(group.left):
            yield Change(
                f"{name} is connected to generation {number}",
                lambda d, n=number: d.tell(place, GroupConnected(number=n)),
            )
        failed = GroupFailed(number=number)
        can_fail = (is_current and core.phase is not MemberPhase.COMPLETE) or is_waiting
        if can_fail and any(group.left):
            yield Change(f"{name}: generation {number} fails", lambda d, e=failed: d.tell(place, e))
        elif is_current and core.phase in (MemberPhase.SYNC, MemberPhase.TRANSFER, MemberPhase.CONTRIBUTED):
            yield Change(f"{name}: the network FAILS generation {number}", lambda d, e=failed: d.tell(place, e), "net")
        if is_current and core.phase is MemberPhase.CONTRIBUTED:
            for done in group.sums:
                if done.step == core.step or done.step < 0:
                    words = WordsGathered(number=number, words=done.words)
                    yield Change(
                        f"{name} has all words of step {done.step}",
                        lambda d, e=words, t=done.tag: _complete(d, place, e, t),
                    )


def _gather_changes(world: GroupWorld, place: int, work: GatherStates, core: MemberState) -> Iterator[Change]:
    group = world.group(work.number)
    if group is None:
        return
    rank = core.rank
    if group.entries[rank] is None:
        yield Change(
            f"trainer {place} enters the sync of generation {work.number}",
            lambda draft: _enter_sync(draft, place, work, core),
        )
    elif all(entry is not None for entry in group.entries):
        event = StatesGathered(number=work.number, entries=tuple(entry for entry in group.entries if entry))
        yield Change(
            f"trainer {place} has the list of generation {work.number}", lambda draft: _take_list(draft, place, event)
        )


def _take_list(draft: GroupDraft, place: int, event: StatesGathered) -> None:
    draft.tell(place, event)
    core = draft.member(place).core
    was_suspected = draft.world.faults[FAULTS.index("suspect")] < draft.setting.faults.suspect
    if core is None or core.number != event.number or was_suspected:
        return
    source = core.transfer.state.step if core.transfer else core.step
    others = [one.core for one in draft.world.members if one.presence is Presence.HERE and one.core]
    most = max(one.step for one in others if not one.is_leaving or one.number == event.number)
    if source < most - 1:
        draft.blame(f"I4: generation {event.number} goes on from step {source}, a living process has held step {most}")


def _enter_sync(draft: GroupDraft, place: int, work: GatherStates, core: MemberState) -> None:
    group = draft.group(work.number)
    draft.set_group(replace(group, entries=put(group.entries, core.rank, work.entry)))


def _place_of(world: GroupWorld, group: Collectives, rank: int) -> MemberState | None:
    incarnation = group.record.members[rank].incarnation
    for member in world.members:
        if member.presence is Presence.HERE and member.core and member.core.incarnation == incarnation:
            return member.core
    return None


def _receive(draft: GroupDraft, place: int, work: ReceiveState, core: MemberState) -> None:
    group = draft.group(work.number)
    incarnation = group.record.members[work.source].incarnation
    source = next(one for one in draft.world.members if one.core and one.core.incarnation == incarnation)
    draft.set_group(replace(group, taken=put(group.taken, core.rank, value=True)))
    draft.set_member(place, bits=source.bits)
    draft.tell(place, StateTaken(number=work.number, state=work.state, skipped=work.skipped))


def _load(draft: GroupDraft, place: int, work: LoadHead) -> None:
    bits, skipped = _content(draft.world, work.head.files[0].name)
    draft.set_member(place, bits=bits)
    draft.tell(place, StateTaken(number=work.number, state=work.head.state, skipped=skipped))


def _compute(draft: GroupDraft, place: int) -> None:
    core = draft.member(place).core
    assert core is not None
    draft.set_member(place, core=give(core))
    draft.tell(place, StepReduced())


def _complete(draft: GroupDraft, place: int, words: WordsGathered, tag: Tag) -> None:
    draft.tell(place, words)
    core = draft.member(place).core
    assert core is not None
    if core.phase is MemberPhase.COMPLETE:
        draft.set_member(place, update=tag)


def _apply(draft: GroupDraft, place: int) -> None:
    member = draft.member(place)
    assert member.update is not None
    draft.set_member(place, bits=(*member.bits, member.update), update=None)
    draft.tell(place, StepApplied())


def _copy(draft: GroupDraft, place: int, work: TakeCopy) -> None:
    member = draft.member(place)
    draft.set_member(place, copying=(*member.copying, (work, member.bits)))
    draft.tell(place, CopyTaken(work=work))


def _written(draft: GroupDraft, place: int, at: int) -> None:
    member = draft.member(place)
    assert member.core is not None
    copy, bits = member.copying[at]
    name = f"{member.core.incarnation}-{copy.number}"
    applied = data_of(draft.setting.dataset, copy.state.step) - copy.skipped
    marks = (BucketMarks(buckets=PositionSet.span(0, 1), applied=applied),)
    file = FileRecord(name=name, size_bytes=1, digest="d", lineage=copy.state.lineage, marks=marks)
    draft.set_member(place, copying=(*member.copying[:at], *member.copying[at + 1 :]))
    draft.world = draft.world._replace(files=(*draft.world.files, (name, bits, copy.skipped)))
    draft.tell(place, CopyWritten(number=copy.number, file=file))


def _copy_due(draft: GroupDraft, act: Callable[[GroupDraft], None]) -> None:
    draft.world = draft.world._replace(copies=draft.world.copies - 1)
    act(draft)


def _finish(draft: GroupDraft, place: int, finish: object) -> None:
    if finish.reason is FinishReason.ENDED and finish.final_saver:
        draft.tell(place, FinalHookDone())
    draft.say(place, Leave())
    for group in draft.world.groups:
        draft.depart(place, group.record.number)
    draft.break_stream(place)
    draft.set_member(place, presence=Presence.GONE)


def _manifest(draft: GroupDraft) -> None:
    master = draft.world.master
    first, *rest = master.manifests
    draft.world = draft.world._replace(
        master=replace(master, manifests=tuple(rest)), storage=(*draft.world.storage, first)
    )
    draft.master_handles(ManifestWritten(manifest=first.id), term=master.state.term)


def _content(world: GroupWorld, name: str) -> tuple[Bits, object]:
    return next((bits, skipped) for known, bits, skipped in world.files if known == name)


def _tidy(world: GroupWorld) -> GroupWorld:
    """Without the connections that nobody can use any more, and files that nobody names."""
    alive = {one.core.incarnation for one in world.members if one.presence is Presence.HERE and one.core}

    def is_used(group: Collectives) -> bool:
        return any(
            member.incarnation in alive and not left
            for member, left in zip(group.record.members, group.left, strict=True)
        )

    return world._replace(groups=tuple(group for group in world.groups if is_used(group)))
