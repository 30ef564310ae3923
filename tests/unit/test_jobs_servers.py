"""The number of servers that a master is told, from the pods that stand."""

import pytest

from autoscaler.jobs.servers import servers_wanted


@pytest.mark.parametrize(
    ("standing", "wanted"),
    [
        ((0, 1), 2),
        ((0, 1, 2), 3),  # the third has been created: it gets its share as soon as it is there
        ((0, 2), 3),  # the second is drained: the third stays, whether it was there before or took its place
        ((0,), 2),  # the last one too: below the minimum it is only waited for
        ((), 2),
    ],
)
def test_the_number_is_one_more_than_the_last_that_stands(standing, wanted):
    """Never below the minimum, which a job needs to train at all."""
    assert servers_wanted(2, standing) == wanted
