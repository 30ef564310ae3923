"""A group of processes under a real master."""

from contextlib import asynccontextmanager
from functools import partial

import pytest

from tests.harness.group_members import GroupMembers
from tests.harness.master_process import MasterProcess, running, wait_for_leader


@pytest.fixture
def group(tmp_path):
    """`group(PROGRAM, **environment of the master)`; what else `GroupMembers` takes, by keyword."""

    @asynccontextmanager
    async def make(program: str = "group_counter.py", *, members: dict | None = None, **environment: str):
        (tmp_path / "sockets").mkdir(mode=0o700)
        settings = {"EDL_GROUP": "1", "EDL_CHECKPOINT_EVERY_S": "1"}
        async with running(MasterProcess(tmp_path, **settings | environment)) as (master,):
            await wait_for_leader(master)
            made = GroupMembers(tmp_path, master, program, **members or {})
            try:
                yield made
            finally:
                made.end()

    make.folder = tmp_path
    return make


@pytest.fixture
def torch_group(group, torch_forks):
    """`group()` of members that run torch."""
    arrays = ("model.counts", "model.network.0.weight")
    make = partial(group, "torch_group.py", members={"arrays": arrays, "forks": torch_forks})
    make.folder = group.folder
    return make
