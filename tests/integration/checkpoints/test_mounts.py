"""A server whose checkpoint.uri is another folder than the master's: what nobody can read is not committed (M11)."""

import asyncio
import sys
from contextlib import closing

import pytest

from master.api.checkpoints.audit import try_head_hint
from master.api.checkpoints.checkpoint_files import check_file, read_manifest
from master.api.checkpoints.local_storage import LocalStorage
from tests.harness.job_processes import RealJob
from tests.harness.master_process import JOB
from tests.harness.master_status import get_status


class MountedJob(RealJob):
    """Its servers have a mount of their own, which leads to the checkpoints of the job until it is moved."""

    def server(self, number):
        self.mount("checkpoints")
        command = [sys.executable, "-m", "trainer_sdk.pserver"]
        mounted = str(self.folder / "mounted")
        return self.start(f"server-{number}", command, EDL_ORDINAL=str(number), EDL_CHECKPOINT_URI=mounted)

    def mount(self, folder):
        (self.folder / folder).mkdir(exist_ok=True)
        new = self.folder / "mounted.new"
        new.symlink_to(folder)
        new.replace(self.folder / "mounted")

    def status(self):
        return asyncio.run(get_status(self.address, JOB))

    def close(self):
        self.stop()


@pytest.mark.chaos
def test_files_that_the_master_cannot_see_are_no_checkpoint(tmp_path):
    """The volume fell off the server's node: the master committed on, and deleted the last whole checkpoint."""
    go_on, storage = tmp_path / "go-on", LocalStorage(tmp_path / "checkpoints")
    with closing(MountedJob(tmp_path, servers=1, EDL_CHECKPOINT_EVERY_S="0.2")) as job:
        arguments = ("--size", 400, "--epochs", 50, "--pause-s", 0.05, "--pause-until", go_on)
        trainer = job.trainer(0, "ledger.py", *arguments)
        job.wait_for(lambda: try_head_hint(storage), "the first checkpoint")
        job.mount("elsewhere")
        problem = job.wait_for(lambda: _missing(job.status().checkpoint_problem), "the master to miss a file")
        assert f"is not in {storage.uri}" in problem
        assert "must see the same checkpoint.uri" in problem
        head = job.status().head
        assert try_head_hint(storage) == head
        for file in read_manifest(storage, head).files:
            check_file(storage, file)
        job.mount("checkpoints")
        go_on.touch()
        assert job.wait_for_exit(trainer) == 0
        assert job.status().head != head


def _missing(problem):
    return problem if "cut-" in problem and "is not in" in problem else ""
