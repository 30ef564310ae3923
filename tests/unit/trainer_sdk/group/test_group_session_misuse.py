"""Misuse of a group's session answers at once, with what to write instead; none of this needs a master."""

import pytest

from trainer_sdk.errors import UsageError
from trainer_sdk.group.port import CapturedState
from trainer_sdk.job_connection import JobConnection
from trainer_sdk.session import open_session

IN_GROUP = {"EDL_MASTER": "127.0.0.1:9", "EDL_GROUP": "1", "EDL_CHECKPOINT_URI": "/nowhere"}


class Nothing:
    """A replica without arrays."""

    layout = "nothing"

    def capture(self) -> CapturedState:
        return CapturedState(arrays={})

    def restore(self, captured: CapturedState) -> None:
        pass


def open_group(**variables):
    return open_session({name: value for name, value in (IN_GROUP | variables).items() if value})


def declare(session, **changes):
    session.replicate(Nothing())
    return session.group_steps("d", **({"size": 10, "epochs": 1, "global_batch": 2} | changes))


def test_replica_in_a_job_that_is_no_group_is_refused():
    """Other trainers would not have it; the way out is named."""
    with open_group(EDL_GROUP="") as session, pytest.raises(UsageError, match=r"spec\.group.*edl launch --group"):
        declare(session).next_step()


def test_group_without_a_checkpoint_folder_is_refused():
    """Its last trainer's loss would lose everything."""
    with open_group(EDL_CHECKPOINT_URI="") as session, pytest.raises(UsageError, match="EDL_CHECKPOINT_URI"):
        declare(session).next_step()


def test_steps_without_a_replica_are_refused():
    """Nobody would know what to synchronise."""
    with open_group() as session, pytest.raises(UsageError, match=r"replicate\(\) first"):
        session.group_steps("d", size=10, epochs=1, global_batch=2)


def test_second_model_and_second_data_set_are_refused():
    """A job has one of each."""
    with open_group() as session:
        declare(session)
        with pytest.raises(UsageError, match="second model"):
            session.replicate(Nothing())
        with pytest.raises(UsageError, match="second model"):
            session.own_model(save=dict, restore=lambda arrays: None)
        with pytest.raises(UsageError, match="second data set"):
            session.group_steps("d", size=10, epochs=1, global_batch=2)
        with pytest.raises(UsageError, match="this job trains 'd'"):
            session.dataset("e", size=10, epochs=1, batch_size=2)


def test_global_batch_comes_from_the_script_or_else_from_the_job():
    """EDL_GLOBAL_BATCH serves where the script names no number; without either the way out is named."""
    with open_group(EDL_GLOBAL_BATCH="5") as session:
        assert declare(session, global_batch=None).spec.batch_size == 5
    with open_group(EDL_GLOBAL_BATCH="5") as session:
        assert declare(session).spec.batch_size == 2
    with open_group() as session, pytest.raises(UsageError, match=r"global_batch=256.*spec\.group\.globalBatch"):
        declare(session, global_batch=None)


@pytest.mark.parametrize("given", [0, 64.0, "64"])
def test_global_batch_that_is_no_number_is_named_as_the_script_has_it(given):
    """It is the data set's batch_size to the master alone."""
    with open_group() as session, pytest.raises(UsageError, match=r"^global_batch: .* is not an integer from 1 up"):
        declare(session, global_batch=given)


def test_place_in_the_group_is_unknown_before_the_first_step():
    """A rank that is asked for too early is no 0 by chance."""
    with open_group() as session:
        steps = declare(session)
        assert (session.step, session.epoch, session.is_leader, session.is_draining) == (0, 0, False, False)
        for ask in (lambda: session.rank, lambda: session.world_size):
            with pytest.raises(UsageError, match="first step"):
                ask()
        with pytest.raises(UsageError, match="next_step"):
            steps.end_step()


def test_step_of_a_job_that_is_no_group_is_refused():
    """Trainers of other jobs make no common steps."""
    with open_session({"EDL_MASTER": "127.0.0.1:9"}) as session, pytest.raises(UsageError, match="for groups"):
        _ = session.step


def test_session_leaves_its_group_before_it_ends_what_waits_in_a_collective(monkeypatch):
    """The thread that sums gradients waits for others, for minutes where one evaluates; leaving ends the collective."""
    order = []
    monkeypatch.setattr(JobConnection, "leave", lambda *_: order.append("left"))
    with open_group() as session:
        declare(session).at_close(lambda: order.append("threads ended"))
    assert order == ["left", "threads ended"]
