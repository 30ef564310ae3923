"""Parameter servers whose number follows the trainers, where the cluster can move their state (ADR 0117).

A job of n trainers wants one server for each `trainersPerServer` of them, between its bounds, or the pinned number.
Servers come in the same step as the trainers that need them, before them and into free capacity only. They are core,
so they are never reclaimed. When trainers have left, servers follow by the ratio, voluntarily, once the smaller size
has lasted for the job's window; a pinned number holds at once. On other clusters the number stays at the minimum.
"""

from __future__ import annotations

from autoscaler.domain import Cause, JobSetting, JobState, Role, Tier
from autoscaler.planner.placement.colocation import crowding_of
from autoscaler.planner.placement.node_choice import least_waste
from autoscaler.planner.sharing.change_limits import leaves_at, resize_of, shrink_opens_at
from autoscaler.planner.working_copy.planned_job import PlannedJob
from autoscaler.planner.working_copy.working_copy import WorkingCopy


def is_elastic(copy: WorkingCopy, job: PlannedJob) -> bool:
    """True if this job's servers may change their number here."""
    return job.spec.servers is not None and copy.view.capabilities.servers_elastic


def servers_wanted(copy: WorkingCopy, job: PlannedJob, trainers: int) -> int:
    """Return how many servers `trainers` need; never fewer than the minimum."""
    spec = job.spec.servers
    if spec is None or not is_elastic(copy, job):
        return job.spec.server_count
    wanted = spec.pinned_replicas or -(-trainers // spec.trainers_per_server)
    return max(spec.min_replicas, min(wanted, spec.max_replicas))


def staying_server_count(job: PlannedJob) -> int:
    """Return how many servers stay or come; one that is moving counts once."""
    return len(job.servers) + sum(pod.role is Role.SERVER for pod in job.coming) - len(job.moving)


def servers_missing(copy: WorkingCopy, job: PlannedJob, trainers: int) -> int:
    """Return how many servers `trainers` need beyond those that stay or come; 0 where their number is fixed."""
    return max(0, servers_wanted(copy, job, trainers) - staying_server_count(job)) if is_elastic(copy, job) else 0


def awaits_servers(copy: WorkingCopy, job: PlannedJob, trainers: int) -> bool:
    """True if `trainers` need a server whose capacity is still being vacated: they come after it."""
    if not is_elastic(copy, job) or not any(pod.role is Role.SERVER for pod in job.reserved):
        return False
    new = {move.ordinal for move in job.moving}
    staying = sum(pod.ordinal not in new for pod in job.servers)
    created = sum(pod.role is Role.SERVER and pod.replaces is None for pod in job.created)
    return staying + created < servers_wanted(copy, job, trainers)


def place_servers(copy: WorkingCopy, job: PlannedJob, trainers: int, cause: Cause) -> bool:
    """Place the servers that `trainers` lack; return False, perhaps with some of them placed, if not all fit."""
    for _ in range(servers_missing(copy, job, trainers)):
        if copy.quotas.find_problem(job, [Role.SERVER], now=False):
            return False
        shape, names = job.shapes[Role.SERVER], copy.capacity.names
        is_within_quota = not copy.quotas.find_problem(job, [Role.SERVER], now=True)
        crowding = crowding_of(copy, job, Role.SERVER)
        at = least_waste(copy, shape, now=True, is_lasting=True, crowding=crowding) if is_within_quota else None
        if at is not None:
            copy.create(job, Role.SERVER, Tier.CORE, names[at], cause)
        elif (at := least_waste(copy, shape, now=False, is_lasting=True, crowding=crowding)) is not None:
            copy.reserve(job, Role.SERVER, Tier.CORE, names[at])
        else:
            return False
    return True


def complete_servers(copy: WorkingCopy) -> None:
    """Give jobs the servers that their trainers lack: one was lost, the ratio was changed, or a job starts.

    A gang starts with its minimum of servers; the further ones that its minimum of trainers needs follow.
    """
    if copy.view.capabilities.servers_elastic:
        for job in copy.dirty_jobs():
            is_there = (job.is_running or job.is_starting) and job.spec.state is JobState.ACTIVE
            if is_there and copy.now_s >= job.spec.hold_until_s:
                place_servers(copy, job, job.size, Cause.REFILL)


def release_servers(copy: WorkingCopy, job: PlannedJob, *, is_allowed: bool) -> None:
    """Remove the servers that the job's trainers have not needed for a window, highest numbers first.

    Servers beyond the pinned number leave at once.
    """
    trainers = max(job.size, len(job.ordinals[Role.TRAINER]))  # those that are leaving still need their servers
    excess = staying_server_count(job) - servers_wanted(copy, job, trainers)
    if excess <= 0 or not is_elastic(copy, job) or not job.is_running or job.spec.state is not JobState.ACTIVE:
        return
    new = {move.ordinal for move in job.moving}  # the new server of a move stays
    victims = sorted((pod for pod in job.servers if pod.ordinal not in new), key=lambda pod: -pod.ordinal)[:excess]
    if job.spec.servers is not None and job.spec.servers.pinned_replicas:
        copy.remove(job, victims, Cause.EDIT, beneficiary=JobSetting("spec.parameterServer.replicas"))
        return
    is_shrinking = any(leaving.pod.role is Role.TRAINER for leaving in job.leaving)
    shrunk_at_s = copy.now_s if is_shrinking else resize_of(copy, job.spec).shrunk_at_s
    opens_at_s = shrink_opens_at(copy, job.spec)
    if shrunk_at_s is not None:
        opens_at_s = max(opens_at_s, shrunk_at_s + copy.policy.down_window_s)
    opens_at_s = max([opens_at_s, *(leaves_at(copy.policy, job.spec, pod) for pod in victims)])
    if is_allowed and copy.now_s >= opens_at_s:
        copy.remove(job, victims, Cause.RATIO, beneficiary=JobSetting("spec.parameterServer.trainersPerServer"))
    else:
        copy.wake_at_s.append(max(opens_at_s, copy.now_s + 1.0))
