"""What a member's runtime does with what it hears in the middle of a step, before it can ask anybody."""

import pytest

from master.api.messages.generations import GroupEnded
from master.api.messages.to_members import Refused
from tests.harness.lone_member import generation, lone_member
from trainer_sdk.errors import UsageError
from trainer_sdk.group.port import GroupFinish, StepShare
from trainer_sdk.protocol.trainer_events import FinishReason


def test_refusal_while_a_step_runs_is_raised_before_the_next_step():
    """A failed job, or another layout: the script hears it as soon as the step in hand has ended."""
    with lone_member() as runtime:
        runtime.received((generation(1),))
        assert isinstance(runtime.begin_step(), StepShare)
        runtime.received((Refused(field="job", message="6 failures in a row"),))
        assert runtime.end_step()
        with pytest.raises(UsageError, match="job: 6 failures in a row"):
            runtime.begin_step()


def test_end_of_the_job_is_no_refusal():
    """Whoever has heard the end leaves in order, whatever was refused before."""
    with lone_member() as runtime:
        runtime.received((generation(1),))
        runtime.begin_step()
        runtime.received((Refused(field="job", message="late"), GroupEnded()))
        assert runtime.begin_step() == GroupFinish(reason=FinishReason.ENDED)
