"""A master that only keeps a group's records, in this process: rules 73 to 83 and 87 in the plainest form.

It stands in for a job's master where a member is under test: joins and drains are planned, a broken stream or two
silent seconds lose a member, and checkpoints become the head.
"""

import asyncio
import threading
import time
from contextlib import contextmanager

import grpc.aio

from master.api.edl.master.v1 import master_pb2_grpc
from master.api.group_shares import total_steps
from master.api.identities import Lineage, ManifestId
from master.api.messages.from_members import Declare, Leave
from master.api.messages.generations import (
    BrokenGeneration,
    Generation,
    GroupEnded,
    GroupMember,
    GroupProgress,
    HeadState,
    LeaveRequest,
    LeftGeneration,
    NewGeneration,
    OfferState,
    RegisterReplica,
    ReplicaRegistered,
    StateId,
)
from master.api.messages.to_members import Declared, OfferAnswered
from master.api.wire.hello import Hello
from master.api.wire.message_codec import decode_member_envelope, encode_master_envelope

SILENT_S = 3.0
LINEAGE = Lineage(1)


class _Member:
    def __init__(self, register: RegisterReplica, answers: asyncio.Queue) -> None:
        self.register, self.answers = register, answers
        self.left, self.generation = register.left, register.generation
        self.is_synced = self.is_gone = False
        self.is_leaving = register.is_leaving
        self.step = -1
        self.heard_s = time.monotonic()
        self.is_lost = False

    def send(self, *messages) -> None:
        self.answers.put_nowait(messages)


class GroupRecordsMaster(master_pb2_grpc.MasterServicer):
    """Forms the first generation once `start` members are there."""

    def __init__(self, dataset, *, start: int) -> None:
        self._dataset, self._start = dataset, start
        self._members: dict[str, _Member] = {}
        self.head = HeadState(state=StateId(lineage=LINEAGE, generation=0, step=0))
        self.records: list[Generation] = []
        self.broken: set[int] = set()
        self.ended = False
        self.address = ""

    # ---- what tests look at -------------------------------------------------------------------------------------

    def steps(self) -> dict[str, int]:
        return {member.register.name: member.step for member in tuple(self._members.values()) if not member.is_lost}

    @property
    def newest(self) -> Generation | None:
        return self.records[-1] if self.records else None

    def synced(self) -> int:
        """Number of the newest generation if its sync is over at every member, else 0."""
        record = self.newest
        inside = [self._members.get(m.incarnation) for m in record.members] if record else []
        is_synced = bool(inside) and all(m and m.generation == record.number and m.is_synced for m in inside)
        return record.number if is_synced else 0

    # ---- the stream ---------------------------------------------------------------------------------------------

    async def Connect(self, requests, context):  # noqa: N802  gRPC's name
        answers: asyncio.Queue = asyncio.Queue()
        reading = asyncio.create_task(self._read(requests, answers))
        hello = Hello(job="counted", software="test")
        try:
            while (messages := await answers.get()) is not None:
                yield encode_master_envelope(messages, hello=hello)
                hello = None
        finally:
            reading.cancel()

    async def _read(self, requests, answers) -> None:
        member = None
        try:
            async for envelope in requests:
                for message in decode_member_envelope(envelope):
                    if isinstance(message, RegisterReplica):
                        member = _Member(message, answers)
                        self._members[message.incarnation] = member
                    self._hear(member, message)
                self._advance()
        finally:
            if member is not None and member.answers is answers:
                member.is_lost = True
            answers.put_nowait(None)
            self._advance()

    def _hear(self, member: _Member, message) -> None:
        member.heard_s, member.is_lost = time.monotonic(), member.is_gone
        match message:
            case RegisterReplica():
                member.send(ReplicaRegistered(term=1, lineage=LINEAGE, dataset=None, report_every_s=0.2))
            case Declare(dataset=dataset):
                member.send(Declared(dataset=dataset, tables=()))
                if self.ended:
                    member.send(GroupEnded())
            case LeftGeneration(left=left):
                member.left = max(member.left, left)
                member.generation, member.is_synced = 0, False
            case GroupProgress():
                member.generation, member.is_synced = message.generation, message.is_synced
                member.step = message.state.step if message.state else -1
            case LeaveRequest():
                member.is_leaving = True
            case Leave():
                member.is_gone = member.is_lost = True
            case OfferState():
                self._commit(member, message)

    def _commit(self, member: _Member, offer: OfferState) -> None:
        record = self.newest
        manifest = None
        if offer.stamp in (record.number, record.planned_from or -1) and offer.state.step > self.head.state.step:
            manifest = ManifestId(offer.file.name)
            self.head = HeadState(state=offer.state, manifest=manifest, skipped=offer.skipped, files=(offer.file,))
        member.send(OfferAnswered(offer=offer.offer, manifest=manifest))
        if self.head.state.step == total_steps(self._dataset):
            self.ended = True
            for one in self._members.values():
                one.send(GroupEnded())

    # ---- the records --------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        here = {key: m for key, m in self._members.items() if not m.is_lost}
        if self.ended:
            return
        record = self.newest
        if record is None:
            if len(here) >= self._start:
                self._write(here, planned_from=0)
            return
        inside = {m.incarnation for m in record.members}
        before = next((r for r in self.records if r.number == record.planned_from), None)
        is_begun = any(here[key].generation == record.number and here[key].is_synced for key in inside & set(here))
        concerned = inside | ({m.incarnation for m in before.members} if before and not is_begun else set())
        gone = {key for key, m in self._members.items() if m.is_gone}
        reported = {key for key in concerned & set(here) if here[key].left >= (before or record).number}
        if record.number not in self.broken:
            if (concerned - set(here) - gone) | (inside & gone) | reported:
                self.broken.add(record.number)
                for key in concerned & set(here):
                    here[key].send(BrokenGeneration(number=record.number))
            elif is_begun:
                self._plan(here, inside, record)
        elif all(here[key].left >= record.number for key in concerned & set(here)):
            stay = {key: m for key, m in here.items() if not m.is_leaving}
            if stay:
                self._write(stay, planned_from=0)

    def _plan(self, here, inside, record) -> None:
        for member in here.values():
            if member.generation not in (0, record.number, record.planned_from) and member.left < record.number:
                member.send(BrokenGeneration(number=record.number))  # a zombie's generation (rules 74, 92)
        stay = {key: m for key, m in here.items() if not m.is_leaving and (key in inside or m.generation == 0)}
        if stay and set(stay) != inside and set(stay) & inside:
            self._write(stay, planned_from=record.number)

    def _write(self, members, *, planned_from: int) -> None:
        listed = tuple(
            GroupMember(name=m.register.name, incarnation=key, address=m.register.address)
            for key, m in sorted(members.items(), key=lambda one: one[1].register.ordinal)
        )
        number = self.newest.number + 1 if self.records else 1
        record = Generation(number=number, lineage=LINEAGE, members=listed, head=self.head, planned_from=planned_from)
        self.records.append(record)
        for member in self._members.values():
            member.send(NewGeneration(record=record))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            for member in self._members.values():
                if time.monotonic() - member.heard_s > SILENT_S:
                    member.is_lost = True
            self._advance()


@contextmanager
def serving_records(dataset, *, start: int):
    """The master at `address`, in a thread, until the context ends."""
    master = GroupRecordsMaster(dataset, start=start)
    ready, ending = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        server = grpc.aio.server()
        master_pb2_grpc.add_MasterServicer_to_server(master, server)
        master.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        watching = asyncio.create_task(master._watch())
        ready.set()
        await ending.wait()
        watching.cancel()
        await server.stop(0.5)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait()
    try:
        yield master
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()
        loop.close()
