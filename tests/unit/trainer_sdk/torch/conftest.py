"""A script's session, in a group of one."""

import pytest

from tests.harness.thread_group import ThreadGroup, ThreadSession


@pytest.fixture
def session(request):
    """Of the module's DATASET."""
    made = ThreadSession(ThreadGroup(request.module.DATASET, {0: 1}), 0)
    yield made
    if made.replica is not None:
        made.replica.buckets.close()
