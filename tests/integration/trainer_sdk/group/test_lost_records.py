"""A group whose master is killed, and whose records were in that master's memory: no etcd (M8, rules 29 and 64)."""

import pytest

from tests.harness.master_process import wait_for_leader

pytestmark = pytest.mark.chaos
NEVER_S = "3600"  # between checkpoints: none is made before the last step


async def restart_master(members) -> None:
    await members.master.kill()
    await members.master.start()
    await wait_for_leader(members.master)


async def test_without_a_checkpoint_the_group_goes_on_from_its_replicas(group):
    """The processes live, and hold all that was trained: every record is counted `epochs` times (M1, M9)."""
    async with group(EDL_CHECKPOINT_EVERY_S=NEVER_S) as members:
        members.add(2)
        before = await members.wait_trained(2)
        assert before.head is None
        await restart_master(members)
        after = await members.wait_trained(2, above=before.generation)
        assert after.lineage == before.lineage
        results = await members.check_exact(0, 1)
        assert all(one["redone"] <= 1 for one in results)


async def test_with_a_checkpoint_the_group_goes_back_to_it(group):
    """The lineage is raised, so what was trained since is trained again; no process begins anew (M8, M9)."""
    async with group() as members:
        members.add(2)
        committed = await members.wait_committed()
        await members.wait_trained(2)
        await restart_master(members)
        after = await members.wait_trained(2, above=committed.generation)
        assert after.lineage == committed.lineage + 1
        assert after.head is not None
        await members.check_exact(0, 1)
