"""Members of groups, whose sockets are closed when the test is over."""

import pytest

from tests.integration.trainer_sdk.collective.groups import Members


@pytest.fixture
def new_members():
    made = []

    def make(size, **more):
        made.append(Members(size, **more))
        return made[-1]

    yield make
    for members in made:
        members.close()
