"""One run of the scenario in virtual time, under the faults of a trial, until nothing changes any more."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from autoscaler.clusters.kubernetes.api.kinds import LEASES, SERVICES
from autoscaler.clusters.kubernetes.builders.master_deployment import build_service
from autoscaler.clusters.kubernetes.cache.reflector import WatchPolicy
from autoscaler.clusters.kubernetes.cluster_view import JobRuntime
from autoscaler.clusters.kubernetes.memory_api import MemoryServer
from autoscaler.domain import JobState
from tests.harness import virtual_time
from tests.harness.api_faults import FaultPlan, PerturbedApi
from tests.harness.virtual_time import now
from tests.perturb.composition import compose
from tests.perturb.controllers import run_pod_controller
from tests.perturb.final_state import end_of
from tests.perturb.invariants import CheckedApi, InvariantChecker
from tests.perturb.lagging_server import LaggingServer
from tests.perturb.leader_pair import Operator
from tests.perturb.scenario import DAY, NAMESPACE, POLICY, begin
from tests.perturb.world import World

EPOCH_S = 1_800_000_000.0
RESTART_S = 1.0
QUIET_S = 65.0  # longer than the longest pause after a lost race, and than `RELIST_S`
STOPPED_S = 25.0  # beyond the Lease's duration, and within the loop's patience with a write
REST_LIMIT_S = 600.0
RELIST_S = 60.0  # in place of 600: what a faulty server has swallowed shows then


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedAction:
    """Something is done to a run, at an instant of the day; or, with `at_s` None, once it is at rest."""

    at_s: float | None
    do: Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Faults of one run.  `knows_old`: EDL reads old state and cannot know it (`invariants`)."""

    family: str
    name: str
    faults: FaultPlan = field(default_factory=FaultPlan)
    moments: tuple[TimedAction, ...] = ()
    knows_old: bool = False
    operators: int = 1  # two: each with a Lease
    write_s: float = 0.0  # how long each write is under way, beside others
    stop_at_write: int | None = None  # the leader is stopped as it is about to write for this time


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """Result of a run."""

    trial: Trial
    end: tuple[str, ...]
    problems: tuple[str, ...]
    writes: tuple[str, ...]
    events: int
    rest_at_s: float
    took_s: float


def run_trial(trial):
    """Live through the day once, in virtual time."""
    began_s = time.perf_counter()
    run = virtual_time.run(_live(trial))
    return TrialOutcome(
        trial=trial,
        end=end_of(run.server, run.targets),
        problems=tuple(run.checker.problems),
        writes=tuple(run.api.writes),
        events=run.api.events,
        rest_at_s=run.rest_at_s,
        took_s=time.perf_counter() - began_s,
    )


async def _live(trial):
    run = Run(trial)
    await run.live()
    return run


class Run:
    """The server and everybody around it.  Trials act on it by its methods."""

    def __init__(self, trial):
        self.trial = trial
        self.server = MemoryServer(now=lambda: EPOCH_S + now(), namespaces=(NAMESPACE,))
        self.lagging = LaggingServer(self.server)
        self.checker = InvariantChecker(self.server, knows_old=trial.knows_old)
        inner = CheckedApi(self.lagging, self.checker)
        self.api = PerturbedApi(inner, self.server, trial.faults, write_s=trial.write_s)
        self.world = World(self.server, self.checker.observe)
        self.rest_at_s = 0.0
        self.targets = {}
        self.operators = ()
        self._tried_writes = 0
        self._one = None
        self._stop_it = asyncio.Event()

    def planned(self):
        """Each job's target as last planned."""
        if self.operators:
            self._one = self.leader().one
        plan = self._one.loop.last_plan
        return {decision.job: decision.target for decision in plan.decisions} if plan is not None else {}

    # ---- what trials do -------------------------------------------------------------------------------------------

    def kill(self):
        """The autoscaler is gone at this instant; the next one begins soon."""
        self._stop_it.set()

    def go_away(self, error):
        """The API server answers every call with this, and its watches break."""
        self.api.away = error
        self.server.history.disconnect_all()

    def come_back(self):
        self.api.away = None

    def leader(self):
        """The operator that may write now."""
        return next(one for one in self.operators if one.lease.may_write())

    def stop_leader(self):
        """Pause the process as SIGSTOP does; it continues by itself after a while."""
        leader = self.leader()
        leader.stop()
        asyncio.get_running_loop().call_later(STOPPED_S, leader.go_on)

    async def pass_s(self, seconds):
        await asyncio.sleep(seconds)

    # ---- the day --------------------------------------------------------------------------------------------------

    async def live(self):
        begin(self.world)
        keep = self._keep_one() if self.trial.operators == 1 else self._keep_all()
        tasks = [asyncio.create_task(work) for work in (self.world.run(), keep)]
        try:
            at_rest = [moment for moment in self.trial.moments if moment.at_s is None]
            await self._pass_the_day()
            await self._rest()
            if at_rest:
                writes = len(self.api.writes)
                for moment in at_rest:
                    await moment.do(self)
                await self._rest()
                for doing in self.api.writes[writes:]:
                    self.checker.problems.append(f"nothing had happened, and yet: {doing}")
            self.targets = self.planned()
        finally:
            await stop(tasks)
        self.checker.observe()

    async def _pass_the_day(self):
        doings = [(happening.at_s, 0, lambda happening=happening: happening.apply(self.world)) for happening in DAY]
        doings += [
            (moment.at_s, 1, lambda moment=moment: moment.do(self))
            for moment in self.trial.moments
            if moment.at_s is not None
        ]
        for at_s, _, do in sorted(doings, key=lambda doing: doing[:2]):
            await asyncio.sleep(max(0.0, at_s - now()))
            do()

    async def _rest(self):
        """Until nothing but Leases has changed for a while."""
        until_s, changed_at_s, version = now() + REST_LIMIT_S, now(), self.server.history.version
        while now() - changed_at_s < QUIET_S:
            if now() > until_s:
                self.checker.problems.append(f"no rest within {REST_LIMIT_S:g} s")
                break
            await asyncio.sleep(1.0)
            if any(change.kind != LEASES for change in self.server.history.since(version)):
                changed_at_s = now()
            version = self.server.history.version
        self.rest_at_s = changed_at_s

    # ---- the autoscaler -------------------------------------------------------------------------------------------

    async def _keep_one(self):
        """One autoscaler after another; each knows the cluster's objects and nothing else."""
        while True:
            self._one = compose_one(self.api)
            self.checker.store = self._one.store
            self._stop_it.clear()
            works = [asyncio.create_task(work) for work in (self._one.run(), run_pod_controller(self._one))]
            ends = [asyncio.create_task(event.wait()) for event in (self.api.killed, self._stop_it)]
            try:
                await asyncio.wait((*works, *ends), return_when=asyncio.FIRST_COMPLETED)
                for work in works:
                    if work.done() and not self.api.killed.is_set():
                        self.checker.problems.append(f"at {now():.2f} s the autoscaler ended: {work.exception()!r}")
            finally:
                await stop((*works, *ends))
            await asyncio.sleep(RESTART_S)
            self.api.revive()

    def _about_to_write(self):
        if self._tried_writes == self.trial.stop_at_write:
            self.stop_leader()
        self._tried_writes += 1

    async def _keep_all(self):
        """Operators that campaign for one Lease."""
        names = [f"operator-{number}" for number in range(self.trial.operators)]
        self.operators = [
            Operator(name, self.server, self.checker, self.api.writes, compose_one, self._about_to_write)
            for name in names
        ]
        async with asyncio.TaskGroup() as tasks:
            for operator in self.operators:
                tasks.create_task(operator.run())


def compose_one(api):
    """An autoscaler on this `Api`; of what a job owns beside pods it makes the Service."""

    async def prepare(job):
        await api.apply(SERVICES, build_service(job))

    return compose(
        api,
        POLICY,
        clock=now,
        offset_s=-EPOCH_S,
        jitter=lambda: 0.5,
        facts_of=facts_of,
        prepare=prepare,
        listen=lambda _step: None,
        watching=WatchPolicy(relist_s=RELIST_S),
        elastic_servers=True,
    )


def facts_of(job):
    is_suspended = job.spec.run_policy.suspend
    return JobRuntime(state=JobState.SUSPENDED if is_suspended else JobState.ACTIVE)


async def stop(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
