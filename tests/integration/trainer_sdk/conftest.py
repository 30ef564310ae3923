"""One process that has imported torch, for all tests whose trainers need it."""

from contextlib import closing

import pytest

from tests.harness.forked_programs import ForkedPrograms


@pytest.fixture(scope="session")
def torch_forks():
    with closing(ForkedPrograms()) as forks:
        yield forks
