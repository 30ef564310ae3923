"""A group of processes under a real master."""

from contextlib import asynccontextmanager

import pytest

from tests.harness.group_members import GroupMembers
from tests.harness.master_process import MasterProcess, running, wait_for_leader


@pytest.fixture
def group(tmp_path):
    @asynccontextmanager
    async def make(program: str = "group_counter.py", **environment: str):
        (tmp_path / "sockets").mkdir(mode=0o700)
        settings = {"EDL_GROUP": "1", "EDL_CHECKPOINT_EVERY_S": "1"}
        async with running(MasterProcess(tmp_path, **settings | environment)) as (master,):
            await wait_for_leader(master)
            made = GroupMembers(tmp_path, master, program)
            try:
                yield made
            finally:
                made.end()

    make.folder = tmp_path
    return make
