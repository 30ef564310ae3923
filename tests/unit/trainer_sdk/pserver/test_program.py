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
    [(math.inf, None, program._CHECK_S), (0.5, None, 0.5), (5.0, "7", program._CHECK_S), (-5.0, None, 0.0)],
)
def test_it_waits_until_something_is_due_and_never_without_an_end(monkeypatch, left_s, parent, waits_s):
    """A SIGTERM that comes just before the wait is seen at its end, so that a server that shall go does (M9)."""
    monkeypatch.setattr(os, "getppid", lambda: 7)
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: 100.0))
    facts = Nothing()
    assert program._next(facts, 100.0 + left_s, parent) is None
    assert facts.waited_s == waits_s


def test_it_ends_with_whoever_started_it(monkeypatch):
    """It would hold a port and memory for nobody."""
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert program._next(Nothing(), math.inf, "7") == ParentDied()
