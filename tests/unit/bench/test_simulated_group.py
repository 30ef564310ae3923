"""The simulated group of the benchmarks: the product's cores in virtual time, the same in each run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.groups.simulation.cluster_model import ClusterModel, free_of_charge
from bench.groups.simulation.simulated_group import SimulatedGroup, SimulatedRun

MODEL = ClusterModel(
    members=4,
    compute_s=0.4,
    reduce_s=0.1,
    network_s=0.001,
    connect_s=0.05,
    commit_s=0.002,
    message_s=0.0,
    state_bytes=1e8,
    bytes_per_s=1e9,
    capture_s=0.02,
    start_s=3.0,
)


def simulated(model: ClusterModel, *, every_s: float = 30.0) -> SimulatedRun:
    return SimulatedGroup(model, free_of_charge, checks=True).run(faults=2, every_s=every_s)


def test_an_undisturbed_step_takes_the_times_of_the_model():
    """Compute and all-reduce, one after the other."""
    assert simulated(MODEL).step_s == pytest.approx(0.5)


def test_after_each_death_the_group_goes_on_and_is_whole_again():
    """The successors have joined; a pause holds the step in flight and the redone one, which three members share."""
    run = simulated(MODEL)
    assert run.members == 4
    for fault in run.faults:
        assert 0.5 < fault.pause_s < 0.5 + 0.4 * 4 / 3 + 0.1 + 0.3
        assert fault.master.sent >= 2 * 3  # BROKEN and NEW to each survivor
        assert 0.5 + 0.1 < fault.join_pause_s < 0.5 + 0.1 + 0.1  # a step and the transfer


def test_goodput_is_lost_by_pauses_a_missing_member_and_the_transfer():
    """With a fault every 30 s the loss is that of three seconds at three members, two pauses, and no more."""
    run = simulated(MODEL)
    missing_s = 4.5 * (1 - 0.5 / (0.4 * 4 / 3 + 0.1))  # the start, and the second in which joiners are gathered
    assert 1 - (missing_s + 1.5) / 30.0 < run.goodput < 1.0
    assert simulated(replace(MODEL, start_s=12.0)).goodput < run.goodput
    assert simulated(replace(MODEL, state_bytes=4e9)).goodput < run.goodput


def test_two_runs_are_the_same():
    """Without CPU times of this machine nothing is left to chance."""
    assert simulated(MODEL) == simulated(MODEL)


def test_a_busy_master_makes_pauses_longer():
    """Messages of a regroup queue at the master."""
    slow = simulated(replace(MODEL, message_s=0.02))
    quick = simulated(MODEL)
    assert slow.faults[0].pause_s > quick.faults[0].pause_s + 0.04
    assert slow.master_share > quick.master_share
