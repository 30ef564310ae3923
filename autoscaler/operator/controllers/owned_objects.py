"""Objects that a job owns beside pods and master: Secrets, a Service, a PodDisruptionBudget, a user of etcd.

`prepare` creates them before the first pod, which mounts them.  Later, deleted or changed ones are restored: Services
and budgets by a list once a minute; Secrets (which EDL may not list) by a read every 10 minutes, or every minute for
a job with a pod that does not start.  Certificates are renewed early (`builders.job_identity`).  A new job's Secrets
are created, since none of them exists yet; all other writes are server-side applies of the complete object, and
idempotent. An object of somebody else under such a name is left alone and reported.

A complete identity is never replaced, because running pods authenticate with it.  Of an incomplete one, token and
authority are kept if they can be read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from autoscaler.bounded_gather import gather_bounded
from autoscaler.clusters.kubernetes.api.api_port import Api, Raw, Scope
from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import DISRUPTION_BUDGETS, SECRETS, SERVICES, Kind
from autoscaler.clusters.kubernetes.builders.build_settings import EtcdAccess
from autoscaler.clusters.kubernetes.builders.disruption_budget import build_budget
from autoscaler.clusters.kubernetes.builders.job_identity import (
    JobIdentity,
    build_secrets,
    etcd_password_of,
    is_renewal_due,
    issue_identity,
    parse_identity,
    renew_identity,
)
from autoscaler.clusters.kubernetes.builders.master_deployment import build_service
from autoscaler.clusters.kubernetes.objects.fields import controller_of, integer, part, text
from autoscaler.clusters.kubernetes.objects.names import (
    authority_secret,
    budget_name,
    master_name,
    master_secret,
    member_secret,
)
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.clusters.kubernetes.writes.object_ownership import check_own
from autoscaler.errors import ClusterError
from autoscaler.fault_isolation import GuardedTask
from autoscaler.operator.store.job_store import JobStore

if TYPE_CHECKING:  # only an operator with accounts in etcd needs etcd's libraries
    from autoscaler.operator.etcd.job_accounts import JobAccounts

HEAL_EVERY_S: Final = 60.0
SECRETS_EVERY: Final = 10  # rounds of healing
NOT_CHECKED: Final = -1  # core pods of a job whose identity alone was read
OWNED_KINDS: Final = "app.kubernetes.io/managed-by=edl"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedState:
    """State of the objects made for a job; a changed spec, or another job of the same name, requires making them
    again.
    """

    uid: str
    core_pods: int
    identity: JobIdentity


class OwnedObjects:
    """Creates and restores the owned objects of all jobs.

    `now` returns the wall-clock time with its zone; an empty `namespaces` means all; `accounts` is None where there
    is no etcd.
    """

    def __init__(
        self,
        api: Api,
        etcd: EtcdAccess,
        store: JobStore,
        *,
        now: Callable[[], datetime],
        namespaces: tuple[str, ...] = (),
        accounts: JobAccounts | None = None,
    ) -> None:
        self._api = api
        self._accounts = accounts
        self._etcd = etcd
        self._now = now
        self._store = store
        self._scopes = [Scope(namespace=name, labels=OWNED_KINDS) for name in namespaces] or [Scope(labels=OWNED_KINDS)]
        self._kept: dict[str, OwnedState] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._edited: set[str] = set()
        self._news = asyncio.Event()

    async def prepare(self, job: KubeJob, *, may_be_new: bool = True) -> None:
        """Create or update all objects of the job by its spec.  Raises ClusterError.

        `may_be_new`: try creation first, since the job most likely has no objects yet.
        """
        async with self._turns.setdefault(job.key, asyncio.Lock()):
            kept = self._kept.get(job.key)
            if kept is not None and kept.uid != job.uid:
                kept = None
            core = self._core_pods(job)
            if kept is not None and kept.core_pods == core:
                return
            budget = build_budget(job, core)
            if kept is not None and kept.core_pods != NOT_CHECKED:  # an edit changes only the budget
                identity = kept.identity
                await self._api.apply(DISRUPTION_BUDGETS, budget)
            else:
                made = await self._make_identity(job) if kept is None and may_be_new else None
                identity = await self._keep_identity(job) if made is None else made
                bodies = ((SERVICES, build_service(job)), (DISRUPTION_BUDGETS, budget))
                await gather_bounded(
                    (partial(self._apply_own, kind, body, job) for kind, body in bodies), at_once=len(bodies)
                )
            self._kept[job.key] = OwnedState(uid=job.uid, core_pods=core, identity=identity)

    async def identity_of(self, job: KubeJob) -> JobIdentity | None:
        """Credentials of the job; None if they do not exist yet.  Raises ClusterError."""
        kept = self._kept.get(job.key)
        if kept is not None and kept.uid == job.uid:
            return kept.identity
        identity = _identity(*await self._secrets(job))
        if identity is not None:  # known, but not yet looked through: `prepare` makes the rest stand
            self._kept[job.key] = OwnedState(uid=job.uid, core_pods=NOT_CHECKED, identity=identity)
        return identity

    def queue_if_edited(self, job: KubeJob) -> None:
        """Queue the job if its spec or servers require another disruption budget."""
        kept = self._kept.get(job.key)
        if kept is not None and kept.uid == job.uid and kept.core_pods != self._core_pods(job):
            self._edited.add(job.key)
            self._news.set()

    def forget(self, key: str) -> None:
        """Drop the state of a deleted job; the garbage collector deletes its objects."""
        self._kept.pop(key, None)
        self._turns.pop(key, None)

    async def run(self) -> None:
        """Heal what jobs with pods own, until cancelled."""
        rounds = 0
        while True:
            try:
                async with asyncio.timeout(HEAL_EVERY_S):
                    await self._news.wait()
            except TimeoutError:
                rounds += 1
            try:
                if self._news.is_set():
                    await self._prepare_edited(self._store.jobs_with_pods())
                else:
                    await self.restore(self._store.jobs_with_pods(), with_secrets=rounds % SECRETS_EVERY == 0)
            except ClusterError as error:
                log.warning("owned objects could not be checked: %s", error)

    async def _prepare_edited(self, jobs: Iterable[KubeJob]) -> None:
        self._news.clear()
        edited, self._edited = self._edited, set()
        for job in jobs:
            if job.key not in edited:
                continue
            try:
                with self._store.errors.isolate(job.key, GuardedTask.OBJECTS):
                    await self.prepare(job)
            except ClusterError as error:
                log.warning("owned objects of job %s could not be updated: %s; the next round retries", job.key, error)

    async def restore(self, jobs: Iterable[KubeJob], *, with_secrets: bool) -> None:
        """Make again what is not as it should be.  Raises ClusterError; every job is tried."""
        services, budgets = await self._listed(SERVICES), await self._listed(DISRUPTION_BUDGETS)
        problem: ClusterError | None = None
        for job in jobs:
            if self._store.errors.is_paused(job.key, GuardedTask.OBJECTS):
                continue
            service = services.get((job.namespace, master_name(job.name)))
            budget = budgets.get((job.namespace, budget_name(job.name)))
            try:
                with self._store.errors.isolate(job.key, GuardedTask.OBJECTS):
                    is_whole = _is_complete(job, service, budget, self._core_pods(job))
                    if with_secrets or not is_whole or self._store.has_unstarted_pod(job):
                        self._kept.pop(job.key, None)
                    await self.prepare(job, may_be_new=False)
            except ClusterError as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def _core_pods(self, job: KubeJob) -> int:
        return core_pods(job, self._store.server_count(job))

    # ---- identities ---------------------------------------------------------------------------------------------

    async def _make_identity(self, job: KubeJob) -> JobIdentity | None:
        """Create a new job's identity without reading first; None if any of it exists already.

        The authority's Secret is created first, so a conflict there means that nothing was written.
        """
        identity = issue_identity(job, self._now())
        etcd = self._access(None)
        try:
            for body in build_secrets(job, identity, etcd):
                await self._api.create(SECRETS, body)
        except AlreadyExistsError:
            return None
        await self._make_account(job, etcd)
        return identity

    async def _keep_identity(self, job: KubeJob) -> JobIdentity:
        authority, member, master = await self._secrets(job)
        now = self._now()
        complete = _identity(authority, member, master)
        if complete is not None:
            identity = renew_identity(complete, job, now) if is_renewal_due(complete, now) else complete
        else:  # keep token and authority, with which running pods authenticate each other
            left = _identity(authority, member, member) or _identity(authority, master, master)
            identity = issue_identity(job, now) if left is None else renew_identity(left, job, now)
        etcd = self._access(master)
        for body in build_secrets(
            job, identity, etcd, master
        ):  # also applied to an existing Secret: etcd's files may have changed
            await self._api.apply(SECRETS, body)
        await self._make_account(job, etcd)
        return identity

    def _access(self, master: Raw | None) -> EtcdAccess:
        """Etcd access of the job's masters; their own password is taken from the master's Secret."""
        return replace(self._etcd, password=etcd_password_of(master)) if self._etcd.is_separate else self._etcd

    async def _make_account(self, job: KubeJob, etcd: EtcdAccess) -> None:
        """Create the job's etcd user.  It runs after the Secret is stored, which keeps the password."""
        if self._accounts is not None:
            await self._accounts.make(job, etcd.password)

    async def _secrets(self, job: KubeJob) -> tuple[Raw | None, Raw | None, Raw | None]:
        names = (authority_secret(job.name), member_secret(job.name), master_secret(job.name))
        authority, member, master = await gather_bounded(
            (partial(self._secret, job, name) for name in names), at_once=len(names)
        )
        return authority, member, master

    async def _secret(self, job: KubeJob, name: str) -> Raw | None:
        return await self._own(SECRETS, name, job)

    async def _apply_own(self, kind: Kind, body: Raw, job: KubeJob) -> None:
        await self._own(kind, body["metadata"]["name"], job)
        await self._api.apply(kind, body)

    async def _own(self, kind: Kind, name: str, job: KubeJob) -> Raw | None:
        """The object, if it exists.  Raises what `check_own` does: an apply would overwrite what others made."""
        try:
            raw = await self._api.get(kind, name, namespace=job.namespace)
        except NotFoundError:
            return None
        check_own(raw, kind, job)
        return raw

    async def _listed(self, kind: Kind) -> dict[tuple[str, str], Raw]:
        listings = [await self._api.list(kind, scope) for scope in self._scopes]
        items = (item for listing in listings for item in listing.items)
        return {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in items}


def _identity(authority: Raw | None, member: Raw | None, master: Raw | None) -> JobIdentity | None:
    if authority is None or member is None or master is None:
        return None
    return parse_identity(authority, member, master)


def core_pods(job: KubeJob, servers: int) -> int:
    """Return how many pods the job cannot run without: its trainers' minimum, all its servers, its masters."""
    least = 0 if job.spec.server is None else job.spec.server.replicas.minimum
    return job.spec.trainer.replicas.minimum + max(least, servers) + job.spec.master.replicas


def _is_complete(job: KubeJob, service: Raw | None, budget: Raw | None, core: int) -> bool:
    if service is None or budget is None:
        return False
    if any(controller_of(raw).get("uid") != job.uid for raw in (service, budget)):
        return False
    wanted = build_budget(job, core)["spec"]
    is_same_budget = integer(budget, "spec", "minAvailable", default=-1) == wanted["minAvailable"]
    selects = part(service, "spec", "selector") == build_service(job)["spec"]["selector"]
    return is_same_budget and selects and text(service, "spec", "clusterIP") in {"None", ""}
