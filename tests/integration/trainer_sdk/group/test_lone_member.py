"""What a member's runtime does with what it hears in the middle of a step, before it can ask anybody."""

import numpy as np
import pytest

from master.api.messages.generations import BrokenGeneration, GroupEnded
from master.api.messages.to_members import Refused
from tests.harness.lone_member import generation, lone_member
from tests.harness.waiting import wait_for
from trainer_sdk.errors import StepAborted, UsageError
from trainer_sdk.group.member_runtime import MemberRuntime
from trainer_sdk.group.port import GroupFinish, StepShare
from trainer_sdk.protocol.trainer_events import FinishReason


def test_refusal_while_a_step_runs_is_raised_before_the_next_step():
    """A failed job, or another layout: the script hears it as soon as the step in hand has ended."""
    with lone_member() as runtime:
        runtime.shell.received((generation(1),))
        assert isinstance(runtime.begin_step(), StepShare)
        runtime.shell.received((Refused(field="job", message="6 failures in a row"),))
        assert runtime.end_step()
        with pytest.raises(UsageError, match="job: 6 failures in a row"):
            runtime.begin_step()


def test_end_of_the_job_is_no_refusal():
    """Whoever has heard the end leaves in order, whatever was refused before."""
    with lone_member() as runtime:
        runtime.shell.received((generation(1),))
        runtime.begin_step()
        runtime.shell.received((Refused(field="job", message="late"), GroupEnded()))
        assert runtime.begin_step() == GroupFinish(reason=FinishReason.ENDED)


def test_end_of_the_grace_period_finishes_who_waits_for_a_generation():
    """Rule 83: nobody answers the wish to leave; the wait ends, and the script's callbacks can run."""
    with lone_member() as runtime:
        runtime.shell.received((generation(1),))
        runtime.begin_step()
        assert runtime.end_step()
        runtime.shell.received((BrokenGeneration(number=1),))
        runtime.drain(deadline_s=0.2, reason="SIGTERM")
        assert runtime.begin_step() == GroupFinish(reason=FinishReason.DRAINED)


def is_dropped(runtime: MemberRuntime) -> bool:
    try:
        runtime.all_reduce(np.ones(4, dtype=np.float32))
    except StepAborted:
        return True
    return False


def test_end_of_the_grace_period_drops_the_step_in_hand():
    """Its collective is aborted, and a finish comes instead of the same step again."""
    with lone_member() as runtime:
        runtime.shell.received((generation(1),))
        runtime.begin_step()
        runtime.drain(deadline_s=0.2, reason="SIGTERM")
        wait_for("the end of the grace period", lambda: is_dropped(runtime))
        assert not runtime.end_step()
        assert runtime.begin_step() == GroupFinish(reason=FinishReason.DRAINED)
