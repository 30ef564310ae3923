"""Who may hold leases is recorded, so that a new master keeps nothing for anybody who is back or has gone (rule 18)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.messages.from_members import Leave
from master.api.messages.to_members import Granted, Wait
from master.api.positions import EMPTY
from master.durable.transactions import transaction_of
from master.job.dispatch.high_water import MOST_NAMED
from master.job.domain.durable_records import ReserveHighWater
from master.job.domain.effects import Persist
from master.job.domain.frozen_map import FrozenMap
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import ReclaimWindowEnded, ReconnectWindowEnded, StreamBroken
from master.job.state.protocol_state import LeaseHolders
from master.store.job_keys import JobKeys
from master.store.store_port import MAX_VALUE_BYTES, Put
from tests.unit.master.job.driver import SPEC, Driver, key

CONFIG = JobConfig(servers=0, high_water_batches=1_000)
"""The mark lies above all positions at once: whatever a new master grants lies below it."""


@pytest.fixture
def driver():
    """A job of two trainers, each with a lease."""
    made = Driver(CONFIG).start()
    for name in ("t0", "t1"):
        made.leases(made.trainer(name, declares=None if name == "t1" else made.plain_declare()), 1)
    assert made.durable.high_water == SPEC.everything.bounds[-1]
    return made


def held(driver, name):
    holder = driver.state.dispatch.holders.get(key(name).incarnation)
    return holder.leases if holder else ()


def take_over(driver):
    """Another master, and what each trainer held under the one before."""
    leases = {name: held(driver, name) for name in ("t0", "t1")}
    driver.start()
    return leases


def come_back(driver, name, leases):
    return driver.trainer(name, held=leases[name], declares=None)


def recorded(driver):
    return [one.name for one in driver.durable.trainers]


def test_once_all_who_trained_are_back_the_window_is_over(driver):
    """Else each take-over of a job that has reserved all its positions would cost it the whole window."""
    leases = take_over(driver)
    first = come_back(driver, "t0", leases)
    assert isinstance(driver.acquire(first, 2), Wait), "the other one may still claim what it holds"
    come_back(driver, "t1", leases)
    (more,) = driver.leases(first, 3)
    others = leases["t0"][0].positions | leases["t1"][0].positions
    assert more.positions & others == EMPTY
    assert [lease.positions for lease in held(driver, "t1")] == [lease.positions for lease in leases["t1"]]


def test_one_that_does_not_come_back_has_the_whole_window(driver):
    """What it holds stays its own meanwhile, and is nobody's afterwards."""
    leases = take_over(driver)
    first = come_back(driver, "t0", leases)
    assert isinstance(driver.acquire(first, 2), Wait)
    assert recorded(driver) == ["t0", "t1"]
    driver.fire(ReclaimWindowEnded)
    (more,) = driver.leases(first, 3)
    assert more.positions <= leases["t1"][0].positions
    assert recorded(driver) == ["t0"]


def test_it_is_waited_for_by_the_next_master_too(driver):
    """A second master may die within the window: what the first one's trainer holds is still its own."""
    leases = take_over(driver)
    come_back(driver, "t0", leases)
    leases["t0"] = held(driver, "t0")
    driver.start()
    first = come_back(driver, "t0", leases)
    assert isinstance(driver.acquire(first, 2), Wait)
    come_back(driver, "t1", leases)
    assert isinstance(driver.acquire(first, 3), Granted)


@pytest.mark.parametrize("how", ["left", "lost", "replaced"])
def test_nobody_waits_for_one_that_has_gone(driver, how):
    """It holds nothing any more, whichever master saw it go."""
    match how:
        case "left":
            driver.send(key("t1"), Leave())
        case "lost":
            driver.feed(StreamBroken(member=key("t1")))
            driver.fire(ReconnectWindowEnded)
        case "replaced":
            driver.trainer("t1", process=2, declares=None)
            driver.send(key("t1", 2), Leave())
    assert recorded(driver) == ["t0"]
    first = come_back(driver, "t0", take_over(driver))
    assert isinstance(driver.acquire(first, 2), Granted)


def test_another_process_of_its_name_tells_that_it_has_gone(driver):
    """A trainer that died with its master comes back as somebody else."""
    leases = take_over(driver)
    first = come_back(driver, "t0", leases)
    driver.trainer("t1", process=2, declares=None)
    assert isinstance(driver.acquire(first, 2), Granted)


def test_where_nobody_has_said_who_trains_the_window_lasts(driver):
    """A store that an older EDL has written, or one founded from the folder."""
    driver.durable = replace(driver.durable, trainers=None)
    leases = take_over(driver)
    first = come_back(driver, "t0", leases)
    come_back(driver, "t1", leases)
    assert isinstance(driver.acquire(first, 2), Wait)
    driver.fire(ReclaimWindowEnded)
    assert isinstance(driver.acquire(first, 3), Granted)


def test_a_store_that_is_away_is_told_afterwards_who_came(driver):
    """Nothing waits for the record, a grant least of all (ADR 0302)."""
    driver.writes_go_through = False
    late = driver.trainer("t2", declares=None)
    assert isinstance(driver.acquire(late, 1), Granted)
    assert recorded(driver) == ["t0", "t1"]
    driver.let_go()
    assert recorded(driver) == ["t0", "t1", "t2"]


def test_what_a_new_master_reads_it_compares_with_nothing_else(driver):
    """One map of them: each event asks whether it has changed, and of a thousand names that would cost."""
    take_over(driver)
    assert driver.state.lease_holders.trainers is driver.state.high_water.trainers


def crowd(count):
    """So many trainers of names as long as a job's may be, as the core counts them."""
    keys = [key(f"{'a-long-name-' * 4}-trainer-{n}") for n in range(count)]
    return LeaseHolders(trainers=FrozenMap({one.name: one for one in keys}))


def reservations(driver):
    return [e.write for e in driver.effects if isinstance(e, Persist) and isinstance(e.write, ReserveHighWater)]


def test_a_crowd_is_not_named_and_its_master_keeps_the_window(driver):
    """10,000 are allowed, and the record of them all is larger than a value may be: it would end every master."""
    driver.state = replace(driver.state, lease_holders=crowd(10_000))
    driver.trainer("t2", declares=None)
    assert driver.durable.trainers is None
    before = len(reservations(driver))
    driver.trainer("t3", declares=None)
    driver.send(key("t2"), Leave())
    assert len(reservations(driver)) == before, "whoever comes or goes of a crowd costs the store nothing"
    first = come_back(driver, "t0", take_over(driver))
    assert isinstance(driver.acquire(first, 2), Wait)
    assert recorded(driver) == ["t0"], "few enough again"


def test_as_many_as_are_named_fit_into_a_value(driver):
    driver.state = replace(driver.state, lease_holders=crowd(MOST_NAMED - 1))
    driver.trainer("t2", declares=None)
    assert len(driver.durable.trainers) == MOST_NAMED
    keys = JobKeys("digits")
    named = transaction_of(reservations(driver)[-1], keys, driver.state.term)
    (record,) = (write for write in named.writes if isinstance(write, Put) and write.key == keys.trainers)
    assert len(record.value) < MAX_VALUE_BYTES / 2
