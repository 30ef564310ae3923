"""A master that answers without having anything to tell is another thing than one that gives no answer."""

import asyncio
import signal
import socket

from autoscaler.jobs.master_connections import MasterConnections, MasterEndpoint
from autoscaler.jobs.progress import JobProgress, WhyNoAnswer
from master.api.wire.grpc_options import CLIENT_OPTIONS
from tests.harness.master_process import JOB, MasterProcess, running, wait_for_condition

RECONNECT_S = dict(CLIENT_OPTIONS)["grpc.max_reconnect_backoff_ms"] / 1000


def door(address, *, token=""):
    return MasterEndpoint(job=JOB, address=address, token=token)


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def test_a_stopped_master_is_silent_and_a_woken_one_is_not(tmp_path):
    """SIGSTOP: the kernel still takes the connection, and nobody reads it."""
    async with running(MasterProcess(tmp_path)) as (master,), MasterConnections() as masters:

        async def leads():
            return isinstance(await masters.poll(door(master.address)), JobProgress)

        await wait_for_condition(leads)
        master.signal(signal.SIGSTOP)
        assert await masters.poll(door(master.address)) is WhyNoAnswer.SILENT
        master.signal(signal.SIGCONT)
        await wait_for_condition(leads)


async def test_a_master_that_cannot_lead_answers(tmp_path):
    """Its etcd is nowhere to be found: to kill it would help nobody."""
    process = MasterProcess(tmp_path, EDL_ETCD_ENDPOINTS=f"http://{free_address()}")
    async with running(process) as (master,), MasterConnections() as masters:

        async def answers():
            return await masters.poll(door(master.address)) is WhyNoAnswer.NOT_LEADING

        await wait_for_condition(answers)
        assert await masters.try_poll(door(master.address)) is None


async def test_a_refused_token_is_an_answer(tmp_path):
    """It is the asker who is wrong."""
    (tmp_path / "token").write_text("the right one")
    process = MasterProcess(tmp_path, EDL_TOKEN_FILE=str(tmp_path / "token"))
    async with running(process) as (master,), MasterConnections() as masters:

        async def answers():
            return await masters.poll(door(master.address, token="another")) is WhyNoAnswer.NOT_LEADING

        await wait_for_condition(answers)


async def test_an_address_where_nobody_listens_is_silent():
    """gRPC says UNAVAILABLE here as well, but no master did."""
    async with MasterConnections() as masters:
        assert await masters.poll(door(free_address())) is WhyNoAnswer.SILENT


async def test_nobody_knocks_where_no_master_answered_until_it_is_asked_again():
    """A channel that is kept would connect anew each second, for as long as the master is away."""
    knocks = []

    async def hang_up(_reader, writer):
        knocks.append(writer)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1") as server, MasterConnections() as masters:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

        async def is_left_alone():
            assert await masters.poll(door(address)) is WhyNoAnswer.SILENT
            before = len(knocks)
            await asyncio.sleep(3 * RECONNECT_S)
            return 0 < before == len(knocks)

        await wait_for_condition(is_left_alone)


async def test_two_who_ask_at_once_both_hear_that_nobody_is_there():
    async with MasterConnections() as masters:
        there = door(free_address())
        assert await asyncio.gather(*(masters.poll(there) for _ in range(3))) == [WhyNoAnswer.SILENT] * 3
