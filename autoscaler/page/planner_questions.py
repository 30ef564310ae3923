"""Questions of the page to the planner, as `edl why` and `edl what-if` ask them: on a thread, and never many at once.

An answer is kept for as long as nothing has changed, and at least for a moment: a hundred viewers cost one answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from autoscaler.domain import JobName
from autoscaler.errors import AutoscalerError
from autoscaler.page.page_source import PageSource
from autoscaler.planner import plan
from autoscaler.planner.counterfactual import PlanInputs, explain
from autoscaler.views.job_page_view import Outlook, WhyView
from autoscaler.views.job_view import JobView
from autoscaler.views.why import why_content

KEPT_S: Final = 2.0
"""An answer is at most this old."""

MOST_KEPT: Final = 64


class PlannerQuestions:
    """Answers for all viewers of one place.  `clock` runs evenly, in seconds."""

    def __init__(self, source: PageSource, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._turn = asyncio.Lock()
        self._answers: dict[Hashable, tuple[float, Any]] = {}

    async def outlook(self) -> Mapping[str, Outlook]:
        """Return what the next plan holds for each job, by its name in the snapshot; nothing if it has no answer."""
        try:
            found: Mapping[str, Outlook] = await self._ask("outlook", outlook_of)
        except AutoscalerError:
            return {}
        return found

    async def why(self, job: JobView) -> WhyView:
        """Return why the job has its size, and what would give it more."""
        try:
            found: WhyView = await self._ask(("why", job.key), lambda inputs: why_of(inputs, job))
        except AutoscalerError as error:
            return WhyView(answer=None, problem=str(error))
        return found

    async def _ask(self, key: Hashable, answer: Callable[[PlanInputs], Any]) -> Any:
        async with self._turn:
            at_s, kept = self._answers.get(key, (-KEPT_S, None))
            if self._clock() - at_s < KEPT_S:
                return kept
            snapshot = await self._source.snapshot()
            inputs = PlanInputs(view=snapshot.view, policy=snapshot.policy, now_s=snapshot.now_s)
            found = await asyncio.to_thread(answer, inputs)
            self._answers.pop(key, None)
            self._answers[key] = (self._clock(), found)
            while len(self._answers) > MOST_KEPT:
                del self._answers[next(iter(self._answers))]
            return found


def full_name(inputs: PlanInputs, job: JobView) -> JobName | None:
    """Return the name that the snapshot has for the job: with its namespace, or in a run of one namespace without."""
    names = {one.name for one in inputs.view.jobs}
    return next((JobName(one) for one in (job.key, job.name) if one in names), None)


def outlook_of(inputs: PlanInputs) -> Mapping[str, Outlook]:
    """Return what a plan made now says about each job's next size."""
    made = plan(inputs.view, inputs.policy, inputs.now_s)
    found: dict[str, Outlook] = {
        decision.job: Outlook(
            bottleneck=decision.bottleneck.value, message=decision.message, target=decision.target, wait_s=None
        )
        for decision in made.decisions
    }
    for wait in made.waits:
        target = found[wait.job].target if wait.job in found else 0
        wait_s = None if wait.until_s is None else max(0.0, wait.until_s - inputs.now_s)
        found[wait.job] = Outlook(bottleneck=wait.bottleneck.value, message=wait.message, target=target, wait_s=wait_s)
    return found


def why_of(inputs: PlanInputs, job: JobView) -> WhyView:
    """Return the answer of `edl why` for the job."""
    name = full_name(inputs, job)
    if name is None:
        return WhyView(answer=None, problem="the planner does not know this job: it has no size now")
    found = explain(inputs, name)
    document = next(one for one in inputs.view.jobs if one.name == name)
    return WhyView(answer=why_content(found, document), outlook=outlook_of(inputs).get(name))
