"""Which runs there are: every fault at every place where it could matter, enumerated from a run without faults."""

from collections.abc import Iterator
from itertools import product

from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy, UnavailableError
from tests.harness.api_faults import EventFault, FaultPlan, WriteFault
from tests.perturb.scenario import DAY
from tests.perturb.trial_run import TimedAction, Trial, TrialOutcome

AWAY_S = 60.0
STALE_S = 20.0
CATCH_UP_S = 6.0
EVENT_FAULTS = tuple(EventFault)
AT_EACH_WRITE = (WriteFault.KILLED_AFTER, WriteFault.REPLY_LOST, WriteFault.NOT_SENT)
AT_SOME_WRITES = (
    WriteFault.SERVER_ERROR,
    WriteFault.CONFLICT,
    WriteFault.THROTTLED,
    WriteFault.FORBIDDEN,
    WriteFault.QUOTA,
)
ABREAST = (WriteFault.KILLED_AFTER, WriteFault.REPLY_LOST, WriteFault.SERVER_ERROR, WriteFault.CONFLICT)
WRITE_S = 0.1  # of a busy server: up to sixteen are under way then
SOME = 6  # every so many writes, or events
KILL_AGAIN = 3  # a second kill, so many writes after the first


def trials(reference: TrialOutcome) -> Iterator[Trial]:
    """All of them, in families."""
    writes, events = len(reference.writes), reference.events
    for fault, number in product(AT_EACH_WRITE, range(writes)):
        yield at_write(fault, number)
    for fault, number in product(AT_SOME_WRITES, range(0, writes, SOME)):
        yield at_write(fault, number)
    for number in range(0, writes, SOME):
        faults = {number: WriteFault.KILLED_AFTER, number + KILL_AGAIN: WriteFault.KILLED_AFTER}
        yield Trial(
            family="killed twice", name=f"after writes {number}, +{KILL_AGAIN}", faults=FaultPlan(writes=faults)
        )
    for fault, number in product(ABREAST, range(0, writes, SOME)):
        faults = FaultPlan(writes={number: fault})
        yield Trial(family="writes abreast", name=f"{fault} at write {number}", faults=faults, write_s=WRITE_S)
    for at, fault in product(range(0, events, SOME), EVENT_FAULTS):
        number = at + EVENT_FAULTS.index(fault)
        knows_old = fault in {EventFault.LOST, EventFault.LATE}
        faults = FaultPlan(events={number: fault})
        yield Trial(family=f"event {fault}", name=f"event {number}", faults=faults, knows_old=knows_old)
    for number in range(0, writes, SOME):
        yield Trial(family="leader stopped", name=f"at write {number}", operators=2, stop_at_write=number)
    for happening in DAY:
        yield from at_phase(happening)
    yield from at_rest()


def one_of_each_family(reference: TrialOutcome) -> list[Trial]:
    """The middle one of each."""
    families: dict[str, list[Trial]] = {}
    for trial in trials(reference):
        families.setdefault(trial.family, []).append(trial)
    return [members[len(members) // 2] for members in families.values()]


def at_write(fault, number):
    return Trial(family=f"write {fault}", name=f"write {number}", faults=FaultPlan(writes={number: fault}))


def at_phase(happening):
    """Right before something happens, and a little after it."""
    for before_s in (0.1, -0.8):
        at_s = happening.at_s - before_s
        when = "before" if before_s > 0 else "after"
        for behind in (0, 6):
            yield Trial(
                family="stale view",
                name=f"{STALE_S:g} s, {behind} changes behind, {when} {happening.name}",
                moments=lag(at_s, behind, STALE_S),
                knows_old=True,
            )
        for behind in (4, 25):
            yield Trial(
                family="time travel",
                name=f"restarted {behind} changes behind, {when} {happening.name}",
                moments=(TimedAction(at_s=at_s, do=lambda run: run.kill()), *lag(at_s, behind, CATCH_UP_S)),
                knows_old=True,
            )
    at_s = happening.at_s + 0.3
    gone = UnavailableError("connection refused", may_have_happened=False)
    denied = ForbiddenError("forbidden", RefusedBy.RBAC)
    for family, error in (("API server away", gone), ("RBAC taken away", denied)):
        yield Trial(family=family, name=f"{AWAY_S:g} s from {happening.name}", moments=away(at_s, error))
    yield Trial(
        family="leader stopped",
        name=f"after {happening.name}",
        moments=(TimedAction(at_s=happening.at_s + 0.9, do=lambda run: run.stop_leader()),),
        operators=2,
    )


def at_rest():
    """Nothing happens, so nothing may be done about it."""

    async def restart(run):
        run.kill()

    async def leave(run):
        run.go_away(UnavailableError("connection refused", may_have_happened=False))
        await run.pass_s(AWAY_S)
        run.come_back()

    async def forget(run):
        run.server.history.compact(run.server.history.version)
        run.server.history.disconnect_all()

    for name, do in (("restarted", restart), ("API server away", leave), ("history forgotten", forget)):
        yield Trial(family="at rest", name=name, moments=(TimedAction(at_s=None, do=do),))


def lag(at_s, behind, for_s):
    return (
        TimedAction(at_s=at_s, do=lambda run: run.lagging.stop(behind)),
        TimedAction(at_s=at_s + for_s, do=lambda run: run.lagging.catch_up()),
    )


def away(at_s, error):
    return (
        TimedAction(at_s=at_s, do=lambda run: run.go_away(error)),
        TimedAction(at_s=at_s + AWAY_S, do=lambda run: run.come_back()),
    )
