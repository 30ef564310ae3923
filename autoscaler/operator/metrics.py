"""Prometheus metrics of one operator, which charts/edl draws and alerts on.

Each operator has a registry of its own.  Labels are bounded: namespace and job are the widest, and a job that has gone
takes its series along.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from math import nan
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from autoscaler.cluster_port import WriteOutcome
from autoscaler.domain import Action, Decision, JobName, Pod, PodPhase, Role, ServerMove
from autoscaler.operator.cluster_room import RoomGauges
from autoscaler.operator.gpu_counters import GpuCounters
from autoscaler.operator.job_gauges import INSTANTS, JOB, TRAINING, JobGauges, TrainingFigures

PLAN_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
ERRORS_KEPT_S: Final = 3600.0  # longer than alerts look back
_CONDITION: Final = ("type", "status", "reason")  # reasons are words of this code, one at a time for each type
_TRAINERS: Final = ("ready", "target", "min", "max", "surplus")
_SERVERS: Final = ("ready", "target", "min", "max", "wanted", "leaving", "draining")


class Metrics:
    """All metrics of one operator."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()
        self.leading: Final = self._gauge("edl_operator_leading", "1 while this operator holds the lease.")
        self.view_age_s: Final = self._gauge(
            "edl_view_age_seconds", "Age of the view on which decisions are based, in seconds."
        )
        self._etcd = self._gauge(
            "edl_etcd_bytes", "Bytes of etcd's fullest member; what: used, file (its size) or quota.", ("what",)
        )
        self._etcd_full = self._gauge(
            "edl_etcd_full", "1 while etcd refuses writes because its quota is full (NOSPACE alarm)."
        )
        self.decision_s: Final = Histogram(
            "edl_decision_seconds",
            "Seconds of one pass of the loop: view, plan and writes.",
            buckets=PLAN_BUCKETS_S,
            registry=self.registry,
        )
        self.events_dropped: Final = self._gauge("edl_events_dropped", "Kubernetes events that could not be written.")
        self.notices_held_back: Final = self._gauge(
            "edl_notices_held_back", "Notices that are due and wait, because the limit lets no more go."
        )
        self.notices_lost: Final = self._gauge(
            "edl_notices_lost",
            "Notices of this leader that a channel does not get: it did not take them, or they waited until they were "
            "no news.",
        )
        self._calls = self._counter("edl_api_calls", "Requests to the API server.", ("verb", "kind", "outcome"))
        self._decisions = self._counter(
            "edl_decisions", "Decisions on jobs that differ from the one before, by reason.", ("reason",)
        )
        self.room: Final = RoomGauges(self.registry)
        self.gpus: Final = GpuCounters(self.registry)
        self._writes = self._counter(
            "edl_writes", "The planner's actions, by how their write ended.", ("action", "verdict")
        )
        self._resizes = self._counter("edl_resizes", "Changes of a job's number of trainers by EDL.", ("cause",))
        self._server_resizes = self._counter(
            "edl_server_resizes", "Changes of a job's number of servers by EDL.", ("cause",)
        )
        self._server_moves = self._counter(
            "edl_server_moves", "Moves of parameter servers to another node.", ("outcome",)
        )
        self._terminations = self._counter(
            "edl_pod_terminations", "Pods of jobs that terminated, by cause and role.", ("cause", "role")
        )
        self._trainers = self._gauge(
            "edl_job_trainers", "Trainers of a job; state: ready, target, min, max or surplus.", (*JOB, "state")
        )
        self._servers = self._gauge(
            "edl_job_servers",
            f"Parameter servers of a job that has some; state: {', '.join(_SERVERS)}.",
            (*JOB, "state"),
        )
        self._single_copies = self._gauge(
            "edl_job_buckets_with_one_copy", "Buckets with one copy, of a job with copies: 2.", JOB
        )
        self._share = self._gauge("edl_job_share", "Weighted dominant share of a job.", JOB)
        self._committed = self._gauge("edl_job_samples_committed", "Samples in the last checkpoint.", JOB)
        self._condition = self._gauge(
            "edl_job_condition",
            "1 for each condition of a job, with its present status and reason.",
            (*JOB, *_CONDITION),
        )
        self._held_up = self._gauge(
            "edl_job_start_held_up_by",
            "1 while the job waits although capacity is free that is reserved for an older gang.",
            (*JOB, "by"),
        )
        self._holders: frozenset[tuple[JobName, JobName]] = frozenset()
        self._of_jobs = JobGauges({**INSTANTS, **TRAINING}, self.registry)
        self._failures = self._gauge(
            "edl_job_failures", "Failures of trainers in a row, without a completed batch between them.", JOB
        )
        self._checkpoint_every = self._gauge(
            "edl_job_checkpoint_every_seconds", "Configured checkpoint interval, in seconds.", JOB
        )
        self._conditions: dict[JobName, set[tuple[str, str, str]]] = {}
        self._moves: frozenset[ServerMove] = frozenset()
        self._errors = self._counter(
            "edl_job_errors", "Tasks of the operator that failed for this job, through a fault of EDL.", (*JOB, "task")
        )
        self._failed: dict[JobName, dict[str, float]] = {}  # by step: when it is tried again
        self.api_server_ahead_s: Final = self._gauge(
            "edl_api_server_clock_ahead_seconds",
            "Seconds by which the API server's clock is at least ahead of the operator's; NaN: unknown.",
        )
        self.api_server_ahead_s.set(nan)
        clock = self._gauge("edl_operator_clock_timestamp_seconds", "Unix time by the operator's clock.")
        clock.set_function(time.time)
        self._started_at = self._gauge("edl_operator_start_timestamp_seconds", "Unix time of the process start.")
        self._started_at.set(time.time())

    def render(self) -> bytes:
        """Return the text that Prometheus reads."""
        return generate_latest(self.registry)

    def count_call(self, verb: str, kind: str, outcome: str) -> None:
        """Count one request to the API server and how it ended."""
        self._calls.labels(verb, kind, outcome).inc()

    def count_writes(self, applied: Iterable[tuple[Action, WriteOutcome]]) -> None:
        """Count the outcomes of the planner's actions."""
        for action, outcome in applied:
            self._writes.labels(type(action).__name__, outcome.result.value).inc()

    def count_resize(self, cause: str, role: Role) -> None:
        """Count one resize by EDL."""
        (self._server_resizes if role is Role.SERVER else self._resizes).labels(cause).inc()

    def count_server_moves(self, under_way: Collection[ServerMove], pods: Callable[[], Iterable[Pod]]) -> None:
        """Count finished and abandoned server moves; an abandoned move leaves the server in place.

        `under_way`: by the newest plan; `pods`: all of them, after it.
        """
        before, self._moves = self._moves, frozenset(under_way)
        self._server_moves.labels("begun").inc(len(self._moves - before))
        if ended := before - self._moves:
            staying = {pod.name for pod in pods() if pod.phase is not PodPhase.TERMINATING}
            for move in ended:
                self._server_moves.labels("given up" if move.pod in staying else "done").inc()

    def set_held_up(self, decisions: Iterable[Decision]) -> None:
        """Show which jobs wait for the start of which others, by the newest plan."""
        now = frozenset((one.job, holder) for one in decisions for holder in one.held_up_by)
        for job, holder in self._holders - now:
            _remove(self._held_up, *_where(job), holder)
        for job, holder in now - self._holders:
            self._held_up.labels(*_where(job), holder).set(1)
        self._holders = now

    def set_etcd(self, *, used_bytes: int, file_bytes: int, quota_bytes: int, is_full: bool) -> None:
        """Show how full etcd is."""
        for what, count in (("used", used_bytes), ("file", file_bytes), ("quota", quota_bytes)):
            self._etcd.labels(what).set(count)
        self._etcd_full.set(is_full)

    def count_error(self, name: JobName, task: str, retry_at_s: float) -> None:
        """Count one isolated fault, of a job or another object.

        `retry_at_s`: when it is tried again.
        """
        self._failed.setdefault(name, {})[task] = retry_at_s
        self._errors.labels(*_where(name), task).inc()

    def forget_errors(self, now_s: float) -> None:
        """Drop error series that were due for a retry more than `ERRORS_KEPT_S` ago; this also cleans up deleted
        objects.
        """
        for name, failed in tuple(self._failed.items()):
            for step in [step for step, retry_at_s in failed.items() if retry_at_s + ERRORS_KEPT_S <= now_s]:
                self._forget_error(name, step)

    def count_termination(self, cause: str, role: str) -> None:
        """Count one terminated pod."""
        self._terminations.labels(cause, role).inc()

    def set_job(self, name: JobName, status: Mapping[str, Any], *, checkpoint_every_s: float) -> None:
        """Show a job as its status has it."""
        where = _where(name)
        for what in _TRAINERS:
            self._trainers.labels(*where, what).set(status.get("trainers", {}).get(what, 0))
        for what, count in status.get("servers", {}).items():
            if what in _SERVERS:
                self._servers.labels(*where, what).set(count)
        if "singleCopies" in status.get("servers", {}):
            self._single_copies.labels(*where).set(status["servers"]["singleCopies"])
        else:
            _remove(self._single_copies, *where)
        self._share.labels(*where).set(float(status.get("share") or 0))
        self._committed.labels(*where).set(status.get("progress", {}).get("samplesCommitted", 0))
        self._checkpoint_every.labels(*where).set(checkpoint_every_s)
        self._failures.labels(*where).set(status.get("failures", 0))
        self._set_conditions(name, _condition_values(status))

    def set_unreadable_job(self, name: JobName, status: Mapping[str, Any]) -> None:
        """Show why a job cannot be read, or its status not be made; nothing else is known of it."""
        self.forget_job(name, keeps_errors=True)
        self._set_conditions(name, {one for one in _condition_values(status) if one[2] == status.get("reason")})

    def set_instants(
        self, name: JobName, *, checkpoint: float | None, uncommitted: float | None, waiting: float | None
    ) -> None:
        """Unix times; None: there is no such instant, and no series."""
        values = dict(zip(INSTANTS, (checkpoint, uncommitted, waiting), strict=True))
        self._of_jobs.set(name, values)

    def set_training(self, name: JobName, figures: TrainingFigures) -> None:
        """Show how a job trains; a figure that is not known has no series."""
        values = (
            figures.samples_per_s,
            figures.efficiency,
            figures.progress,
            figures.waiting,
            figures.resize_pause_s,
        )
        self._of_jobs.set(name, dict(zip(TRAINING, values, strict=True)))

    def set_standby(self) -> None:
        """Show an operator that has no view."""
        self.view_age_s.set(0.0)
        self.events_dropped.set(0)
        self.notices_held_back.set(0)
        self.notices_lost.set(0)

    def count_decision(self, reason: str) -> None:
        """Count one decision that differs from the one before."""
        self._decisions.labels(reason).inc()

    def forget_job(self, name: JobName, *, keeps_errors: bool = False) -> None:
        """Drop the series of a job that is gone or whose state is not known; of the latter all but its errors."""
        for step in () if keeps_errors else tuple(self._failed.get(name, ())):
            self._forget_error(name, step)
        self._set_conditions(name, set())
        self._conditions.pop(name, None)
        where = _where(name)
        for what in _TRAINERS:
            _remove(self._trainers, *where, what)
        for what in _SERVERS:
            _remove(self._servers, *where, what)
        self._of_jobs.forget(name)
        for gauge in (self._single_copies, self._share, self._committed, self._checkpoint_every, self._failures):
            _remove(gauge, *where)

    def forget_jobs(self) -> None:
        """Drop the series of all jobs: another operator leads and exports them."""
        self.set_held_up(())
        self.room.clear()
        self._etcd.clear()
        self._etcd_full.set(0)
        for name in {*self._conditions, *self._failed}:
            self.forget_job(name)

    def _forget_error(self, name: JobName, task: str) -> None:
        _remove(self._errors, *_where(name), task)
        del self._failed[name][task]
        if not self._failed[name]:
            del self._failed[name]

    def _set_conditions(self, name: JobName, now: set[tuple[str, str, str]]) -> None:
        where, before = _where(name), self._conditions.get(name, set())
        for one in before - now:
            _remove(self._condition, *where, *one)
        for one in now:
            self._condition.labels(*where, *one).set(1)
        self._conditions[name] = now

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)


def _condition_values(status: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    return {(one["type"], one["status"], one["reason"]) for one in status.get("conditions", ())}


def _where(name: JobName) -> tuple[str, str]:
    namespace, _, job = name.partition("/")
    return namespace, job


def _remove(series: Gauge | Counter, *labels: str) -> None:
    with suppress(KeyError):  # never shown
        series.remove(*labels)
