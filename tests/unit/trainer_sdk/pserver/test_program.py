"""How a parameter server's process waits for what happens next."""

import math
import os
import queue
from types import SimpleNamespace

import pytest

from trainer_sdk.pserver import __main__ as program
from trainer_sdk.pserver.core.shutdown import ParentDied


class Nothing:
    """A queue in which nothing ever is; how long it was waited for."""

    def get(self, timeout):
        self.waited_s = timeout
        raise queue.Empty


@pytest.mark.parametrize(
    ("left_s", "parent", "waits_s"),
    [(math.inf, None, None), (5.0, None, 5.0), (-5.0, None, 0.0), (math.inf, "7", program._PARENT_CHECK_S)],
)
def test_it_waits_until_something_is_due_and_looks_at_its_parent_now_and_then(monkeypatch, left_s, parent, waits_s):
    """Without a deadline and without a parent there is nothing to wake for."""
    monkeypatch.setattr(os, "getppid", lambda: 7)
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: 100.0))
    facts = Nothing()
    assert program._next(facts, 100.0 + left_s, parent) is None
    assert facts.waited_s == waits_s


def test_it_ends_with_whoever_started_it(monkeypatch):
    """It would hold a port and memory for nobody."""
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert program._next(Nothing(), math.inf, "7") == ParentDied()
