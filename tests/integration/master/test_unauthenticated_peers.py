"""Who holds the master's port without being the master, and who knocks at it without the secret (ADR 0171)."""

import asyncio
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from autoscaler.jobs.master_connections import JobProgress, MasterConnections, MasterEndpoint
from master.api.messages.from_members import RegisterTrainer
from master.api.wire.call_proof import CHALLENGE_KEY, PROOF_KEY
from master.api.wire.calls import SET_SERVERS, STATUS
from master.api.wire.grpc_options import CLIENT_OPTIONS
from master.api.wire.hello import Hello
from tests.harness.master_process import JOB, MasterProcess, running, wait_for_leader
from trainer_sdk.master_stream import MasterAddress, MasterStream

TOKEN = "only the job's own processes know this"
LARGE = bytes(60 * 1024 * 1024)


class Impostor(grpc.GenericRpcHandler):
    """Takes every call at the master's port, writes down what it gets, and answers as it likes."""

    def __init__(self, answer):
        self._answer = answer
        self.metadata, self.messages = [], []
        self.called = threading.Event()

    def service(self, details):
        self.metadata.append(tuple(details.invocation_metadata))
        return grpc.stream_stream_rpc_method_handler(self._take)

    async def _take(self, requests, context):
        self.called.set()
        if self._answer is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no", trailing_metadata=((CHALLENGE_KEY, "mine"),))
        await context.send_initial_metadata(self._answer)
        async for message in requests:
            self.messages.append(message)


@asynccontextmanager
async def impostor(answer):
    server = grpc.aio.server()
    taking = Impostor(answer)
    server.add_generic_rpc_handlers((taking,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield taking, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


class Trainer:
    """Says who it is whenever it believes that a master is there."""

    def __init__(self):
        self.channel = MasterStream(self)
        self.broken, self.refusals = threading.Event(), []

    def stream_opened(self):
        self.channel.send((RegisterTrainer(name="digits-trainer-0", ordinal=0, incarnation="i"),))

    def stream_broken(self, reason):
        self.reason = reason
        self.broken.set()

    def refused(self, reason):
        self.refusals.append(reason)
        self.broken.set()

    def received(self, messages):
        raise AssertionError(f"an impostor was listened to: {messages}")


@pytest.mark.parametrize(
    "answer", [(), ((PROOF_KEY, "0" * 64),), ((CHALLENGE_KEY, "mine"), (PROOF_KEY, "")), None], ids=str
)
async def test_who_holds_the_masters_port_learns_nothing_of_a_trainer(answer, monkeypatch):
    """The secret stood in the metadata of the first call, in clear: it opened every job of a run."""
    monkeypatch.setattr("trainer_sdk.master_stream._PROOF_S", 1.0)
    async with impostor(answer) as (taking, address):
        trainer = Trainer()
        trainer.channel.connect(MasterAddress(target=address, hello=Hello(job=JOB), token=TOKEN))
        assert await asyncio.to_thread(trainer.broken.wait, 60)
        assert await asyncio.to_thread(taking.called.wait, 60)  # an attempt may be over before it has come there
        await asyncio.to_thread(trainer.channel.close, farewell_s=0.0)
        assert taking.metadata
        assert TOKEN not in str(taking.metadata)
        assert taking.messages == []


async def test_who_holds_the_masters_port_learns_nothing_of_the_cluster_side():
    """Its questions go on, its secret does not; what comes back is believed by nobody."""
    async with impostor(((PROOF_KEY, "0" * 64),)) as (taking, address), MasterConnections() as masters:
        door = MasterEndpoint(job=JOB, address=address, token=TOKEN)
        assert not isinstance(await masters.poll(door), JobProgress)
        assert TOKEN not in str(taking.metadata)


def memory_of(pid):
    """Resident, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@pytest.mark.parametrize("method", [STATUS, SET_SERVERS])
async def test_a_strangers_large_messages_are_not_read(tmp_path, method):
    """Each was read, up to 64 MiB, before its sender was asked who it is: twenty took a master to 2 GB."""
    (tmp_path / "token").write_text(TOKEN)
    master = MasterProcess(tmp_path, EDL_TOKEN_FILE=str(tmp_path / "token"))
    async with running(master):
        await wait_for_leader(master, token=TOKEN)
        before = memory_of(master._process.pid)
        async with grpc.aio.insecure_channel(master.address, options=CLIENT_OPTIONS) as channel:
            call = channel.unary_unary(method)
            codes = await asyncio.gather(*(code_of(call(LARGE, timeout=120)) for _ in range(6)))
        assert set(codes) == {grpc.StatusCode.UNAUTHENTICATED}
        assert memory_of(master._process.pid) - before < 100
        await wait_for_leader(master, token=TOKEN)


def count(folder):
    return len(list(Path(folder).iterdir()))


class NarrowMaster(MasterProcess):
    """It may have a thousand open files, as on many machines."""

    program = ("sh", "-c", 'ulimit -n 1024; exec "$0" -m master', sys.executable)


@pytest.mark.usefixtures("many_descriptors")
async def test_silent_connections_leave_a_master_its_files(tmp_path):
    """They took every descriptor: no checkpoint could be written, no store be reached, no metrics be asked."""
    (tmp_path / "token").write_text(TOKEN)
    master = NarrowMaster(tmp_path, EDL_TOKEN_FILE=str(tmp_path / "token"))
    async with running(master):
        await wait_for_leader(master, token=TOKEN)
        host, _, port = master.address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(1100)]
        assert count(f"/proc/{master._process.pid}/fd") < 600
        await wait_for_leader(master, token=TOKEN)  # when their time to say something is over
        assert "File descriptor limit reached" not in master.log
        for _, writer in silent:
            writer.transport.abort()


async def code_of(call):
    return await call.code()
