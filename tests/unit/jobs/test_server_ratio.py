"""How many trainers one server serves where the job's file says `auto`."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.jobs.progress import JobProgress
from autoscaler.jobs.server_ratio import (
    FEWER_SUFFICE_SHARE,
    MOST_TIMES_PRESENT,
    SETTLED_S,
    WAITING_SHARE,
    ServerRatio,
    find_hint,
    observe_ratio,
    parse_ratio,
    plan_ratio,
    ratio_in_status,
    share_with,
)
from autoscaler.manifests.api_types import TRAINERS_PER_SERVER, ReplicaBounds
from master.api.master_status import JobPhase

BOUNDS = ReplicaBounds(minimum=1, maximum=8)


def look(trainers=8, servers=2, share=0.5, **more):
    fields = {"phase": JobPhase.TRAINING, "training": trainers, "servers": servers}
    return JobProgress(**fields | {"waiting_share": share} | more)


def watched(looks, replicas=BOUNDS, ratio=TRAINERS_PER_SERVER, every_s=1.0):
    """The ratio after one look each second."""
    found = ServerRatio(trainers_per_server=ratio)
    for number, progress in enumerate(looks):
        found = observe_ratio(found, progress, replicas, number * every_s)
    return found


def settled(progress, **fields):
    return watched([progress] * int(SETTLED_S + 2), **fields).trainers_per_server


@pytest.mark.parametrize(
    ("trainers", "servers", "share", "ratio", "expected"),
    [
        (8, 2, 0.5, 4, 2),  # four in place of two: a third faster
        (8, 2, 0.2, 4, 4),  # neither much nor nothing
        (8, 2, 0.01, 4, 8),  # one is enough
        (8, 2, 0.09, 4, 4),  # one would make them wait 17 %
        (8, 4, 0.9, 2, 1),  # no more than the file allows: eight
        (8, 8, 0.9, 1, 1),  # all that there may be
        (8, 1, 0.0, 8, 8),  # the fewest that there may be
        (5, 4, 0.6, 2, 1),  # five servers are the next number that a ratio can give
        (3, 2, 0.5, 2, 1),
    ],
)
def test_what_is_measured_decides(trainers, servers, share, ratio, expected):
    assert settled(look(trainers, servers, share), ratio=ratio) == expected


def test_nothing_is_judged_before_it_has_stood_for_a_while():
    """A trainer more or less, or one bucket on its way, begins the time again."""
    looks = [look()] * int(SETTLED_S - 1)
    assert watched([*looks, look(trainers=9), *looks]).trainers_per_server == TRAINERS_PER_SERVER
    assert watched([*looks, look(moving=3), *looks]).trainers_per_server == TRAINERS_PER_SERVER
    assert watched([*looks, look(servers=3), *looks]).trainers_per_server == TRAINERS_PER_SERVER
    assert watched([*looks, *looks]).trainers_per_server == 2


def test_the_mean_of_all_looks_is_judged():
    """One slow second is no bottleneck."""
    calm, slow = look(share=0.15), look(share=1.0)
    assert watched([*[calm] * 20, slow, *[calm] * 20]).trainers_per_server == TRAINERS_PER_SERVER
    assert watched([*[calm, slow] * 20]).trainers_per_server < TRAINERS_PER_SERVER


def test_a_pinned_number_and_a_job_that_does_not_train_are_not_judged():
    assert settled(look(), replicas=replace(BOUNDS, pinned=2)) == TRAINERS_PER_SERVER
    assert settled(look(trainers=0, share=0.0)) == TRAINERS_PER_SERVER


def test_what_an_earlier_leader_told_is_kept_if_it_is_a_number_of_trainers():
    assert ratio_in_status({"servers": {"trainersPerServer": 7}}).trainers_per_server == 7
    for told in (None, 0, -1, True, "7", 1.5, 10**9):
        assert parse_ratio(told) == ServerRatio()
    assert ratio_in_status({}) == ratio_in_status({"servers": "many"}) == ServerRatio()


def test_why_it_changed_is_told():
    before = ServerRatio(trainers=8, servers=2, waiting_share=0.5)
    told = replace(before, trainers_per_server=2).describe_change(before)
    assert (
        told == "one server for every 2 trainers now, in place of 4: 8 trainers waited for 2 servers 50% of their time"
    )


@given(
    trainers=st.integers(1, 200),
    low=st.integers(1, 20),
    more=st.integers(0, 40),
    ratio=st.integers(1, 60),
    load=st.floats(0, 50),
)
def test_by_the_model_no_change_calls_for_its_opposite(trainers, low, more, ratio, load):
    """A load of `load` seconds of one server's time for each second of computing: the ratio goes one way, and rests."""
    replicas = ReplicaBounds(minimum=low, maximum=low + more)
    went = []
    for _ in range(40):
        servers = max(low, min(-(-trainers // ratio), low + more))
        share = load / servers / (1 + load / servers)
        seen = ServerRatio(trainers_per_server=ratio, trainers=trainers, servers=servers, waiting_share=share)
        following = plan_ratio(seen, replicas)
        assert following >= 1
        after = max(low, min(-(-trainers // following), low + more))
        if following < ratio:
            assert share >= WAITING_SHARE
            assert servers < after <= MOST_TIMES_PRESENT * servers
        elif following > ratio:
            assert after < servers
            assert share_with(servers, after, share) <= FEWER_SUFFICE_SHARE
        went.append((following > ratio) - (following < ratio))
        ratio = following
    assert {*went} <= {0, 1} or {*went} <= {0, -1}
    assert went[-1] == 0
    if (hint := find_hint(servers=servers, waiting_share=share)) and min(hint.better, low + more) > servers:
        assert trainers <= servers, "no ratio gives a trainer more than one"
