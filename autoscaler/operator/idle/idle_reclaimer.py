"""Carries out the planner's decisions on idle pods of others: notice, veto, and the GPUs given back (ADR 0288).

A pod is told first, and left `Policy.idle_notice_s` to itself or its owner.  At the moment of the deed everything is
asked again: the decision stands in the newest plan, the annotations as they are now agree, nobody keeps the pod, the
report of its node is fresh, and every GPU of it is still unused.  Doubt keeps the pod.

A pod without a controller is evicted.  One of a Deployment or StatefulSet with a single replica leaves by a scale to
0, where the pod declares `edl.dev/idle-min-replicas: "0"`; any other controller would create it again, and is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions, Subresource
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVICTIONS, PODS, STATEFUL_SETS, Kind
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.objects.fields import Raw, controller_of, integer, part, text, to_time
from autoscaler.clusters.kubernetes.objects.labels import IDLE_MINIMUM
from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.domain import ClusterView, IdlePod, IdleReclaim, NodeName, PodName, Policy, ReclaimMode
from autoscaler.domain.gpu_reports import GpuReports
from autoscaler.errors import ClusterError
from autoscaler.jobs.trainer_ledger import Device
from autoscaler.operator.idle.gpu_use import Consent, devices_of, idle_pods_of, read_consent
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.store.event_recorder import EventRecorder, JobEvent, PodSubject

TICK_S: Final = 1.0
REFRESH_S: Final = 5.0
MOST_AT_ONCE: Final = 8  # deeds in one tick

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
        *,
        events: EventRecorder,
        metrics: Metrics,
        policy: Policy,
        view: Callable[[], ClusterView],
        set_use: Callable[[Mapping[PodName, Device], tuple[IdlePod, ...]], None],
        clock: Callable[[], float],
        offset_s: float,
    ) -> None:
        self._api, self._cache, self._source = api, cache, source
        self._events, self._metrics, self._policy = events, metrics, policy
        self._view, self._set_use = view, set_use
        self._clock, self._offset_s = clock, offset_s
        self._wanted: dict[PodName, IdleReclaim] = {}
        self._notices: dict[PodName, _Notice] = {}
        self._done: dict[str, float] = {}  # by UID: pods that were told to leave
        self._told_problems: dict[PodName, str] = {}
        self._counted_at_s = clock()

    async def run(self) -> None:
        """Follow reports and carry out decisions until cancelled."""
        next_refresh_s = 0.0
        while True:
            if self._clock() >= next_refresh_s:
                self.refresh()
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
        self._told_problems = {name: told for name, told in self._told_problems.items() if self._raw(name) is not None}

    async def act(self) -> None:
        """Give notice, and carry out what is due.  A refusal is logged, and tried again with the next plan."""
        self._count_unused()
        deeds = 0
        for name, reclaim in tuple(self._wanted.items()):
            raw = self._raw(name)
            if raw is None or text(raw, "metadata", "uid") in self._done or deeds >= MOST_AT_ONCE:
                continue
            notice = self._notice(name, reclaim, raw)
            due_s = notice.at_s + self._policy.idle_notice_s
            if self._acts and self._clock() >= due_s and await self._is_still_idle(name, reclaim, due_s):
                deeds += 1
                await self._give_back(name, reclaim, raw)

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

    async def _is_still_idle(self, name: PodName, reclaim: IdleReclaim, due_s: float) -> bool:
        """Ask everything again, of a report from after the notice; ask the agent for one if there is none."""
        now_s, reports = self._clock(), self._source.reports()
        now_unix_s = now_s - self._offset_s
        report = reports.by_node.get(reclaim.node)
        is_new = report is not None and report.reported_at_s >= due_s - self._offset_s
        if report is None or not (is_new and report.is_fresh(now_unix_s)):
            try:
                await self._source.ask_for_report(reclaim.node, now_unix_s)
            except ClusterError as error:
                log.warning("node %s was not asked for a report on its GPUs: %s", reclaim.node, error)
            return False
        idle = idle_pods_of(self._view(), reports, now_unix_s, offset_s=self._offset_s, consent_of=self._consent_of)
        return any(one.pod == name and one.is_due(now_s) for one in idle)

    async def _give_back(self, name: PodName, reclaim: IdleReclaim, raw: Raw) -> None:
        namespace, pod = split_key(name)
        uid, owner = text(raw, "metadata", "uid"), controller_of(raw)
        try:
            if not owner:
                options = {"preconditions": Preconditions(uid=uid).as_fields()}
                body = {"metadata": {"name": pod, "namespace": namespace}, "deleteOptions": options}
                await self._api.create(EVICTIONS, body)
                how = "evicted"
            elif await self._scale_down(namespace, raw, owner):
                how = "its owner was scaled to 0"
            else:
                how = ""
        except ClusterError as error:
            log.warning("pod %s keeps its unused GPUs: %s", name, error)
            del self._notices[name]  # told anew before the next try
            return
        self._done[uid] = self._clock()
        if not how:
            message = f"its GPUs are unused, and {reclaim.beneficiary} waits for them; its {text(owner, 'kind')} would "
            self._emit(raw, "IdleGpusKept", f"{message}create it again, so nothing is done", is_warning=False)
            return
        self._metrics.count_idle_reclaim(reclaim.gpu_count)
        self._emit(raw, "IdleGpusGivenBack", f"{how}: its GPUs went unused to {reclaim.beneficiary}", is_warning=True)

    async def _scale_down(self, namespace: str, raw: Raw, owner: Raw) -> bool:
        """Scale the owner of a single replica to 0, if the pod declares that; return False for any other."""
        found = _scalable_owner(raw, owner)
        if found is None or part(raw, "metadata", "annotations").get(IDLE_MINIMUM) != "0":
            return False
        kind, name = found
        scale = await self._api.get(kind, name, namespace=namespace, subresource=Subresource.SCALE)
        if integer(scale, "spec", "replicas") != 1:
            return False
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
        self._done = {uid: at_s for uid, at_s in self._done.items() if now_s - at_s < 3600.0}

    def _consent_of(self, name: PodName) -> Consent:
        raw = self._raw(name)
        consent = Consent() if raw is None else read_consent(raw)
        if raw is not None and consent.problem and self._told_problems.get(name) != consent.problem:
            self._told_problems[name] = consent.problem
            self._emit(raw, "IdleReclaimIgnored", consent.problem, is_warning=True)
        return consent

    def _raw(self, name: PodName) -> Raw | None:
        return self._cache.get(PODS, split_key(name))

    def _emit(self, raw: Raw, reason: str, message: str, *, is_warning: bool) -> None:
        name, namespace, uid = (text(raw, "metadata", field) for field in ("name", "namespace", "uid"))
        subject = PodSubject(name=name, namespace=namespace, uid=uid)
        self._events.emit(subject, JobEvent(reason=reason, message=message, is_warning=is_warning))


def _scalable_owner(raw: Raw, owner: Raw) -> tuple[Kind, str] | None:
    """Return the Deployment or StatefulSet of a pod; None for other controllers."""
    name = text(owner, "name")
    if text(owner, "kind") == "StatefulSet":
        return STATEFUL_SETS, name
    revision = text(raw, "metadata", "labels", "pod-template-hash")
    if text(owner, "kind") == "ReplicaSet" and revision and name.endswith(f"-{revision}"):
        return DEPLOYMENTS, name.removesuffix(f"-{revision}")
    return None
