"""Carries out the planner's decisions on idle pods of others: notice, veto, and the GPUs given back (ADR 0288).

A pod is told first, and left `Policy.idle_notice_s` to itself or its owner.  At the moment of the deed everything is
asked again: the decision stands in the newest plan, which is no old one, who waits for the GPUs still does, the
annotations as they are now agree, nobody keeps the pod, the view and the report of its node are fresh, and every GPU of
it is still unused.  Doubt keeps the pod.  The pod is read last, and the deed is done to that version of it or waits for
another look: so a veto counts at once, however slow the API server is.  Whoever is kept is out of the plan within a
tick.

A pod without a controller is evicted.  One of a Deployment or StatefulSet leaves by a scale of one replica less, down
to what `edl.dev/idle-min-replicas` declares (`owner_scaling`); any other controller would create it again, and is told.
What was given back is counted once the pod is seen leaving (`departures`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum, auto
from math import inf
from typing import Final, assert_never

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions
from autoscaler.clusters.kubernetes.api.errors import ConflictError
from autoscaler.clusters.kubernetes.api.kinds import EVICTIONS, PODS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache, StaleViewError, check_fresh
from autoscaler.clusters.kubernetes.objects.fields import Raw, controller_of, text
from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.domain import ClusterView, IdlePod, IdleReclaim, NodeName, PodName, Policy
from autoscaler.domain.gpu_reports import FRESH_S
from autoscaler.domain.idleness import StayReason
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key
from autoscaler.gpus.pod_uses import GpuUses
from autoscaler.jobs.trainer_ledger import Device
from autoscaler.operator.idle.consent import NO_CONSENT, Consent, owner_of
from autoscaler.operator.idle.departures import Departures
from autoscaler.operator.idle.gpu_use import devices_of, idle_pods_of, nodes_to_ask, pods_beside, still_waits
from autoscaler.operator.idle.owner_scaling import OwnerScaling, Scaled
from autoscaler.operator.idle.pod_consents import ConsentRead, PodConsents
from autoscaler.operator.idle.pod_notices import PodNotices
from autoscaler.operator.idle.pod_pauses import PodPauses
from autoscaler.operator.idle.report_watch import ReportSource, ReportWatch
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.notices.due_notices import Occasion
from autoscaler.operator.store.event_recorder import EventRecorder

TICK_S: Final = 1.0
REFRESH_S: Final = 5.0
MOST_WRITTEN: Final = 8  # pods in one tick for which something was written
MOST_ASKED: Final = 16  # pods in one tick about which the API server was asked
PLAN_HOLDS_S: Final = 60.0
"""Age up to which a plan's decision is carried out: one comes every 10 s, after the writes of the one before."""

LAST_TRY_S: Final = 2.0  # for what is to be taken back at the end of a term

OF_ALL: Final = object_key("reports on GPUs", "", "all")
"""Faults where all reports are joined with all pods."""

log = logging.getLogger(__name__)


class _Effort(Enum):
    """What one pod cost in a tick."""

    NONE = auto()
    ASKED = auto()  # it was looked up
    WRITTEN = auto()  # something was written, or refused


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
        self._planned_at_s = -inf
        self._last: PodName | None = None
        self._seen: dict[PodName, Raw | None] = {}
        self._uses = GpuUses()
        self._notices = PodNotices(events, policy, clock=clock, offset_s=offset_s)
        self._scaling = OwnerScaling(api, cache, clock=clock)
        self._faults = ReportWatch(source, events, metrics.gpus, offset_s=offset_s)
        self._let_be = PodPauses(clock=clock)
        self._departures = Departures(clock=clock)
        self._counted_at_s = clock()

    async def run(self) -> None:
        """Follow reports and carry out decisions until cancelled; then take back what nothing came of."""
        try:
            await self._follow()
        finally:
            self._metrics.gpus.set_unreported(0)  # whoever leads counts them
            try:
                async with asyncio.timeout(LAST_TRY_S):
                    await self._scaling.take_back(self._departures.keys)
            except TimeoutError:
                log.warning("a deletion cost may be left behind: whoever leads next takes it back")

    def handle_decisions(self, reclaims: Iterable[IdleReclaim], *, planned_at_s: float) -> None:
        """Take the decisions of the newest plan; notices of pods that are not in it any more are void."""
        self._planned_at_s = planned_at_s
        self._wanted = {one.pod: one for one in reclaims}
        self._notices.retain(self._wanted)

    def _has_changed(self) -> bool:
        """True if a pod of the newest plan is another object than it was when reports and pods were joined."""
        return any(self._raw(name) is not self._seen.get(name) for name in self._wanted)

    def refresh(self) -> None:
        """Join the reports with the pods of the view, and tell which reports cannot be right."""
        self._seen = {name: self._raw(name) for name in self._wanted}
        view, now_unix_s = self._view(), self._clock() - self._offset_s
        self._uses.renew(self._source.reports())
        self._consents.renew()
        idle = idle_pods_of(view.pods, self._uses, now_unix_s, offset_s=self._offset_s, consent_of=self._consent_of)
        self._set_use(devices_of(view, self._uses, now_unix_s), idle)
        self._faults.look(view, now_unix_s)

    async def _follow(self) -> None:
        next_refresh_s = 0.0
        while True:
            if self._clock() >= next_refresh_s or self._has_changed():
                with self._errors.isolate(OF_ALL, GuardedTask.IDLE_GPUS):
                    self.refresh()
                    await asyncio.sleep(0)  # others have waited for that
                    await self._ask_for_reports()
                next_refresh_s = self._clock() + REFRESH_S
            await self.act()
            await asyncio.sleep(TICK_S)

    async def act(self) -> None:
        """Give notice, and carry out what is due.  A refusal is logged, and tried again with the next plan."""
        self._source.reports()  # so that those that have come count from now
        self._count_unused()
        efforts: Counter[_Effort] = Counter()
        for name, reclaim in self._in_turn():
            if efforts[_Effort.WRITTEN] >= MOST_WRITTEN or efforts.total() >= MOST_ASKED:
                break
            self._last = name
            key = object_key("pod", *split_key(name))
            if not self._errors.is_paused(key, GuardedTask.IDLE_GPUS):
                with self._errors.isolate(key, GuardedTask.IDLE_GPUS):
                    if (effort := await self._act_on(name, reclaim)) is not _Effort.NONE:
                        efforts[effort] += 1
        with self._errors.isolate(OF_ALL, GuardedTask.IDLE_GPUS):
            self._note_departures()
            await self._scaling.take_back(self._due_keys().union(self._departures.keys))
            await self._scaling.sweep()

    def _in_turn(self) -> list[tuple[PodName, IdleReclaim]]:
        """Return the decisions, first the one after the last that had its turn: a failing one keeps none waiting."""
        wanted = list(self._wanted.items())
        first = next((place for place, (name, _) in enumerate(wanted, 1) if name == self._last), 0)
        return wanted[first:] + wanted[:first]

    def occasions(self) -> tuple[Occasion, ...]:
        """Return the pods whose GPUs are about to be given back, for notices to their owners."""
        return self._notices.occasions()

    async def _act_on(self, name: PodName, reclaim: IdleReclaim) -> _Effort:
        """Tell one pod, or carry out what is due."""
        raw = self._raw(name)
        if raw is None or self._is_let_be(raw):
            return _Effort.NONE
        due_s = self._notices.due_at_s(name, raw)
        if due_s is None:
            return await self._give_notice(name, reclaim, raw)
        if not self._notices.is_acting or self._clock() < due_s or self._scaling.is_waiting(raw):
            return _Effort.NONE
        idle = await self._still_idle(name, reclaim, due_s)
        if idle is None or idle.goes_after is not None:
            return _Effort.NONE
        watched = self._consents.of(raw).replicas
        judged = None if watched is None else self._scaling.judge(raw, watched)
        if judged is not None:
            self._handle(judged, name, reclaim, raw)
            return _Effort.ASKED
        found = await self._still_agreed(name, raw, idle)
        return _Effort.ASKED if found is None else await self._give_back(name, reclaim, raw, found)

    async def _give_notice(self, name: PodName, reclaim: IdleReclaim, raw: Raw) -> _Effort:
        """Tell the pod; one that cannot be told keeps its GPUs, and others are asked meanwhile."""
        if not await self._notices.give(name, reclaim, raw):
            self._refuse(name, raw)
        elif name not in self._wanted:  # by a plan that was made meanwhile
            self._notices.drop(name)
        return _Effort.WRITTEN if self._notices.is_acting else _Effort.NONE

    def _due_keys(self) -> frozenset[tuple[str, str]]:
        """Return the pods whose owners may be scaled by the newest plan."""
        if not self._notices.is_acting:
            return frozenset()
        wanted = ((name, self._raw(name)) for name in self._wanted)
        return frozenset(split_key(name) for name, raw in wanted if raw is not None and not self._is_let_be(raw))

    async def _ask_for_reports(self) -> None:
        """Ask for reports on trainers whose devices do nothing, so that the ledger is judged by recent ones."""
        now_unix_s = self._clock() - self._offset_s
        self._uses.renew(self._source.reports())
        for node in nodes_to_ask(self._view(), self._uses, now_unix_s, asked=self._source.asked(now_unix_s)):
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
        report, arrived_at_s = reports.by_node.get(reclaim.node), self._source.arrived_at_s(reclaim.node)
        # A node's clock may be a minute ahead, and its report late: by both clocks it is new, and fresh.
        is_new = report is not None and min(report.reported_at_s + self._offset_s, arrived_at_s) >= due_s
        is_fresh = report is not None and report.is_fresh(now_unix_s) and now_s - arrived_at_s <= FRESH_S
        if not (is_new and is_fresh):
            await self._ask_for_report(reclaim.node, now_unix_s)
            return None
        view = self._view()
        if now_s - self._planned_at_s > PLAN_HOLDS_S or not still_waits(view, reclaim.beneficiary):
            return None  # the next plan says for whom, if for anybody
        self._uses.renew(reports)
        pods = pods_beside(view, name)
        idle = idle_pods_of(pods, self._uses, now_unix_s, offset_s=self._offset_s, consent_of=self._consent_of)
        return next((one for one in idle if one.pod == name and one.is_due(now_s)), None)

    async def _still_agreed(self, name: PodName, raw: Raw, idle: IdlePod) -> ConsentRead | None:
        """Read at the API server what the pod, its owner and its namespace say now, the time that they ask included: a
        watch may be late.  What only that read shows to be wrong keeps the pod for a while.
        """
        try:
            found = await self._consents.read_now(raw)
        except ClusterError as error:
            log.warning("pod %s keeps its unused GPUs: its consent cannot be read: %s", name, error)
            return None
        if found.consent.problem:
            self._refuse(name, raw)
            self._notices.tell(raw, "IdleGpusKept", found.consent.problem, is_warning=False)
        since_unix_s = idle.since_s - self._offset_s
        holds = found.consent.holds_at(self._clock() - self._offset_s, idle_since_unix_s=since_unix_s)
        return found if holds else None

    async def _give_back(self, name: PodName, reclaim: IdleReclaim, raw: Raw, found: ConsentRead) -> _Effort:
        """Evict the pod or scale its owner, if the pod is still of the version that agreed."""
        consent, replicas, done, how = found.consent, found.consent.replicas, Scaled.DONE, "evicted"
        try:
            if not controller_of(raw):
                await self._evict(raw, found.version)
            elif replicas is None:
                done = Scaled.REFUSED
            else:
                done = await self._scaling.try_scale(raw, replicas, version=found.version)
                how = f"its {_owner_kind(raw)} was scaled to {replicas.count - 1}"
        except ConflictError:  # the pod or its scale was written meanwhile, such as by somebody who keeps it: ask again
            return _Effort.WRITTEN
        except ClusterError as error:  # such as a disruption budget: others are asked meanwhile
            log.warning("pod %s keeps its unused GPUs: %s", name, error)
            self._refuse(name, raw)
            return _Effort.WRITTEN
        if done is Scaled.DONE:
            gpus, whom = reclaim.gpu_count, str(reclaim.beneficiary)
            self._departures.expect(name, raw, consent, gpu_count=gpus, beneficiary=whom, how=how)
        self._handle(done, name, reclaim, raw)
        return _Effort.WRITTEN if done in {Scaled.DONE, Scaled.LOWERED} else _Effort.ASKED

    def _handle(self, done: Scaled, name: PodName, reclaim: IdleReclaim, raw: Raw) -> None:
        """Leave the pod alone for as long as this asks for, and tell it if it is kept."""
        match done:
            case Scaled.LATER | Scaled.LOWERED:
                return
            case Scaled.REFUSED:
                self._refuse(name, raw)
                message = (
                    f"its GPUs are unused, and {reclaim.beneficiary} waits for them; its {_owner_kind(raw)} cannot"
                    " give up this pod now, so nothing is done"
                )
                self._notices.tell(raw, "IdleGpusKept", message, is_warning=False)
            case Scaled.DONE:
                self._let_be.add_done(text(raw, "metadata", "uid"))
                self._notices.drop(name)
            case _:
                assert_never(done)

    def _note_departures(self) -> None:
        """Count and tell the GPUs of the pods that are seen leaving; tell those in whose place another one left."""
        left, stayed = self._departures.take_ended(self._raw)
        for one in left:
            self._metrics.gpus.count_given_back(one.gpu_count)
            message = f"{one.how}: its GPUs went unused to {one.beneficiary}"
            self._notices.tell(one.raw, "IdleGpusGivenBack", message, is_warning=True)
        for one in stayed:
            self._refuse(one.name, one.raw)
            message = f"{one.how}, and this pod stayed: another may have left in its place"
            self._notices.tell(one.raw, "IdleGpusKept", message, is_warning=True)

    async def _evict(self, raw: Raw, version: str) -> None:
        name, namespace, uid = (text(raw, "metadata", field) for field in ("name", "namespace", "uid"))
        options = {"preconditions": Preconditions(uid=uid, resource_version=version or None).as_fields()}
        await self._api.create(
            EVICTIONS, {"metadata": {"name": name, "namespace": namespace}, "deleteOptions": options}
        )

    def _refuse(self, name: PodName, raw: Raw) -> None:
        """Do not act on the pod for a while, for longer each time; it is told anew after that."""
        self._let_be.add_refused(text(raw, "metadata", "uid"))
        self._notices.drop(name)

    def _is_let_be(self, raw: Raw) -> bool:
        return text(raw, "metadata", "uid") in self._let_be

    def _count_unused(self) -> None:
        """Count the time of the GPUs that the newest plan would give back."""
        now_s = self._clock()
        gpus = sum(one.gpu_count for one in self._wanted.values())
        self._metrics.gpus.count_unused(gpus, max(0.0, now_s - self._counted_at_s))
        self._counted_at_s = now_s
        self._let_be.drop_ended()

    def _consent_of(self, name: PodName) -> Consent:
        """Return the consent to plan with.

        A pod that was just told to leave counts on, as one that no owner counts: until it is seen leaving, the others
        that leave for the same beneficiary would be too few.
        """
        raw = self._raw(name)
        if raw is None:
            return NO_CONSENT
        if (leaving := self._departures.consent_of(raw)) is not None:
            return leaving
        consent = self._consents.of(raw)
        is_paused = self._is_let_be(raw) and consent.after_s is not None and not consent.problem
        return replace(consent, after_s=None, stays=StayReason.PAUSED) if is_paused else consent

    def _raw(self, name: PodName) -> Raw | None:
        return self._cache.get(PODS, split_key(name))


def _owner_kind(raw: Raw) -> str:
    found = owner_of(raw)
    return "controller" if found is None else found.kind.kind
