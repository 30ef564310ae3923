"""`python -m master` as a process, and members that use its gRPC streams without the SDK."""

import asyncio
import itertools
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc.aio

from master.api.edl.master.v1 import master_pb2_grpc
from master.api.identities import DatasetSpec, Incarnation, MemberName
from master.api.messages.from_members import Ack, Acquire, Declare, RegisterTrainer
from master.api.messages.to_members import Declared, Ended, Fenced, Granted, Registered, Wait
from master.api.positions import EMPTY, PositionSet
from master.api.wire.call_proof import Prover
from master.api.wire.calls import CONNECT
from master.api.wire.grpc_options import CLIENT_OPTIONS
from master.api.wire.hello import Hello
from master.api.wire.message_codec import decode_hello, decode_master_envelope, encode_member_envelope
from tests.harness.master_status import get_status
from tests.harness.waiting import wait_for_async

BUDGET_S = 100.0
JOB = "digits"
_HELD: list[socket.socket] = []


def free_port() -> int:
    """A port reserved until this process ends, which keeps it bound; a server with SO_REUSEADDR can listen there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    return held.getsockname()[1]


class MasterProcess:
    """One master; `start` again after its end makes a new process with the same settings."""

    program = (sys.executable, "-m", "master")

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.log_file = folder / f"{environment.get('EDL_NAME', 'master')}.log"
        self._address_file = folder / f"{environment.get('EDL_NAME', 'master')}.address"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("EDL_")},
            "EDL_JOB": JOB,
            "EDL_CHECKPOINT_URI": str(folder / "checkpoints"),
            "EDL_ADDRESS_FILE": str(self._address_file),
            "EDL_CHECK_INVARIANTS": "1",
            "EDL_LISTEN": f"127.0.0.1:{free_port()}",  # a restarted pod keeps its name; members dial it again
            **environment,
        }
        self.address = ""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def checkpoints(self) -> str:
        return self._environment["EDL_CHECKPOINT_URI"]

    async def start(self) -> None:
        """Afterwards the master listens; it need not lead yet."""
        self._address_file.unlink(missing_ok=True)
        with self.log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.program, env=self._environment, stdout=log, stderr=log
            )
        async with asyncio.timeout(BUDGET_S):
            while not self._address_file.exists():
                assert self._process.returncode is None, self.log_file.read_text()
                await asyncio.sleep(0.02)
        self.address = self._address_file.read_text().strip()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        async with asyncio.timeout(BUDGET_S):
            return await self._process.wait()

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.wait()

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)
                self.signal(signal.SIGTERM)
                try:
                    await self.wait()
                except TimeoutError:
                    await self.kill()
                    raise

    @property
    def log(self) -> str:
        return self.log_file.read_text()


@asynccontextmanager
async def running(*masters: MasterProcess):
    """Context that runs these masters."""
    try:
        for master in masters:
            await master.start()
        yield masters
    finally:
        for master in masters:
            await master.stop()


@asynccontextmanager
async def serving(master: MasterProcess):
    """Starts the master, and waits until it leads its job."""
    async with running(master):
        await wait_for_leader(master)
        yield master


class MemberStream:
    """One member's stream."""

    def __init__(self, address: str, *, token: str = "", hello: Hello | None = None, options=CLIENT_OPTIONS) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=options)
        self._stub = master_pb2_grpc.MasterStub(self._channel)
        self._prover = Prover(token=token, job=JOB)
        self._call = self._connect()
        self._hello = hello or Hello(job=JOB)
        self._heard = []
        self.master_hello = None

    def _connect(self):
        return self._stub.Connect(metadata=self._prover.begin(CONNECT).metadata)

    async def __aenter__(self):
        if self._prover.begin(CONNECT).metadata:
            await self._call.code()  # refused, with a challenge
            if self._prover.store_challenge(await self._call.trailing_metadata()):
                self._call = self._connect()
        return self

    async def __aexit__(self, *_):
        self._call.cancel()
        await self._channel.close()

    async def send(self, *messages):
        envelope = encode_member_envelope(messages, hello=self._hello)
        self._hello = None
        await self._call.write(envelope)

    async def receive(self):
        """The next message.  Raises EOFError when the master has ended the stream, RpcError when it refused it."""
        async with asyncio.timeout(BUDGET_S):
            while not self._heard:
                envelope = await self._call.read()
                if envelope is grpc.aio.EOF:
                    status = await self._call.code()
                    if status is not grpc.StatusCode.OK:
                        await self._call.initial_metadata()
                        raise grpc.aio.AioRpcError(status, None, None, await self._call.details())
                    raise EOFError
                if envelope.HasField("hello"):
                    self.master_hello = decode_hello(envelope)
                self._heard += decode_master_envelope(envelope)
        return self._heard.pop(0)

    async def receive_one(self, *kinds):
        """The next message of these kinds; others are passed over."""
        while True:
            message = await self.receive()
            if isinstance(message, kinds):
                return message


async def leads(master: MasterProcess, *, token: str = "") -> bool:
    try:
        await get_status(master.address, JOB, token=token)
    except grpc.aio.AioRpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return False
        raise
    return True


async def wait_for_condition(condition, budget_s=BUDGET_S):
    await wait_for_async("the condition", condition, budget_s=budget_s)


async def wait_for_leader(master: MasterProcess, *, token: str = "") -> None:
    await wait_for_async("the master leads", lambda: leads(master, token=token), budget_s=BUDGET_S)


class Sharder:
    """A trainer of plain sharding; `trained` is every set of positions that it has acked."""

    _numbers = itertools.count()

    def __init__(self, dataset: DatasetSpec, *, pause_s: float = 0.0, shards: int = 2) -> None:
        number = next(self._numbers)
        self.name = MemberName(f"{JOB}-trainer-{number}")
        self.incarnation = Incarnation(f"incarnation-{number}")
        self.dataset = dataset
        self.pause_s = pause_s
        self.shards = shards
        self.trained: list[PositionSet] = []
        self.held = ()
        self.requests = itertools.count(1)
        self.terms = set()
        self.fenced = 0

    def registration(self) -> RegisterTrainer:
        return RegisterTrainer(name=self.name, ordinal=0, incarnation=self.incarnation, held=self.held)

    async def register(self, member: MemberStream) -> Registered:
        """Registers and declares the data set; `acquire` or `run` come next."""
        while True:
            await member.send(self.registration(), Declare(dataset=self.dataset))
            registered = await member.receive_one(Registered)
            if isinstance(await member.receive_one(Declared, Fenced), Declared):
                break
            self.held = ()  # a first lineage was begun meanwhile: once more (rule 14)
        self.held = registered.kept
        self.terms.add(registered.term)
        return registered

    async def acquire(self, member: MemberStream, *, shards: int = 1):
        """The leases granted; a new master answers Wait first."""
        while True:
            await member.send(Acquire(request=next(self.requests), shards=shards))
            match await member.receive_one(Granted, Wait, Fenced):
                case Granted() as granted:
                    return granted
                case Fenced():
                    await self.register(member)
                case Wait() as wait:
                    await asyncio.sleep(wait.retry_after_s)

    async def run(self, address: str) -> None:
        """Trains to the end, across streams and masters."""
        async with asyncio.timeout(250):
            while True:
                try:
                    async with MemberStream(address) as member:
                        await self.register(member)
                        if await self._train(member):
                            return
                except (grpc.aio.AioRpcError, EOFError, grpc.aio.UsageError, asyncio.InvalidStateError):
                    await asyncio.sleep(0.05)

    async def train(self, lease) -> None:
        """Overridden by tests that hold a lease for longer."""
        await asyncio.sleep(self.pause_s)

    async def _train(self, member: MemberStream) -> bool:
        while True:
            for lease in self.held:
                await self.train(lease)
                self.trained.append(lease.positions)
            acks = [Ack(token=lease.token, positions=lease.positions) for lease in self.held]
            await member.send(*acks, Acquire(request=next(self.requests), shards=self.shards))
            self.held = ()
            match await member.receive_one(Granted, Wait, Ended, Fenced):
                case Granted() as granted:
                    self.held = granted.leases
                case Wait() as wait:
                    await asyncio.sleep(wait.retry_after_s)
                case Fenced():
                    self.fenced += 1
                    await self.register(member)
                case Ended():
                    return True


def overlaps(sets) -> PositionSet:
    """Positions that are in more than one set."""
    seen, twice = EMPTY, EMPTY
    for positions in sets:
        twice |= seen & positions
        seen |= positions
    return twice
