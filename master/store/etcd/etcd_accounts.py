"""etcd users of jobs: one user and one role on the job's own keys, and all of it gone after the job (ADR 0165, A11).

For the process that makes and ends jobs, as a user with the role root.  A record under a prefix that no job reaches
is written before anything is made for a job and deleted last: `jobs` names everything that may be left, after a crash
at any write too.  Every call may be repeated.

A job that took more of etcd than its due is barred: its user has the role `BARRED` in place of its own, for ever.
That stands among etcd's users, which can be changed while etcd is full, and the next operator finds it there.

Without such a user (`is_separate` False) jobs share what etcd lets everybody do, and only their keys are recorded.

Not here: which jobs there are and when they go (the operator), what masters write (`etcd_store`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from master.errors import PermanentError, StoreAccessError
from master.store.etcd.etcd_channel import EtcdChannel
from master.store.etcd.etcd_config import Credentials, EtcdConfig
from master.store.etcd.etcd_requests import prefix_end
from master.store.etcd.stubs import rpc, stubs
from master.store.job_keys import JobKeys, Key

READ_WRITE: Final = 2
PAGE_KEYS: Final = 1000
BARRED: Final = "edl-barred"
"""Role without rights for barred jobs; job roles have dots in their names."""
PAUSE_S: Final = 0.01
"""Pause between two user changes, since each one makes all requests in flight retry (ADR 0165)."""

USER_UNKNOWN: Final = "user name not found"
USER_EXISTS: Final = "user name already exists"
ROLE_UNKNOWN: Final = "role name not found"
ROLE_EXISTS: Final = "role name already exists"
NOT_GRANTED: Final = "role is not granted to the user"


class EtcdAccounts:
    """The jobs' users, roles, keys and records in etcd.  `cluster` keeps the records of several clusters apart.

    `is_separate`: `config` has a user that may make users.  Every call raises MasterError.
    """

    def __init__(self, config: EtcdConfig, *, cluster: str, is_separate: bool) -> None:
        self.is_separate = is_separate
        self._config = config
        self._records = Key(f"/edl/v1/accounts/{cluster}/")
        self._channel = EtcdChannel(config)
        self._one_at_a_time = asyncio.Lock()

    async def make(self, job: str, password: str) -> None:
        """Create or update the job's user, who may read and write the job's keys and nothing else.

        Raises PermanentError for a job that is barred.
        """
        keys = JobKeys(job)
        async with self._one_at_a_time:
            await self._put_record(job)
            if self.is_separate:
                await self._make_role(keys)
                await self._make_user(job, password)

    async def drop(self, job: str) -> None:
        """Delete user, role, keys and record of the job."""
        keys = JobKeys(job)
        async with self._one_at_a_time:
            if self.is_separate:  # the user first: no key is written after the keys are deleted
                await self._change("UserDelete", rpc.AuthUserDeleteRequest(name=job), done=USER_UNKNOWN)
            await self._delete(keys.prefix, prefix_end(keys.prefix))
            if self.is_separate:
                await self._change("RoleDelete", rpc.AuthRoleDeleteRequest(role=job), done=ROLE_UNKNOWN)
            await self._delete(self._record(job))

    async def bar(self, job: str) -> None:
        """Revoke all rights of the job's user, even after another `make`."""
        async with self._one_at_a_time:
            await self._change("RoleAdd", rpc.AuthRoleAddRequest(name=BARRED), done=ROLE_EXISTS)
            await self._change("UserGrantRole", rpc.AuthUserGrantRoleRequest(user=job, role=BARRED), done=USER_UNKNOWN)
            revoke = rpc.AuthUserRevokeRoleRequest(name=job, role=job)
            await self._change("UserRevokeRole", revoke, done=(NOT_GRANTED, USER_UNKNOWN))

    async def jobs(self) -> tuple[str, ...]:
        """The names of all jobs of this cluster of which anything may be left."""
        names: list[str] = []
        start, end = self._records.encode(), prefix_end(self._records)
        while True:
            request = rpc.RangeRequest(key=start, range_end=end, limit=PAGE_KEYS, keys_only=True)
            answer = await self._keys("Range", request)
            names += [kv.key.decode().removeprefix(self._records) for kv in answer.kvs]
            if not answer.more:
                return tuple(names)
            start = answer.kvs[-1].key + b"\0"

    async def is_open(self) -> bool:
        """True if etcd shows the jobs' keys to a caller without a user, so that nothing is separate."""
        unauthenticated = EtcdChannel(replace(self._config, credentials=None))
        try:
            request = rpc.RangeRequest(key=b"/edl/v1/jobs/", keys_only=True)
            await unauthenticated.call(lambda channel: stubs.KVStub(channel).Range, request)
        except StoreAccessError:
            return False
        finally:
            await unauthenticated.close()
        return True

    async def close(self) -> None:
        """Closes connections."""
        await self._channel.close()

    # ---- internals --------------------------------------------------------------------------------------------------

    async def _make_role(self, keys: JobKeys) -> None:
        role = await self._find("RoleGet", rpc.AuthRoleGetRequest(role=keys.job), unknown=ROLE_UNKNOWN)
        if role is None:
            await self._change("RoleAdd", rpc.AuthRoleAddRequest(name=keys.job), done=ROLE_EXISTS)
        grant = rpc.AuthRoleGrantPermissionRequest(name=keys.job)
        grant.perm.permType = READ_WRITE
        grant.perm.key, grant.perm.range_end = keys.prefix.encode(), prefix_end(keys.prefix)
        if role is None or grant.perm not in role.perm:
            await self._change("RoleGrantPermission", grant)

    async def _make_user(self, job: str, password: str) -> None:
        user = await self._find("UserGet", rpc.AuthUserGetRequest(name=job), unknown=USER_UNKNOWN)
        if user is not None and BARRED in user.roles:
            raise PermanentError(
                f"job {job} is barred from etcd because it used too much space. Delete and re-create the job"
            )
        is_new = user is None and await self._change(
            "UserAdd", rpc.AuthUserAddRequest(name=job, password=password), done=USER_EXISTS
        )
        if not is_new and not await self._is_known(job, password):
            await self._change("UserChangePassword", rpc.AuthUserChangePasswordRequest(name=job, password=password))
        if user is None or job not in user.roles:
            await self._change("UserGrantRole", rpc.AuthUserGrantRoleRequest(user=job, role=job))

    async def _is_known(self, job: str, password: str) -> bool:
        as_job = EtcdChannel(replace(self._config, credentials=Credentials(user=job, password=password)))
        try:
            await as_job.authenticate()
        except StoreAccessError:
            return False
        finally:
            await as_job.close()
        return True

    def _record(self, job: str) -> Key:
        return Key(f"{self._records}{job}")

    async def _put_record(self, job: str) -> None:
        await self._keys("Put", rpc.PutRequest(key=self._record(job).encode()))

    async def _delete(self, key: Key, end: bytes = b"") -> None:
        await self._keys("DeleteRange", rpc.DeleteRangeRequest(key=key.encode(), range_end=end))

    async def _keys(self, name: str, request: Any) -> Any:
        return await self._call(lambda channel: getattr(stubs.KVStub(channel), name), request)

    async def _find(self, name: str, request: Any, *, unknown: str) -> Any | None:
        try:
            return await self._call(lambda channel: getattr(stubs.AuthStub(channel), name), request)
        except PermanentError as error:
            if unknown in str(error):
                return None
            raise

    async def _change(self, name: str, request: Any, *, done: str | tuple[str, ...] = ()) -> bool:
        """True after the change; False for what was done already, as after a lost answer (`done` is etcd's message)."""
        try:
            await self._call(lambda channel: getattr(stubs.AuthStub(channel), name), request)
        except PermanentError as error:
            if not any(text in str(error) for text in ((done,) if isinstance(done, str) else done)):
                raise
            return False
        await asyncio.sleep(PAUSE_S)
        return True

    async def _call(self, method: Callable[[Any], Any], request: Any) -> Any:
        return await self._channel.call(method, request)
