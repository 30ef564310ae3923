"""A world in the making: who hears what, and what follows at once.

What moves by itself, step by step: a push to one server; RESTORE, HOLD, CUT, DROP, SKIP and FENCED to one member; a
transaction, a manifest, a file; a deadline; a member's reconnecting.  What is done at once, because its delay is the
delay of something else: what members say to the master (it is said late if the step before comes late), the other
answers of a master, loading a base.  A stream keeps its order and loses what is on it when it breaks.  Pushes may be
late, arrive in any order, be lost, be answered without the answer's arriving, and outlive the process that sent them.

Not here: which steps there are (`steps`), what must hold after each (`claims`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from master.api.identities import BucketId, Lineage, Term
from master.api.messages.from_members import Ack, MemberMessage, RegisterServer
from master.api.messages.to_members import MasterMessage, Refused, Released, ServerWelcome
from master.api.positions import EMPTY, PositionSet, union
from master.job.domain.durable_records import MemberKey
from master.job.domain.effects import CloseStream, Send
from master.job.domain.job_events import CoreEvent, MessageReceived, StreamBroken
from tests.protocol import claims, masters, servers, trainers
from tests.protocol.masters import Etcd
from tests.protocol.servers import Shipment
from tests.protocol.trainers import Gradient
from tests.protocol.world import NOBODY, Cast, Parcel, ServerSlot, TrainerSlot, World
from trainer_sdk.protocol import trainer_events, trainer_state
from trainer_sdk.protocol.trainer_state import TrainerState
from trainer_sdk.pserver.core.messages import CONFIRMED, Push, PushAnswer


class Draft:
    """A world in the making: take a step in it, `settle` what follows at once, and read the result."""

    def __init__(self, cast: Cast, world: World) -> None:
        self.cast = cast
        self.leader, self.zombies = world.leader, list(world.zombies)
        self.etcd, self.storage = world.etcd, world.storage
        self.servers, self.trainers = list(world.servers), list(world.trainers)
        self.net, self.faults = set(world.net), world.faults
        self.copies, self.answered, self.wish = set(world.copies), world.answered, world.wish
        self.relays = set(world.relays)
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
            tuple(sorted(self.relays)),
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

    def term(self) -> Term:
        """Of the master that leads."""
        return self.cast.masters[self.leader].state.term

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
        return self

    # ---- masters ----------------------------------------------------------------------------------------------

    def to_leader(self, event: CoreEvent) -> None:
        self._due.append(lambda: self._master_takes(self.cast.masters[self.leader].state.term, event))

    def to_master(self, term: Term, event: CoreEvent) -> None:
        """Nothing when that master is no more."""
        self._due.append(lambda: self._master_takes(term, event))

    def find_master(self, term: Term) -> int | None:
        return next((m for m in (self.leader, *self.zombies) if self.cast.masters[m].state.term == term), None)

    def replace_master(self, old: int, new: int) -> None:
        if old == self.leader:
            self.leader = new
        else:
            self.zombies[self.zombies.index(old)] = new

    def _master_takes(self, term: Term, event: CoreEvent) -> None:
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
                self._due.append(
                    lambda trainer=trainer: self.trainer_takes(trainer, trainer_events.MasterStreamBroken())
                )

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
        self.put_server(server, replace(slot, link=term, inbox=(), late=self._late(slot)))
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

    def _late(self, slot: ServerSlot) -> tuple[MasterMessage, ...]:
        """A stream loses what is on it; but nothing may depend on that (rule 60), so it is explored without, too."""
        if not self.cast.setting.faults.late:
            return ()
        return (*slot.late, *(m for m in slot.inbox if not isinstance(m, CloseStream | Released)))

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
        if step.has_left and step.process.ending is not trainer_events.FinishReason.ENDED:
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
        if slot.process and slot.process.state.phase is not trainer_state.TrainerPhase.DISCONNECTED:
            self.trainer_takes(trainer, trainer_events.MasterStreamBroken())
        self.trainer_takes(trainer, trainer_events.MasterStreamOpened())

    # ---- pushes -----------------------------------------------------------------------------------------------

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
    return union(holding.confirmed for holding in state.leases)
