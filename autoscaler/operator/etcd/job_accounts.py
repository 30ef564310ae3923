"""Accounts of jobs in etcd, made before a job's first pod and dropped some time after the job (ADR 0165).

A job's name in etcd contains the start of its UID, so a re-created job has other keys and another user.  TrainingJobs
have no finalizer (ADR 0152): a deleted job's user and keys are found by their record in etcd and deleted `GONE_FOR_S`
after the API server reports the job deleted, when its masters have ended.

This module is the one of the cluster side that knows the master's store; `master.store.etcd.etcd_accounts` does the
writing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.errors import NotFoundError, NotLeadingError
from autoscaler.clusters.kubernetes.api.kinds import NAMESPACES, TRAINING_JOBS
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.clusters.kubernetes.objects.names import split_store_name, store_name
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.errors import ClusterError, InvalidSpecError, PermanentError, TemporaryError
from master.errors import InvalidSettingError, MasterError, StoreAccessError
from master.errors import TemporaryError as StoreTemporaryError
from master.store.etcd.etcd_accounts import EtcdAccounts
from master.store.etcd.etcd_config import PASSWORD_FILE, USER, EtcdConfig

ADMIN_USER: Final = "EDL_ETCD_ADMIN_USER"
MANAGES_SPACE: Final = "EDL_ETCD_KEEPS_ROOM"
ADMIN_PASSWORD_FILE: Final = "EDL_ETCD_ADMIN_PASSWORD_FILE"  # noqa: S105  the variable's name, no password
SWEEP_EVERY_S: Final = 60.0
GONE_FOR_S: Final = 120.0
"""Delay before a deleted job's account is dropped; its master may still commit within its grace period."""
DROP_PAUSE_S: Final = 0.2  # five jobs a second, so that a mass deletion does not load etcd
PAUSE_S: Final = 5.0
"""Pause after etcd did not answer; calls within it fail at once instead of waiting for a deadline."""
CLUSTER: Final = "kube-system"
"""Namespace whose UID identifies the cluster; it exists in every cluster and is never re-created."""

EtcdAnswer = TypeVar("EtcdAnswer")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """Etcd settings of the operator.  `is_separate`: the operator's user creates a user for each job.

    `manages_space`: etcd belongs to EDL alone; the operator compacts it and bars jobs that fill it (`space_keeper`).
    """

    config: EtcdConfig
    is_separate: bool
    manages_space: bool = False


def read_account_settings(environ: Mapping[str, str] = os.environ) -> AccountSettings | None:
    """Read the settings from the environment; None if masters have no etcd.

    Raises InvalidSpecError with the variable's name.
    """
    user, file = environ.get(ADMIN_USER, ""), environ.get(ADMIN_PASSWORD_FILE, "")
    if bool(user) != bool(file):
        raise InvalidSpecError(ADMIN_PASSWORD_FILE if user else ADMIN_USER, "is not set", "the two go together")
    if user and environ.get(USER):
        raise InvalidSpecError(USER, f"cannot be combined with {ADMIN_USER}", "remove it: each job gets its own user")
    admin = {USER: user, PASSWORD_FILE: file} if user else {}
    manages_space = environ.get(MANAGES_SPACE, "")
    if manages_space not in {"", "true"} or (manages_space and not user):
        raise InvalidSpecError(MANAGES_SPACE, f"is {manages_space!r}", f"leave it out, or 'true' beside {ADMIN_USER}")
    try:
        config = EtcdConfig.try_from_environment({**environ, **admin})
    except InvalidSettingError as error:
        raise InvalidSpecError(error.path, str(error).removeprefix(f"{error.path}: ")) from None
    if config is None:
        return None
    return AccountSettings(config=config, is_separate=bool(user), manages_space=bool(manages_space))


class JobAccounts:
    """The accounts of all jobs of this cluster.  `may_write`: whether this operator leads.  Use as a context."""

    def __init__(
        self,
        api: Api,
        settings: AccountSettings,
        *,
        may_write: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_separate = settings.is_separate
        self.settings: Final = settings
        self._api = api
        self._may_write = may_write
        self._clock = clock
        self._etcd: EtcdAccounts | None = None
        self._opening = asyncio.Lock()
        self._paused_until_s = float("-inf")
        self._gone_since_s: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._etcd is not None:
            await self._etcd.close()

    async def make(self, job: KubeJob, password: str) -> None:
        """Make the job's user, with this password and rights to the job's keys alone.

        If jobs share a user, the job is only recorded, as far as etcd answers; the start does not wait for it. Raises
        ClusterError otherwise: TemporaryError while etcd does not answer, PermanentError when it refuses.
        """
        name = store_name(job.namespace, job.name, job.uid)
        try:
            await self._call(partial(EtcdAccounts.make, job=name, password=password))
        except ClusterError as error:
            if self.is_separate:
                raise
            log.warning("job %s: its keys will not be removed from etcd after its deletion: %s", job.key, error)

    async def names(self) -> tuple[str, ...]:
        """Return the names in etcd of all jobs of which anything may be left.  Raises ClusterError."""
        return await self._call(EtcdAccounts.jobs, ignores_pause=True)

    async def bar(self, name: str) -> None:
        """Take all rights in etcd from the job of this name there.  Raises ClusterError."""
        await self._call(partial(EtcdAccounts.bar, job=name), ignores_pause=True)

    async def run(self) -> None:
        """Drop what deleted jobs had in etcd, once a minute, until cancelled."""
        if not self.is_separate:
            log.warning(
                "masters of all jobs share one etcd user and its rights; set %s to give each job its own", ADMIN_USER
            )
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            try:
                await self.sweep()
            except ClusterError as error:
                log.warning("the etcd accounts of deleted jobs could not be listed: %s", error)

    async def sweep(self) -> None:
        """Delete all due accounts; a failure with one job is retried later.

        Raises ClusterError while etcd is away.
        """
        for name in await self.due():
            try:
                await self._call(partial(EtcdAccounts.drop, job=name))
            except ClusterError as error:
                log.warning("job %s is deleted; its etcd account could not be removed: %s", name, error)
                continue
            self._gone_since_s.pop(name, None)
            log.info("job %s is deleted: its user and keys were removed from etcd", name)
            await asyncio.sleep(DROP_PAUSE_S)

    async def due(self) -> tuple[str, ...]:
        """Return the names in etcd of jobs that have been gone for `GONE_FOR_S`, by what earlier calls found.

        Raises ClusterError.
        """
        now_s = self._clock()
        names = await self._call(EtcdAccounts.jobs)
        gone = [name for name in names if await self._is_gone(name)]
        self._gone_since_s = {name: self._gone_since_s.get(name, now_s) for name in gone}
        return tuple(name for name in gone if now_s - self._gone_since_s[name] >= GONE_FOR_S)

    async def _is_gone(self, name: str) -> bool:
        """True if the API server says that this very job is gone; one that was made again has another UID."""
        namespace, job, uid = split_store_name(name)
        try:
            raw = await self._api.get(TRAINING_JOBS, job, namespace=namespace)
        except NotFoundError:
            return True
        except ClusterError as error:  # a namespace that EDL may no longer read, say
            log.debug("job %s: whether it is gone is not known: %s", name, error)
            return False
        return store_name(namespace, job, text(raw, "metadata", "uid")) != store_name(namespace, job, uid)

    # ---- etcd -------------------------------------------------------------------------------------------------------

    async def _call(
        self, question: Callable[[EtcdAccounts], Awaitable[EtcdAnswer]], *, ignores_pause: bool = False
    ) -> EtcdAnswer:
        """`ignores_pause`: a full etcd refuses to make accounts; who makes room asks it all the same."""
        if self._clock() < self._paused_until_s and not ignores_pause:
            raise TemporaryError("etcd did not answer a moment ago", retry_after_s=PAUSE_S)
        with self._as_cluster_errors():
            etcd = await self._open()
            if not self._may_write():
                raise NotLeadingError("etcd: this operator does not lead any more")
            return await question(etcd)

    async def _open(self) -> EtcdAccounts:
        async with self._opening:
            if self._etcd is None:
                cluster = text(await self._api.get(NAMESPACES, CLUSTER), "metadata", "uid")
                etcd = EtcdAccounts(self.settings.config, cluster=cluster, is_separate=self.is_separate)
                try:
                    await self._check(etcd)
                except BaseException:
                    await etcd.close()
                    raise
                self._etcd = etcd
            return self._etcd

    async def _check(self, etcd: EtcdAccounts) -> None:
        """Raise TemporaryError if etcd does not enforce its users yet (authentication is off)."""
        if self.is_separate and await etcd.is_open():
            raise TemporaryError(
                "etcd shows the jobs' keys to whoever comes without a user: turn its authentication on, and give the "
                "user of the certificate's common name no role",
                retry_after_s=PAUSE_S,
            )

    @contextmanager
    def _as_cluster_errors(self) -> Iterator[None]:
        try:
            yield
        except StoreTemporaryError as error:
            self._paused_until_s = self._clock() + PAUSE_S
            raise TemporaryError(f"etcd: {error}", retry_after_s=PAUSE_S) from error
        except StoreAccessError as error:
            raise PermanentError(f"etcd refused {ADMIN_USER if self.is_separate else USER}: {error}") from error
        except MasterError as error:
            raise PermanentError(f"etcd: {error}") from error
