"""Questions of the page to the planner, as `edl why` and `edl what-if` ask them: on a thread, and never two at once.

An answer is kept for a moment, so that a hundred viewers cost one.  A thread cannot be stopped, so that a question goes
on when its viewer leaves, in a task of its own; few may wait, and further ones are refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from aiohttp import web

from autoscaler.domain import JobName
from autoscaler.errors import AutoscalerError, TemporaryError
from autoscaler.page.page_source import PageSource
from autoscaler.planner import plan
from autoscaler.planner.counterfactual import PlanInputs, converge, explain
from autoscaler.views.jobs.job_view import JobView
from autoscaler.views.pages.job_page_view import Outlook, WhyView
from autoscaler.views.planning.what_if import WhatIfComparison, comparison_content
from autoscaler.views.planning.what_if_form import WhatIfChanges, WhatIfView, apply_changes
from autoscaler.views.planning.why import why_content

KEPT_S: Final = 2.0
"""An answer is at most this old."""

MOST_KEPT: Final = 64

MOST_WAITING: Final = 16
"""Questions at a time, the one that is being answered among them; equal ones are one."""

READ_LIMIT_S: Final = 30.0
"""For what a plan depends on to be read."""

ANSWER_LIMIT_S: Final = 20.0
"""A question begins no further plan after this; the one that is being made is the last."""

WAIT_LIMIT_S: Final = 60.0
"""A viewer waits no longer for an answer, those before it and its own; it is kept for who asks again."""

HELP_EVERY_S: Final = 5.0
"""What would give jobs more is asked for one job at a time on the page of all jobs, so often at most."""

HELP_KEPT_S: Final = 60.0
MOST_HELPED: Final = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutlook:
    """What the next plan holds: of each job by its name in the snapshot, and of web pods (`DemandState`).

    `queue`: names of the jobs that wait for their start, in the planner's order.
    """

    jobs: Mapping[str, Outlook] = field(default_factory=dict)
    demands: Mapping[str, str] = field(default_factory=dict)
    queue: tuple[str, ...] = ()


class PlannerQuestions:
    """Answers for all viewers of one place.  `clock` runs evenly, in seconds.

    `made_by`: says of what the last answer was made.  `plans_unasked` False: the planner answers what viewers ask it,
    and is not asked for what pages show beside.

    Every question raises 503 where as many wait as are allowed, or where its answer takes too long.
    """

    def __init__(
        self, source: PageSource, *, plans_unasked: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self.plans_unasked: Final = plans_unasked
        self._clock = clock
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page-planner")
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}
        self._answers: dict[Hashable, tuple[float, Any]] = {}
        self._helped_at_s = -HELP_EVERY_S
        self.made_by = ""

    async def outlook(self) -> PlanOutlook:
        """Return what the next plan holds; nothing if it has no answer."""
        if not self.plans_unasked:
            return PlanOutlook()
        try:
            return await self._ask("outlook", outlook_of)
        except (AutoscalerError, web.HTTPServiceUnavailable):
            return PlanOutlook()

    async def why(self, job: JobView) -> WhyView:
        """Return why the job has its size, and what would give it more."""
        if not self.plans_unasked:
            return WhyView(answer=None)
        try:
            return await self.explain(job)
        except AutoscalerError as error:
            return WhyView(answer=None, problem=str(error))
        except web.HTTPServiceUnavailable as busy:  # the page shows everything else
            return WhyView(answer=None, problem=(busy.text or "").rstrip())

    async def explain(self, job: JobView) -> WhyView:
        """Return why the job has its size, whoever asks.  Raises AutoscalerError where the cluster cannot be read."""
        return await self._ask(("why", job.key), lambda inputs: why_of(inputs, job, self._clock))

    @property
    def is_busy(self) -> bool:
        """True while a question is being answered, or waits."""
        return bool(self._asked)

    async def help_for(self, jobs: Sequence[JobView]) -> Mapping[str, WhyView]:
        """Return, by NAMESPACE/NAME, what would give the first of these jobs more, as far as it was asked lately.

        Each call asks for one of them at most, the one that was not asked for longest.
        """
        few = jobs[:MOST_HELPED] if self.plans_unasked else ()
        if few and self._clock() - self._helped_at_s >= HELP_EVERY_S:
            self._helped_at_s = self._clock()
            await self.why(min(few, key=lambda job: self._answers.get(("why", job.key), (-HELP_KEPT_S, None))[0]))
        kept = {job.key: self._answers.get(("why", job.key)) for job in few}
        oldest_s = self._clock() - HELP_KEPT_S
        return {key: answer[1] for key, answer in kept.items() if answer is not None and answer[0] > oldest_s}

    async def what_if(self, changes: WhatIfChanges) -> WhatIfView:
        """Return sizes before and after the changes."""
        try:
            return await self._ask(("what if", changes), lambda inputs: what_if_of(inputs, changes, self._clock))
        except AutoscalerError as error:
            return WhatIfView(answer=None, problem=str(error))

    async def inputs(self) -> PlanInputs:
        """Return what the planner would plan with now.  Raises ClusterError."""
        return await self._ask("inputs", lambda inputs: inputs)

    async def close(self) -> None:
        """Drop the questions that wait, and wait for the one that is being answered.  Nothing may be asked after it."""
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def _ask(self, key: Hashable, answer: Callable[[PlanInputs], T]) -> T:
        at_s, kept = self._answers.get(key, (-KEPT_S, None))
        if kept is not None and self._clock() - at_s < KEPT_S:
            found: T = kept
            return found
        task: asyncio.Task[T] | None = self._asked.get(key)
        if task is None:
            if len(self._asked) >= MOST_WAITING:
                raise web.HTTPServiceUnavailable(text="Too many questions wait for the planner; reload in a while.\n")
            task = self._asked[key] = asyncio.create_task(self._answer(key, answer), name="page planner question")
            task.add_done_callback(lambda _: self._asked.pop(key))
        try:
            async with asyncio.timeout(WAIT_LIMIT_S):
                return await asyncio.shield(task)
        except TimeoutError:
            raise web.HTTPServiceUnavailable(text="The planner takes too long; reload in a while.\n") from None

    async def _answer(self, key: Hashable, answer: Callable[[PlanInputs], T]) -> T:
        async with self._turn:
            try:
                async with asyncio.timeout(READ_LIMIT_S):
                    snapshot = await self._source.snapshot()
            except TimeoutError:
                told = f"the cluster could not be read within {READ_LIMIT_S:g} s"
                raise TemporaryError(told, retry_after_s=READ_LIMIT_S) from None
            self.made_by = snapshot.made_by
            inputs = PlanInputs(view=snapshot.view, policy=snapshot.policy, now_s=snapshot.now_s)
            found = await asyncio.get_running_loop().run_in_executor(self._thread, answer, inputs)
            self._answers.pop(key, None)
            self._answers[key] = (self._clock(), found)
            while len(self._answers) > MOST_KEPT:
                del self._answers[next(iter(self._answers))]
            return found


def full_name(inputs: PlanInputs, job: JobView) -> JobName | None:
    """Return the name that the snapshot has for the job: with its namespace, or in a run of one namespace without."""
    names = {one.name for one in inputs.view.jobs}
    return next((JobName(one) for one in (job.key, job.name) if one in names), None)


def outlook_of(inputs: PlanInputs) -> PlanOutlook:
    """Return what a plan made now says about each job's next size, and about the pods of others that wait."""
    made = plan(inputs.view, inputs.policy, inputs.now_s)
    found: dict[str, Outlook] = {
        decision.job: Outlook(
            bottleneck=decision.bottleneck.value,
            message=decision.bottleneck_message,
            target=decision.target,
            wait_s=None,
        )
        for decision in made.decisions
    }
    for wait in made.waits:
        target = found[wait.job].target if wait.job in found else 0
        wait_s = None if wait.until_s is None else max(0.0, wait.until_s - inputs.now_s)
        found[wait.job] = Outlook(bottleneck=wait.bottleneck.value, message=wait.message, target=target, wait_s=wait_s)
    demands: dict[str, str] = {demand.pod: demand.state.value for demand in made.demands}
    return PlanOutlook(jobs=found, demands=demands, queue=made.queue)


def why_of(inputs: PlanInputs, job: JobView, clock: Callable[[], float]) -> WhyView:
    """Return the answer of `edl why` for the job, as far as changes could be tried within the limit."""
    name = full_name(inputs, job)
    if name is None:
        return WhyView(answer=None, problem="the planner does not know this job: it has no size now")
    until_s = clock() + ANSWER_LIMIT_S
    found = explain(inputs, name, goes_on=lambda: clock() < until_s)
    document = next(one for one in inputs.view.jobs if one.name == name)
    outlook = outlook_of(inputs).jobs.get(name)
    return WhyView(answer=why_content(found, document), outlook=outlook, at_s=inputs.now_s)


def what_if_of(inputs: PlanInputs, changes: WhatIfChanges, clock: Callable[[], float]) -> WhatIfView:
    """Return the answer of `edl what-if`, as far as the cluster has settled within the limit."""

    def within() -> Callable[[], bool]:
        until_s = clock() + ANSWER_LIMIT_S / 2  # for each of two clusters
        return lambda: clock() < until_s

    try:
        changed, words = apply_changes(inputs, changes)
    except KeyError as missing:
        return WhatIfView(answer=None, problem=f"{missing.args[0]} is not there any more")
    before, after = (converge(one, goes_on=within()) for one in (inputs, changed))
    found = WhatIfComparison(changes=tuple(words), inputs=inputs, before=before, after=after)
    return WhatIfView(answer=comparison_content(found))
