"""Which clock a lease is held by: one that nobody sets back, and that counts a machine's sleep (A9, M5)."""

import inspect
import time

from autoscaler.operator.leadership.lease import LeaseHolder
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.process import main
from autoscaler.operator.process.main import OperatorProcess
from autoscaler.operator.process.operator_settings import read_settings
from master.api.host.clock import uptime_s
from master.leadership.election import Election


def test_the_clock_is_not_the_time_of_day(monkeypatch):
    """Setting the time changes nothing."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    before_s = time.clock_gettime(clock)
    assert before_s <= uptime_s() <= time.clock_gettime(clock)


def test_masters_are_elected_by_it():
    """What the product makes, which gives no clock of its own."""
    assert inspect.signature(Election).parameters["clock_s"].default is uptime_s


def test_operators_hold_their_lease_by_it(monkeypatch):
    """The time of day is written for people alone."""
    made = []

    class Noted(LeaseHolder):
        def __init__(self, *args, **more):
            made.append(more)
            super().__init__(*args, **more)

    monkeypatch.setattr(main, "LeaseHolder", Noted)
    settings = read_settings(listen="127.0.0.1:0", lease="edl/edl", environ={"EDL_IMAGE": "edl:1"})
    OperatorProcess(api=None, settings=settings, metrics=Metrics())
    assert [(more["clock"], more["wall_s"]) for more in made] == [(uptime_s, time.time)]
