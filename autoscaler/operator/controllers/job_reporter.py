"""What the planner's passes mean for each job, kept for status, events and metrics: the last decision, the last refusal
of a write, the last changes of size.

A listener of `loop.Loop`; it writes nothing and blocks nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from autoscaler.cluster_port import Outcome, Verdict
from autoscaler.domain import (
    Action,
    AdmitGang,
    CreatePod,
    Decision,
    JobName,
    Role,
)
from autoscaler.fault_isolation import JobErrors
from autoscaler.fault_isolation import Step as JobStep
from autoscaler.loop import Step, gist
from autoscaler.operator.controllers.job_store import Note
from autoscaler.operator.status import resizes
from autoscaler.operator.status.job_report import JobReport, Refusal, is_news, reason_of
from autoscaler.operator.status.resizes import Author, Resize


class Reports:
    """By job.  `say` gets what a user should read, `changed` the jobs whose status may differ now."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        say: Callable[[JobName, Note], None],
        changed: Callable[[JobName], None],
        count_resize: Callable[[str, Role], None],
        errors: JobErrors,
    ) -> None:
        self._reports: dict[JobName, JobReport] = {}
        self._clock = clock
        self._say = say
        self._changed = changed
        self._count_resize = count_resize
        self._errors = errors

    def of(self, job: JobName) -> JobReport:
        """What is known of the job."""
        return self._reports.get(job, JobReport())

    def forget(self, job: JobName) -> None:
        """The job is gone."""
        self._reports.pop(job, None)

    def take(self, step: Step) -> None:
        """One pass of the loop."""
        for decision in step.plan.decisions:
            with self._errors.around(decision.job, JobStep.REPORT):
                self._take_decision(decision)
        for job, applied in _by_job(step.applied).items():
            with self._errors.around(job, JobStep.REPORT_WRITES):
                self._take_applied(job, applied)

    def resize(self, job: JobName, by: Author, cause: str, *, role: Role, before: int, message: str) -> None:
        """A trainer or server has gone that the planner did not send away."""
        after = max(0, before - 1)
        change = Resize(at_s=self._clock(), before=before, after=after, cause=cause, by=by, role=role, message=message)
        self._add(job, change)

    def _take_decision(self, decision: Decision) -> None:
        report = self.of(decision.job)
        if decision == report.decision:
            return
        self._reports[decision.job] = replace(report, decision=decision)
        self._changed(decision.job)
        if gist(decision) != gist(report.decision) and is_news(decision):
            self._say(decision.job, Note(reason=decision.reason, message=decision.message))

    def _take_applied(self, job: JobName, applied: list[tuple[Action, Outcome]]) -> None:
        done = [action for action, outcome in applied if outcome.verdict is Verdict.DONE]
        refused = [outcome for _, outcome in applied if outcome.verdict is not Verdict.DONE]
        told = [(reason_of(one.message, is_final=one.verdict is Verdict.REFUSED), one.message) for one in refused]
        self._take_refusals(job, [(reason, message) for reason, message in told if reason], has_done=bool(done))
        for role in (Role.SERVER, Role.TRAINER):
            change = self._resize_of(job, done, role)
            if change is not None:
                self._count_resize(change.cause, role)
                self._add(job, change)
        self._changed(job)

    def _take_refusals(self, job: JobName, refused: list[tuple[str, str]], *, has_done: bool) -> None:
        report = self.of(job)
        if refused:
            reason, message = refused[-1]
            refusal = Refusal(at_s=self._clock(), reason=reason, message=message)
            if report.refusal is None or report.refusal.reason != reason:
                self._say(job, Note(reason=reason, message=message, is_warning=True))
            self._reports[job] = replace(report, refusal=refusal)
        elif has_done and report.refusal is not None:
            self._reports[job] = replace(report, refusal=None)

    def _resize_of(self, job: JobName, done: list[Action], role: Role) -> Resize | None:
        decision = self.of(job).decision
        pods = [
            one
            for action in done
            for one in (action.pods if isinstance(action, AdmitGang) else (action,))
            if one.role is role
        ]
        difference = sum(1 if isinstance(one, CreatePod) else -1 for one in pods)
        if decision is None or not difference:
            return None
        before = decision.servers if role is Role.SERVER else decision.now
        return Resize(
            at_s=self._clock(),
            before=before,
            after=max(0, before + difference),
            cause=resizes.cause_in_words(one.cause for one in pods),
            by=Author.EDL,
            role=role,
            message=decision.message,
        )

    def _add(self, job: JobName, change: Resize) -> None:
        report = self.of(job)
        self._reports[job] = replace(report, resizes=resizes.add(report.resizes, change))
        self._changed(job)


def _by_job(applied: Iterable[tuple[Action, Outcome]]) -> dict[JobName, list[tuple[Action, Outcome]]]:
    found: dict[JobName, list[tuple[Action, Outcome]]] = {}
    for action, outcome in applied:
        found.setdefault(action.job, []).append((action, outcome))
    return found
