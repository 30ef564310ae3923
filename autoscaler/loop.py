"""The planner's loop: observe, plan, revalidate, apply, then wait for a change.  The same for every cluster.

The planner decides, the adapter writes; the loop joins them and keeps the planner's memory.  It is level-triggered:
each pass starts from the observed state, so a lost event, a refused write or a restart only delays it.  It waits
through the cluster's port alone, so it runs in virtual time as it does in real time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from autoscaler.bounded_gather import gather_bounded
from autoscaler.cluster_port import Cluster, WriteOutcome, WriteResult
from autoscaler.domain import Action, ClusterView, Decision, DeletePod, History, JobName, Plan, Policy, Reason
from autoscaler.errors import TemporaryError
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.fault_log import FaultLog
from autoscaler.planner import Memo, plan, record_applied, still_valid

DEBOUNCE_S: Final = 0.1  # a burst of events becomes one plan; a tenth of what a web pod needs to start
BURST_GAP_S: Final = 0.03  # a burst of events ends after this long without one
RESYNC_S: Final = 10.0  # a lost event costs at most this long
CALL_LIMIT_S: Final = 30.0  # time limit of one read or write
RETRY_S: Final = 1.0  # after a write that failed
MOST_TRIED: Final = 8  # most jobs per pass for which failed planning is retried
CONCURRENT_WRITES: Final = 16
"""Concurrent writes of one kind: a busy API server takes 0.1 s each, and a web pod waits for the last deletion."""

YIELDS_PER_OBSERVATION: Final = 8  # event-loop iterations from bytes in a socket to an updated cache
JOURNAL_LIMIT: Final = 1_000  # changed decisions kept for status and events
UNPLANNED: Final = frozenset({Reason.EXCLUDED, Reason.STALE_VIEW})
"""Reasons of decisions that do not show whether planning the job succeeds."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPass:
    """One pass of the loop: the plan, and the outcome of each action that was still valid."""

    plan: Plan
    applied: tuple[tuple[Action, WriteOutcome], ...] = ()
    history: History = field(default_factory=History)  # as the next plan will find it


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """A decision that differs from the job's one before."""

    at_s: float
    decision: Decision


def ignore_pass(_done: LoopPass) -> None:
    """Listen to nothing."""


class PlanExecution:
    """Execution of one plan: the actions that are left, and those that have been begun."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.left: deque[Action] = deque(plan.actions)
        self.begun: list[Action] = []
        self.since_recheck = 0  # writes begun
        self.turn = asyncio.Lock()

    def begin(self) -> Action:
        """Return the next action, and count it as begun."""
        self.since_recheck += 1
        self.begun.append(self.left[0])
        return self.left.popleft()


class Loop:
    """The planner's loop for one cluster.

    `listener` is called after each pass, on the loop's own task; it must not block.  `errors` isolates faults of
    single jobs (A11).
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        *,
        listener: Callable[[LoopPass], None] = ignore_pass,
        errors: JobErrors | None = None,
    ) -> None:
        self.policy = policy
        self.last_plan: Plan | None = None
        self.journal: deque[JournalEntry] = deque(maxlen=JOURNAL_LIMIT)
        self._cluster = cluster
        self._listener = listener
        self._errors = errors or JobErrors(cluster.now, FaultLog())
        self._history = History(since_s=cluster.now())
        self._memo = Memo()
        self._last: dict[JobName, Decision] = {}

    async def run(self) -> None:
        """Run until cancelled.  Temporary errors are retried after a pause; any other error ends the loop."""
        while True:
            try:
                wait_s = self._pause_after(await self.run_pass())
            except TimeoutError:
                log.warning("the cluster did not answer within %g s; trying again", CALL_LIMIT_S)
                wait_s = RETRY_S
            except TemporaryError as error:
                log.warning("%s; trying again in %g s", error, error.retry_after_s)
                wait_s = error.retry_after_s
            if await self._cluster.changed(wait_s):
                await self._gather_burst()

    async def run_pass(self) -> LoopPass:
        """Make one pass and return what it did.  With a frozen policy nothing is written."""
        async with asyncio.timeout(CALL_LIMIT_S):
            view = self._hold_failing_jobs((await self._cluster.observe()).evolve(history=self._history))
        names = {job.name for job in view.jobs}
        paused = self._errors.paused_or_failing(GuardedTask.PLAN, names, most_tried=MOST_TRIED)
        unmodelled = self._errors.paused_or_failing(GuardedTask.RECLAIM, names, most_tried=1)
        now_s = self._cluster.now()
        decided = plan(view, self.policy, now_s, memo=self._memo, excluded=paused, unmodelled=unmodelled)
        self._track_exclusions(decided, names)
        self._record_plan(decided)
        applied = await self._apply_plan(decided) if decided.actions and not self.policy.is_frozen else ()
        done = LoopPass(plan=decided, applied=applied, history=self._history)
        self._listener(done)
        return done

    @property
    def history(self) -> History:
        """The planner's memory as the next plan finds it."""
        return self._history

    async def _apply_plan(self, decided: Plan) -> tuple[tuple[Action, WriteOutcome], ...]:
        """Write the actions kind by kind; before each kind, and after each `CONCURRENT_WRITES` writes, the remaining
        actions are revalidated.
        """
        applied: list[tuple[Action, WriteOutcome]] = []
        writing = PlanExecution(decided)
        while writing.left:
            await self._recheck(writing)
            kind = type(writing.left[0]) if writing.left else None
            turns = sum(type(action) is kind for action in writing.left)
            done = await gather_bounded([partial(self._write_next, writing, kind)] * turns, at_once=CONCURRENT_WRITES)
            applied += [one for one in done if one is not None]
        return tuple(applied)

    async def _write_next(self, writing: PlanExecution, kind: type | None) -> tuple[Action, WriteOutcome] | None:
        """Write the next action of this kind, if one is left."""
        async with writing.turn:
            if writing.since_recheck == CONCURRENT_WRITES:
                await self._recheck(writing)
            if not writing.left or type(writing.left[0]) is not kind:
                return None
            action = writing.begin()
        try:
            return await self._apply(action)
        finally:
            writing.begun.remove(action)

    async def _recheck(self, writing: PlanExecution) -> None:
        """Leave out what no longer holds on the newest view, beside what has been begun."""
        fresh = await self._observe_again()
        plan = replace(writing.plan, actions=(*writing.begun, *writing.left))
        valid = still_valid(plan, fresh, self.policy, memo=self._memo, begun=writing.begun)
        writing.left = deque(action for action in valid if action not in writing.begun)
        writing.since_recheck = 0

    async def _observe_again(self) -> ClusterView:
        """View with all events that have arrived; watches are not read while a plan is made."""
        for _ in range(YIELDS_PER_OBSERVATION):
            await asyncio.sleep(0)
        async with asyncio.timeout(CALL_LIMIT_S):
            return (await self._cluster.observe()).evolve(history=self._history)

    async def _apply(self, action: Action) -> tuple[Action, WriteOutcome]:
        task = GuardedTask.DELETE if isinstance(action, DeletePod) else GuardedTask.WRITE
        if task is GuardedTask.WRITE and self._errors.is_paused(action.job, task):
            return action, WriteOutcome(result=WriteResult.REFUSED, message=self._errors.problem(action.job))
        outcome = None
        try:
            async with asyncio.timeout(CALL_LIMIT_S):
                with self._errors.isolate(action.job, task):
                    outcome = await self._cluster.apply(action)
        except TimeoutError:
            return action, WriteOutcome(result=WriteResult.FAILED, message=f"no answer within {CALL_LIMIT_S:g} s")
        if outcome is None:
            return action, WriteOutcome(result=WriteResult.FAILED, message=self._errors.problem(action.job))
        if outcome.result is WriteResult.DONE:
            self._history = record_applied(self._history, action, self._cluster.now())
        return action, outcome

    def _hold_failing_jobs(self, view: ClusterView) -> ClusterView:
        """View in which jobs with a failed write create nothing for a while, so that other jobs proceed."""
        paused = self._errors.paused(GuardedTask.WRITE)
        jobs = [job for job in view.jobs if job.name in paused] if paused else []
        held = [
            replace(job, hold_until_s=max(job.hold_until_s, self._errors.retry_at_s(job.name, GuardedTask.WRITE)))
            for job in jobs
        ]
        return view.evolve(jobs=held) if held else view

    def _track_exclusions(self, decided: Plan, names: Collection[JobName]) -> None:
        """Record for which jobs planning fails; jobs that were not reached keep their record."""
        for one in decided.excluded:
            if one.error is not None:
                self._errors.record_failure(one.job, GuardedTask.PLAN, one.error)
            if one.reclaim_error is not None:
                self._errors.record_failure(one.job, GuardedTask.RECLAIM, one.reclaim_error)
            elif not one.is_unmodelled:
                self._errors.clear_failure(one.job, GuardedTask.RECLAIM)
        for decision in decided.decisions:
            if decision.reason not in UNPLANNED:
                self._errors.clear_failure(decision.job, GuardedTask.PLAN)
                self._errors.clear_failure(decision.job, GuardedTask.RECLAIM)
        for task in (GuardedTask.PLAN, GuardedTask.RECLAIM):
            self._errors.keep_only(names, task)

    def _record_plan(self, decided: Plan) -> None:
        """Keep the plan, its memory, and the decisions that are news."""
        self.last_plan = decided
        self._history = decided.history
        latest = {decision.job: decision for decision in decided.decisions}
        for job, decision in latest.items():
            if decision_key(decision) != decision_key(self._last.get(job)):
                self.journal.append(JournalEntry(at_s=decided.planned_at_s, decision=decision))
        self._last = latest

    def _pause_after(self, done: LoopPass) -> float:
        """Seconds until another plan is due without any change."""
        pause_s = RESYNC_S
        if done.plan.replan_at_s is not None:
            pause_s = min(pause_s, done.plan.replan_at_s - self._cluster.now())
        for one in done.plan.excluded:
            pause_s = min(pause_s, self._errors.retry_at_s(one.job, GuardedTask.PLAN) - self._cluster.now())
        if any(outcome.result is WriteResult.FAILED for _, outcome in done.applied):
            pause_s = min(pause_s, RETRY_S)
        return max(0.0, pause_s)

    async def _gather_burst(self) -> None:
        """Let the changes that come with the first one arrive: until nothing comes any more, DEBOUNCE_S at most."""
        until_s = self._cluster.now() + DEBOUNCE_S
        while (left_s := until_s - self._cluster.now()) > 0:
            if not await self._cluster.changed(min(BURST_GAP_S, left_s)):
                return


def decision_key(decision: Decision | None) -> tuple[object, ...]:
    """Key of a decision; a new key is a changed decision."""
    if decision is None:
        return ()
    return (decision.target, decision.reason, decision.bottleneck, decision.cause, decision.is_degraded)
