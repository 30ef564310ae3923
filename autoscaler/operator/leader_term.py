"""Leader term: everything that runs while this operator leads, built anew for every term.

    watches -> cache -> view -> loop -> writes                  (clusters.kubernetes, loop)
                  `-> job store <-> controllers -> writes       (controllers)
                            `-> status, events, metrics

Job lifecycles start after the first full listing, because a job's status is checked against its pods. A term needs no
Lease and no kopf: edits come through its own watches.  Who adds jobs to `wakeups` as well (`process.kopf_handlers`)
has them looked at a moment earlier.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.kinds import PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.cache.object_cache import AGED_KINDS, WATCHED_KINDS
from autoscaler.clusters.kubernetes.cache.reflector import Reflector
from autoscaler.clusters.kubernetes.kubernetes_cluster import KubernetesCluster
from autoscaler.domain import IdlePod, PodName, Policy, ReclaimMode
from autoscaler.fault_isolation import JobErrors
from autoscaler.jobs.master_connections import MasterConnections
from autoscaler.jobs.trainer_ledger import Device
from autoscaler.loop import Loop, LoopPass
from autoscaler.operator.controllers.definition_check import DefinitionCheck
from autoscaler.operator.controllers.fault_reporter import FaultReporter
from autoscaler.operator.controllers.job_controller import JobController
from autoscaler.operator.controllers.job_reporter import JobReporter
from autoscaler.operator.controllers.job_writer import JobWriter
from autoscaler.operator.controllers.master_client import MasterClient
from autoscaler.operator.controllers.owned_objects import OwnedObjects
from autoscaler.operator.controllers.pod_failures import PodFailures
from autoscaler.operator.controllers.progress_poller import ProgressPoller
from autoscaler.operator.controllers.server_drain import DrainGuard, ServerDrains
from autoscaler.operator.controllers.status_source import StatusSource
from autoscaler.operator.controllers.status_writer import StatusWriter
from autoscaler.operator.idle.idle_reclaimer import IdleReclaimer
from autoscaler.operator.idle.pod_consents import PodConsents
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.notices.notice_queue import Channel, NoticeQueue
from autoscaler.operator.notices.notice_settings import NoticeSettings
from autoscaler.operator.notices.notice_watch import NoticeWatch
from autoscaler.operator.store.consent_objects import ConsentObjects
from autoscaler.operator.store.event_recorder import EventRecorder
from autoscaler.operator.store.gpu_report_store import GpuReportStore
from autoscaler.operator.store.job_objects import JobCache
from autoscaler.operator.store.job_store import JobStore
from autoscaler.operator.store.work_queue import WorkQueue
from autoscaler.operator.term_settings import TermSettings

if TYPE_CHECKING:  # etcd's libraries take a tenth of the time that a run needs to start
    from autoscaler.operator.etcd.job_accounts import JobAccounts
    from autoscaler.operator.etcd.space_keeper import EtcdSpaceKeeper

_NAMESPACED_KINDS: Final = tuple(kind for kind in WATCHED_KINDS if kind.is_namespaced and kind != PODS)
"""The kinds that `TermSettings.namespaces` narrows; pods and nodes are always read cluster-wide, because they share
capacity.
"""


class LeaderTerm:
    """One term over an API server.

    `api` must be fenced where several operators share a cluster.  `accounts` is None where jobs have no etcd of EDL's.
    `on_pass` is called with every pass of the loop, after its reports.
    `clock` runs evenly and gives every `*_s` of the term; `wall_s` is the time of day.
    """

    def __init__(
        self,
        api: Api,
        settings: TermSettings,
        metrics: Metrics,
        masters: MasterConnections,
        *,
        accounts: JobAccounts | None = None,
        on_pass: Callable[[LoopPass], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        policy, build, intervals, offset_s = settings.policy, settings.build, settings.intervals, clock() - wall_s()
        self._sync_poll_s = intervals.sync_poll_s
        self._follows_consent = policy.idle_reclaim is not ReclaimMode.OFF
        self._clock = clock
        self._passed_at_s = clock()
        self._etcd = accounts
        self._on_pass = on_pass
        self._metrics = metrics
        self.errors = JobErrors(clock)
        self.cache = JobCache(self.errors, namespaces=dict.fromkeys(_NAMESPACED_KINDS, settings.namespaces))
        self.events = EventRecorder(api, identity=settings.identity, wall_s=wall_s, errors=self.errors)
        self.store = JobStore(
            self.cache,
            self.events,
            self.errors,
            clock=clock,
            offset_s=offset_s,
            reclaim=build.reclaim,
            is_frozen=policy.is_frozen,
            status_settle_s=intervals.status_settle_s,
            idle_window_s=policy.idle_window_s,
        )
        self.owned = OwnedObjects(
            api,
            build.etcd,
            self.store,
            now=lambda: datetime.fromtimestamp(wall_s(), UTC),
            namespaces=settings.namespaces,
            accounts=accounts,
        )
        self.cluster = KubernetesCluster(
            api,
            self.cache,
            build,
            clock=clock,
            offset_s=offset_s,
            runtime_of=self.store.facts,
            prepare=self.owned.prepare,
            is_frozen=policy.is_frozen,
            errors=self.errors,
            settle_every_s=intervals.settle_every_s,
        )
        self.store.attach(self.cluster)
        self.masters = MasterClient(masters, self.owned, socket_of=settings.socket_of)
        drains = ServerDrains(self.store, self.masters)
        writer = JobWriter(api, self.store)
        self.reporter = JobReporter(self.store, drains, metrics, policy)
        self.poller = ProgressPoller(
            self.store,
            self.masters,
            drains,
            poll_every_s=intervals.poll_every_s,
            tick_s=intervals.poll_tick_s,
            longest_pause_s=intervals.longest_poll_pause_s,
        )
        self.failures = PodFailures(
            self.store, writer, self.poller, self.reporter, blocks_nodes=settings.blocks_failing_nodes
        )
        self.jobs = JobController(
            self.store,
            writer=writer,
            owned=self.owned,
            poller=self.poller,
            failures=self.failures,
            reporter=self.reporter,
        )
        self.source = StatusSource(self.store, metrics)
        self.statuses = StatusWriter(api, self.store, self.source, progress_every_s=intervals.progress_every_s)
        self.errors.listener = FaultReporter(self.store, metrics)
        self.definition = DefinitionCheck(api, self.store)
        self.etcd_space = None if accounts is None else _make_space_keeper(accounts, self.store, metrics)
        guard = DrainGuard(self.cluster, self.store, drains)
        self.loop = Loop(guard, policy, listener=self._handle_pass, errors=self.errors)
        self.gpus = (
            GpuReportStore(api, self.errors, clock=clock, jitter=random.random) if settings.reads_gpu_reports else None
        )
        self.consents = (
            ConsentObjects(
                api, self.cache, self.errors, namespaces=settings.namespaces, clock=clock, jitter=random.random
            )
            if settings.reads_gpu_reports
            else None
        )
        self.idle = self._make_idle_reclaimer(api, metrics, policy)
        self.notices = None if settings.notices is None else self._make_notices(settings.notices, wall_s)
        self.watching = Reflector(
            api, self.cache, WATCHED_KINDS, now=clock, jitter=random.random, notify=self.store.request_plan
        )

    async def run(self) -> None:
        """Lead until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watching.run(), name="watches")
            if self.gpus is not None:
                tasks.create_task(self.gpus.run(), name="GPU reports")
            if self.consents is not None and self._follows_consent:
                tasks.create_task(self.consents.run(), name="consent to give GPUs back")
            while not self.is_synced:  # noqa: ASYNC110 - once a term, for a second
                await asyncio.sleep(self._sync_poll_s)
            await self.definition.check()
            self.cluster.view()
            tasks.create_task(self.definition.run(), name="definition")
            tasks.create_task(self.cluster.settle_gangs(), name="gangs")
            tasks.create_task(self.loop.run(), name="planner loop")
            tasks.create_task(self.jobs.run(), name="jobs")
            tasks.create_task(self.poller.run(), name="progress")
            tasks.create_task(self.owned.run(), name="owned objects")
            if self._etcd is not None and self.etcd_space is not None:
                tasks.create_task(self._etcd.run(), name="accounts in etcd")
                tasks.create_task(self.etcd_space.run(), name="space in etcd")
            if self.idle is not None:
                tasks.create_task(self.idle.run(), name="GPUs by use")
            if self.notices is not None:
                tasks.create_task(self.notices.run(), name="notices")
            tasks.create_task(self.statuses.run(), name="statuses")
            tasks.create_task(self.events.run(), name="events")

    @property
    def wakeups(self) -> WorkQueue:
        """Queue of jobs to reconcile now."""
        return self.store.to_reconcile

    @property
    def is_synced(self) -> bool:
        """True once everything has been listed."""
        return self.cache.is_synced(WATCHED_KINDS)

    @property
    def passed_s(self) -> float | None:
        """Seconds since the last pass of the loop; None before the first."""
        return self._clock() - self._passed_at_s if self.loop.last_plan is not None else None

    @property
    def view_age_s(self) -> float:
        """The age of the view on which decisions rest."""
        confirmed_at_s = self.cache.oldest_confirmed_at_s(AGED_KINDS)
        return self._clock() - (self._passed_at_s if confirmed_at_s is None else confirmed_at_s)

    def export_metrics(self) -> None:
        """Show what is true at a scrape: the age of the view, events and notices that were lost, and the room."""
        self._metrics.view_age_s.set(self.view_age_s)
        self._metrics.events_dropped.set(self.events.dropped)
        if self.notices is not None:
            self._metrics.notices_held_back.set(self.notices.held_back)
            self._metrics.notices_lost.set(self.notices.lost)
        view = self.cluster.views.last  # to build one would be the loop's work, at whatever instant somebody scrapes
        if view.is_synced:
            self._metrics.room.show(view)

    @property
    def problem(self) -> str:
        """Problem that blocks the operator: an unwatched kind, or a faulty cluster set-up."""
        return next(iter((*self.watching.problems.values(), *self.store.cluster_problems().values())), "")

    def _make_idle_reclaimer(self, api: Api, metrics: Metrics, policy: Policy) -> IdleReclaimer | None:
        """Return who follows the use of GPUs; None without agents that report it."""
        if self.gpus is None or self.consents is None:
            return None
        return IdleReclaimer(
            api,
            self.cache,
            self.gpus,
            PodConsents(api, self.consents, self.events),
            events=self.events,
            metrics=metrics,
            policy=policy,
            errors=self.errors,
            view=self.cluster.view,
            set_use=self._set_gpu_use,
            clock=self._clock,
            offset_s=self.store.offset_s,
        )

    def _make_notices(self, settings: NoticeSettings, wall_s: Callable[[], float]) -> NoticeWatch:
        from autoscaler.operator.notices.mail import Mail  # noqa: PLC0415 - with smtplib
        from autoscaler.operator.notices.webhook import Webhook  # noqa: PLC0415 - with the HTTP client

        channels: list[Channel] = []
        if settings.webhook is not None:
            channels.append(Webhook(settings.webhook, page=settings.page))
        if settings.mail is not None:
            channels.append(Mail(settings.mail, page=settings.page))
        idle = self.idle
        return NoticeWatch(
            [NoticeQueue(channel) for channel in channels],
            settings.rule,
            jobs=lambda: self.cache.objects(TRAINING_JOBS).values(),
            others=(lambda: ()) if idle is None else idle.occasions,
            errors=self.errors,
            wall_s=wall_s,
        )

    def _set_gpu_use(self, devices: Mapping[PodName, Device], idle: tuple[IdlePod, ...]) -> None:
        self.store.devices = devices
        if idle != self.cluster.views.idle_pods:
            self.cluster.views.idle_pods = idle
            self.store.request_plan()

    def _handle_pass(self, done: LoopPass) -> None:
        self._passed_at_s = self._clock()
        self.reporter.handle_pass(done)
        if self.idle is not None:
            self.idle.handle_decisions(done.plan.idle_reclaims, planned_at_s=done.plan.planned_at_s)
        self._on_pass(done)


def _make_space_keeper(accounts: JobAccounts, store: JobStore, metrics: Metrics) -> EtcdSpaceKeeper:
    from autoscaler.operator.etcd.space_keeper import EtcdSpaceKeeper  # noqa: PLC0415 - with etcd's libraries

    return EtcdSpaceKeeper(accounts, store, metrics)
