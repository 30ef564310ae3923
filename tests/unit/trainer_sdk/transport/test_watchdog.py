"""Deadlines that one thread watches: each rings once if it is not met, and none that was met."""

import threading
import time

import pytest

from trainer_sdk.transport import cancellation
from trainer_sdk.transport.cancellation import Watchdog

LONG_S = 180.0


class Bell:
    """How often it rang."""

    def __init__(self):
        self.rings = 0
        self._has_rung = threading.Semaphore(0)
        self.alarm = Watchdog(self._ring)

    def _ring(self):
        self.rings += 1
        self._has_rung.release()

    def wait(self):
        assert self._has_rung.acquire(timeout=LONG_S)


@pytest.fixture
def bell():
    return Bell()


def test_a_deadline_that_passes_rings_once_and_the_next_one_again(bell):
    for rings in (1, 2):
        with bell.alarm.guard(time.monotonic()):
            bell.wait()
        assert bell.rings == rings


def test_a_deadline_earlier_than_the_one_before_is_kept(bell):
    """The thread sleeps until an hour from now; the hour's block has been left."""
    with bell.alarm.guard(time.monotonic() + 3600):
        pass
    with bell.alarm.guard(time.monotonic()):
        bell.wait()
    assert bell.rings == 1


class Clock:
    """Stands until it is set; `wait_looked` until the alarm's thread has looked at it since."""

    def __init__(self):
        self.now_s = 0.0
        self._has_looked = threading.Event()

    def monotonic(self):
        self._has_looked.set()
        return self.now_s

    def wait_looked(self):
        self._has_looked.clear()
        assert self._has_looked.wait(LONG_S)


def test_a_block_that_was_left_in_time_rings_nothing(bell, monkeypatch):
    """Not even when its deadline passes while the next block waits."""
    clock = Clock()
    monkeypatch.setattr(cancellation, "time", clock)
    with bell.alarm.guard(0.01):
        pass
    with bell.alarm.guard(0.05):
        clock.now_s = 0.02
        for _ in range(2):
            clock.wait_looked()
        assert bell.rings == 0
        clock.now_s = 0.05
        bell.wait()
    assert bell.rings == 1


def test_a_thread_that_is_kept_for_no_time_keeps_its_deadline(bell, monkeypatch):
    monkeypatch.setattr(cancellation, "_IDLE_S", 0.0)
    for _ in range(2):
        with bell.alarm.guard(time.monotonic() + 0.01):
            bell.wait()
    assert bell.rings == 2


def test_a_thread_that_idles_is_woken_for_the_next_deadline(bell, monkeypatch):
    """It does not sleep on until it would have ended."""
    monkeypatch.setattr(cancellation, "_IDLE_S", 3600.0)
    for _ in range(2):
        with bell.alarm.guard(time.monotonic() + 0.01):
            bell.wait()
    monkeypatch.setattr(cancellation, "_IDLE_S", 0.0)
    with bell.alarm.guard(time.monotonic() + 0.01):
        bell.wait()
    assert bell.rings == 3


def test_one_thread_does_for_many_deadlines(bell):
    before = threading.active_count()
    for _ in range(10):
        with bell.alarm.guard(time.monotonic() + LONG_S):
            assert threading.active_count() <= before + 1
