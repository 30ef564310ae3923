"""Every step that a world can take, each with its name, and whether it is a fault.

A fault is what need not happen: END must be within reach without it.  A deadline that passes although what it waits
for is still on its way is a fault; one that passes because that was lost is not.  What a deposed master does is never
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import assert_never

from master import errors as master_errors
from master import job
from master.api.identities import Term
from master.api.manifest import Manifest
from master.api.messages import Activate, Cut, Forget, Freeze, Hold, Released, ServerLeaving, Warm
from master.api.positions import EMPTY, union
from master.job.domain import (
    AdoptableFound,
    AnswersOverdue,
    CloseStream,
    CommitDue,
    CutExpired,
    Deadline,
    HoldExpired,
    LeaseExpired,
    ManifestWritten,
    MemberKey,
    MessageReceived,
    MovesAgain,
    MovesAsked,
    MovesExpired,
    OwnersAwaited,
    Persisted,
    PersistRefused,
    RaiseLineage,
    ReclaimWindowEnded,
    ReconnectWindowEnded,
    ServersAsked,
    StreamBroken,
)
from master.job.placement import Move as BucketMove
from master.job.state import Phase as CommitPhase
from master.job.state import Stage
from master.job.table import owner_of
from tests.protocol import claims, masters, servers
from tests.protocol.canonical import Canon
from tests.protocol.explore import Move
from tests.protocol.interning import Remembered
from tests.protocol.masters import MasterProcess
from tests.protocol.servers import Pulled
from tests.protocol.trainers import Gradient, TrainerProcess
from tests.protocol.world import (
    NOBODY,
    Cast,
    Draft,
    Faults,
    Parcel,
    ServerSlot,
    Setting,
    TrainerSlot,
    World,
    recorded,
)
from trainer_sdk import errors as sdk_errors
from trainer_sdk import protocol
from trainer_sdk.pserver import bucket, messages
from trainer_sdk.pserver.state import Phase as CutPhase

KINDS = tuple(Faults.__dataclass_fields__)
BUDGET = attrgetter(*KINDS)
BROKEN = (AssertionError, master_errors.InvariantViolationError, sdk_errors.InvariantViolationError)
UNNEEDED = "nothing may depend on it"


@dataclass(frozen=True, slots=True)
class Label:
    """Told only in traces."""

    what: str
    parts: tuple[object, ...] = ()

    def __str__(self) -> str:
        return self.what.format(*map(shown, self.parts))


@dataclass(frozen=True, slots=True)
class Change:
    """A step that may be taken.  `fault`: the budget that it is taken from, or UNNEEDED; None: no fault."""

    label: Label
    make: Callable[[Draft], None]
    fault: str | None = None


def shown(part: object) -> str:
    text = str(part)
    for long, short in (("PositionSet(bounds=", "("), ("kw_only=True", "")):
        text = text.replace(long, short)
    return text


class JobModel:
    """The model that `explore` walks: one small job with the real cores in it."""

    def __init__(self, setting: Setting) -> None:
        self.cast = Cast(setting)
        self.canon = Canon(self.cast)
        self.setting = setting
        self._deadlines = Remembered(lambda m: tuple(d for _, d in job.deadlines(self.cast.masters[m].state)))

    # ---- the model's three questions ------------------------------------------------------------------------------

    def initial(self) -> World:
        """Servers hold an empty model of lineage 1; all trainers come at once and share what there is to do."""
        cast, setting = self.cast, self.setting
        etcd = recorded(setting)
        step = masters.started(setting.job, etcd)
        world = World(
            leader=cast.masters.number(step.process),
            zombies=(),
            etcd=cast.etcds.number(etcd),
            storage=cast.storages.number(()),
            servers=tuple(
                cast.servers.number(ServerSlot(process=cast.new_server(s, 0), is_here=s < setting.job.servers))
                for s in range(setting.servers)
            ),
            trainers=tuple(
                cast.trainers.number(TrainerSlot(process=cast.new_trainer(t, 0))) for t in range(setting.trainers)
            ),
            net=(),
            faults=BUDGET(setting.faults),
            answered=(EMPTY,) * setting.buckets if setting.is_moving else (),
            wish=setting.job.servers,
        )
        while (begun := self._next_of_the_beginning(world)) is not None:
            world = begun
        return self._after(world, Change(Label("all trainers connect"), self._connect_trainers)).target

    def _connect_trainers(self, draft: Draft) -> None:
        for t in range(self.setting.trainers):
            draft.connect_trainer(t, self._term_of(draft))

    def is_end(self, world: World) -> bool:
        """Some trainer was told END."""
        processes = (self.cast.trainers[t].process for t in world.trainers)
        return any(p is not None and p.ending is protocol.Ending.ENDED for p in processes)

    def moves(self, world: World) -> Iterator[Move[World]]:
        for change in self._changes(world):
            if change.fault not in KINDS or world.faults[KINDS.index(change.fault)]:
                yield self._after(world, change)

    def _next_of_the_beginning(self, world: World) -> World | None:
        """Before the first trainer, one order of steps is as good as another."""
        for change in (*self._of_servers(world), *self._of_leader(world)):
            if change.fault is None and not change.label.what.startswith("time"):
                return self._after(world, change).target
        return None

    def _after(self, world: World, change: Change) -> Move[World]:
        draft = Draft(self.cast, world)
        if change.fault in KINDS:
            draft.faults = tuple(n - (kind == change.fault) for kind, n in zip(KINDS, world.faults, strict=True))
        try:
            change.make(draft)
            draft.settle()
        except BROKEN as error:
            if not self.setting.is_strict:  # the master ends rather than go on
                return Move(change.label, world, is_fault=True)
            return Move(change.label, world, change.fault is not None, f"{type(error).__name__}: {error}")
        return Move(change.label, self.canon.of(draft), change.fault is not None, draft.violation)

    def _changes(self, world: World) -> Iterator[Change]:
        yield from self._of_trainers(world)
        yield from self._of_net(world)
        yield from self._of_copies(world)
        yield from self._of_moves(world)
        yield from self._of_wishes(world)
        yield from self._of_servers(world)
        yield from self._of_leader(world)
        yield from self._of_zombies(world)
        yield Change(Label("a second master takes over"), self._take_over, "take_over")

    # ---- trainers -------------------------------------------------------------------------------------------------

    def _of_trainers(self, world: World) -> Iterator[Change]:
        for t, number in enumerate(world.trainers):
            slot, name = self.cast.trainers[number], f"t{t}"
            if slot.process is None:
                yield Change(Label("{} starts anew", (name,)), lambda d, t=t: self._start_trainer(d, t))
                continue
            process, state = slot.process, slot.process.state
            if slot.link != self._term(world):
                yield Change(Label("{} connects", (name,)), lambda d, t=t: d.connect_trainer(t, self._term_of(d)))
            if slot.inbox:
                yield Change(Label("{} hears {}", (name, slot.inbox[0])), lambda d, t=t: self._trainer_hears(d, t))
            yield from self._of_script(t, process, self._pulled(world, process))
            if process.waits_for is not None and process.waits_for == state.request:
                again = protocol.AcquireDue(request=state.request)
                yield Change(Label("{} asks again", (name,)), lambda d, t=t, again=again: d.trainer_takes(t, again))
            for gradient in process.computed:
                for server in range(len(world.servers)):
                    lost = union(target.buckets for target in process.targets(server, process.owed(gradient)))
                    if lost and not self._is_on_its_way(world, t, server, gradient):
                        yield Change(
                            Label("{} sends {} to s{} again", (name, list(gradient.positions), server)),
                            lambda d, t=t, gradient=gradient, lost=lost: d.send(t, gradient, lost),
                        )
            yield from self._faults_of_trainer(t, slot)

    def _pulled(self, world: World, process: TrainerProcess) -> tuple[Pulled | None, ...]:
        """What a pull by this trainer's route would get, by bucket."""
        if not self.setting.servers:
            return ()
        if not process.route:
            return (None,)
        owners = [self.cast.servers[world.servers[ordinal]].process for ordinal, _ in process.route]
        return tuple(owner.pulled(b) for b, owner in enumerate(owners))

    def _of_script(self, t: int, process: TrainerProcess, models: tuple[Pulled | None, ...]) -> Iterator[Change]:
        """A batch is computed on one pull; a pull that mixes lineages is done again (rule 9)."""
        state = process.state
        if self.setting.own_model and state.offer is None and state.applied != state.committed:
            label = Label("t{} writes its model, {}", (t, list(state.applied)))
            yield Change(label, lambda d: d.trainer_stepped(t, self.cast.write_step(process)))
        if not process.given:
            return
        batch = [p for f in process.state.flights if f.number == process.given[0] for p in f.positions]
        if not models:
            label = Label("t{} has done {}", (t, batch))
            yield Change(label, lambda d: d.trainer_stepped(t, self.cast.train_step(process)))
        elif process.parameters:
            label = Label("t{} has computed {} and pushes", (t, batch))
            yield Change(label, lambda d: d.trainer_stepped(t, self.cast.compute_step(process)))
        elif None not in models and is_whole(models):
            step = self.cast.pull_step if self.setting.is_slow else self.cast.batch_step
            label = Label("t{} pulls of {}, computes {}", (t, models[0][0], batch))
            yield Change(label, lambda d: d.trainer_stepped(t, step(process, models)))

    def _faults_of_trainer(self, t: int, slot: TrainerSlot) -> Iterator[Change]:
        assert slot.process is not None
        state, name = slot.process.state, f"t{t}"
        if state.held or slot.link != NOBODY:
            yield Change(Label("{} CRASHES", (name,)), lambda d: d.end_trainer(t), "trainer_crash")
        if slot.link != NOBODY:
            yield Change(Label("the stream of {} BREAKS", (name,)), lambda d: self._break_trainer(d, t), "break_")
        if state.held and not state.is_draining:
            event = protocol.DrainRequested(reason="")
            yield Change(Label("{} is DRAINED", (name,)), lambda d: d.trainer_takes(t, event), "drain")
        if state.is_draining:
            late = protocol.DrainDeadlinePassed()
            yield Change(Label("{}: GRACE ENDS", (name,)), lambda d: d.trainer_takes(t, late), "drain")
        if state.flights:
            raised = protocol.ScriptFailed(message="")
            yield Change(Label("the script of {} RAISES", (name,)), lambda d: d.trainer_takes(t, raised), "raising")

    def _is_on_its_way(self, world: World, trainer: int, server: int, gradient: Gradient) -> bool:
        parcels = (self.cast.parcels[number] for number in world.net)
        return any(
            p.sender == trainer
            and p.server == server
            and (p.push.positions, p.push.lineage) == (gradient.positions, gradient.lineage)
            for p in parcels
        )

    def _start_trainer(self, draft: Draft, t: int) -> None:
        births = draft.trainer(t).births
        draft.put_trainer(t, TrainerSlot(process=self.cast.new_trainer(t, births), births=births))
        draft.connect_trainer(t, self._term_of(draft))

    def _trainer_hears(self, draft: Draft, t: int) -> None:
        slot = draft.trainer(t)
        message, *rest = slot.inbox
        if isinstance(message, CloseStream):
            self._break_trainer(draft, t)
            return
        draft.put_trainer(t, replace(slot, inbox=tuple(rest)))
        draft.trainer_takes(t, message)
        while (rest := draft.trainer(t).inbox) and not isinstance(rest[0], self.cast.takes_time):
            draft.put_trainer(t, replace(draft.trainer(t), inbox=rest[1:]))
            draft.trainer_takes(t, rest[0])

    def _break_trainer(self, draft: Draft, t: int) -> None:
        slot = draft.trainer(t)
        assert slot.process is not None
        draft.to_master(slot.link, StreamBroken(member=self.cast.trainer_key(slot.process)))
        draft.put_trainer(t, replace(slot, link=NOBODY, inbox=()))
        draft.trainer_takes(t, protocol.StreamBroken())

    # ---- pushes ---------------------------------------------------------------------------------------------------

    def _of_net(self, world: World) -> Iterator[Change]:
        for number in world.net:
            parcel = self.cast.parcels[number]
            process = self.cast.servers[world.servers[parcel.server]].process
            step = self.cast.push_step(process, parcel.push, parcel.computed_on)
            assert step.answer is not None
            verdicts = {ruling.verdict for ruling in step.answer.rulings}
            what = (parcel.server, list(parcel.push.positions), parcel.push.lineage, ", ".join(sorted(verdicts)))
            is_changed = step.process != process
            if parcel.sender is None:
                if is_changed:
                    label = Label("s{} gets a late push of {} of lineage {}: {}", what)
                    yield Change(label, lambda d, p=parcel, n=number: self._arrives(d, n, p, is_heard=False))
                continue
            if verdicts & ELSEWHERE and verdicts <= WAITING | ELSEWHERE:
                label = Label("t{3} hears {2} from s{0} for {1}", (*what[:2], what[3], parcel.sender))
                yield Change(label, lambda d, p=parcel, n=number: self._arrives(d, n, p, is_heard=True, is_kept=True))
            elif not verdicts <= WAITING:
                label = Label("s{} gets {} of lineage {} from t{}: {}", (*what[:3], parcel.sender, what[3]))
                yield Change(label, lambda d, p=parcel, n=number: self._arrives(d, n, p, is_heard=True))
                yield Change(
                    Label("the push of {} to s{} is LOST", (what[1], parcel.server)),
                    lambda d, n=number: d.net.discard(n),
                    "loss",
                )
                if is_changed:
                    yield Change(
                        Label("s{} gets {}, its answer to t{} is LOST", (*what[:2], parcel.sender)),
                        lambda d, p=parcel, n=number: self._arrives(d, n, p, is_heard=False),
                        "loss",
                    )

    def _arrives(self, draft: Draft, number: int, parcel: Parcel, *, is_heard: bool, is_kept: bool = False) -> None:
        """`is_kept`: the same push goes on coming, as good as one that is sent again at once."""
        slot = draft.server(parcel.server)
        step = self.cast.push_step(slot.process, parcel.push, parcel.computed_on)
        draft.server_stepped(parcel.server, step)
        if is_heard and parcel.sender is not None:
            assert step.answer is not None
            draft.note_answer(parcel.push, step.answer)
            if not is_kept:
                draft.net.discard(number)
            process = draft.trainer(parcel.sender).process
            gradient = draft.gradient_of(process, parcel) if process else None
            if gradient is not None:
                after = self.cast.answer_step(process, gradient, step.answer)
                draft.trainer_stepped(parcel.sender, after)
                draft.note_confirmed(process.state, after)

    # ---- buckets on their way -------------------------------------------------------------------------------------

    def _of_copies(self, world: World) -> Iterator[Change]:
        """Copies come once, twice, late or never: the master has what is needed sent again."""
        for number in world.copies:
            copy = self.cast.shipments[number]
            ordinal = int(copy.head.target[1:].split(".")[0])
            process = self.cast.servers[world.servers[ordinal]].process
            if process.state.incarnation != copy.head.target:
                continue
            step = self.cast.copy_step(process, copy)
            if step.process != process or step.told or step.asked_full:
                kind = "HANDOVER" if copy.head.is_final else "WARM"
                label = Label("{} of {} v{} reaches s{}", (kind, copy.head.bucket, copy.head.version, ordinal))
                yield Change(label, lambda d, copy=copy: d.copy_arrives(copy))

    def _of_moves(self, world: World) -> Iterator[Change]:
        leader = self.cast.masters[world.leader].state
        if not self.setting.is_moving or leader.stage is not Stage.SERVING or leader.route is None:
            return
        is_time = self.setting.moves_in in (None, leader.commit.phase)
        for b in range(len(leader.route.owner) if is_time else 0):
            owner = int(owner_of(leader.route, b).name[1:])
            for s in range(len(world.servers)):
                if s != owner:
                    asked = MovesAsked(moves=(BucketMove(bucket=b, source=owner, target=s),), reason="asked")
                    yield Change(
                        Label("bucket {} is WANTED on s{}", (b, s)), lambda d, asked=asked: d.to_leader(asked), "move"
                    )
        for s, number in enumerate(world.servers):
            slot = self.cast.servers[number]
            if not slot.is_leaving and slot.link == leader.term:
                yield Change(Label("s{} has to LEAVE", (s,)), lambda d, s=s: self._leave(d, s), "leave")
        for intent in leader.moves.intents:
            source, target = int(intent.source.name[1:]), int(intent.target.name[1:])
            order = Warm(
                lineage=intent.lineage,
                bucket=intent.bucket,
                version=intent.version,
                target=servers.place(target, intent.target.incarnation),
            )
            if self.cast.servers[world.servers[source]].process.state.incarnation == intent.source.incarnation:
                yield Change(
                    Label("s{} sends {} AHEAD", (source, intent.bucket)),
                    lambda d, s=source, order=order: d.server_takes(s, order),
                    "warm",
                )

    def _leave(self, draft: Draft, s: int) -> None:
        slot = replace(draft.server(s), is_leaving=True)
        draft.put_server(s, slot)
        said = MessageReceived(sender=self.cast.server_key(slot, s), message=ServerLeaving())
        draft.to_master(slot.link, said)

    def _of_wishes(self, world: World) -> Iterator[Change]:
        """The cluster side says what it wants until the master has it, and makes the processes that are wanted."""
        if not self.setting.faults.wish:
            return
        scale = self.cast.masters[world.leader].state.scale
        for n in range(1, self.setting.servers + 1):
            if n != world.wish:
                yield Change(Label("{} servers are WANTED", (n,)), lambda d, n=n: self._wish(d, n), "wish")
        if world.wish not in (scale.newest, scale.wanted) or (scale.wanted != world.wish and not scale.asking):
            label = Label("the master is told again that {} servers are wanted", (world.wish,))
            yield Change(label, lambda d: self._wish(d, d.wish))
        for s in range(world.wish):
            if not self.cast.servers[world.servers[s]].is_here:
                label = Label("a process for s{} is made", (s,))
                yield Change(label, lambda d, s=s: d.put_server(s, replace(d.server(s), is_here=True)))

    def _wish(self, draft: Draft, count: int) -> None:
        draft.wish = count
        draft.to_leader(ServersAsked(request=0, count=count))

    # ---- servers --------------------------------------------------------------------------------------------------

    def _of_servers(self, world: World) -> Iterator[Change]:
        leader = self.cast.masters[world.leader]
        for s, number in enumerate(world.servers):
            slot, name = self.cast.servers[number], f"s{s}"
            state = slot.process.state
            if not slot.is_here:
                continue
            if slot.link != self._term(world):
                yield Change(Label("{} connects", (name,)), lambda d, s=s: d.connect_server(s, self._term_of(d)))
            if slot.inbox:
                yield Change(Label("{} hears {}", (name, slot.inbox[0])), lambda d, s=s: self._server_hears(d, s))
            for place, message in enumerate(slot.inbox[1:], 1):
                if isinstance(message, Freeze | Activate | Forget):
                    label = Label("{} hears {} BEFORE what was said before", (name, message))
                    yield Change(label, lambda d, s=s, place=place: self._overtaken(d, s, place), "overtake")
            if slot.process.file_to_write is not None:
                yield Change(Label("{} writes its file", (name,)), lambda d, s=s: self._file_written(d, s))
            if (due := bucket.deadline(state)) is not None:
                fault = None if is_over(leader, slot) else "deadline"
                yield Change(
                    Label("{} at {}: {}", ("time is up", name, due[1])),
                    lambda d, s=s, event=due[1]: d.server_takes(s, event),
                    fault,
                )
            yield Change(Label("{} CRASHES", (name,)), lambda d, s=s: self._crash_server(d, s), "server_crash")
            if slot.link != NOBODY:
                yield Change(
                    Label("the stream of {} BREAKS", (name,)), lambda d, s=s: self._break_server(d, s), "break_"
                )

    def _server_hears(self, draft: Draft, s: int) -> None:
        slot = draft.server(s)
        message, *rest = slot.inbox
        if isinstance(message, CloseStream):
            self._break_server(draft, s)
            return
        if isinstance(message, Released):
            self._crash_server(draft, s)
            return
        draft.put_server(s, replace(slot, inbox=tuple(rest)))
        draft.server_takes(s, message)
        while (rest := draft.server(s).inbox) and not isinstance(rest[0], self.cast.takes_time):
            draft.put_server(s, replace(draft.server(s), inbox=rest[1:]))
            draft.server_takes(s, rest[0])

    def _overtaken(self, draft: Draft, s: int, place: int) -> None:
        slot = draft.server(s)
        draft.put_server(s, replace(slot, inbox=(*slot.inbox[:place], *slot.inbox[place + 1 :])))
        draft.server_takes(s, slot.inbox[place])

    def _file_written(self, draft: Draft, s: int) -> None:
        draft.server_stepped(s, servers.file_written(draft.server(s).process, self.setting.positions))

    def _crash_server(self, draft: Draft, s: int) -> None:
        """Pushes that nobody will send again were on connections that are gone."""
        slot = draft.server(s)
        if slot.link != NOBODY:
            draft.to_master(slot.link, StreamBroken(member=self.cast.server_key(slot, s)))
        births = int(slot.process.state.incarnation.rsplit(".", 1)[1]) + 1
        is_here = not self.setting.faults.wish  # or one comes at once
        draft.put_server(s, ServerSlot(process=self.cast.new_server(s, births), is_here=is_here))
        parcels = {number: self.cast.parcels[number] for number in draft.net}
        draft.net = {n for n, parcel in parcels.items() if parcel.server != s or parcel.sender is not None}

    def _break_server(self, draft: Draft, s: int) -> None:
        slot = draft.server(s)
        draft.to_master(slot.link, StreamBroken(member=self.cast.server_key(slot, s)))
        draft.put_server(s, replace(slot, link=NOBODY, inbox=()))

    # ---- masters --------------------------------------------------------------------------------------------------

    def _term(self, world: World) -> Term:
        return self.cast.masters[world.leader].state.term

    def _term_of(self, draft: Draft) -> Term:
        return self.cast.masters[draft.leader].state.term

    def _of_leader(self, world: World) -> Iterator[Change]:
        leader = self.cast.masters[world.leader]
        yield from self._asked_for(world, world.leader, leader, "master")
        if leader.has_stepped_down:
            yield Change(Label("the master campaigns again"), self._take_over)
        for deadline in self._deadlines(world.leader):
            yield Change(
                Label("time is up at the master: {}", (deadline,)),
                lambda d, deadline=deadline: d.to_leader(deadline),
                self._fault_of(world, leader, deadline),
            )

    def _of_zombies(self, world: World) -> Iterator[Change]:
        for number in world.zombies:
            zombie = self.cast.masters[number]
            for change in self._asked_for(world, number, zombie, f"old master {zombie.state.term}"):
                yield replace(change, fault=UNNEEDED)
            for deadline in self._deadlines(number):
                if isinstance(deadline, CommitDue):
                    yield Change(
                        Label("old master {} begins a cut", (zombie.state.term,)),
                        lambda d, deadline=deadline, term=zombie.state.term: d.to_master(term, deadline),
                        "zombie",
                    )

    def _asked_for(self, world: World, number: int, master: MasterProcess, who: str) -> Iterator[Change]:
        """The outcome of what this master has asked of etcd and of storage."""
        if master.writes:
            label = Label("etcd answers {}: {}", (who, master.writes[0]))
            yield Change(label, lambda d: self._written(d, number))
        for manifest in master.manifests:
            label = Label("{}: manifest {} of {} is written", (who, manifest.id, list(manifest.data)))
            yield Change(label, lambda d, manifest=manifest: self._manifest_written(d, number, manifest))
        for search in master.searches:
            for found in (None, *masters.adoptable(self.cast.storages[world.storage], search)):
                label = Label("{} looks for a manifest to adopt, finds {}", (who, found and found.id))
                yield Change(label, lambda d, found=found: self._found(d, number, found))

    def _written(self, draft: Draft, number: int) -> None:
        master = self.cast.masters[number]
        write, *rest = master.writes
        etcd = draft.durable()
        after = masters.try_write(etcd, master.state.term, write, self.cast.storages[draft.storage])
        new = self.cast.masters.number(replace(master, writes=tuple(rest)))
        draft.replace_master(number, new)
        if after is None:
            draft.to_master(master.state.term, PersistRefused(write=write, reason=""))
            return
        if after.durable.head is not None and after.durable.head != etcd.durable.head:
            is_plain = not (self.setting.servers or self.setting.own_model)
            size = self.setting.positions
            draft.wrong(claims.wrong_with_new_head(etcd, after.durable.head, size, is_plain=is_plain))
        draft.etcd = self.cast.etcds.number(after)
        if isinstance(write, RaiseLineage):
            draft.forget_answers()
        draft.to_master(master.state.term, Persisted(write=write))

    def _manifest_written(self, draft: Draft, number: int, manifest: Manifest) -> None:
        master = self.cast.masters[number]
        rest = tuple(m for m in master.manifests if m is not manifest)
        draft.replace_master(number, self.cast.masters.number(replace(master, manifests=rest)))
        draft.storage = self.cast.storages.number((*self.cast.storages[draft.storage], manifest))
        draft.to_master(master.state.term, ManifestWritten(manifest=manifest.id))

    def _found(self, draft: Draft, number: int, found: Manifest | None) -> None:
        master = self.cast.masters[number]
        draft.replace_master(number, self.cast.masters.number(replace(master, searches=master.searches[1:])))
        draft.to_master(master.state.term, AdoptableFound(manifest=found))

    def _take_over(self, draft: Draft) -> None:
        """The old master does not know it yet."""
        etcd = draft.durable()
        after = replace(etcd, term=Term(etcd.term + 1))
        draft.etcd = self.cast.etcds.number(after)
        draft.zombies.append(draft.leader)
        step = masters.started(self.setting.job, after)
        draft.leader = self.cast.masters.number(step.process)
        draft.master_stepped(draft.leader, step)

    def _fault_of(self, world: World, leader: MasterProcess, deadline: Deadline) -> str | None:
        """Which fault it is that this deadline passes; None when it must come."""
        match deadline:
            case CommitDue() | ReclaimWindowEnded() | MovesAgain():
                return None
            case LeaseExpired():
                return "pause"
            case ReconnectWindowEnded(member=member):
                return "pause" if self._lives(world, member) else None
            case MovesExpired() | OwnersAwaited():
                return "deadline"
            case HoldExpired() | CutExpired():
                slots = [self.cast.servers[s] for s in world.servers]
                return None if any(is_lost(leader, slot, s) for s, slot in enumerate(slots)) else "deadline"
            case AnswersOverdue():
                return "repeat" if any(self.cast.servers[s].inbox for s in world.servers) else None
            case _:
                assert_never(deadline)

    def _lives(self, world: World, member: MemberKey) -> bool:
        slots = (self.cast.trainers[t] for t in world.trainers)
        keys = {self.cast.trainer_key(slot.process) for slot in slots if slot.process}
        keys |= {self.cast.server_key(self.cast.servers[s], place) for place, s in enumerate(world.servers)}
        return member in keys


def is_whole(models: tuple[Pulled, ...]) -> bool:
    """A pull of one lineage; the client throws away any other (rule 9)."""
    return len({lineage for lineage, _ in models}) == 1


WAITING = frozenset({messages.Verdict.HELD, messages.Verdict.NOT_READY})
"""A push so answered comes again as it is."""

ELSEWHERE = frozenset({messages.Verdict.MOVED, messages.Verdict.FROZEN, messages.Verdict.NOT_YET})
"""A push so answered comes again by a newer route (rule 50)."""


def is_over(leader: MasterProcess, slot: ServerSlot) -> bool:
    """The cut that this server keeps will not go on: the master has given it up, or CUT was lost."""
    known = slot.process.state.cut
    assert known is not None
    if leader.state.commit.cut != known.cut:
        return True
    is_cut = leader.state.commit.phase is CommitPhase.WRITING
    return is_cut and known.phase is CutPhase.HELD and not any(isinstance(m, Cut) for m in slot.inbox)


def is_lost(leader: MasterProcess, slot: ServerSlot, ordinal: int) -> bool:
    """What the master waits to hear from this server will not come."""
    commit, known = leader.state.commit, slot.process.state.cut
    if any(isinstance(m, Hold | Cut) and m.cut == commit.cut for m in slot.inbox):
        return False
    if known is None or known.cut != commit.cut:
        return True
    is_waited_for = ordinal not in (commit.held if commit.phase is CommitPhase.HOLDING else commit.files)
    return is_waited_for and known.phase in (CutPhase.HELD, CutPhase.WRITTEN, CutPhase.GONE)
