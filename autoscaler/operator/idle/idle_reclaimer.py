"""Carries out the planner's decisions on idle pods of others: notice, veto, and the GPUs given back (ADR 0288).

A pod is told first, and left `Policy.idle_notice_s` to itself or its owner.  At the moment of the deed everything is
asked again: the decision stands in the newest plan, the annotations as they are now agree, nobody keeps the pod, the
view and the report of its node are fresh, and every GPU of it is still unused.  Doubt keeps the pod.

A pod without a controller is evicted.  One of a Deployment or StatefulSet with a single replica leaves by a scale to
0, where the pod declares `edl.dev/idle-min-replicas: "0"`; any other controller would create it again, and is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions, Subresource
from autoscaler.clusters.kubernetes.api.kinds import EVICTIONS, PODS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache, StaleViewError, check_fresh
from autoscaler.clusters.kubernetes.objects.fields import Raw, controller_of, integer, text, to_time
from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.domain import ClusterView, IdlePod, IdleReclaim, NodeName, PodName, Policy, ReclaimMode
from autoscaler.domain.gpu_reports import GpuReports
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key
from autoscaler.jobs.trainer_ledger import Device
from autoscaler.operator.idle.consent import NO_CONSENT, Consent, owner_of
from autoscaler.operator.idle.gpu_use import devices_of, idle_pods_of, nodes_to_ask
from autoscaler.operator.idle.pod_consents import PodConsents
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.notices.due_notices import NoticeKind, Occasion
from autoscaler.operator.store.event_recorder import EventRecorder, JobEvent, ObjectSubject

TICK_S: Final = 1.0
REFRESH_S: Final = 5.0
MOST_AT_ONCE: Final = 8  # deeds in one tick
DONE_PAUSE_S: Final = 3600.0  # a pod that was told to leave, or cannot be spared
REFUSED_PAUSE_S: Final = 600.0  # one whose removal the API server refused

OF_ALL: Final = object_key("reports on GPUs", "", "all")
"""Faults where all reports are joined with all pods."""

log = logging.getLogger(__name__)


class ReportSource(Protocol):
    """Source of the agents' reports."""

    def reports(self) -> GpuReports: ...

    async def ask_for_report(self, node: NodeName, now_s: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notice:
    """Notice to a pod: when it was told, by its UID."""

    uid: str
    at_s: float
    for_whom: str


class IdleReclaimer:
    """GPUs by use in one term.  `set_use` gets devices of trainers and idle pods whenever they change."""

    def __init__(
        self,
        api: Api,
        cache: ObjectCache,
        source: ReportSource,
        consents: PodConsents,
        *,
        events: EventRecorder,
        metrics: Metrics,
        policy: Policy,
        errors: JobErrors,
        view: Callable[[], ClusterView],
        set_use: Callable[[Mapping[PodName, Device], tuple[IdlePod, ...]], None],
        clock: Callable[[], float],
        offset_s: float,
    ) -> None:
        self._api, self._cache, self._source, self._consents = api, cache, source, consents
        self._events, self._metrics, self._policy = events, metrics, policy
        self._errors, self._view, self._set_use = errors, view, set_use
        self._clock, self._offset_s = clock, offset_s
        self._wanted: dict[PodName, IdleReclaim] = {}
        self._notices: dict[PodName, _Notice] = {}
        self._let_be_until_s: dict[str, float] = {}  # by UID: pods that were told to leave, or may not leave now
        self._counted_at_s = clock()

    async def run(self) -> None:
        """Follow reports and carry out decisions until cancelled."""
        next_refresh_s = 0.0
        while True:
            if self._clock() >= next_refresh_s:
                with self._errors.isolate(OF_ALL, GuardedTask.IDLE_GPUS):
                    self.refresh()
                    await self._ask_for_reports()
                next_refresh_s = self._clock() + REFRESH_S
            await self.act()
            await asyncio.sleep(TICK_S)

    def handle_decisions(self, reclaims: Iterable[IdleReclaim]) -> None:
        """Take the decisions of the newest plan; notices of pods that are not in it any more are void."""
        self._wanted = {one.pod: one for one in reclaims}
        self._notices = {name: notice for name, notice in self._notices.items() if name in self._wanted}

    def refresh(self) -> None:
        """Join the reports with the pods of the view."""
        view, now_unix_s = self._view(), self._clock() - self._offset_s
        reports = self._source.reports()
        idle = idle_pods_of(view, reports, now_unix_s, offset_s=self._offset_s, consent_of=self._consent_of)
        self._set_use(devices_of(view, reports, now_unix_s), idle)

    async def act(self) -> None:
        """Give notice, and carry out what is due.  A refusal is logged, and tried again with the next plan."""
        self._count_unused()
        deeds = 0
        for name, reclaim in tuple(self._wanted.items()):
            key = object_key("pod", *split_key(name))
            if deeds >= MOST_AT_ONCE or self._errors.is_paused(key, GuardedTask.IDLE_GPUS):
                continue
            with self._errors.isolate(key, GuardedTask.IDLE_GPUS):
                deeds += await self._act_on(name, reclaim)

    def occasions(self) -> tuple[Occasion, ...]:
        """Return the pods whose GPUs are about to be given back, for notices to their owners."""
        return tuple(self._occasion(name, notice) for name, notice in self._notices.items() if self._acts)

    def _occasion(self, name: PodName, notice: _Notice) -> Occasion:
        namespace, pod = split_key(name)
        at_unix_s = notice.at_s - self._offset_s
        due = to_time(at_unix_s + self._policy.idle_notice_s)
        return Occasion(
            kind=NoticeKind.GPUS_GIVEN_BACK,
            namespace=namespace,
            name=pod,
            uid=notice.uid,
            since_unix_s=at_unix_s,
            due_unix_s=at_unix_s,
            reason="IdleGpus",
            message=f"nothing computes on them, and {notice.for_whom} waits for them; they are given back at {due}",
            again_after_s=self._policy.idle_notice_s / 2,  # so that it is told before each deed
        )

    async def _act_on(self, name: PodName, reclaim: IdleReclaim) -> bool:
        """Tell one pod, or carry out what is due; True if its GPUs were to be given back now."""
        raw = self._raw(name)
        if raw is None or text(raw, "metadata", "uid") in self._let_be_until_s:
            return False
        notice = self._notice(name, reclaim, raw)
        due_s = notice.at_s + self._policy.idle_notice_s
        if not self._acts or self._clock() < due_s:
            return False
        idle = await self._still_idle(name, reclaim, due_s)
        if idle is None:
            return False
        consent = await self._still_agreed(name, raw, idle)
        if consent is not None:
            await self._give_back(name, reclaim, raw, consent)
        return True

    async def _ask_for_reports(self) -> None:
        """Ask for reports on trainers whose devices do nothing, so that the ledger is judged by recent ones."""
        now_unix_s = self._clock() - self._offset_s
        for node in nodes_to_ask(self._view(), self._source.reports(), now_unix_s):
            await self._ask_for_report(node, now_unix_s)

    async def _ask_for_report(self, node: NodeName, now_unix_s: float) -> None:
        try:
            await self._source.ask_for_report(node, now_unix_s)
        except ClusterError as error:
            log.warning("node %s was not asked for a report on its GPUs: %s", node, error)

    @property
    def _acts(self) -> bool:
        return self._policy.idle_reclaim is ReclaimMode.ACT and not self._policy.is_frozen

    def _notice(self, name: PodName, reclaim: IdleReclaim, raw: Raw) -> _Notice:
        """Return the notice that the pod was given; given now if it has none."""
        uid, notice = text(raw, "metadata", "uid"), self._notices.get(name)
        if notice is not None and notice.uid == uid:
            return notice
        notice = self._notices[name] = _Notice(uid=uid, at_s=self._clock(), for_whom=str(reclaim.beneficiary))
        since, due_s = to_time(reclaim.since_s - self._offset_s), notice.at_s + self._policy.idle_notice_s
        what = "1 GPU of it is" if reclaim.gpu_count == 1 else f"{reclaim.gpu_count} GPUs of it are"
        if self._acts:
            due = to_time(due_s - self._offset_s)
            message = f"{what} unused since {since}; given back at {due} for {notice.for_whom}, which waits for them"
            self._emit(
                raw, "IdleGpus", f"{message}. To keep it: edl keep {split_key(name)[1]} --for 2h", is_warning=True
            )
        else:
            message = f"{what} unused since {since}, and {notice.for_whom} waits for them; nothing is done about it"
            self._emit(raw, "IdleGpusObserved", f"{message} (policy.idleReclaim is observe)", is_warning=False)
        return notice

    async def _still_idle(self, name: PodName, reclaim: IdleReclaim, due_s: float) -> IdlePod | None:
        """Return what the pod is by a fresh view and a report from after the notice, if it is due by them.

        Without such a report the agent is asked for one.
        """
        try:
            check_fresh(self._cache, self._clock())
        except StaleViewError as error:
            log.warning("pod %s keeps its unused GPUs for now: %s", name, error)
            return None
        now_s, reports = self._clock(), self._source.reports()
        now_unix_s = now_s - self._offset_s
        report = reports.by_node.get(reclaim.node)
        is_new = report is not None and report.reported_at_s >= due_s - self._offset_s
        if report is None or not (is_new and report.is_fresh(now_unix_s)):
            await self._ask_for_report(reclaim.node, now_unix_s)
            return None
        idle = idle_pods_of(self._view(), reports, now_unix_s, offset_s=self._offset_s, consent_of=self._consent_of)
        return next((one for one in idle if one.pod == name and one.is_due(now_s)), None)

    async def _still_agreed(self, name: PodName, raw: Raw, idle: IdlePod) -> Consent | None:
        """Read at the API server what the pod, its owner and its namespace say now, the time that they ask included: a
        watch may be late.  What only that read shows to be wrong keeps the pod for a while.
        """
        try:
            consent = await self._consents.read_now(raw)
        except ClusterError as error:
            log.warning("pod %s keeps its unused GPUs: its consent cannot be read: %s", name, error)
            return None
        if consent.problem:
            self._let_be(name, text(raw, "metadata", "uid"), REFUSED_PAUSE_S)
            self._emit(raw, "IdleGpusKept", consent.problem, is_warning=False)
        since_unix_s = idle.since_s - self._offset_s
        return consent if consent.holds_at(self._clock() - self._offset_s, idle_since_unix_s=since_unix_s) else None

    async def _give_back(self, name: PodName, reclaim: IdleReclaim, raw: Raw, consent: Consent) -> None:
        namespace, pod = split_key(name)
        uid, owner = text(raw, "metadata", "uid"), controller_of(raw)
        try:
            if not owner:
                options = {"preconditions": Preconditions(uid=uid).as_fields()}
                body = {"metadata": {"name": pod, "namespace": namespace}, "deleteOptions": options}
                await self._api.create(EVICTIONS, body)
                how = "evicted"
            elif await self._scale_down(namespace, raw, consent.owner_uid):
                how = "its owner was scaled to 0"
            else:
                how = ""
        except ClusterError as error:  # such as a disruption budget: others are asked meanwhile
            log.warning("pod %s keeps its unused GPUs: %s", name, error)
            self._let_be(name, uid, REFUSED_PAUSE_S)
            return
        self._let_be(name, uid, DONE_PAUSE_S)
        if not how:
            message = f"its GPUs are unused, and {reclaim.beneficiary} waits for them; its {text(owner, 'kind')} would "
            self._emit(raw, "IdleGpusKept", f"{message}create it again, so nothing is done", is_warning=False)
            return
        self._metrics.count_idle_reclaim(reclaim.gpu_count)
        self._emit(raw, "IdleGpusGivenBack", f"{how}: its GPUs went unused to {reclaim.beneficiary}", is_warning=True)

    def _let_be(self, name: PodName, uid: str, pause_s: float) -> None:
        """Neither plan with the pod nor act on it for so long; it is told anew after that."""
        self._let_be_until_s[uid] = self._clock() + pause_s
        self._notices.pop(name, None)  # a plan made meanwhile may have dropped it

    async def _scale_down(self, namespace: str, raw: Raw, owner_uid: str) -> bool:
        """Scale the owner of a single replica to 0; return False for any other, also unless the pod is its only one."""
        found = owner_of(raw)
        if found is None:
            return False
        kind, name = found.kind, found.name
        scale = await self._api.get(kind, name, namespace=namespace, subresource=Subresource.SCALE)
        if not owner_uid or text(scale, "metadata", "uid") != owner_uid:
            return False  # another of that name, which nobody asked
        if integer(scale, "spec", "replicas") != 1 or integer(scale, "status", "replicas") != 1:
            return False  # during an update the new pod may compute already; with 0 this one is not counted
        only = Preconditions(resource_version=text(scale, "metadata", "resourceVersion") or None)
        change = {"spec": {"replicas": 0}}
        await self._api.patch(kind, name, change, namespace=namespace, only=only, subresource=Subresource.SCALE)
        return True

    def _count_unused(self) -> None:
        """Count the time of the GPUs that the newest plan would give back."""
        now_s = self._clock()
        gpus = sum(one.gpu_count for one in self._wanted.values())
        self._metrics.count_unused_gpus(gpus, max(0.0, now_s - self._counted_at_s))
        self._counted_at_s = now_s
        self._let_be_until_s = {uid: until_s for uid, until_s in self._let_be_until_s.items() if now_s < until_s}

    def _consent_of(self, name: PodName) -> Consent:
        raw = self._raw(name)
        if raw is None:
            return NO_CONSENT
        consent = self._consents.of(raw)
        return replace(consent, after_s=None) if text(raw, "metadata", "uid") in self._let_be_until_s else consent

    def _raw(self, name: PodName) -> Raw | None:
        return self._cache.get(PODS, split_key(name))

    def _emit(self, raw: Raw, reason: str, message: str, *, is_warning: bool) -> None:
        name, namespace, uid = (text(raw, "metadata", field) for field in ("name", "namespace", "uid"))
        subject = ObjectSubject(name=name, namespace=namespace, uid=uid)
        self._events.emit(subject, JobEvent(reason=reason, message=message, is_warning=is_warning))
