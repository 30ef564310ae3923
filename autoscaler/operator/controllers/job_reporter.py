"""Reports of what happens to jobs, kept for status, events and metrics.

A report has the planner's last decision for the job, the last write that was refused, and the last changes of size.
Nothing is written to the cluster here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from autoscaler.cluster_port import WriteOutcome, WriteResult
from autoscaler.clusters.kubernetes.objects.fields import key_of
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import (
    Action,
    AdmitGang,
    ClusterView,
    CreatePod,
    Decision,
    Job,
    JobName,
    Policy,
    Role,
)
from autoscaler.fault_isolation import GuardedTask
from autoscaler.loop import LoopPass, decision_key
from autoscaler.operator.controllers.server_drain import ServerDrains
from autoscaler.operator.job.job_pods import active_pods
from autoscaler.operator.job.pod_termination import PodTermination, TerminationCause
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.status.status_inputs import (
    ResizeAuthor,
    ResizeRecord,
    WriteRefusal,
    add_resize,
    causes_text,
    deserves_event,
    queue_positions,
    reason_of,
)
from autoscaler.operator.store.event_recorder import JobEvent
from autoscaler.operator.store.job_store import JobStore
from autoscaler.planner import Memo, plan

_DEPARTURES: Final = {
    TerminationCause.SCHEDULER: (
        ResizeAuthor.SCHEDULER,
        "Preempted",
        "kube-scheduler preempted it for a pod of higher priority",
    ),
    TerminationCause.DRAIN: (ResizeAuthor.DRAIN, "Drained", "it was evicted: its node is being drained"),
    TerminationCause.NODE: (ResizeAuthor.NODE, "NodeEnded", "its node terminated it"),
    TerminationCause.USER: (ResizeAuthor.USER, "Deleted", "a user drained or deleted it"),
    TerminationCause.OWN_EXIT: (ResizeAuthor.FAILURE, "Failed", "it ended by itself"),
    TerminationCause.MASTER: (
        ResizeAuthor.EDL,
        "ServerLeft",
        "it was released: its buckets have been moved to other servers",
    ),
}
"""Event texts of departing pods by cause; deletions by EDL are reported by the planner's decision."""


class JobReporter:
    """Writes the reports of all jobs into the store."""

    def __init__(self, store: JobStore, drains: ServerDrains, metrics: Metrics, policy: Policy) -> None:
        self._store = store
        self._drains = drains
        self._metrics = metrics
        self._observed = ObservedPlanner(policy)
        self._queued: frozenset[JobName] = frozenset()  # jobs with a position

    def handle_pass(self, done: LoopPass) -> None:
        """Handle one pass of the loop.  Never blocks."""
        now_s = self._store.clock()
        self._metrics.decision_s.observe(max(0.0, now_s - done.plan.planned_at_s))
        self._metrics.count_writes(done.applied)
        self._metrics.set_held_up(done.plan.decisions)
        self._metrics.forget_errors(now_s)
        self._drains.keep_planned(done.plan.actions)
        view = self._store.cluster.view().evolve(history=done.history)
        self._metrics.count_server_moves(view.history.server_moves, lambda: view.pods)
        self.report(self._observed.decide(done, view, self._store.objects.views.jobs.observed, now_s))

    def report(self, done: LoopPass) -> None:
        """Keep the decisions and the writes of one pass."""
        for decision in done.plan.decisions:
            with self._store.errors.isolate(decision.job, GuardedTask.REPORT):
                self._report_decision(decision)
        self._report_positions(queue_positions(done.plan))
        for job, applied in _by_job(done.applied).items():
            with self._store.errors.isolate(job, GuardedTask.REPORT_WRITES):
                self._report_writes(job, applied)

    def handle_departure(self, job: KubeJob, role: Role, end: PodTermination) -> None:
        """Handle the departure of a pod.  Call once for each pod."""
        self._metrics.count_termination(end.cause.value, role.value)
        if end.cause not in _DEPARTURES:
            return
        author, reason, text = _DEPARTURES[end.cause]
        pods, backoff = self._store.objects.pods(job), self._store.cluster.start_backoff(job.key)
        is_starting = self._store.objects.master(job) is None  # a pod of a running job already has its node
        if end.cause is TerminationCause.USER and is_starting and backoff.hold_until_s > self._store.clock():
            author, reason, text = (
                ResizeAuthor.EDL,
                "CapacityLost",
                "other pods took its proved capacity; its start is repeated",
            )
        if end.cause is not TerminationCause.OWN_EXIT:
            message = f"{role.value} {end.pod}: {text}"
            self._store.events.emit(job, JobEvent(reason=reason, message=message, pod=end.pod))
        else:
            reason = "ServerFailed" if role is Role.SERVER else "TrainerFailed"
        if role is not Role.MASTER:
            before = 1 + sum(key_of(raw) != end.pod for raw in active_pods(pods, role))
            change = ResizeRecord(
                at_s=self._store.clock(),
                before=before,
                after=before - 1,
                cause=reason,
                by=author,
                role=role,
                message=f"{end.pod}: {text}",
            )
            self._add_resize(job.key, change)

    def forget(self, job: JobName) -> None:
        """Drop what is kept of a job that is gone."""
        self._store.plan_reports.pop(job, None)
        self._store.errors.forget(job)
        self._metrics.forget_job(job)

    def _report_decision(self, decision: Decision) -> None:
        report = self._store.plan_report_of(decision.job)
        if decision == report.decision:
            return
        self._store.plan_reports[decision.job] = replace(report, decision=decision)
        self._store.to_write_status.add(decision.job)
        if decision_key(decision) == decision_key(report.decision):
            return
        self._metrics.count_decision(decision.reason.value)
        if deserves_event(decision):
            self._emit(decision.job, JobEvent(reason=decision.reason, message=decision.message))

    def _report_positions(self, positions: Mapping[JobName, int]) -> None:
        """Keep the position of each job that waits, and none of those that do not any more."""
        for job in self._queued | positions.keys():
            report = self._store.plan_reports.get(job)
            if report is not None and report.queue_position != positions.get(job):
                self._store.plan_reports[job] = replace(report, queue_position=positions.get(job))
                self._store.to_write_status.add(job)
        self._queued = frozenset(positions)

    def _report_writes(self, job: JobName, applied: list[tuple[Action, WriteOutcome]]) -> None:
        done = [action for action, outcome in applied if outcome.result is WriteResult.DONE]
        refused = [outcome for _, outcome in applied if outcome.result is not WriteResult.DONE]
        reasons = [(reason_of(one.message, is_final=one.result is WriteResult.REFUSED), one.message) for one in refused]
        self._report_refusals(job, [(reason, message) for reason, message in reasons if reason], has_done=bool(done))
        for role in (Role.SERVER, Role.TRAINER):
            change = self._resize_of(job, done, role)
            if change is not None:
                self._metrics.count_resize(change.cause, role)
                self._add_resize(job, change)
        self._store.to_write_status.add(job)

    def _report_refusals(self, job: JobName, refused: list[tuple[str, str]], *, has_done: bool) -> None:
        report = self._store.plan_report_of(job)
        if refused:
            reason, message = refused[-1]
            refusal = WriteRefusal(at_s=self._store.clock(), reason=reason, message=message)
            if report.refusal is None or report.refusal.reason != reason:
                self._emit(job, JobEvent(reason=reason, message=message, is_warning=True))
            self._store.plan_reports[job] = replace(report, refusal=refusal)
        elif has_done and report.refusal is not None:
            self._store.plan_reports[job] = replace(report, refusal=None)

    def _resize_of(self, job: JobName, done: list[Action], role: Role) -> ResizeRecord | None:
        decision = self._store.plan_report_of(job).decision
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
        return ResizeRecord(
            at_s=self._store.clock(),
            before=before,
            after=max(0, before + difference),
            cause=causes_text(one.cause for one in pods),
            by=ResizeAuthor.EDL,
            role=role,
            message=decision.message,
        )

    def _add_resize(self, job: JobName, change: ResizeRecord) -> None:
        report = self._store.plan_report_of(job)
        self._store.plan_reports[job] = replace(report, resizes=add_resize(report.resizes, change))
        self._store.to_write_status.add(job)

    def _emit(self, job: JobName, event: JobEvent) -> None:
        record = self._store.records.get(job)
        if record is not None:
            self._store.events.emit(record.job, event)


class ObservedPlanner:
    """Planner for observed jobs (`mode: observe`).

    The executed plan leaves their sizes alone and frees no capacity for them.  Their status and events come from a
    second plan of the same instant, which is never executed.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._memo = Memo()

    def decide(self, done: LoopPass, view: ClusterView, observed: Mapping[JobName, Job], now_s: float) -> LoopPass:
        """Return the pass with decisions for the observed jobs; all else is what was done."""
        if not observed:
            return done
        would = plan(view.evolve(jobs=observed.values()), self._policy, now_s, memo=self._memo)
        found = {decision.job: decision for decision in would.decisions if decision.job in observed}
        decisions = tuple(found.get(decision.job, decision) for decision in done.plan.decisions)
        return replace(done, plan=replace(done.plan, decisions=decisions))


def _by_job(applied: Iterable[tuple[Action, WriteOutcome]]) -> dict[JobName, list[tuple[Action, WriteOutcome]]]:
    found: dict[JobName, list[tuple[Action, WriteOutcome]]] = {}
    for action, outcome in applied:
        found.setdefault(action.job, []).append((action, outcome))
    return found
