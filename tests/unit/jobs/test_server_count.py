"""The number of servers that a master is told, from the pods that stand."""

from dataclasses import replace

import pytest

from autoscaler.jobs.progress import JobProgress
from autoscaler.jobs.server_count import (
    EXIT_OWNING,
    describe_loss,
    loss_of,
    only_copies_of,
    servers_wanted,
)
from autoscaler.manifests.api_types import AfterServerLoss
from master.api.master_status import JobPhase
from trainer_sdk.pserver import __main__ as server


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


def test_what_a_server_that_left_has_lost_is_told_by_its_exit_code():
    """One number on both sides, which do not import one another."""
    assert EXIT_OWNING == server.EXIT_OWNING
    assert loss_of(0, "exited with 0") == ""
    assert "last checkpoint" in loss_of(EXIT_OWNING, "exited with 75")
    assert loss_of(-9, "was killed by SIGKILL") == "was killed by SIGKILL, before it had handed over what it held"
    assert loss_of(None, "its node is gone")
    assert loss_of(-9, "was killed by SIGKILL", was_empty=True) == "", "it had handed over everything before"
    assert loss_of(EXIT_OWNING, "exited with 75", was_empty=True), "it says otherwise itself"
    assert loss_of(-15, "was killed by SIGTERM") == "", (
        "it was still starting: the SDK hears SIGTERM before it asks the master"
    )


HELD = JobProgress(phase=JobPhase.TRAINING, lineage=1, buckets=((0, 16), (1, 48)))


@pytest.mark.parametrize(
    ("progress", "count"),
    [
        (HELD, 48),
        (replace(HELD, copies=2), 0),
        (
            replace(HELD, copies=2, single_copy_buckets=5),
            0,
        ),  # whose these are is not known: the master tells what becomes of them
        (replace(HELD, copies=2, single_copy_buckets=64), 48),
        (replace(HELD, buckets=((0, 64), (1, 0))), 0),
        (replace(HELD, lineage=0), 0),
        (None, 0),
    ],
)
def test_what_nobody_has_but_one_server(progress, count):
    """As the master said last; nothing where that is not known."""
    assert only_copies_of(1, progress) == count


def test_what_follows_from_the_end_of_the_only_copy():
    assert describe_loss("x-server-1", 48, AfterServerLoss.ROLL_BACK) == (
        "x-server-1 has ended with 48 buckets that nobody else has: the job goes back to its last checkpoint"
    )
    assert describe_loss("x-server-1", 1, AfterServerLoss.KEEP) == (
        "x-server-1 has ended with a bucket that nobody else has: "
        "it goes back to the last checkpoint, the other servers keep their state"
    )
