"""What two snapshots of one view have to agree in, however each of them came about."""

from collections import Counter
from fractions import Fraction


def check_alike(kept, fresh):
    """The snapshot that was brought up to date says what the one from nothing says (A5).

    It may know more resources: those that a job asked for before it was submitted anew.
    """
    columns = set(fresh.capacity.columns)
    assert columns <= set(kept.capacity.columns)
    ours, theirs = told(kept, columns), told(fresh, columns)
    assert {name: value for name, value in ours.items() if value != theirs[name]} == {}


def told(snapshot, asked):
    """All that the phases read of it of the resources that are asked for, by names in place of numbers, which depend on
    what came first."""
    capacity, shapes = snapshot.capacity, snapshot.shapes.shapes
    return {
        "nodes": (capacity.names, capacity.index, capacity.ready, capacity.open_index, set(capacity.draining)),
        "flags": (capacity.is_open.tolist(), capacity.is_ready.tolist()),
        **{
            name: by_column(getattr(capacity, name), capacity.columns, asked)
            for name in ("allocatable", "free", "later", "surplus")
        },
        "divisor": (capacity.divisor == capacity.allocatable + (capacity.allocatable == 0)).all(),
        "waiting": snapshot.waiting,
        "members": {name: pods for name, pods in snapshot.members.items() if pods},
        "unbound": snapshot.unbound_core,
        "preempted": snapshot.preempted,
        "pod_count_by_workload": +snapshot.pod_count_by_workload,
        "newest": (snapshot.newest_job_s, snapshot.newest_other_s, snapshot.newest_others),
        "surplus owners": {at: Counter(jobs) for at, jobs in snapshot.surplus_owners.items() if jobs},
        "unsteady": set(snapshot.unsteady),
        "by trainer": {shapes[one]: [job.spec.name for job in jobs] for one, jobs in snapshot.by_trainer.items()},
        "growable": {shapes[one]: [job.spec.name for job in jobs] for one, jobs in snapshot.growable.items()},
        "jobs": {name: told_of_job(draft, snapshot, asked) for name, draft in snapshot.jobs.items()},
    }


def told_of_job(draft, snapshot, asked):
    columns, unit = snapshot.capacity.columns, snapshot.share_unit
    pods = (draft.trainers, draft.servers, draft.masters, draft.inactive)
    flags = (draft.is_steady, draft.can_grow, draft.is_degraded, draft.is_running, draft.core, draft.ceiling)
    counts = [
        by_column([[amount] for amount in amounts], columns, asked) for amounts in (draft.usage, draft.leaving_usage)
    ]
    rates = {
        name: Fraction(rate, unit) for name, rate in zip(columns, draft.rates, strict=False) if rate and name in asked
    }
    scale = None if draft.progress is None else (draft.progress.fair_size, draft.progress.speeds)
    return (
        draft.spec,
        pods,
        flags,
        counts,
        rates,
        scale,
        {role: taken for role, taken in draft.ordinals.items() if taken},
    )


def by_column(amounts, columns, asked):
    """By resource; those of which there is nothing anywhere may be missing."""
    rows = zip(columns, (list(map(int, row)) for row in amounts), strict=False)
    return {name: row for name, row in rows if name in asked and any(row)}
