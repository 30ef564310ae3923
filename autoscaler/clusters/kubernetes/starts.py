"""How gangs start (`kubernetes.md` 8 to 11): gated pods, the room proved again, gates lifted, then the masters.

Nothing of it is remembered but who has lost which race (`gangs`): whether a gang is gated, un-gated, bound or half made
is read from its pods each time, so a crash after any write leaves something that the next look goes on with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from autoscaler.clusters.kubernetes import gangs
from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from autoscaler.clusters.kubernetes.api.port import Api, Raw
from autoscaler.clusters.kubernetes.building.labels import GATE, ROLE, TIER
from autoscaler.clusters.kubernetes.building.master import build_master
from autoscaler.clusters.kubernetes.building.names import master_name, split_key
from autoscaler.clusters.kubernetes.building.settings import BuildSettings
from autoscaler.clusters.kubernetes.gangs import Standing, Starts
from autoscaler.clusters.kubernetes.pod_writer import ENDED, PodWriter
from autoscaler.clusters.kubernetes.reading.jobs import KubeJob, shapes_of
from autoscaler.clusters.kubernetes.reading.pods import gates_of
from autoscaler.clusters.kubernetes.reading.raw import controller_of, key_of, text
from autoscaler.clusters.kubernetes.rooms import find_room_problem
from autoscaler.clusters.kubernetes.store import Store
from autoscaler.clusters.kubernetes.views import Views
from autoscaler.clusters.port import Outcome, Verdict
from autoscaler.domain import AdmitGang, ClusterView, JobName, JobState, PodName, Role, Tier
from autoscaler.errors import PermanentError
from autoscaler.manifests.values import Mode
from autoscaler.side_by_side import each

AT_ONCE: Final = 16
"""Writes under way together: a gang of 60 is written in well under a second, and no server feels it."""


class Gangs:
    """The gangs of all jobs.  `prepare` makes what a job owns beside pods, which its pods mount."""

    def __init__(
        self,
        api: Api,
        store: Store,
        views: Views,
        writer: PodWriter,
        settings: BuildSettings,
        *,
        prepare: Callable[[KubeJob], Awaitable[None]],
        is_frozen: bool = False,
    ) -> None:
        self.starts = Starts()
        self._api = api
        self._store = store
        self._views = views
        self._writer = writer
        self._settings = settings
        self._prepare = prepare
        self._is_frozen = is_frozen
        self._looked: dict[JobName, tuple[str, int, Standing]] = {}  # UID, and stamp of its pods then

    async def admit(self, action: AdmitGang, view: Callable[[], ClusterView], now_s: float) -> Outcome:
        """Start a gang whole or not at all.  `view` gives the newest view each time it is asked."""
        job = self._views.jobs.known[action.job]
        if busy := self._other_start(action.job):
            return Outcome(verdict=Verdict.REFUSED, message=f"the gang of {busy} is starting")
        if problem := self._find_problem(view(), action, job):
            return Outcome(verdict=Verdict.REFUSED, message=problem)
        await self._prepare(job)
        seats = [seat for seat in action.pods if seat.role is not Role.MASTER]
        masters = tuple(seat.node for seat in action.pods if seat.role is Role.MASTER)
        avoid = self._views.jobs.facts(job).avoid
        try:
            create = partial(self._writer.create_gated, job, avoid=avoid, masters=masters)
            made = await each((partial(create, seat) for seat in seats), at_once=AT_ONCE)
        except PermanentError as error:
            view()
            await self._drop_gated(job)
            self.starts = gangs.refuse(self.starts, job.key, now_s)
            return Outcome(verdict=Verdict.REFUSED, message=str(error))
        if problem := self._find_problem(view(), action, job):
            return Outcome(verdict=Verdict.REFUSED, message=problem)
        gated = ((raw, seat.node) for raw, seat in zip(made, seats, strict=True) if GATE in gates_of(raw))
        await each((partial(self._writer.ungate, raw, node) for raw, node in gated), at_once=AT_ONCE)
        return Outcome(verdict=Verdict.DONE)

    async def settle(self, now_s: float) -> None:
        """Bring masters to gangs that are bound, and take away pods that lost their race.

        What fails for one is told when all have been tried.  Raises ClusterError.
        """
        managed = self._managed()
        standing = [self._look(job) for job in managed]
        for name in self._looked.keys() - self._views.jobs.known.keys():
            del self._looked[name]
        self.starts, lost = gangs.look(self.starts, standing, now_s)
        given_up = {one.job for one in lost}
        whole = [
            job
            for job, found in zip(managed, standing, strict=True)
            if found.is_starting and found.bound and job.key not in given_up and self._is_whole(job, found)
        ]
        deletions = [partial(self._writer.delete, raw) for one in lost for raw in self._raws(one.pods)]
        await each([*deletions, *(partial(self._bring_master, job) for job in whole)], at_once=AT_ONCE)

    # ---- what stands --------------------------------------------------------------------------------------------

    def _managed(self) -> list[KubeJob]:
        """The jobs for which EDL writes: none under a freeze, and none that is only observed (rule 20)."""
        known = self._views.jobs.known.values()
        return [] if self._is_frozen else [job for job in known if job.spec.mode is Mode.MANAGE]

    def _look(self, job: KubeJob) -> Standing:
        """The same as `_standing`, which is asked anew only when a pod of the job has changed."""
        stamp, kept = self._views.pods.stamp(job.key), self._looked.get(job.key)
        if kept is None or kept[0] != job.uid or kept[1] != stamp:
            kept = self._looked[job.key] = (job.uid, stamp, self._standing(job))
        is_starting = not self._has_master(job)
        return kept[2] if kept[2].is_starting == is_starting else replace(kept[2], is_starting=is_starting)

    def _standing(self, job: KubeJob) -> Standing:
        bound, unbound = set[PodName](), set[PodName]()
        for raw in self._members(job):
            name = PodName(key_of(raw))
            if text(raw, "spec", "nodeName"):
                bound.add(name)
            elif gates_of(raw) <= {GATE}:
                unbound.add(name)  # behind somebody else's gate it is their business
        return Standing(
            job=job.key,
            is_starting=not self._has_master(job),
            bound=frozenset(bound),
            unbound=frozenset(unbound),
        )

    def _members(self, job: KubeJob) -> list[Raw]:
        """Return the job's trainers and servers that stand and stay."""
        return [
            raw
            for raw in self._views.pods.of_job(job.key)
            if controller_of(raw).get("uid") == job.uid
            and not raw["metadata"].get("deletionTimestamp")
            and text(raw, "status", "phase") not in ENDED
        ]

    def _has_master(self, job: KubeJob) -> bool:
        raw = self._store.get(DEPLOYMENTS, (job.namespace, master_name(job.name)))
        return raw is not None and controller_of(raw).get("uid") == job.uid

    def _is_whole(self, job: KubeJob, standing: Standing) -> bool:
        """Whether all that the job cannot run without is bound, and the job wants to run.

        Surplus on its way is no part of that: beside it a master that somebody deleted has to come back.
        """
        if any(_label(raw, TIER) == Tier.CORE.value for raw in self._raws(standing.unbound)):
            return False
        roles = Counter(_label(raw, ROLE) for raw in self._raws(standing.bound))
        servers = job.spec.server.replicas.minimum if job.spec.server is not None else 0
        return (
            self._views.jobs.facts(job).state is JobState.ACTIVE
            and roles[Role.TRAINER.value] >= job.spec.trainer.replicas.minimum
            and roles[Role.SERVER.value] >= servers
        )

    def _raws(self, pods: Iterable[PodName]) -> list[Raw]:
        raws = (self._store.get(PODS, split_key(pod)) for pod in sorted(pods))
        return [raw for raw in raws if raw is not None]

    def _other_start(self, name: JobName) -> JobName | None:
        """Return another job whose gang is un-gated and not complete: one at a time (rule 9)."""
        for job in self._managed():  # an observed one that stands half is not about to take more room
            if job.key == name or self._has_master(job):
                continue
            if any(GATE not in gates_of(raw) for raw in self._members(job)):
                return job.key
        return None

    def _find_problem(self, view: ClusterView, action: AdmitGang, job: KubeJob) -> str:
        shapes = shapes_of(job, avoid=self._views.jobs.facts(job).avoid)
        mine = frozenset(pod.name for pod in view.pods if pod.job == job.key)
        return find_room_problem(view, ((seat.node, shapes[seat.role]) for seat in action.pods), mine)

    # ---- writes -------------------------------------------------------------------------------------------------

    async def _bring_master(self, job: KubeJob) -> None:
        known = self._views.jobs.known.get(job.key)
        if known is None or known.uid != job.uid:
            return  # it has gone while others were written
        try:
            raw = await self._api.create(DEPLOYMENTS, build_master(job, self._settings))
        except AlreadyExistsError:
            return  # the watch will show it
        self._store.learn(DEPLOYMENTS, raw)

    async def _drop_gated(self, job: KubeJob) -> None:
        """Half a gang behind its gate would only fill a quota."""
        gated = [raw for raw in self._members(job) if GATE in gates_of(raw)]
        await each((partial(self._writer.delete, raw) for raw in gated), at_once=AT_ONCE)


def _label(raw: Raw, name: str) -> str:
    return text(raw, "metadata", "labels", name)
