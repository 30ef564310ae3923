"""One job as a whole: masters, etcd, storage, servers, trainers, and what is on its way between them.

What moves by itself, step by step: a push to one server; RESTORE, HOLD, CUT, DROP, SKIP and FENCED to one member; a
transaction, a manifest, a file; a deadline; a member's reconnecting.  What is done at once, because its delay is the
delay of something else: what members say to the master (it is said late if the step before comes late), the other
answers of a master, loading a base.  A stream keeps its order and loses what is on it when it breaks.  Pushes may be
late, arrive in any order, be lost, be answered without the answer's arriving, and outlive the process that sent them.

Not here: which steps there are (`moves`), how states that only differ in names become one (`canonical`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from master import job
from master.api.identities import BucketId, DatasetSpec, Incarnation, Lineage, MemberName, TableSpec, Term
from master.api.manifest import Manifest
from master.api.messages import (
    Ack,
    Activate,
    Cut,
    Declare,
    Drain,
    Drop,
    Fenced,
    Forget,
    Freeze,
    Hold,
    MasterMessage,
    MemberMessage,
    Refused,
    RegisterServer,
    Released,
    Restore,
    RouteChanged,
    ServerWelcome,
    Skip,
)
from master.api.positions import EMPTY, PositionSet, union
from master.job.domain import (
    CloseStream,
    DatasetRecord,
    Event,
    JobConfig,
    MemberKey,
    MessageReceived,
    Send,
    StreamBroken,
)
from master.job.state import Phase as CommitPhase
from tests.protocol import claims, masters, servers, trainers
from tests.protocol.interning import Interned, Remembered
from tests.protocol.masters import Etcd, MasterProcess
from tests.protocol.servers import Origins, ServerProcess, Shipment
from tests.protocol.trainers import Gradient, TrainerProcess
from trainer_sdk import protocol
from trainer_sdk.protocol import TrainerState
from trainer_sdk.pserver.messages import CONFIRMED, Push, PushAnswer
from trainer_sdk.pserver.state import check_state

NOBODY: Final = Term(0)
TAKES_TIME: Final = (
    Restore,
    Hold,
    Cut,
    Drop,
    Skip,
    Freeze,
    Activate,
    Forget,
    Released,
    Fenced,
    Drain,
    CloseStream,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often each may happen."""

    trainer_crash: int = 0
    server_crash: int = 0
    take_over: int = 0
    pause: int = 0  # a trainer is silent past its lease, or a member past its reconnect window, and goes on
    drain: int = 0
    raising: int = 0  # a script raises with a batch in hand
    loss: int = 0  # of a push, or of its answer
    break_: int = 0  # of a member's stream, with what is on it
    deadline: int = 0  # of a hold, a fork or a cut that might have been kept
    repeat: int = 0  # the master asks again what is on its way
    zombie: int = 0  # a deposed master begins a cut
    move: int = 0  # somebody wants a bucket on another server
    wish: int = 0  # another number of servers is wanted
    leave: int = 0  # a server has to go, and another process comes in its place once it is released
    warm: int = 0  # a copy goes ahead of a hand-over
    overtake: int = 0  # an order of a move arrives before one that was given before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A small job and what may happen to it."""

    positions: int = 2
    batches: tuple[int, ...] = (1, 1)  # positions a batch, by trainer: two may cut one shard differently
    epochs: int = 1
    trainers: int = 2
    servers: int = 2
    begin: int = 0  # servers when the job begins, if these are fewer
    buckets: int = 2
    pipeline: int = 1  # batches a script has in hand at once
    quarantine_after: int = 9
    has_near_mark: bool = False  # the high-water mark is moved position by position, and the store may be slow with it
    faults: Faults = field(default_factory=Faults)
    own_model: bool = False  # without servers: the trainer keeps the model itself
    is_slow: bool = False  # other things may happen between a pull and its push
    is_pruned: bool = True  # what can have no effect is dropped; False when a rule is left out and it might have one
    keeps_orphans: bool = False  # manifests that can never be adopted too, for the same reason
    is_hasty: bool = False  # moves and cuts do not wait for each other, as they may: for pace alone they do (rule 59)
    moves_in: CommitPhase | None = None  # a bucket is wanted elsewhere in this phase of a commit only: a smaller world
    is_strict: bool = True  # the cores' own checks count, and marks that differ from the ledger, before any checkpoint

    @property
    def is_moving(self) -> bool:
        """Buckets may change their servers; what a trainer knows of that may be old."""
        return bool(self.faults.move or self.faults.leave or self.faults.wish)

    @property
    def job(self) -> JobConfig:
        config = JobConfig(
            servers=self.begin or self.servers,
            max_servers=self.servers,
            bucket_count=self.buckets,
            quarantine_after=self.quarantine_after,
        )
        return replace(config, high_water_batches=1) if self.has_near_mark else config

    @property
    def dataset(self) -> DatasetSpec:
        size = self.positions // self.epochs
        return DatasetSpec(name="samples", size=size, epochs=self.epochs, batch_size=max(self.batches))

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(name="counts", shape=(self.positions,)),) if self.servers else ()


class World(NamedTuple):
    """Every entry is a number, or numbers, of the values that `Cast` keeps."""

    leader: int
    zombies: tuple[int, ...]
    etcd: int
    storage: int
    servers: tuple[int, ...]
    trainers: tuple[int, ...]
    net: tuple[int, ...]
    faults: tuple[int, ...]
    copies: tuple[int, ...] = ()  # shipments
    answered: tuple[PositionSet, ...] = ()  # by bucket, what trainers were told is applied, in the current lineage
    wish: int = 0  # servers that the cluster side wants: it sees to those below, and to no others


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSlot:
    """A server's place in the job.  `link`: the term of the master that its stream goes to; `inbox`: what is on it."""

    process: ServerProcess
    link: Term = NOBODY
    inbox: tuple[MasterMessage | CloseStream, ...] = ()
    is_leaving: bool = False
    is_here: bool = True  # False: `process` is the one that will come, if one is wanted here


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSlot:
    """As above.  No process: it has ended, and the next one will be the `births`-th."""

    process: TrainerProcess | None
    births: int = 0
    link: Term = NOBODY
    inbox: tuple[MasterMessage | CloseStream, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A push on its way.  `sender` waits for the answer; None: nobody does any more, and it may still arrive."""

    server: int
    push: Push
    computed_on: Origins
    sender: int | None


class Cast:
    """All values that occur in one exploration, and the cores' answers, remembered."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.masters: Interned[MasterProcess] = Interned()
        self.etcds: Interned[Etcd] = Interned()
        self.storages: Interned[tuple[Manifest, ...]] = Interned()
        self.servers: Interned[ServerSlot] = Interned()
        self.trainers: Interned[TrainerSlot] = Interned()
        self.parcels: Interned[Parcel] = Interned()
        self.shipments: Interned[Shipment] = Interned()
        self.takes_time = (*TAKES_TIME, RouteChanged) if setting.is_moving else TAKES_TIME
        self._server_processes: Interned[ServerProcess] = Interned()
        self._trainer_processes: Interned[TrainerProcess] = Interned()
        size, pipeline = setting.positions, setting.pipeline
        self.master_step = Remembered(lambda m, event: self._master(masters.handled(self.masters[m], event)))
        self.server_step = Remembered(lambda process, event: self._server(servers.handled(process, event, size)))
        self.push_step = Remembered(lambda *push: self._server(servers.pushed(*push)))
        self.copy_step = Remembered(lambda process, copy: self._server(servers.arrived(process, copy, size)))
        self.trainer_step = Remembered(lambda process, event: self._trainer(trainers.handled(process, event, pipeline)))
        self.pull_step = Remembered(lambda process, models: self._trainer(trainers.pulled(process, models, pipeline)))
        self.compute_step = Remembered(lambda process: self._trainer(trainers.computed(process, pipeline)))
        self.batch_step = Remembered(
            lambda process, models: self._trainer(trainers.pulled_and_computed(process, models, pipeline))
        )
        self.train_step = Remembered(lambda process: self._trainer(trainers.trained(process, pipeline)))
        self.write_step = Remembered(lambda process: self._trainer(trainers.wrote(process, pipeline)))
        self.answer_step = Remembered(lambda *answer: self._trainer(trainers.answered(*answer, pipeline)))
        self.wrong_with_server = Remembered(
            lambda etcd, slot: claims.wrong_with_server(
                self.etcds[etcd], self.servers[slot].process, is_strict=setting.is_strict
            )
        )
        self.wrong_with_owners = Remembered(
            lambda etcd, answered, *slots: claims.wrong_with_owners(
                self.etcds[etcd], answered, tuple(self.servers[slot].process for slot in slots)
            )
        )
        self.wrong_with_trainer = Remembered(
            lambda etcd, slot: claims.wrong_with_trainer(
                self.etcds[etcd], self.trainers[slot].process, is_strict=setting.is_strict
            )
        )

    def _master(self, step: masters.MasterStep) -> masters.MasterStep:
        if self.setting.is_strict:
            job.check_invariants(step.process.state)
        return step

    def _server(self, step: servers.ServerStep) -> servers.ServerStep:
        if self.setting.is_strict:
            check_state(step.process.state)
        return replace(step, process=self._server_processes.same(step.process))

    def _trainer(self, step: trainers.TrainerStep) -> trainers.TrainerStep:
        if self.setting.is_strict:
            protocol.check_invariants(step.process.state)
        return replace(step, process=self._trainer_processes.same(step.process))

    def server_key(self, slot: ServerSlot, server: int) -> MemberKey:
        return MemberKey(name=MemberName(f"s{server}"), incarnation=slot.process.state.incarnation)

    def trainer_key(self, process: TrainerProcess) -> MemberKey:
        return MemberKey(name=process.state.name, incarnation=process.state.incarnation)

    def new_server(self, server: int, births: int) -> ServerProcess:
        return servers.started(Incarnation(f"s{server}.{births}"))

    def new_trainer(self, trainer: int, births: int) -> TrainerProcess:
        return trainers.started(
            MemberName(f"t{trainer}"),
            trainer,
            Incarnation(f"t{trainer}.{births}"),
            Declare(
                dataset=replace(self.setting.dataset, batch_size=self.setting.batches[trainer]),
                tables=self.setting.tables,
                own_model=self.setting.own_model,
            ),
            pipeline=self.setting.pipeline,
        )


class Draft:
    """A world in the making: take a step in it, `settle` what follows at once, and read the result."""

    def __init__(self, cast: Cast, world: World) -> None:
        self.cast = cast
        self.leader, self.zombies = world.leader, list(world.zombies)
        self.etcd, self.storage = world.etcd, world.storage
        self.servers, self.trainers = list(world.servers), list(world.trainers)
        self.net, self.faults = set(world.net), world.faults
        self.copies, self.answered, self.wish = set(world.copies), world.answered, world.wish
        self.violation: str | None = None
        self._due: deque[Callable[[], None]] = deque()

    # ---- reading ----------------------------------------------------------------------------------------------

    def world(self) -> World:
        return World(
            self.leader,
            tuple(sorted(self.zombies)),
            self.etcd,
            self.storage,
            tuple(self.servers),
            tuple(self.trainers),
            tuple(sorted(self.net)),
            self.faults,
            tuple(sorted(self.copies)),
            self.answered,
            self.wish,
        )

    def server(self, server: int) -> ServerSlot:
        return self.cast.servers[self.servers[server]]

    def trainer(self, trainer: int) -> TrainerSlot:
        return self.cast.trainers[self.trainers[trainer]]

    def put_server(self, server: int, slot: ServerSlot) -> None:
        self.servers[server] = self.cast.servers.number(slot)

    def put_trainer(self, trainer: int, slot: TrainerSlot) -> None:
        self.trainers[trainer] = self.cast.trainers.number(slot)

    def durable(self) -> Etcd:
        return self.cast.etcds[self.etcd]

    def wrong(self, what: str | None) -> None:
        self.violation = self.violation or what

    # ---- what follows at once ---------------------------------------------------------------------------------

    def settle(self) -> Draft:
        """Carries out what takes no time, and looks at what has become of the servers."""
        while self._due:
            self._due.popleft()()
        for slot in self.servers:
            self.wrong(self.cast.wrong_with_server(self.etcd, slot))
        if self.cast.setting.is_moving:
            self.wrong(self.cast.wrong_with_owners(self.etcd, self.answered, *self.servers))
        if self.cast.setting.own_model:
            owner = self.cast.masters[self.leader].state.owner
            for slot in self.trainers:
                process = self.cast.trainers[slot].process
                if process is not None and self.cast.trainer_key(process) == owner:
                    self.wrong(self.cast.wrong_with_trainer(self.etcd, slot))
        return self

    # ---- masters ----------------------------------------------------------------------------------------------

    def to_leader(self, event: Event) -> None:
        self._due.append(lambda: self._master_takes(self.cast.masters[self.leader].state.term, event))

    def to_master(self, term: Term, event: Event) -> None:
        """Nothing when that master is no more."""
        self._due.append(lambda: self._master_takes(term, event))

    def find_master(self, term: Term) -> int | None:
        return next((m for m in (self.leader, *self.zombies) if self.cast.masters[m].state.term == term), None)

    def replace_master(self, old: int, new: int) -> None:
        if old == self.leader:
            self.leader = new
        else:
            self.zombies[self.zombies.index(old)] = new

    def _master_takes(self, term: Term, event: Event) -> None:
        number = self.find_master(term)
        if number is not None:
            self.master_stepped(number, self.cast.master_step(number, event))

    def master_stepped(self, number: int, step: masters.MasterStep) -> None:
        """The master `number` is now what `step` says, and what it says is on its way."""
        new = self.cast.masters.number(step.process)
        self.replace_master(number, new)
        if step.process.has_stepped_down:
            self._due.append(lambda: self._close_streams(step.process.state.term))
        for effect in step.said:
            self._say(step.process.state.term, effect)
        for retain in step.retained:
            if new == self.leader:
                self.wrong(claims.wrong_with_retention(self.durable(), retain))

    def _close_streams(self, term: Term) -> None:
        for server in range(len(self.servers)):
            if self.server(server).link == term:
                self.put_server(server, replace(self.server(server), link=NOBODY, inbox=()))
        for trainer in range(len(self.trainers)):
            if self.trainer(trainer).link == term:
                self.put_trainer(trainer, replace(self.trainer(trainer), link=NOBODY, inbox=()))
                self._due.append(lambda trainer=trainer: self.trainer_takes(trainer, protocol.StreamBroken()))

    def _say(self, term: Term, effect: Send | CloseStream) -> None:
        to = effect.to if isinstance(effect, Send) else effect.member
        message = effect.message if isinstance(effect, Send) else effect
        for server in range(len(self.servers)):
            slot = self.server(server)
            if slot.link == term and self.cast.server_key(slot, server) == to:
                self._put_into_server(server, slot, message)
        for trainer in range(len(self.trainers)):
            its = self.trainer(trainer)
            if its.process and its.link == term and self.cast.trainer_key(its.process) == to:
                self._put_into_trainer(trainer, its, message)

    def _put_into_server(self, server: int, slot: ServerSlot, message: MasterMessage | CloseStream) -> None:
        if isinstance(message, ServerWelcome | Refused):
            return
        if slot.inbox or isinstance(message, self.cast.takes_time):
            self.put_server(server, replace(slot, inbox=(*slot.inbox, message)))
        else:
            self._due.append(lambda: self.server_takes(server, message))

    def _put_into_trainer(self, trainer: int, slot: TrainerSlot, message: MasterMessage | CloseStream) -> None:
        if slot.inbox or isinstance(message, self.cast.takes_time):
            self.put_trainer(trainer, replace(slot, inbox=(*slot.inbox, message)))
        else:
            self._due.append(lambda: self.trainer_takes(trainer, message))

    # ---- servers ----------------------------------------------------------------------------------------------

    def server_takes(self, server: int, event: object) -> None:
        slot = self.server(server)
        self.server_stepped(server, self.cast.server_step(slot.process, event))

    def server_stepped(self, server: int, step: servers.ServerStep) -> None:
        slot = self.server(server)
        self.put_server(server, replace(slot, process=step.process))
        self.wrong(step.violation)
        for message in step.told:
            self.say_to_master(slot.link, self.cast.server_key(slot, server), message)
        self.copies |= {self.cast.shipments.number(shipment) for shipment in step.shipped}

    def copy_arrives(self, shipment: Shipment) -> None:
        """At the process that it is for, which lives; NEED_FULL is heard at once."""
        server = int(shipment.head.target[1:].split(".")[0])
        step = self.cast.copy_step(self.server(server).process, shipment)
        self.server_stepped(server, step)
        source = int(shipment.source[1:].split(".")[0])
        if step.asked_full is not None and self.server(source).process.state.incarnation == shipment.source:
            self.server_takes(source, servers.full_wanted(step.asked_full, server))

    def note_answer(self, push: Push, answer: PushAnswer) -> None:
        """A trainer hears it: what it confirms must never be gone without a new lineage (I5)."""
        for ruling in answer.rulings:
            if ruling.verdict in CONFIRMED:
                self._note(push.lineage, ruling.buckets, push.positions)

    def note_confirmed(self, before: TrainerState, step: trainers.TrainerStep) -> None:
        """What a trainer takes for confirmed by every bucket, and says so, must be so (rules 12, 51)."""
        acked = union(said.positions for said in step.said if isinstance(said, Ack))
        fresh = (_confirmed(step.process.state) | acked) - _confirmed(before) - union(self._skipped())
        self._note(step.process.state.lineage, PositionSet.span(0, len(self.answered)), fresh)

    def _skipped(self) -> Iterator[PositionSet]:
        """What some bucket skips is complete without being applied (rule 11)."""
        for server in range(len(self.servers)):
            yield from (group.skipped for group in self.server(server).process.state.groups)

    def _note(self, lineage: Lineage, buckets: PositionSet, positions: PositionSet) -> None:
        current = self.durable().durable.lineage
        if self.cast.setting.is_moving and current is not None and lineage == current.number:
            self.answered = tuple(told | positions if b in buckets else told for b, told in enumerate(self.answered))

    def forget_answers(self) -> None:
        if self.cast.setting.is_moving:
            self.answered = (EMPTY,) * self.cast.setting.buckets

    def connect_server(self, server: int, term: Term) -> None:
        slot = self.server(server)
        self.put_server(server, replace(slot, link=term, inbox=()))
        key = self.cast.server_key(slot, server)
        self.say_to_master(
            term,
            key,
            RegisterServer(
                name=key.name,
                ordinal=server,
                incarnation=key.incarnation,
                address=f"{key.incarnation}:1",
                lineage=slot.process.state.lineage,
                is_leaving=slot.is_leaving,
            ),
        )

    def say_to_master(self, term: Term, sender: MemberKey, message: MemberMessage) -> None:
        if term != NOBODY:
            self.to_master(term, MessageReceived(sender=sender, message=message))

    # ---- trainers ---------------------------------------------------------------------------------------------

    def trainer_takes(self, trainer: int, event: object) -> None:
        process = self.trainer(trainer).process
        if process is not None:
            self.trainer_stepped(trainer, self.cast.trainer_step(process, event))

    def trainer_stepped(self, trainer: int, step: trainers.TrainerStep) -> None:
        slot = self.trainer(trainer)
        assert slot.process is not None
        key = self.cast.trainer_key(slot.process)
        for message in step.said:
            self.say_to_master(slot.link, key, message)
        if step.is_told_end:
            self.wrong(claims.wrong_with_end(self.durable()))
        self.put_trainer(trainer, replace(slot, process=step.process))
        for gradient in step.pushed:
            self.send(trainer, gradient, gradient.buckets)
        if step.has_left and step.process.ending is not protocol.Ending.ENDED:
            self._due.append(lambda: self.end_trainer(trainer))

    def end_trainer(self, trainer: int) -> None:
        """Its process is over, by whatever cause; its pushes go on."""
        slot = self.trainer(trainer)
        assert slot.process is not None
        if slot.link != NOBODY:
            self.to_master(slot.link, StreamBroken(member=self.cast.trainer_key(slot.process)))
        self.put_trainer(trainer, TrainerSlot(process=None, births=slot.births + 1))

    def connect_trainer(self, trainer: int, term: Term) -> None:
        slot = self.trainer(trainer)
        self.put_trainer(trainer, replace(slot, link=term, inbox=()))
        if slot.process and slot.process.state.phase is not protocol.Phase.APART:
            self.trainer_takes(trainer, protocol.StreamBroken())
        self.trainer_takes(trainer, protocol.StreamOpened())

    # ---- pushes -----------------------------------------------------------------------------------------------

    def gradient_of(self, process: TrainerProcess, parcel: Parcel) -> Gradient | None:
        """What the sender still waits to hear of, in the terms that it knows it by."""
        for gradient in process.computed:
            same = (gradient.positions, gradient.lineage) == (parcel.push.positions, parcel.push.lineage)
            addressed = union(target.buckets for target in parcel.push.targets)
            is_routed = process.targets(parcel.server, addressed) == parcel.push.targets
            if same and is_routed and process.owed(gradient) & addressed:
                return gradient
        return None

    def send(self, trainer: int, gradient: Gradient, buckets: PositionSet) -> None:
        """By the trainer's route, however old that is."""
        process = self.trainer(trainer).process
        assert process is not None
        for server in range(len(self.servers)):
            if targets := process.targets(server, buckets):
                push = Push(lineage=gradient.lineage, positions=gradient.positions, targets=targets)
                addressed = union(target.buckets for target in targets)
                computed_on = tuple((BucketId(b), gradient.computed_on[b][1]) for b in addressed)
                parcel = Parcel(server=server, push=push, computed_on=computed_on, sender=trainer)
                self.net.add(self.cast.parcels.number(parcel))


def _confirmed(state: TrainerState) -> PositionSet:
    return union(holding.confirmed for holding in state.holdings)


def recorded(setting: Setting) -> Etcd:
    return masters.founded(DatasetRecord(dataset=setting.dataset, tables=setting.tables, own_model=setting.own_model))
