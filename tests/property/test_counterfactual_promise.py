"""A8: planning anew with an answer's change gives its size, and no smaller change of that kind does."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from autoscaler.domain import Bottleneck, JobState, PodPhase, Policy, Role, Tier
from autoscaler.planner import plan
from autoscaler.planner.counterfactual import ChangeKind, PlanInputs, explain, size_after, without_windows
from autoscaler.planner.counterfactual.increments import unit_for
from autoscaler.planner.counterfactual.job_changes import is_possible
from autoscaler.planner.counterfactual.priority_changes import weight_unit
from autoscaler.planner.counterfactual.search import missing_of
from autoscaler.planner.working_copy.job_speed import worthwhile_size
from tests.property.planner_cases import Driver
from tests.property.planner_checks import can_place, free_on, is_over_quota, pods_of_step
from tests.property.planner_draws import clusters, gated_policies, open_policies, policies, stories

DEPTH = max(1, settings.default.max_examples / 100)  # 1 in `make test`, 10 in the deep profile


def smaller(change, moment, missing):  # noqa: C901 - one case for each
    """All smaller changes of the kind, in its unit; nothing at all is the smallest."""
    match change.kind:
        case ChangeKind.MAX:
            return [replace(change, to=to) for to in range(change.before, change.to)]
        case ChangeKind.WEIGHT:
            return [replace(change, to=to) for to in range(change.before, change.to, weight_unit(change.before))]
        case ChangeKind.PRIORITY:
            return [replace(change, to=to) for to in range(change.before, change.to)]
        case ChangeKind.STEP | ChangeKind.HEADROOM:
            return [replace(change, to=to) for to in range(change.before, change.to, -1)]
        case ChangeKind.MIN:  # what a pinned size allows of them
            spec, tried = moment.job(change.job).trainer, range(change.before, change.to, -1)
            return [replace(change, to=to) for to in tried if is_possible(spec, min_replicas=to)]
        case ChangeKind.EFFICIENCY:
            return [replace(change, to=change.to + 0.05)] if change.to + 0.05 < change.before else []
        case ChangeKind.RESOURCE | ChangeKind.QUOTA:
            unit = unit_for(change.resource, missing.amount(change.resource))
            return [replace(change, added=added) for added in range(0, change.added, unit)]
        case ChangeKind.NODES:
            return [replace(change, count=count) for count in range(change.count)]
        case ChangeKind.OPEN:
            return [replace(change, nodes=change.nodes[:count]) for count in range(len(change.nodes))]
        case ChangeKind.TIME | ChangeKind.PIN | ChangeKind.RESUME | ChangeKind.VIEW:
            return []


def check_answer(moment, explanation, answer):
    """A8 on one answer, by planning anew."""
    name, before = explanation.decision.job, explanation.settled.target
    missing = missing_of(moment.job(name), explanation.settled)
    assert size_after(moment, name, *answer.changes) == answer.size
    if answer.changes[0].kind is ChangeKind.TIME:
        check_time(moment, explanation, answer)
        return
    assert answer.size > before
    for at, change in enumerate(answer.changes):
        for less in smaller(change, moment, missing):
            changes = [less if index == at else other for index, other in enumerate(answer.changes)]
            assert size_after(moment, name, *changes) <= before, (explanation, less)


def check_time(moment, explanation, answer):
    """A moment earlier the answer is what it is now."""
    (wait,) = answer.changes
    early = replace(wait, until_s=max(moment.now_s, wait.until_s - 0.1)).apply(moment)
    decided = plan(early.view, early.policy, early.now_s)
    decision = next(d for d in decided.decisions if d.job == explanation.decision.job)
    if answer.size > explanation.decision.target:
        assert decision.target < answer.size
    else:
        assert decision.bottleneck in {Bottleneck.COOLDOWN, Bottleneck.BUDGET}


def lived(cluster, story, policy):
    """The moment after a story, at rest."""
    driver = Driver(cluster, policy)
    driver.live(story)
    return PlanInputs(view=cluster.view(history=driver.history), policy=policy, now_s=cluster.now())


@settings(max_examples=int(40 * DEPTH))
@given(clusters(), stories(), gated_policies)
def test_every_answer_is_exact(cluster, story, policy):
    """A8, with windows on: singles, pairs and time."""
    moment = lived(cluster, story, policy)
    decisions = plan(moment.view, moment.policy, moment.now_s).decisions
    for job in moment.view.jobs:
        explanation = explain(moment, job.name)
        assert explanation.decision in decisions
        assert not explanation.is_cut
        for answer in explanation.answers:
            check_answer(moment, explanation, answer)


@settings(max_examples=int(40 * DEPTH))
@given(clusters(has_limits=False), stories(), open_policies)
def test_an_active_job_has_an_answer(cluster, story, policy):
    """With room for everybody and a larger maximum every job would be larger; so something is always named.

    A8 allows that nothing helps: a job in its pause, one whose namespace lacks more than one thing, and one that is
    over are left out, and so is one whose change of size would never be paid, or that is pinned at its maximum: it may
    lack pin, maximum and room, which are three.
    """
    moment = lived(cluster, story, policy)
    for job in moment.view.jobs:
        if job.trainer.pinned_replicas == job.trainer.largest_allowed(job.trainer.max_replicas):
            continue
        if job.state in {JobState.ACTIVE, JobState.SUSPENDED} and moment.now_s >= job.hold_until_s:
            explanation = explain(moment, job.name)
            assert explanation.answers, explanation


@settings(max_examples=int(60 * DEPTH))
@given(clusters(), stories(), policies(has_gates=False, has_device_reserve=False))
def test_every_bottleneck_is_true(cluster, story, policy):  # noqa: C901 - one case for each
    """At rest one more step really fails, for the reason that is named."""
    moment = lived(cluster, story, policy)
    decided = plan(moment.view, moment.policy, moment.now_s)
    for decision in decided.decisions:
        job = moment.job(decision.job)
        if decision.target == 0 or decision.target != decision.now or job.state is not JobState.ACTIVE:
            continue
        following = job.trainer.next_size(decision.now)
        step = (following or decision.now) - decision.now
        pods = pods_of_step(moment.view, job, decision.now, step) if step else []
        match decision.bottleneck:
            case Bottleneck.MAX:
                assert step == 0
                assert decision.now == job.trainer.largest_allowed(job.trainer.max_replicas)
            case Bottleneck.EFFICIENCY:
                assert step > 0
                assert following > worthwhile_size(job)
            case Bottleneck.PINNED:
                assert decision.now == job.trainer.pinned_replicas
            case Bottleneck.QUOTA:
                assert is_over_quota(moment.view, job, pods)
            case Bottleneck.STEP:
                assert step > 1
                assert can_place([job.trainer.shape], rooms_left(moment.view, decided))
                assert not can_place(pods, rooms_left(moment.view, decided)), decision
            case Bottleneck.NODE_FIT | Bottleneck.FAIR_SHARE | Bottleneck.PRIORITY:
                assert step > 0
                assert not can_place(pods, rooms_left(moment.view, decided)), decision
            case Bottleneck.NEVER_FITS:
                empty = [n for n in moment.view.nodes if n.accepts(job.trainer.shape)]
                assert not any(job.trainer.shape.requests.fits_into(node.allocatable) for node in empty)
        if decision.bottleneck in {Bottleneck.FAIR_SHARE, Bottleneck.PRIORITY}:
            others = [p for p in moment.view.pods if p.role is Role.TRAINER and p.job != job.name]
            without = moment.view.evolve(gone_pods={p.name for p in others if p.tier is Tier.SURPLUS})
            assert can_place([job.trainer.shape], rooms_left(without, decided)), decision


def rooms_left(view, decided):
    """What open nodes have free beside the room that is kept for others: headroom, and growth that is announced."""
    assert not any(pod.phase is PodPhase.TERMINATING for pod in view.pods)
    rooms = {node.name: free_on(view, node) for node in view.nodes if node.is_open()}
    for demand in decided.demands:
        if demand.node is not None:
            rooms[demand.node] -= demand.shape.requests
    return {node: rooms[node.name] for node in view.nodes if node.is_open()}


@pytest.mark.parametrize("name", ["up_window_s", "down_window_s", "quiet_window_s", "victim_age_s", "payoff_s"])
def test_windows_off_means_all_of_them(name):
    """What A8 calls windows off."""
    assert getattr(without_windows(Policy()), name) == 0
