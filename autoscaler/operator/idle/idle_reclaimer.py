"""Carries out the planner's decisions on idle pods of others: notice, veto, and the GPUs given back (ADR 0288).

A pod is told first, and left `Policy.idle_notice_s` to itself or its owner.  At the moment of the deed everything is
asked again: the decision stands in the newest plan, the annotations as they are now agree, nobody keeps the pod, the
view and the report of its node are fresh, and every GPU of it is still unused.  Doubt keeps the pod.

A pod without a controller is evicted.  One of a Deployment or StatefulSet leaves by a scale of one replica less, down
to what `edl.dev/idle-min-replicas` declares (`owner_scaling`); any other controller would create it again, and is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, assert_never

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions
from autoscaler.clusters.kubernetes.api.kinds import EVICTIONS, PODS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache, StaleViewError, check_fresh
from autoscaler.clusters.kubernetes.objects.fields import Raw, controller_of, text
from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.domain import ClusterView, IdlePod, IdleReclaim, NodeName, PodName, Policy
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key
from autoscaler.jobs.trainer_ledger import Device
from autoscaler.operator.idle.consent import NO_CONSENT, Consent, owner_of
from autoscaler.operator.idle.gpu_use import devices_of, idle_pods_of, nodes_to_ask
from autoscaler.operator.idle.owner_scaling import OwnerScaling, Scaled
from autoscaler.operator.idle.pod_consents import PodConsents
from autoscaler.operator.idle.pod_notices import PodNotices
from autoscaler.operator.idle.report_watch import ReportSource, ReportWatch
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.notices.due_notices import Occasion
from autoscaler.operator.store.event_recorder import EventRecorder

TICK_S: Final = 1.0
REFRESH_S: Final = 5.0
MOST_AT_ONCE: Final = 8  # deeds in one tick
DONE_PAUSE_S: Final = 3600.0  # a pod that was told to leave
REFUSED_PAUSE_S: Final = 600.0  # one whose removal the API server or its owner refused
LEAVES_WITHIN_S: Final = 60.0  # a pod that was evicted, or whose owner was scaled

OF_ALL: Final = object_key("reports on GPUs", "", "all")
"""Faults where all reports are joined with all pods."""

log = logging.getLogger(__name__)


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
        self._metrics, self._errors, self._view, self._set_use = metrics, errors, view, set_use
        self._clock, self._offset_s = clock, offset_s
        self._wanted: dict[PodName, IdleReclaim] = {}
        self._notices = PodNotices(events, policy, clock=clock, offset_s=offset_s)
        self._scaling = OwnerScaling(api, cache, clock=clock)
        self._faults = ReportWatch(source, events, metrics.gpus, offset_s=offset_s)
        self._let_be_until_s: dict[str, float] = {}  # by UID: pods that were told to leave, or may not leave now
        self._leaving: dict[str, tuple[float, Consent]] = {}  # of those: until when they should be leaving
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
        self._notices.retain(self._wanted)

    def refresh(self) -> None:
        """Join the reports with the pods of the view, and tell which reports cannot be right."""
        view, now_unix_s = self._view(), self._clock() - self._offset_s
        reports = self._source.reports()
        idle = idle_pods_of(view, reports, now_unix_s, offset_s=self._offset_s, consent_of=self._consent_of)
        self._set_use(devices_of(view, reports, now_unix_s), idle)
        self._faults.look(view, now_unix_s)

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
        with self._errors.isolate(OF_ALL, GuardedTask.IDLE_GPUS):
            await self._scaling.take_back(self._due_keys())

    def occasions(self) -> tuple[Occasion, ...]:
        """Return the pods whose GPUs are about to be given back, for notices to their owners."""
        return self._notices.occasions()

    async def _act_on(self, name: PodName, reclaim: IdleReclaim) -> bool:
        """Tell one pod, or carry out what is due; True if its GPUs were to be given back now."""
        raw = self._raw(name)
        if raw is None or self._is_let_be(raw):
            return False
        due_s = self._notices.due_at_s(name, reclaim, raw)
        if not self._notices.is_acting or self._clock() < due_s:
            return False
        idle = await self._still_idle(name, reclaim, due_s)
        if idle is None or idle.goes_after is not None:
            return False
        consent = await self._still_agreed(name, raw, idle)
        if consent is not None:
            await self._give_back(name, reclaim, raw, consent)
        return True

    def _due_keys(self) -> frozenset[tuple[str, str]]:
        """Return the pods whose owners may be scaled by the newest plan."""
        if not self._notices.is_acting:
            return frozenset()
        wanted = ((name, self._raw(name)) for name in self._wanted)
        return frozenset(split_key(name) for name, raw in wanted if raw is not None and not self._is_let_be(raw))

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
            self._notices.tell(raw, "IdleGpusKept", consent.problem, is_warning=False)
        since_unix_s = idle.since_s - self._offset_s
        return consent if consent.holds_at(self._clock() - self._offset_s, idle_since_unix_s=since_unix_s) else None

    async def _give_back(self, name: PodName, reclaim: IdleReclaim, raw: Raw, consent: Consent) -> None:
        uid, replicas, found = text(raw, "metadata", "uid"), consent.replicas, owner_of(raw)
        owner = "controller" if found is None else found.kind.kind
        how, done = "evicted", Scaled.DONE
        try:
            if not controller_of(raw):
                await self._evict(raw)
            elif replicas is None:
                done = Scaled.REFUSED
            else:
                done = await self._scaling.try_scale(raw, replicas)
                how = f"its {owner} was scaled to {replicas.count - 1}"
        except ClusterError as error:  # such as a disruption budget: others are asked meanwhile
            log.warning("pod %s keeps its unused GPUs: %s", name, error)
            self._let_be(name, uid, REFUSED_PAUSE_S)
            return
        match done:
            case Scaled.LATER:
                return
            case Scaled.REFUSED:
                self._let_be(name, uid, REFUSED_PAUSE_S)
                message = (
                    f"its GPUs are unused, and {reclaim.beneficiary} waits for them; its {owner} cannot give up this"
                )
                self._notices.tell(raw, "IdleGpusKept", f"{message} pod now, so nothing is done", is_warning=False)
            case Scaled.DONE:
                self._let_be(name, uid, DONE_PAUSE_S)
                self._leaving[uid] = (self._clock() + LEAVES_WITHIN_S, replace(consent, replicas=None))
                self._metrics.gpus.count_given_back(reclaim.gpu_count)
                message = f"{how}: its GPUs went unused to {reclaim.beneficiary}"
                self._notices.tell(raw, "IdleGpusGivenBack", message, is_warning=True)
            case _:
                assert_never(done)

    async def _evict(self, raw: Raw) -> None:
        name, namespace, uid = (text(raw, "metadata", field) for field in ("name", "namespace", "uid"))
        options = {"preconditions": Preconditions(uid=uid).as_fields()}
        await self._api.create(
            EVICTIONS, {"metadata": {"name": name, "namespace": namespace}, "deleteOptions": options}
        )

    def _let_be(self, name: PodName, uid: str, pause_s: float) -> None:
        """Do not act on the pod for so long; it is told anew after that."""
        self._let_be_until_s[uid] = self._clock() + pause_s
        self._notices.drop(name)

    def _is_let_be(self, raw: Raw) -> bool:
        return text(raw, "metadata", "uid") in self._let_be_until_s

    def _count_unused(self) -> None:
        """Count the time of the GPUs that the newest plan would give back."""
        now_s = self._clock()
        gpus = sum(one.gpu_count for one in self._wanted.values())
        self._metrics.gpus.count_unused(gpus, max(0.0, now_s - self._counted_at_s))
        self._counted_at_s = now_s
        self._let_be_until_s = {uid: until_s for uid, until_s in self._let_be_until_s.items() if now_s < until_s}
        self._leaving = {uid: leaving for uid, leaving in self._leaving.items() if now_s < leaving[0]}

    def _consent_of(self, name: PodName) -> Consent:
        """Return the consent to plan with.

        A pod that was just told to leave counts on, as one that no owner counts: until it is seen leaving, the others
        that leave for the same beneficiary would be too few.
        """
        raw = self._raw(name)
        if raw is None:
            return NO_CONSENT
        if (leaving := self._leaving.get(text(raw, "metadata", "uid"))) is not None:
            return leaving[1]
        consent = self._consents.of(raw)
        return replace(consent, after_s=None) if self._is_let_be(raw) else consent

    def _raw(self, name: PodName) -> Raw | None:
        return self._cache.get(PODS, split_key(name))
