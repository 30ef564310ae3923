"""The promises of the cluster side as checks on what a plan says and what stands, told apart from how it is planned."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, groupby

from autoscaler.domain import (
    NOTHING,
    AdmitGang,
    Cause,
    CreatePod,
    DeletePod,
    Fairness,
    JobState,
    PodPhase,
    Role,
    Tier,
)
from autoscaler.planner.phases.p4_gangs import STARTS_PER_PLAN
from autoscaler.planner.working_copy.job_speed import worthwhile_size
from autoscaler.planner.working_copy.progress import GRAINS, speeds_of

OWNERS_WISH = {Cause.EDIT, Cause.LOST_NODE, Cause.PREEMPTION}  # these may take a job below its minimum, or all of it


def check_targets(decided, view):
    """A1: every target is 0 or allowed."""
    specs = {job.name: job.trainer for job in view.jobs}
    for decision in decided.decisions:
        assert decision.target == 0 or specs[decision.job].is_allowed(decision.target), decision


def check_words(decided):
    """No sentence has a hole where an amount, a name or a node was to stand."""
    for decision in decided.decisions:
        for text in (decision.message, decision.limit, decision.notice):
            assert text == " ".join(text.split()), f"{decision.job}: {text!r}"


def check_deletions_together(decided):
    """What leaves a job in one plan stands together in it, so that a group is resized once (ADR 0234)."""
    jobs = [action.job for action in decided.actions if isinstance(action, DeletePod)]
    assert len([name for name, _ in groupby(jobs)]) == len(set(jobs)), jobs


def check_gangs(decided, view):
    """A1: gangs are admitted whole, each once, and no more than a few at a time."""
    gangs = [action for action in decided.actions if isinstance(action, AdmitGang)]
    assert len(gangs) == len({gang.job for gang in gangs}) <= STARTS_PER_PLAN
    for gang in gangs:
        job = next(job for job in view.jobs if job.name == gang.job)
        counts = Counter(pod.role for pod in gang.pods)
        assert counts[Role.TRAINER] == job.trainer.min_replicas
        assert counts[Role.SERVER] == job.server_count
        assert counts[Role.MASTER] == job.master.replicas
        assert not any(pod.job == job.name and pod.phase is not PodPhase.TERMINATING for pod in view.pods)


def check_minimums(decided, view):
    """Nothing that is taken for others brings a job below its minimum, or takes a server or a master from it.

    A server leaves by the ratio, or for the one in its place, and never below the minimum; whole jobs only where the
    policy or time says so.
    """
    for job in view.jobs:
        deletions = [a for a in decided.actions if isinstance(a, DeletePod) and a.job == job.name]
        taken = {a.pod for a in deletions if a.cause not in OWNERS_WISH}
        standing = [p for p in view.pods if p.job == job.name and p.phase is not PodPhase.TERMINATING]
        if any(action.cause is Cause.PREEMPTION for action in deletions):
            assert {pod.name for pod in standing} == {action.pod for action in deletions}
            continue
        trainers = [pod for pod in standing if pod.role is Role.TRAINER]
        swapped = sum(action.cause is Cause.CORE_SWAP for action in deletions)
        left = len([pod for pod in trainers if pod.name not in taken])
        assert left + swapped >= min(len(trainers), job.trainer.min_replicas)
        willing = {Cause.RATIO, Cause.DEFRAGMENTATION}
        spared = {action.pod for action in deletions if action.cause in willing and action.role is Role.SERVER}
        others = [pod for pod in standing if pod.role is not Role.TRAINER and pod.name in taken]
        assert all(pod.role is Role.SERVER and pod.name in spared for pod in others)
        if spared:
            assert sum(pod.role is Role.SERVER for pod in standing) - len(others) >= job.server_count


def check_forced_at_rest(view, decided):
    """A3: no waiting pod would run if some surplus on one node were gone, minimums kept and refusals apart."""
    refused = {refusal.pod for refusal in view.history.refusals}
    pending = [p for p in view.pods if p.role is Role.EXTERNAL and p.place is None and p.priority >= 0]
    for pod in pending:
        if pod.unschedulable_since_s is None or pod.name in refused or not pod.is_modelled:
            continue
        for node in view.nodes:
            if node.is_open() and node.accepts(pod.shape):
                room = free_on(view, node) + takeable_on(view, node)
                assert not pod.requests.fits_into(room), f"{pod.name} could run on {node.name}: {decided.demands}"


def free_on(view, node):
    used = sum((pod.requests for pod in view.pods if pod.place == node.name), start=NOTHING)
    return node.allocatable - used


def takeable_on(view, node):
    """All surplus on the node that its jobs can spare."""
    total = NOTHING
    for job in view.jobs:
        trainers = [p for p in view.pods if p.job == job.name and p.role is Role.TRAINER]
        spare = max(0, len(trainers) - job.trainer.min_replicas)
        here = [pod for pod in trainers if pod.tier is Tier.SURPLUS and pod.node == node.name]
        total = sum((pod.requests for pod in here[:spare]), start=total)
    return total


def share_of(view, job, *, more=0):
    """Dominant share of what stands, and `more` trainers; not weighted."""
    capacity = sum((n.allocatable for n in view.nodes if n.is_ready and n.accepts(job.trainer.shape)), start=NOTHING)
    used = sum((pod.requests for pod in view.pods if pod.job == job.name), start=NOTHING)
    used = used.plus(job.trainer.shape.requests, times=more)
    parts = [Fraction(amount, capacity.amount(name)) for name, amount in used.amounts() if capacity.amount(name)]
    return max(parts, default=Fraction(0))


def is_poorer(view, policy, poor, more, rich, less):
    """Whether the poor job has less even with `more` trainers than the rich one with `less` fewer (A4)."""
    if policy.fairness is Fairness.PROGRESS:
        return progress_of(view, poor, more=more) < progress_of(view, rich, more=-less)
    after, left = share_of(view, poor, more=more), share_of(view, rich, more=-less)
    if policy.fairness is Fairness.JOB or poor.namespace == rich.namespace:
        return after / poor.weight < left / rich.weight
    totals = Counter()
    for job in view.jobs:
        totals[job.namespace] += after if job is poor else left if job is rich else share_of(view, job)
    return totals[poor.namespace] < totals[rich.namespace]


def progress_of(view, job, *, more=0):
    """The job's throughput with `more` trainers, in relation to that on its part alone, in whole grains."""
    capacity = sum((n.allocatable for n in view.nodes if n.is_ready and n.accepts(job.trainer.shape)), start=NOTHING)
    asked = [(amount, capacity.amount(name)) for name, amount in job.trainer.shape.requests.amounts()]
    part = max((Fraction(amount, held) for amount, held in asked if held), default=Fraction(0)) / job.weight
    running = {pod.job for pod in view.pods if pod.phase not in {PodPhase.GATED, PodPhase.TERMINATING}}
    total = sum(one.weight for one in view.jobs if one.state is JobState.ACTIVE and one.name in running)
    size = more + sum(pod.job == job.name and pod.role is Role.TRAINER for pod in view.pods)
    if job.throughput is None or not job.throughput.is_known:
        return part * size
    fair = float(1 / (part * total)) if part else 0.0
    speeds = speeds_of(job.throughput.expected, job.trainer, job.servers)
    most = len(speeds) - 1

    def speed(count):
        below = int(count)
        between = (
            speeds[below] + (speeds[min(below + 1, most)] - speeds[below]) * (count - below) if below < most else 0.0
        )
        return between if count < most else speeds[most] * count / most

    return part * Fraction(round(fair * speed(size) / speed(fair) * GRAINS), GRAINS) if fair else Fraction(0)


def check_exchange_at_rest(view, policy):
    """A4: between jobs of one priority, taking a step from the richer would not let the poorer grow.

    A job that is bound by its quota is left out: that is a reason which no exchange of room lifts.
    """
    running = [job for job in view.jobs if any(pod.job == job.name for pod in view.pods)]
    size = {job.name: sum(p.job == job.name and p.role is Role.TRAINER for p in view.pods) for job in running}
    for poor in running:
        following = poor.trainer.next_size(size[poor.name])
        if following is not None and following > worthwhile_size(poor):
            continue
        for rich in running:
            if following is None or rich is poor or rich.priority != poor.priority:
                continue
            down = size[rich.name] - rich.trainer.largest_allowed(size[rich.name] - 1)
            if down <= 0 or size[rich.name] <= rich.trainer.min_replicas:
                continue
            step = following - size[poor.name]
            pods = pods_of_step(view, poor, size[poor.name], step)
            if is_poorer(view, policy, poor, step, rich, down) and not is_over_quota(view, poor, pods):
                assert not could_grow(view, pods, rich, down), f"{rich.name} -> {poor.name}"


def pods_of_step(view, job, size, step):
    """What must find a place for the job to grow: trainers, `perNode` of them as one, and the servers they need."""
    spec, per_node = job.trainer, job.trainer.per_node
    unit = replace(spec.shape, requests=NOTHING.plus(spec.shape.requests, times=per_node))
    pods = [unit] * (step // per_node) + [spec.shape] * (step % per_node)
    if job.servers is None or not view.capabilities.servers_elastic:
        return pods
    servers = job.servers
    wanted = servers.pinned_replicas or -(-(size + step) // servers.trainers_per_server)
    wanted = max(servers.min_replicas, min(wanted, servers.max_replicas))
    have = sum(pod.job == job.name and pod.role is Role.SERVER for pod in view.pods)
    return pods + [servers.shape] * (wanted - have)


def is_over_quota(view, job, shapes):
    asked = sum((shape.requests for shape in shapes), start=NOTHING)
    limits = [limit for quota in view.quotas if quota.namespace == job.namespace for limit in quota.limits]
    return any(0 < asked.amount(limit.resource) > limit.hard - limit.used for limit in limits)


def could_grow(view, shapes, rich, down):
    """Whether some `down` surplus trainers of the rich leave room for these pods: every choice is tried."""
    surplus = [p for p in view.pods if p.job == rich.name and p.tier is Tier.SURPLUS]
    for gone in combinations(surplus, down):
        left = replace(view, pods=tuple(pod for pod in view.pods if pod not in gone))
        rooms = {node: free_on(left, node) for node in left.nodes if node.is_open()}
        if can_place(shapes, rooms):
            return True
    return False


def can_place(shapes, rooms):
    """Whether each pod finds a node of these: every choice is tried."""
    if not shapes:
        return True
    first, rest = shapes[0], shapes[1:]
    return any(
        can_place(rest, {**rooms, node: room - first.requests})
        for node, room in rooms.items()
        if node.accepts(first) and first.requests.fits_into(room)
    )


def check_waits_are_said(second, first):
    """A5: what a plan does right after another one is for the sake of a job that the other announced as waiting."""
    awaited = {wait.job for wait in first.waits}
    assert not [action for action in second.actions if for_whom(action) not in awaited], first


def for_whom(action):
    """A gang that started in the second plan may claim its share in it."""
    return action.beneficiary if isinstance(action, DeletePod) else action.job


def created(decided):
    """All creations of a plan, those inside gangs included."""
    for action in decided.actions:
        if isinstance(action, CreatePod):
            yield action
        elif isinstance(action, AdmitGang):
            yield from action.pods
