"""A6: what is voluntary waits for its window, its quiet time and its part of the minute; what is forced starts none."""

from dataclasses import replace

from autoscaler.domain import Bottleneck, Capabilities, Cause, DeletePod, History, PodPhase, Policy, Role, ServerSpec
from autoscaler.planner import record_applied
from autoscaler.planner.counterfactual import PlanInputs, size_after
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, settled, shape, web


def deletions(plan):
    return [action for action in plan.actions if isinstance(action, DeletePod)]


def rich_and_poor(policy):
    """The old job has all of the node but the newcomer's minimum, and nothing else is due."""
    still = replace(CALM, transfers_per_minute=0, transfers_percent_per_minute=0)
    driver = settled([node("a", 12_000)], [job("old", high=12)], still)
    driver.cluster.put(job("new", high=12))
    driver.settle()
    driver.cluster.advance(120.0)
    driver.policy = policy
    return driver


def test_new_leader_starts_its_windows_afresh():
    """It does not know what happened a moment before it came, so it waits as if everything had."""
    policy = replace(CALM, up_window_s=3.0, down_window_s=30.0)
    driver = rich_and_poor(policy)
    driver.cluster.put(node("b", 1_000))
    began_at_s = driver.cluster.now()
    driver.history = History(since_s=began_at_s)
    early = driver.plan()
    assert early.actions == ()
    assert early.replan_at_s == began_at_s + 3.0
    driver.cluster.advance(3.0)
    driver.settle(seconds=1.0)
    assert decision(driver.plan(), "new").now == 2
    driver.cluster.advance(30.0)
    assert {action.cause for action in deletions(driver.plan())} == {Cause.TRANSFER}


def test_job_that_came_after_the_leader_has_no_window_to_wait_for():
    """Its whole life is remembered."""
    driver = settled([node("a", 1_000)], [job("j", submitted_at_s=999.0)])
    driver.policy = replace(CALM, up_window_s=3.0)
    driver.history = History(since_s=998.0)
    driver.cluster.put(node("a", 2_000))
    assert len(driver.plan().actions) == 1


def test_nothing_is_moved_for_fairness_right_after_a_submission():
    """The quiet window: whoever came may not be the last of the row."""
    driver = rich_and_poor(replace(CALM, quiet_window_s=1.0))
    driver.cluster.put(job("newest", low=13, high=13, submitted_at_s=driver.cluster.now()))
    driver.cluster.advance(0.5)
    assert deletions(driver.plan()) == []
    driver.cluster.advance(0.5)
    assert {action.cause for action in deletions(driver.plan())} == {Cause.TRANSFER}


def test_no_moves_a_minute_are_none():
    """The cap switches them off, whatever a step takes."""
    policy = replace(CALM, transfers_per_minute=0, transfers_percent_per_minute=0)
    assert rich_and_poor(policy).plan().actions == ()


def test_all_the_trainers_of_one_plan_count_against_the_minute():
    """Steps of two: with three to move, one step goes and the second waits."""
    driver = rich_and_poor(CALM)
    driver.policy = replace(CALM, transfers_per_minute=3, transfers_percent_per_minute=0)
    driver.cluster.put(job("old", high=13, step=2), job("new", high=13, step=2))
    plan = driver.plan()
    assert len(deletions(plan)) == 2
    assert decision(plan, "new").bottleneck is Bottleneck.BUDGET


def test_leaving_a_lost_node_starts_no_window():
    """The job has shrunk by nobody's choice: it comes back at once, the window is for changes of mind."""
    driver = settled([node("a"), node("b")], [job("j", high=6)], replace(CALM, up_window_s=3.0))
    driver.cluster.advance(10.0)
    driver.cluster.put(node("b", is_draining=True))
    left = deletions(driver.turn())
    assert {action.cause for action in left} == {Cause.LOST_NODE}
    assert [entry.shrunk_at_s for entry in driver.history.resizes] == [None]
    taken = replace(left[0], cause=Cause.POD)
    (entry,) = record_applied(driver.history, taken, 7.0).resizes
    assert entry.shrunk_at_s == 7.0


def test_odd_trainer_leaves_once_it_is_old_enough():
    """Of five in steps of two one is killed: the fourth is of no use, yet it goes by choice, and so not young."""
    policy = replace(CALM, victim_age_s=30.0)
    driver = settled([node("a", 5_000)], [job("j", high=5, step=2)], policy)
    driver.cluster.lose("j-trainer-4")
    driver.cluster.put(node("a", 4_000))
    born_at_s = driver.cluster.pods["j-trainer-3"].created_at_s
    driver.cluster.now_s = born_at_s + 20.0
    early = driver.plan()
    assert early.actions == ()
    assert early.replan_at_s == born_at_s + 30.0
    driver.cluster.advance(10.0)
    assert [(action.pod, action.cause) for action in deletions(driver.plan())] == [("j-trainer-3", Cause.STEP)]


def test_growth_that_waits_is_told_in_trainers():
    """A server for each trainer comes with them, and is none."""
    spec = replace(
        job("j", high=2),
        servers=ServerSpec(shape=shape(500), min_replicas=1, max_replicas=4, trainers_per_server=1),
    )
    cluster = MemoryCluster([node("a", 1_500)], [spec])
    cluster.capabilities = Capabilities(servers_elastic=True)
    driver = Driver(cluster, replace(Policy(), burst_window_s=0.0))
    driver.settle()
    driver.history = History(since_s=cluster.now())
    cluster.put(node("a", 4_000))
    waiting = decision(driver.plan(), "j")
    assert (waiting.now, waiting.target) == (1, 2)
    assert waiting.message.startswith("grows by 1 in 3 s")
    cluster.advance(3.0)
    assert [action.role for action in driver.plan().actions] == [Role.SERVER, Role.TRAINER]


def test_trainers_run_as_long_as_their_job_wants_before_they_are_moved():
    """`beside-the-scheduler.md` 20; the poor job is told for how long."""
    driver = rich_and_poor(CALM)
    young = replace(driver.cluster.jobs["old"].trainer, min_run_s=600.0)
    driver.cluster.put(replace(driver.cluster.jobs["old"], trainer=young))
    held = driver.plan()
    assert deletions(held) == []
    assert decision(held, "new").bottleneck is Bottleneck.COOLDOWN
    calm = PlanInputs(view=driver.cluster.view(), policy=CALM, now_s=driver.cluster.now())
    assert size_after(calm, "new") > decision(held, "new").target
    assert held.replan_at_s in {pod.created_at_s + 600.0 for pod in driver.cluster.view().pods if pod.job == "old"}
    driver.cluster.advance(held.replan_at_s - driver.cluster.now())
    assert {action.cause for action in deletions(driver.plan())} == {Cause.TRANSFER}


def test_young_trainers_are_spared_where_older_ones_do_as_well():
    still = replace(CALM, transfers_per_minute=0, transfers_percent_per_minute=0)
    driver = settled([node("a", 8_000)], [job("old", high=12, min_run_s=600.0)], still)
    driver.cluster.advance(900.0)
    older = {pod.name for pod in driver.cluster.view().pods}
    driver.cluster.put(node("a", 12_000))
    driver.settle(seconds=1.0)
    driver.cluster.put(job("new", high=12))
    driver.settle(seconds=1.0)
    driver.policy = CALM
    moved = deletions(driver.plan())
    assert {action.cause for action in moved} == {Cause.TRANSFER}
    assert {action.pod for action in moved} <= older


def test_force_asks_no_trainer_how_long_it_has_run():
    driver = settled([node("a", 4_000)], [job("old", high=4, min_run_s=600.0)])
    driver.cluster.put(web("shop", since_s=driver.cluster.now()))
    assert [action.cause for action in deletions(driver.plan())] == [Cause.POD]


def test_odd_trainers_too_run_as_long_as_their_job_wants():
    """One of a step was lost, with its room."""
    driver = settled([node("a", 5_000)], [job("old", high=5, step=2, min_run_s=600.0)])
    driver.cluster.lose("old-trainer-4")
    driver.cluster.put(node("a", 4_000))
    held = driver.plan()
    assert deletions(held) == []
    driver.cluster.advance(held.replan_at_s - driver.cluster.now())
    assert [action.cause for action in deletions(driver.plan())] == [Cause.STEP]


def test_pause_of_a_preempted_job_counts_from_when_it_was_last_seen():
    """While the scheduler's victim leaves, the wave that took it is not over."""
    driver = settled([node("a")], [job("j", high=4)])
    victim = driver.cluster.pods["j-trainer-3"]
    driver.cluster.put(replace(victim, phase=PodPhase.TERMINATING, is_preempted=True))
    for _ in range(2):
        driver.turn()
        last_s = driver.cluster.now()
        driver.cluster.advance(5.0)
    driver.cluster.lose(victim.name)
    waiting = driver.plan()
    assert waiting.replan_at_s == last_s + CALM.preempted_pause_s
    driver.cluster.now_s = waiting.replan_at_s
    assert [action.job for action in driver.plan().actions] == ["j"]
