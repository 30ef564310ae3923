"""The promises A1 to A7 of the cluster side, on clusters that nobody thought of."""

from dataclasses import replace
from math import nan

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain import Bottleneck, Cause, ClusterView, DeletePod, History, JobState, PodPhase, Policy, Role, Tier
from autoscaler.planner import plan
from tests.property.planner_cases import Driver, happen, web
from tests.property.planner_checks import (
    check_deletions_together,
    check_exchange_at_rest,
    check_forced_at_rest,
    check_gangs,
    check_minimums,
    check_targets,
    check_waits_are_said,
    check_words,
    created,
)
from tests.property.planner_draws import clusters, gated_policies, numbers, open_policies, policies, shapes, stories

edits = st.tuples(st.sampled_from(["edit", "edit", "drain", "kill"]), numbers)
common = settings()

# Room that is kept free is wanted by somebody else, which is what A4 does not speak of.
NOTHING_KEPT_FREE = {
    "headroom": (),
    "headroom_percent": 0.0,
    "autoscaler_headroom_percent": 0.0,
    "has_device_reserve": False,
}


@common
@given(clusters(), stories(), policies(has_gates=False, victim_age_s=1.0), st.randoms(use_true_random=False))
def test_every_turn_keeps_targets_gangs_minimums_and_capacity(cluster, story, policy, chance):
    """A1 and A2 at every write, while events fall into changes that are under way and pods leave in any order."""
    driver = Driver(cluster, policy)
    for event in story:
        happen(cluster, event)
        cluster.bind_others()
        for _ in range(3):
            view = cluster.view(history=driver.history)
            decided = driver.turn()
            check_targets(decided, view)
            check_words(decided)
            check_deletions_together(decided)
            check_gangs(decided, view)
            check_minimums(decided, view)
            leave_some(cluster, chance)
            cluster.bind_others()
            cluster.check_capacity()
            cluster.advance(0.3)


def leave_some(cluster, chance):
    """Any of the leaving pods go now."""
    for name in [n for n, pod in cluster.pods.items() if pod.phase is PodPhase.TERMINATING and chance.random() < 0.5]:
        cluster.lose(name)


@common
@given(clusters(), stories(), open_policies, st.randoms(use_true_random=False))
def test_any_part_of_a_plan_in_its_order_keeps_capacity(cluster, story, policy, chance):
    """A2: whichever of a plan's writes are lost, the others fit; deletions complete in any order or never."""
    driver = Driver(cluster, policy)
    for event in story:
        happen(cluster, event)
        for _ in range(3):
            decided = driver.plan()
            driver.apply(decided, [action for action in decided.actions if chance.random() < 0.7])
            leave_some(cluster, chance)
            cluster.bind_others()


@common
@given(clusters(), stories(), open_policies)
def test_at_rest_no_waiting_pod_could_be_served(cluster, story, policy):
    """A3, after each event of a story."""
    driver = Driver(cluster, policy)
    for event in story:
        happen(cluster, event)
        decided = driver.rest()
        check_forced_at_rest(cluster.view(history=driver.history), decided)


@common
@given(clusters(), stories(max_events=0), policies(has_gates=False, **NOTHING_KEPT_FREE))
def test_at_rest_no_exchange_makes_shares_more_equal(cluster, story, policy):
    """A4, gates off: jobs come one after the other, and those that run have the same resources to share."""
    driver = Driver(cluster, policy)
    driver.live(story)
    for decision in driver.plan().decisions:
        if not decision.target:
            del cluster.jobs[decision.job]
    cluster.touch()
    driver.settle()
    check_exchange_at_rest(cluster.view(), policy)


@common
@given(clusters(), stories(), gated_policies, st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_the_order_of_its_input(cluster, story, policy, chance):
    """A5."""
    driver = Driver(cluster, policy)
    for event in story:
        happen(cluster, event)
        driver.turn()
        cluster.advance(1.0)
        view = cluster.view(history=driver.history)
        kinds = ("nodes", "pods", "jobs", "workloads", "quotas")
        mixed = {kind: tuple(chance.sample(getattr(view, kind), len(getattr(view, kind)))) for kind in kinds}
        assert plan(replace(view, **mixed), policy, cluster.now()) == plan(view, policy, cluster.now())


@common
@given(clusters(), stories(), st.one_of(open_policies, gated_policies))
def test_planning_again_on_the_applied_plan_asks_only_for_what_waits(cluster, story, policy):
    """A5: nothing has happened since, so whatever is new is for the sake of a job that was announced as waiting."""
    driver = Driver(cluster, policy)
    for event in story:
        happen(cluster, event)
        cluster.bind_others()
        first = driver.turn()
        check_waits_are_said(driver.plan(), first)
        cluster.advance(40.0)


@common
@given(
    clusters(),
    stories(),
    gated_policies,
    st.lists(st.sampled_from([0.5, 1.5, 10.0, 40.0]), min_size=12, max_size=12),
)
def test_voluntary_changes_keep_their_windows(cluster, story, policy, pauses):
    """A6, read off the writes themselves."""
    driver = Driver(cluster, policy)
    grown, shrunk = {}, {}
    for event, pause in zip([*story, *[("open", 0)] * 12], pauses, strict=False):
        happen(cluster, event)
        cluster.bind_others()
        decided = driver.turn()
        now_s = cluster.now()
        for action in decided.actions:
            is_move = (
                action.cause is Cause.DEFRAGMENTATION and action.role is Role.SERVER
                if isinstance(action, DeletePod)
                else True
            )
            if isinstance(action, DeletePod) and not action.cause.is_forced and not is_move:
                assert now_s - grown.get(action.job, -1e9) >= policy.down_window_s
        for pod in created(decided):
            if pod.cause is Cause.FREE_CAPACITY:
                assert now_s - shrunk.get(pod.job, -1e9) >= policy.up_window_s
        grown |= {pod.job: now_s for pod in created(decided) if pod.role is Role.TRAINER}
        shrunk |= {a.job: now_s for a in decided.actions if isinstance(a, DeletePod) and a.role is Role.TRAINER}
        cluster.advance(pause)


@common
@given(clusters(), stories(), open_policies, st.sampled_from(["age", "nan", "unsynced", "nodes"]))
def test_a_stale_view_writes_nothing_and_lowers_nothing(cluster, story, policy, flaw):
    """A7."""
    driver = Driver(cluster, policy)
    driver.live(story)
    view = cluster.view(history=driver.history)
    sizes = {decision.job: decision.now for decision in driver.plan().decisions}
    now_s = cluster.now() + 1.0
    match flaw:
        case "age":
            now_s += policy.stale_limit_s
        case "nan":
            view = replace(view, observed_at_s=nan)
        case "unsynced":
            view = replace(view, is_synced=False)
        case "nodes":
            view = replace(view, nodes=tuple(replace(node, is_ready=False) for node in view.nodes))
            sizes = {}
    decided = plan(view, policy, now_s)
    assert decided.actions == ()
    assert decided.history == view.history
    for decision in decided.decisions:
        assert decision.bottleneck is Bottleneck.STALE_VIEW
        assert decision.target >= sizes.get(decision.job, 0)


@common
@given(
    clusters(),
    stories(),
    st.lists(shapes, max_size=1),
    st.integers(0, 3),
    st.sampled_from([nan, None]),
    open_policies,
)
def test_a_metric_that_is_lost_lowers_not_its_job_and_takes_no_more(cluster, story, waiting, which, lost, policy):
    """A7: an unknown checkpoint age makes a job the last choice, and changes not how many leave for a pod."""
    driver = Driver(cluster, policy)
    driver.live(story)
    cluster.put(*(replace(job, checkpoint_age_s=5.0) for job in cluster.jobs.values()))
    cluster.put(*(web(number, shape, now_s=cluster.now()) for number, shape in enumerate(waiting)))
    cluster.bind_others()
    name = sorted(cluster.jobs)[which % len(cluster.jobs)]
    known = driver.plan()
    cluster.put(replace(cluster.jobs[name], checkpoint_age_s=lost))
    unknown = driver.plan()

    def target(decided):
        return next(decision.target for decision in decided.decisions if decision.job == name)

    def removals(decided):
        return sum(isinstance(action, DeletePod) for action in decided.actions)

    assert target(unknown) >= target(known)
    assert removals(unknown) == removals(known)


@common
@given(clusters(), stories(), open_policies)
def test_everything_ends_at_rest_from_any_memory(cluster, story, policy):
    """A9: a new leader with an empty memory comes to rest too, and takes nothing that the old one left."""
    driver = Driver(cluster, policy)
    driver.live(story)
    sizes = {decision.job: decision.now for decision in driver.plan().decisions}
    driver.history = History(since_s=cluster.now())
    decided = driver.settle()
    assert {decision.job: decision.now for decision in decided.decisions} == sizes


@common
@given(clusters(), stories(max_events=3), st.lists(edits, max_size=6), open_policies)
def test_edits_drains_and_kills_come_to_rest_within_bounds(cluster, story, events, policy):
    """A1 after every change of mind: at most the ceiling, core where it can be, and no plan that undoes the last."""
    driver = Driver(cluster, policy)
    driver.live(story)
    for event in events:
        happen(cluster, event)
        decided = driver.settle(seconds=10.0)
        check_targets(decided, cluster.view())
        for job in cluster.jobs.values():
            if job.state is JobState.ENDING:  # its trainers leave by themselves, whatever is edited
                continue
            trainers = [p for p in cluster.pods.values() if p.job == job.name and p.role is Role.TRAINER]
            core = sum(pod.tier is Tier.CORE for pod in trainers)
            assert len(trainers) <= job.trainer.ceiling
            places = {name: node for name, node in cluster.nodes.items() if node.is_open()}
            if len(trainers) > job.trainer.min_replicas and all(pod.node in places for pod in trainers):
                assert core >= job.trainer.min_replicas


def test_an_empty_cluster_has_an_empty_plan():
    """The degenerate case has an answer too."""
    view = ClusterView(revision=0, observed_at_s=0.0)
    assert plan(view, Policy(), 0.0).actions == ()
