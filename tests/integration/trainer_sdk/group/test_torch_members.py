"""Members of a group that train a torch model under a real master: resized, killed and drained, and exact (M10)."""

import asyncio
import re
import signal

import pytest

from master.api.checkpoints.audit import read_checkpoint
from master.api.group_shares import total_steps
from master.api.master_status import JobPhase
from tests.harness.group_members import BUDGET_S
from tests.harness.master_process import JOB
from tests.harness.master_status import try_status
from tests.harness.waiting import wait_for_async
from tests.programs.group_counter import DATASET

pytestmark = [pytest.mark.chaos, pytest.mark.torch]


@pytest.fixture
async def members(torch_group):
    async with torch_group() as made:
        yield made


@pytest.mark.parametrize("kind", ["records by number", "stream"])
async def test_script_survives_a_lost_leader_a_join_and_a_drain_and_is_exact(members, kind):
    """The loop of the guide: weights, schedule and running statistics are the same bits at all that remain.

    Records of a stream are counted as exactly: one that shuffles itself is in one order for all that read it.
    """
    if kind == "stream":
        (members.folder / "stream").touch()
    members.add(3)
    before = await members.wait_trained(3)
    members.processes[0].kill()
    alone = await members.wait_trained(2, above=before.generation)
    members.add()
    joined = await members.wait_trained(3, above=alone.generation)
    members.processes[1].send_signal(signal.SIGTERM)
    assert members.processes[1].wait() == 0
    await members.wait_trained(2, above=joined.generation)
    results = await members.check_exact(2, 3)
    assert (await members.status()).data_problem == ""
    for result in results:
        assert result["buffers"] == results[0]["buffers"]
        assert result["advanced"] == total_steps(DATASET)
        assert result["evaluated"] == [DATASET.size]
    assert not (members.folder / "trainer-1.json").exists()  # who left the epoch's middle ran nothing after it


async def test_data_that_depend_on_who_reads_them_are_told_with_position_and_trainers(members):
    """Nobody is stopped by it: the job's own data are its own affair."""
    (members.folder / "unsteady").touch()
    members.add(2)
    found = await members.wait_for("the problem", lambda now: bool(now.data_problem))
    assert "trainer-0 and trainer-1 have read other data at position" in found.data_problem
    await members.wait_trained(2)


async def failed_status(members):
    async def probe():
        now = await try_status(members.master.address, JOB)
        return now if now is not None and now.phase is JobPhase.FAILED else None

    return await wait_for_async("the job fails", probe, budget_s=BUDGET_S)


async def test_script_whose_rate_depends_on_the_rank_fails_in_its_first_steps(members):
    """Not a green end with a wrong model: the tensor, the trainers and the step are named to all.

    One may train alone for some steps before the other one has started.
    """
    (members.folder / "rate-by-rank").touch()
    members.add(2)
    failed = await failed_status(members)
    differs = r"replicas differ: model\.network\.0\.weight is not the same at trainer-0 and trainer-1 after step (\d+)"
    found = re.match(differs, failed.problem)
    assert found is not None, failed.problem
    if failed.head is not None:
        assert read_checkpoint(members.master.checkpoints).head.state.step < int(found[1])
    told = found[0]
    for ordinal, process in enumerate(members.processes):
        assert await asyncio.to_thread(process.wait, BUDGET_S) == 1
        assert told in (members.folder / f"{ordinal}.log").read_text()


async def test_weight_changed_by_hand_at_one_trainer_is_in_no_checkpoint(members):
    """A copy is offered once its state is compared, so what is committed is from before the change."""
    members.add(2)
    await members.wait_committed()
    (members.folder / "bend-1").touch()
    failed = await failed_status(members)
    assert "model.network.0.weight is not the same at trainer-0 and trainer-1" in failed.problem
    audit = read_checkpoint(members.master.checkpoints)
    assert 0 < audit.head.state.step < int((members.folder / "bent").read_text())


async def test_rank_without_memory_leaves_the_step_to_the_others(members):
    """An error of torch in one rank's step: the rank ends, the master tells why, every record still counts once."""
    members.add(3)
    before = await members.wait_trained(3)
    (members.folder / "out-of-memory-1").touch()
    assert await asyncio.to_thread(members.processes[1].wait, BUDGET_S) == 1
    assert "allocate" in (members.folder / "1.log").read_text()
    members.replace(1)
    again = await members.wait_trained(3, above=before.generation)
    (told,) = again.failures
    assert told.member == "trainer-1"
    assert "allocate" in told.message
    results = await members.check_exact(0, 1, 2)
    assert all(result["buffers"] == results[0]["buffers"] for result in results)
