"""What two snapshots of one view have to agree in, however each of them came about."""

from collections import Counter


def check_alike(kept, fresh):
    """The snapshot that was brought up to date says what the one from nothing says (A5)."""
    ours, theirs = told(kept), told(fresh)
    assert {name: value for name, value in ours.items() if value != theirs[name]} == {}


def told(snapshot):
    """All that the phases read of it, by names in place of numbers, which depend on what came first."""
    rooms, shapes = snapshot.rooms, snapshot.shapes.shapes
    return {
        "nodes": (rooms.names, rooms.index, rooms.ready, rooms.open_index, set(rooms.draining)),
        "flags": (rooms.is_open.tolist(), rooms.is_ready.tolist()),
        **{name: by_column(getattr(rooms, name), rooms.columns) for name in ("whole", "free", "later", "surplus")},
        "divisor": (rooms.divisor == rooms.whole + (rooms.whole == 0)).all(),
        "waiting": snapshot.waiting,
        "members": {name: pods for name, pods in snapshot.members.items() if pods},
        "unbound": snapshot.unbound_core,
        "preempted": snapshot.preempted,
        "standing": +snapshot.standing,
        "newest": (snapshot.newest_job_s, snapshot.newest_other_s, snapshot.newest_others),
        "held on": {at: Counter(jobs) for at, jobs in snapshot.held_on.items() if jobs},
        "unit": snapshot.unit,
        "unsettled": set(snapshot.unsettled),
        "by trainer": {shapes[one]: [job.job.name for job in jobs] for one, jobs in snapshot.by_trainer.items()},
        "drinkers": {shapes[one]: [job.job.name for job in jobs] for one, jobs in snapshot.drinkers.items()},
        "jobs": {name: told_of_job(draft, rooms.columns) for name, draft in snapshot.jobs.items()},
    }


def told_of_job(draft, columns):
    pods = (draft.trainers, draft.servers, draft.masters, draft.strays)
    flags = (draft.is_settled, draft.may_drink, draft.is_degraded, draft.is_running, draft.core, draft.ceiling)
    counts = [by_column([[amount] for amount in amounts], columns) for amounts in (draft.usage, draft.leaving_usage)]
    rates = {name: rate for name, rate in zip(columns, draft.rates, strict=False) if rate}
    return (draft.job, pods, flags, counts, rates, {role: taken for role, taken in draft.ordinals.items() if taken})


def by_column(amounts, columns):
    """By resource; those of which there is nothing anywhere may be missing."""
    rows = zip(columns, (list(map(int, row)) for row in amounts), strict=False)
    return {name: row for name, row in rows if any(row)}
