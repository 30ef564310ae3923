"""A master that answers without having anything to tell is another thing than one that gives no answer."""

import signal
import socket

from autoscaler.jobs.masters import Door, Masters, NoProgress
from autoscaler.jobs.progress import JobProgress
from tests.integration.master_stage import JOB, MasterProcess, running, until


def door(address, *, token=""):
    return Door(job=JOB, address=address, token=token)


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def test_a_stopped_master_is_silent_and_a_woken_one_is_not(tmp_path):
    """SIGSTOP: the kernel still takes the connection, and nobody reads it."""
    async with running(MasterProcess(tmp_path)) as (master,), Masters() as masters:

        async def leads():
            return isinstance(await masters.ask(door(master.address)), JobProgress)

        await until(leads)
        master.signal(signal.SIGSTOP)
        assert await masters.ask(door(master.address)) is NoProgress.SILENT
        master.signal(signal.SIGCONT)
        await until(leads)


async def test_a_master_that_cannot_lead_answers(tmp_path):
    """Its etcd is nowhere to be found: to kill it would help nobody."""
    process = MasterProcess(tmp_path, EDL_ETCD_ENDPOINTS=f"http://{free_address()}")
    async with running(process) as (master,), Masters() as masters:

        async def answers():
            return await masters.ask(door(master.address)) is NoProgress.REFUSED

        await until(answers)
        assert await masters.look(door(master.address)) is None


async def test_a_refused_token_is_an_answer(tmp_path):
    """It is the asker who is wrong."""
    (tmp_path / "token").write_text("the right one")
    process = MasterProcess(tmp_path, EDL_TOKEN_FILE=str(tmp_path / "token"))
    async with running(process) as (master,), Masters() as masters:

        async def answers():
            return await masters.ask(door(master.address, token="another")) is NoProgress.REFUSED

        await until(answers)


async def test_an_address_where_nobody_listens_is_silent():
    """gRPC says UNAVAILABLE here as well, but no master did."""
    async with Masters() as masters:
        assert await masters.ask(door(free_address())) is NoProgress.SILENT
