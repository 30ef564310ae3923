"""Members of a group that keep a NumPy model by `own_model`, under a real master: resized, killed and exact."""

import signal

import pytest

from tests.harness.group_members import GroupMembers
from tests.harness.master_process import MasterProcess, running, wait_for_leader

pytestmark = pytest.mark.chaos


@pytest.fixture
async def members(tmp_path):
    (tmp_path / "sockets").mkdir(mode=0o700)
    async with running(MasterProcess(tmp_path, EDL_GROUP="1", EDL_CHECKPOINT_EVERY_S="1")) as (master,):
        await wait_for_leader(master)
        made = GroupMembers(tmp_path, master, "own_model_member.py")
        try:
            yield made
        finally:
            made.end()


async def test_sums_of_several_trainers_survive_a_join_a_kill_and_a_drain(members):
    """Rules 67 to 83 for a script with `all_reduce`: every record once an epoch, the same bits at all that remain."""
    members.add()
    alone = await members.wait_trained(1)
    members.add(2)
    joined = await members.wait_trained(3, above=alone.generation)
    members.processes[1].kill()
    fewer = await members.wait_trained(2, above=joined.generation)
    members.processes[0].send_signal(signal.SIGTERM)
    (left,) = await members.finish(0)
    assert left["reason"] == "drained"
    last = await members.wait_trained(1, above=fewer.generation)
    members.add()
    await members.wait_trained(2, above=last.generation)
    await members.check_exact(2, 3)
