"""A torch script that ends its job early, under a real master: all trainers decide alike, or one alone (rule 97)."""

import asyncio
import signal

import pytest

from master.api.checkpoints.audit import read_checkpoint
from master.api.group_shares import steps_per_epoch
from master.api.master_status import JobPhase
from tests.harness.group_members import GroupMembers
from tests.harness.master_process import wait_for_leader
from tests.programs.group_counter import DATASET

pytestmark = [pytest.mark.chaos, pytest.mark.torch]
EPOCH = steps_per_epoch(DATASET)
ENOUGH = 20  # epochs: minutes, until the file `hurry` is there


async def check_stopped(members: GroupMembers, *ordinals: int, step: int | None = None) -> int:
    """The job is complete at one step for all, which the last checkpoint holds; that step."""
    results = await members.finish(*ordinals)
    status = await members.wait_for("the end", lambda now: now.phase is JobPhase.COMPLETE)
    audit = read_checkpoint(members.master.checkpoints)
    assert audit.is_sound, audit.problems
    assert audit.head.is_complete
    assert audit.head.state.is_stopped
    step = audit.head.step if step is None else step
    assert (audit.head.step, status.group_step, status.stopped_at) == (step, step, step)
    assert step < status.group_steps == DATASET.epochs * EPOCH
    for result in results:
        assert (result["reason"], result["step"], result["advanced"]) == ("ended", step, step)
        assert (result["counts"], result["weights"]) == (results[0]["counts"], results[0]["weights"])
    return step


async def test_trainers_that_decide_alike_end_the_job_with_the_epoch(torch_group):
    """Each finds the same number after the same step: nobody is disturbed, the hook runs once, later ones are told."""
    for name, text in (("enough", str(ENOUGH)), ("hook", ""), ("hooked", "9\n"), ("saved", "")):
        (torch_group.folder / name).write_text(text)
    async with torch_group() as members:
        members.add(3)
        before = await members.wait_trained(3)
        (torch_group.folder / "hurry").touch()
        await check_stopped(members, 0, 1, 2, step=ENOUGH * EPOCH)
        assert (await members.status()).generation == before.generation
        assert len(members.hooked()) == 2
        members.add()
        assert await asyncio.to_thread(members.processes[3].wait, 60) == 0
        assert len(members.hooked()) == 2


async def test_members_killed_and_drained_on_the_way_change_no_end(torch_group):
    """The step that training ends with is the same, whoever is left to find it."""
    (torch_group.folder / "enough").write_text(str(ENOUGH))
    async with torch_group() as members:
        members.add(3)
        before = await members.wait_trained(3)
        members.processes[0].kill()
        alone = await members.wait_trained(2, above=before.generation)
        members.add()
        await members.wait_trained(3, above=alone.generation)
        members.processes[1].send_signal(signal.SIGTERM)
        (torch_group.folder / "hurry").touch()
        await check_stopped(members, 2, 3, step=ENOUGH * EPOCH)


async def test_one_trainer_alone_ends_the_job_for_all(torch_group):
    """The others wait in the next step; they are told by a change of members, and nobody trains past it."""
    async with torch_group() as members:
        members.add(3)
        await members.wait_trained(3)
        (torch_group.folder / "stop-1").touch()
        step = await check_stopped(members, 0, 1, 2)
        assert 0 < step < DATASET.epochs * EPOCH


async def test_all_lost_after_the_stop_find_it_in_the_file(torch_group):
    """The final hook is owed: new processes load the last step, run it, and train no further (90, 96, 97)."""
    (torch_group.folder / "hook").touch()
    (torch_group.folder / "enough").write_text(str(ENOUGH))
    async with torch_group() as members:
        members.add(2)
        await members.wait_trained(2)
        (torch_group.folder / "hurry").touch()
        await members.wait_for("the hook", lambda now: now.phase is JobPhase.SAVING and len(members.hooked()) == 2)
        for process in members.processes:
            process.kill()
        (torch_group.folder / "saved").touch()
        members.add(2)
        await members.finish(2, 3)
        saver = members.hooked()[-1]
        assert saver in (2, 3)
        await check_stopped(members, saver, step=ENOUGH * EPOCH)


async def test_master_that_comes_after_the_stop_learns_it_from_the_members(torch_group, etcd):
    """Steps need no master, and neither does a stop: it waits for the commit alone (91, 97)."""
    async with torch_group(EDL_ETCD_ENDPOINTS=",".join(etcd.endpoints)) as members:
        members.add(2)
        await members.wait_trained(2)
        await members.master.kill()
        for ordinal in range(2):
            (torch_group.folder / f"stop-{ordinal}").touch()
        await members.master.start()
        await wait_for_leader(members.master)
        await check_stopped(members, 0, 1)
