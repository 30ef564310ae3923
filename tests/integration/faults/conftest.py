"""Fixtures of the tests of jobs under process faults."""

import pytest

from tests.chaos.chaos_run import start_chaos_run


@pytest.fixture
async def chaos_run(tmp_path):
    """A run with one etcd member, without jobs."""
    async with start_chaos_run(tmp_path, members=1) as chaos_run:
        yield chaos_run
