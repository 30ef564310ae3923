"""Pods of others that hold GPUs and do not use them: whose, for whom, and what is told (ADR 0288, promise A12)."""

from dataclasses import replace

import pytest

from autoscaler.domain import Bottleneck, DemandState, IdlePod, Pod, PodPhase, ReclaimMode, Role, Tier
from autoscaler.domain.idleness import StayReason
from autoscaler.planner import plan
from autoscaler.planner.counterfactual import PlanInputs
from autoscaler.planner.counterfactual.edits import without_idle_pods
from tests.property.planner_cases import NO_GATES
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import decision, demand, job, node, shape

NOW_S = 1_000_000.0
ACT = replace(NO_GATES, idle_reclaim=ReclaimMode.ACT)


def notebook(name, place, *, gpu=1, **fields):
    """A running pod of others with GPUs."""
    return Pod(
        name=name,
        role=Role.EXTERNAL,
        tier=Tier.EXTERNAL,
        shape=shape(100, gpu=gpu),
        phase=PodPhase.READY,
        node=place,
        **fields,
    )


def waiting(name, *, gpu, **fields):
    """A pod of others that finds no node."""
    common = {"role": Role.EXTERNAL, "tier": Tier.EXTERNAL, "phase": PodPhase.PENDING, "unschedulable_since_s": 0.0}
    return Pod(name=name, shape=shape(100, gpu=gpu), **(common | fields))


def unused(name, minutes, *, after=30, kept=None):
    """A verdict: unused for so many minutes; its owner agreed to `after`, None: to nothing."""
    return IdlePod(
        pod=name,
        since_s=NOW_S - 60.0 * minutes,
        after_s=None if after is None else 60.0 * after,
        kept_until_s=None if kept is None else NOW_S + 60.0 * kept,
    )


def planned(pods, idle, *, jobs=(), gpus=4, nodes=("n",), policy=ACT):
    cluster = MemoryCluster([node(name, 8_000, gpu=gpus) for name in nodes], jobs, pods=pods, now_s=NOW_S)
    return plan(cluster.view(idle_pods=tuple(idle)), policy, NOW_S)


FOUR = [notebook(f"nb-{number}", "n") for number in range(4)]
AGES = {"nb-0": 40, "nb-1": 90, "nb-2": 35, "nb-3": 60}


def taken(made):
    return [one.pod for one in made.idle_reclaims]


@pytest.mark.parametrize(
    ("gpu", "expected"), [(1, ["nb-1"]), (2, ["nb-1", "nb-3"]), (3, ["nb-1", "nb-3", "nb-0"]), (5, [])]
)
def test_as_few_as_are_enough_leave_and_the_longest_unused_first(gpu, expected):
    """Only under pressure, only if their sum makes the waiting pod fit."""
    idle = [unused(name, minutes) for name, minutes in AGES.items()]
    made = planned([*FOUR, waiting("w", gpu=gpu)], idle)
    assert taken(made) == expected
    assert all(one.beneficiary == "w" for one in made.idle_reclaims)
    assert not planned(FOUR, idle).idle_reclaims


@pytest.mark.parametrize(
    ("idle", "expected"),
    [
        (unused("nb-0", 29), []),  # not for as long as was agreed
        (unused("nb-0", 31), ["nb-0"]),
        (unused("nb-0", 500, after=None), []),  # not agreed
        (unused("nb-0", 500, after=float("nan")), []),
        (unused("nb-0", 500, after=0.5), []),  # nonsense
        (unused("nb-0", 500, after=100 * 24 * 60), []),
        (unused("nb-0", 500, kept=10), []),  # kept
        (unused("nb-0", 500, kept=0), ["nb-0"]),  # the keep has ended
        (unused("nb-0", -5), []),  # a clock that is ahead
        (unused("nb-0", 1e9), []),  # since before the pod was created
        (unused("gone", 500), []),
    ],
)
def test_none_leaves_against_its_owner_or_before_its_time(idle, expected):
    """Consent, time, keep and nonsense, each for itself."""
    pods = [replace(one, created_at_s=NOW_S - 1e6) for one in FOUR]
    assert taken(planned([*pods, waiting("w", gpu=1)], [idle])) == expected


@pytest.mark.parametrize(
    ("minutes", "needs", "expected"),
    [
        ({"nb-0": 40, "nb-1": 90}, 1, ["nb-0"]),  # the longest unused alone cannot leave
        ({"nb-0": 40, "nb-1": 90}, 2, ["nb-0", "nb-1"]),
        ({"nb-0": 40, "nb-1": 90, "nb-3": 60}, 1, ["nb-3"]),  # both would have left with nb-1: unused for 40 min
        ({"nb-0": 40, "nb-1": 90, "nb-3": 60}, 3, ["nb-3", "nb-0", "nb-1"]),
        ({"nb-0": 20, "nb-1": 90}, 1, []),  # its turn comes after one that is not due
        ({"nb-1": 90}, 1, []),  # or after one that works
    ],
)
def test_a_pod_leaves_after_those_that_go_before_it(minutes, needs, expected):
    """Of a StatefulSet the highest ordinal leaves first, here nb-0, then nb-1 (ADR 0293)."""
    idle = [unused(name, ago) for name, ago in minutes.items()]
    idle = [replace(one, goes_after="nb-0") if one.pod == "nb-1" else one for one in idle]
    assert taken(planned([*FOUR, waiting("w", gpu=needs)], idle)) == expected


HERE = frozenset({("zone", "here")})


@pytest.mark.parametrize(
    ("idle", "fields"),
    [
        ({"after": None}, {}),  # not agreed
        ({"after": 24 * 60}, {}),  # not due
        ({"kept": 60}, {}),
        ({}, {"priority": 1}),  # above the waiting one
        ({}, {"node": "other"}),  # where it may not run
    ],
)
def test_any_number_of_pods_that_may_not_leave_keep_nobody_from_giving_back(idle, fields):
    """One tenant's notebooks, unused for longer than all others; pods and gangs that wait alike."""
    many = [replace(notebook(f"many-{number:03}", "n"), **fields) for number in range(100)]
    others = [notebook("alice", "n"), notebook("bob", "n")]
    ages = [*(unused(one.name, 500, **idle) for one in many), unused("alice", 40), unused("bob", 50)]
    gang = job("gang", low=1, high=1)
    gang = replace(gang, trainer=replace(gang.trainer, shape=replace(shape(100, gpu=1), node_selector=HERE)))
    wanting = replace(waiting("w", gpu=1), shape=replace(shape(100, gpu=1), node_selector=HERE))
    nodes = [node("n", 80_000, gpu=102, labels=HERE), node("other", 80_000, gpu=100)]
    full = [] if not fields.get("node") else [notebook("full", "n", gpu=100)]
    cluster = MemoryCluster(nodes, [gang], pods=[*many, *others, *full, wanting], now_s=NOW_S)
    made = plan(cluster.view(idle_pods=tuple(ages)), ACT, NOW_S)
    assert {one.pod: one.beneficiary for one in made.idle_reclaims} == {"bob": "w", "alice": "gang"}


def test_pods_that_go_after_each_other_in_a_circle_stay():
    """Nobody makes such a view, and no plan waits for its end."""
    idle = [replace(unused(f"nb-{n}", 90), goes_after=f"nb-{1 - n}") for n in (0, 1)]
    assert taken(planned([*FOUR, waiting("w", gpu=1)], idle)) == []


def test_nobody_leaves_before_one_that_does_not_help():
    """On the node where there is room for the waiting one after nb-3, nothing else matters."""
    pods = [notebook("nb-0", "n"), notebook("nb-1", "m", gpu=2), notebook("nb-2", "m", gpu=2)]
    idle = [unused("nb-0", 90), replace(unused("nb-1", 60), goes_after="nb-0"), unused("nb-2", 40)]
    wanting = waiting("w", gpu=2)
    assert taken(planned([*pods, wanting], idle, nodes=("n", "m"), gpus=4)) == []  # three are free on n
    full = [*pods, notebook("x", "n", gpu=3)]
    assert taken(planned([*full, wanting], idle, nodes=("n", "m"))) == ["nb-0", "nb-1"]
    alone = [idle[0], replace(idle[1], goes_after="nb-2"), idle[2]]
    assert taken(planned([*full, wanting], alone, nodes=("n", "m"))) == ["nb-2"]


def test_a_pod_that_outranks_the_waiting_one_stays():
    """A notebook is no surplus: nobody of lower priority gets its GPU."""
    pods = [replace(FOUR[0], priority=10), *FOUR[1:]]
    assert not taken(planned([*pods, waiting("w", gpu=1)], [unused("nb-0", 90)]))
    assert taken(planned([*pods, waiting("w", gpu=1, priority=10)], [unused("nb-0", 90)])) == ["nb-0"]


def test_surplus_of_jobs_goes_first():
    """Whoever is served by surplus takes nothing of a notebook."""
    spec = job("j", low=1, high=8, gpu=1)
    trainers = [
        Pod(
            name=f"j-trainer-{number}",
            role=Role.TRAINER,
            tier=Tier.CORE if number == 0 else Tier.SURPLUS,
            shape=spec.trainer.shape,
            phase=PodPhase.READY,
            node="n",
            job="j",
            ordinal=number,
        )
        for number in range(2)
    ]
    master = Pod(
        name="j-master-0",
        role=Role.MASTER,
        tier=Tier.CORE,
        shape=spec.master.shape,
        phase=PodPhase.READY,
        node="n",
        job="j",
    )
    made = planned([*FOUR[:2], *trainers, master, waiting("w", gpu=1)], [unused("nb-0", 90)], jobs=[spec])
    assert not taken(made)
    assert demand(made, "w").state is DemandState.SHRUNK_FOR


GANG = job("gang", low=2, high=2, gpu=2)


def test_a_gang_that_waits_gets_them_and_two_do_not_count_on_the_same():
    """Two gangs of four GPUs, four idle ones in all: the first by priority gets them."""
    idle = [unused(name, minutes) for name, minutes in AGES.items()]
    made = planned(FOUR, idle, jobs=[GANG, replace(GANG, name="urgent", priority=5)])
    assert {one.beneficiary for one in made.idle_reclaims} == {"urgent"}
    assert sorted(taken(made)) == ["nb-0", "nb-1", "nb-2", "nb-3"]
    assert not made.actions


def test_many_that_nothing_helps_keep_nobody_from_what_helps_it():
    """Twenty pods and twenty gangs of one tenant: a smaller pod and a smaller gang behind them get what they lack."""
    idle = [unused(name, AGES[name]) for name in ("nb-0", "nb-1", "nb-2")]
    pods = [waiting(f"large-{number:02}", gpu=4, priority=5) for number in range(20)]
    gangs = [job(f"wide-{number:02}", low=4, high=4, gpu=1, priority=5) for number in range(20)]
    small = job("small", low=2, high=2, gpu=1)
    made = planned([*FOUR, *pods, waiting("w", gpu=1)], idle, jobs=[*gangs, small])
    assert {one.beneficiary for one in made.idle_reclaims} == {"w", "small"}


def test_all_that_wait_alike_are_told_alike():
    """The search is made for the first, and what it found is told to each."""
    made = planned([*FOUR, waiting("v", gpu=2), waiting("w", gpu=2)], [unused("nb-0", 60, after=None)])
    assert {demand(made, name).state for name in "vw"} == {DemandState.NO_CAPACITY}
    idle = [unused(name, minutes, after=None) for name, minutes in AGES.items()]
    made = planned([*FOUR, waiting("v", gpu=2), waiting("w", gpu=2)], idle)
    assert {demand(made, name).state for name in "vw"} == {DemandState.IDLE_HELD}
    assert demand(made, "v").victims == demand(made, "w").victims


@pytest.mark.parametrize(
    ("after", "mode", "kept", "expected"),
    [
        (60, ReclaimMode.ACT, None, "not due yet"),
        (30, ReclaimMode.ACT, None, "given back after a notice"),
        (30, ReclaimMode.OBSERVE, None, "idleReclaim: act frees them"),
        (None, ReclaimMode.ACT, None, "opt-in would free them"),
        (30, ReclaimMode.ACT, 60, "kept by their owner"),
    ],
)
def test_a_waiting_gang_is_told_who_holds_what_it_lacks(after, mode, kept, expected):
    """`IdleHeld`: how many, where, whose, since when, and what would free them."""
    pods = [notebook("research/alice", "a", gpu=2), notebook("research/bob", "b", gpu=2)]
    idle = [unused("research/alice", 43, after=after, kept=kept), unused("research/bob", 90, after=after, kept=kept)]
    policy = replace(ACT, idle_reclaim=mode)
    made = planned(pods, idle, jobs=[GANG], gpus=2, nodes=("a", "b"), policy=policy)
    told = decision(made, "gang")
    assert told.bottleneck is Bottleneck.IDLE_HELD
    assert told.message.startswith("4 GPUs on a, b are held by research/alice, research/bob, unused for over 30 min")
    assert told.message.endswith(expected)
    assert len(told.message) <= 110 or "..." in told.message


@pytest.mark.parametrize(
    ("alice", "bob", "expected"),
    [
        (StayReason.MINIMUM, StayReason.PAUSED, "a declared minimum keeps them"),
        (StayReason.ORDINAL, StayReason.PAUSED, "a higher ordinal is in use"),
        (StayReason.PAUSED, StayReason.PAUSED, "asked again later"),
        (StayReason.MINIMUM, None, "opt-in would free them"),
    ],
)
def test_owners_who_agreed_are_not_asked_to_agree(alice, bob, expected):
    """The waiting gang is told what keeps the GPUs; one owner who did not agree comes first."""
    pods = [notebook("research/alice", "a", gpu=2), notebook("research/bob", "b", gpu=2)]
    stays = {"research/alice": alice, "research/bob": bob}
    idle = [replace(unused(name, 90, after=None), stays=reason) for name, reason in stays.items()]
    made = planned(pods, idle, jobs=[GANG], gpus=2, nodes=("a", "b"))
    assert decision(made, "gang").message.endswith(f"; {expected}")


def test_what_a_gang_is_told_changes_a_few_times_a_day():
    """The text stands in a condition of the job: each change is a write."""
    pods = [notebook("research/alice", "a", gpu=4)]
    texts = [
        decision(planned(pods, [unused("research/alice", minutes, after=None)], jobs=[GANG], nodes=("a",)), "gang")
        for minutes in range(1, 12 * 60, 7)
    ]
    told = list(dict.fromkeys(text.message.partition("unused ")[2].partition(";")[0] for text in texts))
    assert told == [
        "for under 5 min",
        *(f"for over {text}" for text in ("5 min", "10 min", "30 min", "1 h", "2 h", "4 h", "8 h")),
    ]


def test_with_the_mode_off_nothing_is_decided_and_nothing_is_told():
    """`policy.idleReclaim: off`."""
    made = planned(
        FOUR, [unused("nb-0", 90)], jobs=[job("g", gpu=1)], policy=replace(ACT, idle_reclaim=ReclaimMode.OFF)
    )
    assert not made.idle_reclaims
    assert decision(made, "g").bottleneck is Bottleneck.NODE_FIT


def test_what_if_answers_with_all_unused_gpus_free():
    """`edl what-if --reclaim-idle` asks nobody for consent."""
    cluster = MemoryCluster([node("n", 8_000, gpu=4)], [GANG], pods=FOUR, now_s=NOW_S)
    view = cluster.view(idle_pods=tuple(unused(name, minutes, after=None) for name, minutes in AGES.items()))
    changed = without_idle_pods(PlanInputs(view=view, policy=ACT, now_s=NOW_S))
    assert not changed.view.pods
    assert decision(plan(changed.view, ACT, NOW_S), "gang").target == 2
