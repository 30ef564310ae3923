"""A call that is given up at its deadline."""

import threading

import pytest

from autoscaler.gpus.driver.deadline import CallLateError, DeadlineCaller
from tests.harness.waiting import wait_for


def test_one_call_is_outstanding_at_most():
    """While a late call has not returned the next is refused at once; its result is dropped."""
    caller, release, started = DeadlineCaller(), threading.Event(), []

    def hang():
        started.append(threading.current_thread())
        release.wait()
        return "late"

    with pytest.raises(CallLateError, match="within 0"):
        caller.call(hang, deadline_s=0.0)
    with pytest.raises(CallLateError, match="earlier"):
        caller.call(hang, deadline_s=3600.0)
    wait_for("the first thread", lambda: started)
    release.set()
    started[0].join()
    assert caller.call(lambda: "new", deadline_s=3600.0) == "new"
    assert len(started) == 1


def test_an_error_of_the_call_is_raised():
    """The caller's thread sees it."""
    with pytest.raises(ZeroDivisionError):
        DeadlineCaller().call(lambda: 1 // 0, deadline_s=3600.0)
