"""Checkpoints in shards of real processes: another size, a writer that is killed, a disk that is full at one rank."""

import asyncio
import resource
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from master.api.checkpoints.audit import read_checkpoint
from master.api.checkpoints.folder_contents import read_contents
from master.api.checkpoints.storage import open_storage
from tests.harness.group_members import BUDGET_S
from trainer_sdk.group.replica_files import read_copy

pytestmark = pytest.mark.chaos
MOST_UNNAMED = 2  # of one trainer: a shard that was refused, and the next one until that is answered
ROOM_BYTES = 1 << 20  # less than a shard


def committed(members):
    """The last checkpoint, which is sound, whose shards are of one step."""
    audit = read_checkpoint(members.master.checkpoints)
    assert audit.is_sound, audit.problems
    loaded = read_copy(open_storage(members.master.checkpoints), audit.head.files)
    np.testing.assert_array_equal(loaded.captured.arrays["ballast"], audit.head.step)
    return audit.head


async def commits_in(members, shards, *, after=None):
    """The first checkpoint of so many shards later than this one."""
    step = -1 if after is None else after.step

    def probe(now):
        head = read_checkpoint(members.master.checkpoints, verifies_files=False).head if now.head else None
        return head is not None and head.step > step and len(head.files) == shards

    await members.wait_for(f"a checkpoint in {shards}", probe)
    return committed(members)


def unnamed(members):
    """Names of shards in the folder that no manifest names."""
    contents = read_contents(open_storage(members.master.checkpoints))
    return set(contents.data_files) - {file.name for one in contents.known.values() for file in one.files}


def wait_until_it_writes(process):
    """Returns while the process has an unfinished file of a checkpoint open."""
    deadline_s = time.monotonic() + BUDGET_S
    while time.monotonic() < deadline_s:
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if descriptor.readlink().name.startswith(".part-"):
                    return
        time.sleep(0.001)
    raise TimeoutError("it never writes a checkpoint")


@pytest.fixture
def large(group):
    (group.folder / "large").touch()
    return group


async def test_shards_are_restored_at_another_size(large):
    """Rules 84, 88, 90: two write, all are lost, three go on from it and write thirds."""
    async with large() as members:
        members.add(2)
        first = await commits_in(members, 2)
        assert len({file.size_bytes // (1 << 20) for file in first.files}) == 1
        for process in members.processes:
            process.kill()
        members.add(3)
        await commits_in(members, 3, after=first)
        await members.check_exact(2, 3, 4)
        assert committed(members).is_complete


async def test_writer_killed_in_the_middle_of_its_shard_leaves_the_head_whole(large):
    """Rule 88: the other shard is dropped, and the next checkpoint is of who is there."""
    async with large() as members:
        members.add(2)
        first = await commits_in(members, 2)
        await asyncio.to_thread(wait_until_it_writes, members.processes[1])
        members.processes[1].kill()
        members.processes[1].wait()
        last = committed(members)
        assert last.step >= first.step
        members.add()
        await commits_in(members, 2, after=last)
        await members.check_exact(0, 2)


async def test_disk_that_is_full_at_one_rank_is_told_and_training_goes_on(large):
    """Rule 88: the status names the trainer; once there is room the next checkpoint has both shards.

    Meanwhile each attempt leaves the other trainer's shard, which goes with its next copy: storage does not grow.
    """
    async with large() as members:
        members.add(2)
        first = await commits_in(members, 2)
        pid, unlimited = members.processes[1].pid, resource.RLIM_INFINITY
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (ROOM_BYTES, unlimited))
        told = await members.wait_for("the problem", lambda now: "no space left" in now.checkpoint_problem)
        assert told.checkpoint_problem.startswith("trainer-1: ")
        await members.wait_trained(2)
        last = committed(members)
        assert last.step >= first.step
        seen = set()

        def has_seen_several(_):
            seen.update(unnamed(members))
            return len(seen) > MOST_UNNAMED

        await members.wait_for("shards that are refused", has_seen_several)
        assert len(unnamed(members)) <= MOST_UNNAMED
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
        await commits_in(members, 2, after=last)
        await members.wait_for("no problem", lambda now: not now.checkpoint_problem)
        await members.check_exact(0, 1)


async def test_members_come_and_go_while_shards_are_written(large):
    """Rules 86, 87: each resize begins while a shard is being written, and each checkpoint is of one step."""
    async with large() as members:
        members.add(2)
        await commits_in(members, 2)
        await asyncio.to_thread(wait_until_it_writes, members.processes[1])
        members.processes[0].terminate()
        await members.finish(0)
        last = committed(members)
        members.add(2)
        third = await commits_in(members, 3, after=last)
        await asyncio.to_thread(wait_until_it_writes, members.processes[1])
        members.add()
        await commits_in(members, 4, after=third)
        await members.check_exact(1, 2, 3, 4)
