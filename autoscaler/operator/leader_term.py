"""All that runs while this operator leads: one task group over one store, begun afresh with every term.

    watches -> store -> views -> loop -> writes            (clusters.kubernetes, loop)
                  + -> lives of jobs -> writes, events      (jobs, objects)
                            + -> status, metrics            (statuses, report)
    kopf -> a nudge for the jobs concerned                  (handlers)

Lives begin when everything has been listed: what a job's status says is judged by the pods that stand.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Raw
from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.cache.object_cache import AGEING, KINDS
from autoscaler.clusters.kubernetes.cache.reflector import Watching
from autoscaler.clusters.kubernetes.cluster_view import NEVER_S, Facts
from autoscaler.clusters.kubernetes.kubernetes_cluster import KubernetesCluster
from autoscaler.clusters.kubernetes.objects.fields import Raw as RawRead
from autoscaler.clusters.kubernetes.objects.fields import condition_of, key_of, part, whole
from autoscaler.clusters.kubernetes.objects.names import job_key, split_store_name, store_name
from autoscaler.clusters.kubernetes.parsing.priority_classes import PriorityClasses, class_problems, rank_problem
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import JobName, Role
from autoscaler.fault_isolation import JobErrors
from autoscaler.fault_isolation import Step as ErrorStep
from autoscaler.jobs.master_connections import Masters
from autoscaler.loop import Loop, Step
from autoscaler.manifests.api_types import Mode
from autoscaler.operator.controllers.definition_check import Definition
from autoscaler.operator.controllers.drain_guard import Told
from autoscaler.operator.controllers.error_listener import ErrorListener
from autoscaler.operator.controllers.event_recorder import Events, subject_of
from autoscaler.operator.controllers.ground import Ground
from autoscaler.operator.controllers.job_controller import Jobs
from autoscaler.operator.controllers.job_reporter import Reports
from autoscaler.operator.controllers.job_store import Ears, Note
from autoscaler.operator.controllers.job_writer import Hands
from autoscaler.operator.controllers.master_client import Asking
from autoscaler.operator.controllers.observed import Observed
from autoscaler.operator.controllers.owned_objects import Objects
from autoscaler.operator.controllers.server_drain import Servers, why_it_stays
from autoscaler.operator.controllers.status_writer import Statuses
from autoscaler.operator.controllers.watched_store import FollowedStore
from autoscaler.operator.etcd.job_accounts import Accounts
from autoscaler.operator.etcd.space_keeper import EtcdRoom
from autoscaler.operator.job.job_pods import has_ended, has_unstarted, is_gated, role_of, standing, uid_of
from autoscaler.operator.job.job_record import JobRecord, heard_of, uncommitted_since_s
from autoscaler.operator.job.pod_termination import By, PodEnd
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.process.kopf_handlers import run_kopf
from autoscaler.operator.process.operator_settings import OperatorSettings
from autoscaler.operator.status.condition_rules import TOO_MUCH_IN_ETCD
from autoscaler.operator.status.conditions import Kind
from autoscaler.operator.status.job_status import failing_status, status_of, wrong_status
from autoscaler.operator.status.resizes import Author
from autoscaler.operator.status.status_inputs import Seen

SYNC_POLL_S: Final = 0.05
KOPF_AGAIN_S: Final = 30.0
_OF_JOBS: Final = tuple(kind for kind in KINDS if kind.is_namespaced and kind != PODS)
"""What the chart's roles let be read in the namespaces of `--namespaces` alone; pods and nodes are everybody's room."""

_AUTHORS: Final = {
    By.SCHEDULER: (Author.SCHEDULER, "Preempted", "kube-scheduler took it for a pod of higher priority"),
    By.DRAIN: (Author.DRAIN, "Drained", "it was evicted: its node is being drained"),
    By.NODE: (Author.NODE, "NodeEnded", "its node ended it"),
    By.USER: (Author.USER, "Deleted", "somebody deleted it"),
    By.ITSELF: (Author.FAILURE, "Failed", "it ended by itself"),
    By.MASTER: (Author.EDL, "ServerLeft", "it was let go: what it held has been moved to the others"),
}

log = logging.getLogger(__name__)


class Leading:
    """One term.  `api` is fenced."""

    def __init__(
        self,
        api: Api,
        settings: OperatorSettings,
        metrics: Metrics,
        masters: Masters,
        *,
        accounts: Accounts | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._accounts = accounts
        self._clock = clock
        self._offset_s = clock() - wall_s()
        self._passed_at_s = clock()
        self._judged: tuple[PriorityClasses | None, dict[str, str]] = (None, {})
        self.errors = JobErrors(clock)
        self.store = FollowedStore(self.errors, namespaces=dict.fromkeys(_OF_JOBS, settings.namespaces))
        self.events = Events(api, identity=settings.identity, wall_s=wall_s, errors=self.errors)
        self.objects = Objects(
            api,
            settings.build.etcd,
            now=lambda: datetime.fromtimestamp(wall_s(), UTC),
            servers_of=self._servers_of,
            is_stuck=lambda job: has_unstarted(self.ground.pods(job), wall_s()),
            namespaces=settings.namespaces,
            accounts=accounts,
            errors=self.errors,
        )
        self.cluster = KubernetesCluster(
            api,
            self.store,
            settings.build,
            clock=clock,
            offset_s=self._offset_s,
            facts_of=self._facts,
            prepare=self.objects.prepare,
            is_frozen=settings.policy.is_frozen,
            errors=self.errors,
        )
        self.ground = Ground(self.store, self.cluster.views)
        asking = Asking(masters, self.objects.identity_of)
        self.servers = Servers(
            self.ground,
            asking,
            record_of=lambda name: self.jobs.records.get(name),  # noqa: PLW0108 - `jobs` is made next
            target_of=self._servers_target,
            may_tell=lambda job: self.jobs.may_write(job),  # noqa: PLW0108 - `jobs` is made next
            say=self.events.say,
            touch=self.cluster.touch,
            clock=clock,
        )
        self.jobs = Jobs(
            self.ground,
            Hands(api, delete_pod=self.cluster.delete_pod),
            Ears(say=self.events.say, left=self._take_left, changed=self._take_changed, touched=self.cluster.touch),
            ask=self.servers.ask,
            reading_s=asking.reading_s,
            clock=clock,
            offset_s=self._offset_s,
            is_frozen=settings.policy.is_frozen,
            errors=self.errors,
        )
        self.reports = Reports(
            clock=clock,
            say=self._say,
            changed=self._take_changed,
            count_resize=metrics.count_resize,
            errors=self.errors,
        )
        self.statuses = Statuses(
            api, self.store, raw_of=self.ground.raw, status_of=self.status_of, clock=clock, errors=self.errors
        )
        self.errors.listener = ErrorListener(self.errors, self.ground, self.events.say, self.statuses.touch, metrics)
        self._observed = Observed(settings.policy)
        self.definition = Definition(api, changed=self._take_definition)
        self.store.follow = self.jobs.wake
        told = Told(self.cluster, self.jobs.note_told, self.servers.hold)
        self.loop = Loop(told, settings.policy, listener=self._listen, errors=self.errors)
        self.watching = Watching(
            api,
            self.store,
            KINDS,
            now=clock,
            jitter=random.random,
            notify=self.cluster.touch,
        )

    async def run(self) -> None:
        """Lead until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watching.run(), name="watching")
            await self._wait_synced()
            await self.definition.look()
            self.cluster.view()
            tasks.create_task(self.definition.keep(), name="definition")
            tasks.create_task(self.cluster.keep(), name="gangs")
            tasks.create_task(self.loop.run(), name="planner loop")
            tasks.create_task(self.jobs.run(), name="jobs")
            tasks.create_task(self.objects.keep(self._owners), name="objects")
            if self._accounts is not None:
                tasks.create_task(self._accounts.keep(), name="accounts")
                room = EtcdRoom(self._accounts, barred=self._take_barred, metrics=self._metrics)
                tasks.create_task(room.keep(), name="room in etcd")
            tasks.create_task(self.statuses.run(), name="statuses")
            tasks.create_task(self.events.run(), name="events")
            tasks.create_task(self._listen_to_users(), name="kopf")

    # ---- what is known ------------------------------------------------------------------------------------------

    @property
    def is_synced(self) -> bool:
        """Whether everything has been listed once."""
        return self.store.is_synced(KINDS)

    @property
    def passed_s(self) -> float | None:
        """How long ago the loop last went round; None before its first time."""
        return self._clock() - self._passed_at_s if self.loop.last_plan is not None else None

    @property
    def view_age_s(self) -> float:
        """How old the picture is on which decisions rest."""
        heard_at_s = self.store.oldest_heard_at_s(AGEING)
        return self._clock() - (self._passed_at_s if heard_at_s is None else heard_at_s)

    @property
    def problem(self) -> str:
        """What keeps it from its work at the moment: a kind that is not followed, or the cluster's own shape."""
        told = (*self.watching.problems.values(), *self._problems().values())
        return next(iter(told), "")

    def status_of(self, name: JobName) -> Raw | None:
        """The job's status as it should stand; None: there is no such job."""
        raw = self.ground.raw(name)
        if raw is None:
            return None
        if not self.errors.is_paused(name, ErrorStep.STATUS):
            with self.errors.around(name, ErrorStep.STATUS):
                return self._status_of(name, raw)
        told, now_unix_s = self.errors.problem(name), self._clock() - self._offset_s
        status = failing_status(told, part(raw, "status"), generation=_generation(raw), now_unix_s=now_unix_s)
        self._metrics.show_wrong_job(name, status)
        return status

    def _status_of(self, name: JobName, raw: RawRead) -> Raw | None:
        before = part(raw, "status")
        if (error := self.ground.wrong.get(name)) is not None:
            now_unix_s = self._clock() - self._offset_s
            status = wrong_status(error, before, generation=_generation(raw), now_unix_s=now_unix_s)
            told, stands = condition_of({"status": status}, Kind.ADMITTED), condition_of(raw, Kind.ADMITTED)
            if told.get("message") != stands.get("message"):
                self.events.say(subject_of(raw), Note(reason="InvalidSpec", message=str(error), is_warning=True))
            self._metrics.show_wrong_job(name, status)
            return status
        record = self.jobs.records.get(name)
        if record is None:
            return None
        status = status_of(self._seen(record, before), now_s=self._clock(), offset_s=self._offset_s)
        self._show(name, record, status)
        return status

    # ---- the inside ---------------------------------------------------------------------------------------------

    async def _wait_synced(self) -> None:
        while not self.is_synced:  # noqa: ASYNC110 - once a term, for a second
            await asyncio.sleep(SYNC_POLL_S)

    def _seen(self, record: JobRecord, before: Raw | object) -> Seen:
        job = record.job
        return Seen(
            record=record,
            report=self.reports.of(job.key),
            race=self.cluster.race(job.key),
            pods=self.ground.pods(job),
            has_master=self.ground.master(job) is not None,
            before=before if isinstance(before, dict) else {},
            heard=heard_of(record, self._clock(), self._offset_s),
            priority=self.ground.priority(job),
            is_contested=self.ground.is_contested(job.key),
            is_observed=job.spec.mode is Mode.OBSERVE or self._settings.policy.is_frozen,
            problems=self._problems_of(job),
            parting={
                pod: why_it_stays(parting, record, self._clock())
                for pod, parting in self.servers.parting(job.key).items()
            },
        )

    def _facts(self, job: KubeJob) -> Facts:
        """What the planner is told; nothing is created while classes would make EDL do harm (rule 3)."""
        facts = self.jobs.facts(job)
        return replace(facts, hold_until_s=NEVER_S) if self._problems() or self._low_rank(job) else facts

    def _problems_of(self, job: KubeJob) -> Mapping[str, str]:
        told = {
            "PriorityClassTooLow": self._low_rank(job),
            "LimitRange": self.cluster.views.jobs.refused.get(job.key, ""),
            "InternalError": self.errors.problem(job.key),
        }
        return self._problems() | {reason: message for reason, message in told.items() if message}

    def _low_rank(self, job: KubeJob) -> str:
        return rank_problem(self.cluster.views.classes, job.spec.priority_class, self._settings.build.reclaim)

    def _problems(self) -> dict[str, str]:
        classes = self.cluster.views.classes
        if self._judged[0] is not classes:
            found = class_problems(classes, self._settings.build.reclaim)
            self._judged = (classes, {"PriorityClasses": "; ".join(found)} if found else {})
        old = self.definition.problem
        return {"OldDefinition": old, **self._judged[1]} if old else self._judged[1]

    def _take_definition(self) -> None:
        for name in self.ground.jobs:
            self.jobs.wake(name)
        self.cluster.touch()

    def _show(self, name: JobName, record: JobRecord, status: Raw) -> None:
        self._metrics.show_job(name, status, checkpoint_every_s=record.job.spec.checkpoint.every_s)
        self._metrics.show_instants(
            name,
            checkpoint=self._unix_s(record.checkpoint_at_s),
            uncommitted=self._unix_s(uncommitted_since_s(record)),
            waiting=self._unix_s(record.waiting_since_s),
        )

    def _unix_s(self, at_s: float | None) -> float | None:
        return at_s - self._offset_s if at_s is not None and isfinite(at_s) else None

    def _listen(self, step: Step) -> None:
        now_s = self._clock()
        self._passed_at_s = now_s
        self._metrics.decision_s.observe(max(0.0, now_s - step.plan.planned_at_s))
        self._metrics.count_writes(step.applied)
        self._metrics.show_held_up(step.plan.decisions)
        self._metrics.forget_errors(now_s)
        self.servers.keep(step.plan.actions)
        view = self.cluster.view().evolve(history=self.loop.history)
        self._metrics.count_server_moves(view.history.server_moves, lambda: view.pods)
        self.reports.take(self._observed.told(step, view, self.cluster.views.jobs.observed, now_s))

    def _say(self, name: JobName, note: Note) -> None:
        record = self.jobs.records.get(name)
        if record is not None:
            self.events.say(record.job, note)

    def _take_changed(self, name: JobName) -> None:
        self.statuses.touch(name)
        if (job := self.ground.jobs.get(name)) is not None:
            self.objects.follow(job)
        if name not in self.jobs.records and self.ground.raw(name) is None:
            self.reports.forget(name)
            self.objects.forget(name)
            self.servers.forget(name)
            self.errors.forget(name)
            self._metrics.forget_job(name)

    def _take_barred(self, name_in_etcd: str, words: str) -> None:
        """The job may use etcd no more, so it can commit nothing: it is given up."""
        namespace, name, _ = split_store_name(name_in_etcd)
        job = self.ground.jobs.get(JobName(job_key(namespace, name)))
        if job is not None and store_name(job.namespace, job.name, job.uid) == name_in_etcd:
            with self.errors.around(job.key, ErrorStep.LIFE):  # who looks at etcd looks at all jobs
                self.jobs.give_up(job, f"{TOO_MUCH_IN_ETCD}: {words}; its checkpoints stand: make it anew to go on")

    def _take_left(self, job: KubeJob, role: Role, end: PodEnd) -> None:
        """A pod leaves, or has ended; what EDL sends away is told by its decision."""
        self._metrics.count_eviction(end.by.value, role.value)
        if end.by not in _AUTHORS:
            return
        author, reason, words = _AUTHORS[end.by]
        is_starting = self.ground.master(job) is None  # the pod of a running job that lost its race had no node yet
        if end.by is By.USER and is_starting and self.cluster.race(job.key).hold_until_s > self._clock():
            author, reason, words = Author.EDL, "RoomTaken", "its proved room was taken by others; it starts again"
        if end.by is not By.ITSELF:
            self.events.say(job, Note(reason=reason, message=f"{role.value} {end.pod}: {words}", pod=end.pod))
        if end.by is By.ITSELF:
            reason = "ServerFailed" if role is Role.SERVER else "TrainerFailed"
        if role is not Role.MASTER:
            before = 1 + sum(key_of(raw) != end.pod for raw in standing(self.ground.pods(job), role))
            self.reports.resize(job.key, author, reason, role=role, before=before, message=f"{end.pod}: {words}")

    def _servers_target(self, job: JobName) -> int | None:
        decision = self.reports.of(job).decision
        return None if decision is None else decision.servers_target

    def _servers_of(self, job: KubeJob) -> int:
        """Servers that stand, with those that others made leave until they are gone: these go one at a time."""
        record = self.jobs.records.get(job.key)
        told = frozenset[str]() if record is None else record.told
        servers = (raw for raw in self.ground.pods(job) if role_of(raw) is Role.SERVER)
        return sum(not has_ended(raw) and not is_gated(raw) and uid_of(raw) not in told for raw in servers)

    def _owners(self) -> Iterable[KubeJob]:
        """The jobs that have pods, and that EDL acts on."""
        found = []
        for job in tuple(self.ground.jobs.values()):
            with self.errors.around(job.key, ErrorStep.PODS_OWNED):
                if self.jobs.may_write(job) and self.ground.pods(job) and not job.is_deleting:
                    found.append(job)
        return found

    async def _listen_to_users(self) -> None:
        """Let kopf bring edits; without it they come a moment later, through the store."""
        while True:
            try:
                await run_kopf(self, kubeconfig=self._settings.kubeconfig, namespaces=self._settings.namespaces)
            except Exception:
                log.exception("kopf has ended; edits are seen by the watches; it begins again in %g s", KOPF_AGAIN_S)
            await asyncio.sleep(KOPF_AGAIN_S)

    def wake(self, job: JobName) -> None:
        """See `handlers.Listener`."""
        self.jobs.wake(job)

    def edited(self, job: JobName, note: Note) -> None:
        """See `handlers.Listener`.  For the log: the event that people read is the decision's, one for both."""
        log.info("tj/%s: %s: %s", job, note.reason, note.message)


def _generation(raw: RawRead) -> int:
    return whole(raw, "metadata", "generation")
