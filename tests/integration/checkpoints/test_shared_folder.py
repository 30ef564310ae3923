"""Two jobs with a store each are given one checkpoint folder that nobody has claimed (M11, ADR 0188)."""

import asyncio

import pytest

from master.api.checkpoints.folder_contents import read_contents
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.resume import later_commit_after
from master.api.identities import DatasetSpec
from tests.harness.master_process import JOB, MasterProcess, Sharder, leads, running, wait_for_condition
from tests.harness.master_status import get_status
from tests.integration.master.test_faults import until_committed

DATASET = DatasetSpec(name="digits", size=20000, epochs=2, batch_size=10)
EVERY_S = {"EDL_CHECKPOINT_EVERY_S": "0.2"}


@pytest.mark.chaos
async def test_a_second_job_in_the_folder_of_a_first_one_is_told_and_costs_it_nothing(tmp_path):
    """A copied definition: both went on in one history, and each deleted what the other had committed."""
    first = MasterProcess(tmp_path, EDL_NAME="first", EDL_HISTORY="job-1", **EVERY_S)
    second = MasterProcess(tmp_path, EDL_NAME="second", EDL_HISTORY="job-2", **EVERY_S)
    folder = tmp_path / "checkpoints"
    async with running(first):
        work = [asyncio.create_task(Sharder(DATASET, pause_s=0.02).run(first.address))]
        await until_committed(first, more_than=200)
        async with running(second):
            work.append(asyncio.create_task(Sharder(DATASET, pause_s=0.02).run(second.address)))

            async def is_told():
                if not await leads(second):
                    return False
                return "two jobs write into" in (await get_status(second.address, JOB)).checkpoint_problem

            await wait_for_condition(is_told)
            before = (await get_status(first.address, JOB)).positions.committed
            await until_committed(first, more_than=before + 200)
            for path in folder.glob("manifest-000002-*.json"):
                assert '"history": "job-2"' in path.read_text()
        status = await get_status(first.address, JOB)
        assert not status.checkpoint_problem
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
    contents = read_contents(LocalStorage(folder))
    head = contents.manifests[contents.head]  # the last that the first one committed, or has left behind as it ended
    assert head.history == "job-1"
    assert len(head.data) >= status.positions.committed
    assert not later_commit_after(head, contents.manifests, contents.retired)
