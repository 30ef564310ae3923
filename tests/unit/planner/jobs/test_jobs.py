"""P2, P4, P5, P6: starting, keeping, sharing, and the words for it."""

from dataclasses import replace

import pytest

from autoscaler.domain import (
    Admission,
    AdmitGang,
    Bottleneck,
    Cause,
    ClusterView,
    CreatePod,
    DeletePod,
    JobState,
    Node,
    PodPhase,
    Policy,
    Reason,
    Resources,
    Role,
    Shape,
    Tier,
)
from autoscaler.errors import InvalidSpecError, InvalidViewError
from autoscaler.planner import plan as plan_view
from autoscaler.planner import still_valid
from autoscaler.planner.phases.p4_gangs import STARTS_PER_PLAN
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, shape, web


def driver_of(nodes, jobs, policy=CALM):
    return Driver(MemoryCluster(nodes, jobs), policy)


def settled(nodes, jobs, policy=CALM):
    driver = driver_of(nodes, jobs, policy)
    driver.settle()
    return driver


def sizes(driver):
    return {decision.job: decision.now for decision in driver.plan().decisions}


def test_job_starts_whole_with_master_servers_and_minimum():
    """A1."""
    plan = driver_of([node("a"), node("b")], [job("j", low=2, servers=2, master_milli=100)]).plan()
    (gang,) = plan.actions
    assert isinstance(gang, AdmitGang)
    assert sorted(pod.role for pod in gang.pods) == [Role.MASTER, Role.SERVER, Role.SERVER, Role.TRAINER, Role.TRAINER]
    assert {pod.tier for pod in gang.pods} == {Tier.CORE}


def test_gangs_that_fit_together_start_together():
    """Each in room that none of the others has; a node with room for two of three starts two (A1)."""
    plan = driver_of([node("a", 2_000)], [job("a"), job("b"), job("c")]).plan()
    assert [action.job for action in plan.actions] == ["a", "b"]
    assert decision(plan, "c").bottleneck is Bottleneck.NODE_FIT


def test_a_plan_starts_a_few_and_holds_the_room_of_the_others():
    jobs = [job(f"j{number}", submitted_at_s=900.0 + number) for number in range(STARTS_PER_PLAN + 1)]
    plan = driver_of([node(name) for name in "abcde"], jobs).plan()
    assert [action.job for action in plan.actions] == [one.name for one in jobs[:STARTS_PER_PLAN]]
    assert decision(plan, jobs[-1].name).bottleneck is Bottleneck.GANG


def test_job_that_waits_for_its_start_does_not_say_that_it_grows():
    """Trainers beyond its minimum are kept in mind for it; none of them comes before it has started."""
    before = [job(f"a{number}", submitted_at_s=900.0) for number in range(STARTS_PER_PLAN)]
    plan = driver_of([node(name) for name in "abcdef"], [*before, job("b", high=4, submitted_at_s=950.0)]).plan()
    assert decision(plan, "b").reason is Reason.WAITING
    assert decision(plan, "b").message == f"its capacity is free and reserved; {STARTS_PER_PLAN} jobs start at a time"
    assert decision(plan, "b").target > 0


def test_gang_takes_surplus_of_a_running_job():
    """MinsFirst: every minimum before anybody's surplus."""
    driver = settled([node("a")], [job("old", low=1, high=4)])
    driver.cluster.put(job("new", low=2, high=4))
    plan = driver.turn()
    assert {action.cause for action in plan.actions} == {Cause.GANG}
    driver.settle()
    assert sizes(driver) == {"old": 2, "new": 2}


def test_strict_class_leaves_surplus_of_higher_classes_alone():
    """StrictClass: a lower class starts from what the higher one leaves."""
    jobs = [job("high", high=4, priority=10)]
    driver = settled([node("a")], jobs, replace(CALM, admission=Admission.STRICT_CLASS))
    driver.cluster.put(job("low"))
    plan = driver.plan()
    assert plan.actions == ()
    assert decision(plan, "low").reason is Reason.WAITING


def test_impossible_job_waits_with_its_reason_and_others_run():
    """A pod larger than any node keeps its own job pending, nobody else."""
    driver = settled([node("a")], [job("giant", cpu_milli=9_000), job("j", high=4)])
    plan = driver.plan()
    assert decision(plan, "giant").bottleneck is Bottleneck.NEVER_FITS
    assert "cpu 9" in decision(plan, "giant").message
    assert sizes(driver) == {"giant": 0, "j": 4}


def test_job_for_which_no_node_has_the_labels_names_them():
    """The room is there; what is missing is the node's label."""
    spec = job("j")
    fast = replace(spec.trainer.shape, node_selector=frozenset({("disk", "fast"), ("zone", "a")}))
    driver = Driver(MemoryCluster([node("a")], [replace(spec, trainer=replace(spec.trainer, shape=fast))]), CALM)
    told = decision(driver.plan(), "j")
    assert told.bottleneck is Bottleneck.NEVER_FITS
    assert told.message == "no node, even empty, holds its trainer (cpu 1 on nodes with disk=fast, zone=a)"


def test_killed_trainer_below_the_minimum_comes_back_at_once():
    """A1: Degraded does not outlast the next plan while there is room."""
    driver = settled([node("a")], [job("j", low=4, high=4)], Policy())
    driver.cluster.lose("j-trainer-1")
    plan = driver.plan()
    (back,) = plan.actions
    assert (back.role, back.tier, back.cause) == (Role.TRAINER, Tier.CORE, Cause.REFILL)
    assert decision(plan, "j").is_degraded


def test_lost_server_takes_surplus_when_its_room_is_gone():
    """A job without its server does not train: another job's surplus gives way."""
    driver = settled([node("a", 4_000)], [job("j", high=1, servers=1), job("k", low=1, high=2)])
    driver.cluster.lose("j-server-0")
    driver.cluster.put(replace(web("w", 1_000), node="a", phase=PodPhase.READY, unschedulable_since_s=None))
    plan = driver.turn()
    assert [(action.job, action.cause) for action in plan.actions] == [("k", Cause.GANG)]
    driver.cluster.advance(5.0)
    assert [action.role for action in driver.turn().actions] == [Role.SERVER]


def test_core_that_cannot_be_refilled_for_a_minute_leaves_whole():
    """The gang queues again instead of holding what it cannot use."""
    driver = settled([node("a", 2_000)], [job("j", low=2, high=2)])
    driver.cluster.lose("j-trainer-0")
    driver.cluster.put(replace(web("w"), node="a", phase=PodPhase.READY, unschedulable_since_s=None))
    for seconds in (59.0, 1.0):
        assert driver.turn().actions == ()
        driver.cluster.advance(seconds)
    plan = driver.turn()
    assert {action.cause for action in plan.actions} == {Cause.PREEMPTION}
    assert {action.role for action in plan.actions} == {Role.TRAINER, Role.MASTER}
    assert decision(plan, "j").target == 0


def test_weights_divide_what_is_left():
    """Weighted dominant shares: 2 to 1."""
    driver = settled([node("a", 9_000)], [job("a", high=9, weight=200), job("b", high=9, weight=100)])
    assert sizes(driver) == {"a": 6, "b": 3}


def test_tie_goes_to_the_larger_next_share():
    """Only so is the greedy leximin: shares (1, 2) are better than (1, 1.5), and the names say nothing."""
    driver = settled([node("a", 4_000)], [job("a", low=2, weight=200), job("b", low=1, weight=100)])
    assert sizes(driver) == {"a": 2, "b": 2}


def test_growth_waits_for_the_window_after_a_shrink():
    """A6: the web pod that took the room is gone again, and the trainer comes back 3 s after it left, no sooner."""
    driver = settled([node("a")], [job("j", high=4)], Policy())
    driver.cluster.put(web("w"))
    driver.turn()
    shrunk_at_s = driver.cluster.now()
    driver.cluster.lose("w")
    driver.cluster.advance(1.5)
    early = driver.plan()
    assert early.actions == ()
    assert decision(early, "j").bottleneck is Bottleneck.COOLDOWN
    assert early.replan_at_s == shrunk_at_s + Policy().up_window_s
    driver.cluster.advance(1.5)
    assert [type(action) for action in driver.plan().actions] == [CreatePod]


def test_dominant_resource_counts():
    """A job of GPUs and a job of cpu share by what each needs most."""
    driver = settled([node("n", 8_000, gpu=4)], [job("gpu", gpu=1, cpu_milli=500), job("cpu", cpu_milli=1_000)])
    assert sizes(driver) == {"gpu": 4, "cpu": 6}


def test_pinned_size_is_reached_and_kept():
    """`trainer.replicas` above 0."""
    driver = settled([node("a")], [job("j", pinned=2)])
    assert sizes(driver) == {"j": 2}
    assert decision(driver.plan(), "j").bottleneck is Bottleneck.PINNED


def test_lowered_maximum_is_an_edit_and_takes_surplus_from_the_end():
    """Forced, cause edit."""
    driver = settled([node("a")], [job("j", high=4)], Policy())
    driver.cluster.put(job("j", high=2))
    plan = driver.plan()
    assert [(action.pod, action.cause) for action in plan.actions] == [
        ("j-trainer-3", Cause.EDIT),
        ("j-trainer-2", Cause.EDIT),
    ]


def test_newcomer_gets_its_share_by_transfer_after_the_windows():
    """P6: first the minimum, by force; then fairness, when the windows open."""
    policy = Policy()
    driver = settled([node("a", 8_000)], [job("old", high=8)], policy)
    driver.cluster.put(job("new", high=8, submitted_at_s=driver.cluster.now()))
    for _ in range(5):
        driver.turn()
        driver.cluster.advance(1.0)
    early = driver.plan()
    assert decision(early, "new").now == 1
    assert decision(early, "new").bottleneck is Bottleneck.COOLDOWN
    driver.cluster.advance(40.0)
    assert {a.cause for a in driver.plan().actions if isinstance(a, DeletePod)} == {Cause.TRANSFER}
    for _ in range(40):
        driver.settle(seconds=10.0)
        driver.cluster.advance(10.0)
    assert sizes(driver)["new"] >= 3


def test_giver_that_finds_other_room_gives_all_the_same():
    """The rich job fills the one node where the poor one fits, and could stand elsewhere: it moves (A4)."""
    nodes = [
        Node(name=name, allocatable=Resources(cpu_milli=cpu_milli, memory_bytes=4))
        for name, cpu_milli in (("a", 0), ("b", 1_500), ("c", 2_500))
    ]
    needy = job("needy", high=2)
    needy_shape = Shape(requests=Resources(cpu_milli=500, memory_bytes=3))
    driver = settled(nodes, [job("rich", high=5, cpu_milli=500, master_milli=500)])
    driver.cluster.put(replace(needy, trainer=replace(needy.trainer, shape=needy_shape)))
    driver.settle()
    assert sizes(driver) == {"needy": 2, "rich": 5}


def test_transfers_stay_within_the_minute():
    """The cap on what fairness may cost."""
    policy = replace(CALM, transfers_per_minute=1, transfers_percent_per_minute=0)
    driver = settled([node("a", 8_000)], [job("old", high=8)], policy)
    driver.cluster.put(job("new", high=8))
    moved = []
    for _ in range(20):
        plan = driver.turn()
        moved += [a for a in plan.actions if isinstance(a, DeletePod) and a.cause is Cause.TRANSFER]
        driver.cluster.advance(2.0)
    assert len(moved) == 1
    assert decision(driver.plan(), "new").bottleneck is Bottleneck.BUDGET


def test_draining_node_is_left_and_the_size_comes_back_elsewhere():
    """`edl drain node`."""
    driver = settled([node("a"), node("b")], [job("j", low=1, high=4)])
    driver.cluster.put(node("b", is_draining=True), node("a", is_draining=False))
    driver.settle()
    assert {pod.node for pod in driver.cluster.pods.values()} == {"a"}


def test_suspended_job_leaves_and_comes_back():
    """runPolicy.suspend."""
    spec = job("j", high=4)
    driver = settled([node("a")], [spec])
    driver.cluster.put(replace(spec, state=JobState.SUSPENDED))
    assert decision(driver.plan(), "j").target == 0
    driver.settle()
    assert not driver.cluster.pods
    driver.cluster.put(spec)
    driver.settle()
    assert sizes(driver) == {"j": 4}


def test_ending_job_is_neither_refilled_nor_grown():
    """At END trainers leave by themselves."""
    spec = job("j", low=2, high=4)
    driver = settled([node("a")], [spec])
    driver.cluster.put(replace(spec, state=JobState.ENDING))
    driver.cluster.lose("j-trainer-0")
    assert driver.plan().actions == ()


def test_failed_job_waits_for_its_pause():
    """Back-off after failures: no silent retry loop."""
    driver = driver_of([node("a")], [job("j", hold_until_s=1_030.0)])
    plan = driver.plan()
    assert plan.actions == ()
    assert decision(plan, "j").bottleneck is Bottleneck.COOLDOWN
    assert plan.replan_at_s == 1_030.0


@pytest.mark.parametrize("running", [False, True])
def test_pause_that_follows_no_failure_is_told_in_its_own_words(running):
    """A trainer that its master refused has not failed, and `edl why` has to name what is wrong with it."""
    spec = job("j", low=2, high=4)
    driver = settled([node("a")], [spec]) if running else driver_of([node("a")], [spec])
    until_s = driver.cluster.now() + 30.0
    driver.cluster.put(replace(spec, hold_until_s=until_s, hold_reason="pause after trainer j-trainer-3 was refused"))
    if running:
        driver.cluster.lose("j-trainer-0")
    told = decision(driver.plan(), "j")
    assert (told.bottleneck, told.message) == (Bottleneck.COOLDOWN, "pause after trainer j-trainer-3 was refused")


def test_aged_gang_bars_younger_ones_from_its_nodes():
    """120 s of waiting reserve the nodes: small latecomers no longer overtake."""
    big = job("big", low=4, high=4, submitted_at_s=0.0)
    young = job("young", low=1, high=1, submitted_at_s=990.0)
    driver = driver_of([node("a")], [big, young])
    driver.cluster.put(replace(web("w", 1_000), node="a", phase=PodPhase.READY, unschedulable_since_s=None))
    plan = driver.plan()
    assert plan.actions == ()
    assert decision(plan, "young").target == 0


def test_fair_share_is_named_where_others_hold_the_room():
    """A8, in words: not the node but the claim of another job."""
    driver = settled([node("a")], [job("a"), job("b")])
    plan = driver.plan()
    assert {entry.bottleneck for entry in plan.decisions} == {Bottleneck.FAIR_SHARE}
    assert "b" in decision(plan, "a").message


def test_servers_stay_at_their_minimum_with_a_notice():
    """A larger maximum is accepted and said."""
    spec = job("j", servers=1)
    spec = replace(spec, servers=replace(spec.servers, max_replicas=4))
    driver = settled([node("a")], [spec])
    assert "stay at minReplicas 1" in decision(driver.plan(), "j").notice


@pytest.mark.parametrize("seen_meanwhile", [0, 1])
def test_plan_is_dropped_whole_when_the_view_is_lost_before_the_write(seen_meanwhile):
    """A7: the second look finds a listing that is not complete; what it lacks looks like free room."""
    driver = settled([node("a")], [job("j", high=2)])
    driver.cluster.put(node("b"))
    driver.cluster.put(job("k"))
    plan, view = driver.plan(), driver.cluster.view()
    assert plan.actions
    assert still_valid(plan, view, CALM) == plan.actions
    lost = view.evolve(revision=view.revision + seen_meanwhile, is_synced=False)
    assert still_valid(plan, lost, CALM) == ()


def test_creation_whose_room_is_gone_is_dropped_before_the_write():
    """Revalidation."""
    driver = settled([node("a")], [job("j", high=2)])
    driver.cluster.put(job("j", high=4))
    plan = driver.plan()
    assert [type(action) for action in plan.actions] == [CreatePod, CreatePod]
    driver.cluster.put(replace(web("w", 1_000), node="a", phase=PodPhase.READY, unschedulable_since_s=None))
    assert len(still_valid(plan, driver.cluster.view(), CALM)) == 1


def test_pod_on_a_vanished_node_counts_for_nothing():
    """The job is refilled elsewhere; the pod itself is the cluster's to collect."""
    driver = settled([node("a"), node("b")], [job("j", low=2, high=2, cpu_milli=3_000)])
    del driver.cluster.nodes["b"]
    driver.cluster.put(node("c"))
    plan = driver.plan()
    assert decision(plan, "j").now == 1
    assert [action.node for action in plan.actions] == ["c"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"nodes": (node("a"), node("a"))}, "a appears twice"),
        ({"nodes": (node("a", -1),)}, "negative"),
        ({"jobs": (job("j"), job("j"))}, "j appears twice"),
        ({"pods": (web("w", -1),)}, "negative"),
        ({"pods": (web("w", node="a"),)}, "bound to a"),
        ({"pods": (web("w", job="j"),)}, "do not go together"),
        ({"pods": (web("w", created_at_s=float("nan")),)}, "created at nan"),
    ],
)
def test_view_that_contradicts_itself_is_refused(fields, words):
    """Adversarial input ends at the door, with the name of the thing."""
    with pytest.raises(InvalidViewError, match=words):
        ClusterView(revision=1, observed_at_s=0.0, **fields)


def test_node_without_capacity_takes_nothing_and_breaks_nothing():
    """Zero capacity."""
    view = ClusterView(revision=1, observed_at_s=0.0, nodes=(node("a", 0),), jobs=(job("j"),))
    assert plan_view(view, CALM, 0.0).actions == ()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"low": 0}, "spec.trainer.minReplicas"),
        ({"low": 3, "high": 2}, "spec.trainer.minReplicas"),
        ({"step": 0}, "spec.trainer.step"),
        ({"pinned": 9}, "spec.trainer.replicas"),
        ({"weight": 0}, "spec.weight"),
    ],
)
def test_job_that_cannot_be_is_refused_with_its_field(fields, path):
    """The path is the user's own."""
    with pytest.raises(InvalidSpecError) as caught:
        job("j", **fields)
    assert caught.value.path == path


def test_amounts_beyond_doubles_stay_exact():
    """2^53 + 1 bytes fit into 2^53 + 1 bytes and not into 2^53."""
    exact = 2**53 + 1
    huge = shape(0).requests.__class__(memory_bytes=exact)
    assert huge.fits_into(huge)
    assert not huge.fits_into(huge.__class__(memory_bytes=exact - 1))


def test_gang_that_needs_a_second_look_starts():
    """Best fit alone puts the small master where only a trainer could stand; the search comes back on it (A1)."""
    nodes = [
        Node(name=name, allocatable=Resources(cpu_milli=cpu_milli, memory_bytes=memory))
        for name, cpu_milli, memory in (("a", 1_000, 5), ("b", 1_500, 4))
    ]
    first, second = job("first", high=2, cpu_milli=500), job("second", low=3, high=3)
    first = replace(first, master=replace(first.master, shape=Shape(requests=Resources(memory_bytes=2))))
    second = replace(
        second,
        trainer=replace(second.trainer, shape=Shape(requests=Resources(cpu_milli=500, memory_bytes=1))),
        master=replace(second.master, shape=shape(500)),
    )
    driver = driver_of(nodes, [first])
    driver.turn()
    driver.cluster.put(second)
    assert [type(action) for action in driver.plan().actions] == [AdmitGang]


def test_job_that_may_grow_once_another_runs_is_said_to_wait():
    """A5: the newcomer's surplus is placed anew when it runs, which here leaves one more place to the old job."""
    old = job("old", high=4, cpu_milli=2_000)
    driver = driver_of([node("a", 4_500), node("b", 4_500)], [old])
    driver.turn()
    driver.cluster.put(job("new", high=2, cpu_milli=500))
    first = driver.turn()
    assert [action.job for action in driver.plan().actions if isinstance(action, CreatePod)] == ["new", "old"]
    assert {wait.job for wait in first.waits} == {"new", "old"}
