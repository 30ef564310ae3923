"""Fault injection into an `Api` by a plan: the perturbations of Sieve, kills, and replies that are lost.

`PerturbedApi(inner, plan)` counts its writes, listings and watch events from 0, and injects the plan's fault at each
number.  A plan is data, so that a run can be printed, repeated and enumerated:

- stale view: an event, and all after it, come late;
- lost event: the connection breaks before it, or (`EventFault.LOST`) it never comes, as after a fault of the server;
- time travel: a listing is answered by a server that lags behind by some changes, as after a restart;
- a kill before or after a write: `Killed` is raised, which nothing may catch, and by every later call until `revive`;
- a lost reply: the write is applied and its writer gets `UnavailableError(may_have_happened=True)`.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum

from autoscaler.clusters.kubernetes.api.api_port import ANY, EVERYWHERE, EventType, Listing
from autoscaler.clusters.kubernetes.api.errors import (
    ConflictError,
    ExpiredError,
    ForbiddenError,
    MalformedError,
    RefusedBy,
    ThrottledError,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.cache.object_cache import key_of
from autoscaler.clusters.kubernetes.memory_api.selectors import parse_scope

LATE_S = 3.0  # on a loop in virtual time


class Killed(BaseException):
    """Simulated kill of the process at this point."""


class WriteFault(StrEnum):
    KILLED_BEFORE = "killed-before"
    KILLED_AFTER = "killed-after"
    REPLY_LOST = "reply-lost"  # done; outcome unknown to the caller
    NOT_SENT = "not-sent"  # not done; the caller knows
    SERVER_ERROR = "server-error"  # not done; outcome unknown to the caller
    CONFLICT = "conflict"
    THROTTLED = "throttled"
    FORBIDDEN = "forbidden"  # RBAC
    QUOTA = "quota"


class EventFault(StrEnum):
    CUT = "cut"  # the connection breaks before it
    TWICE = "twice"  # it comes again
    LOST = "lost"  # it never comes; the stream goes on
    GARBLED = "garbled"  # an invalid line comes instead, as `api.responses` reports it
    LATE = "late"  # it comes `LATE_S` later, and all after it


DONE = frozenset({None, WriteFault.KILLED_AFTER, WriteFault.REPLY_LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """What goes wrong, by number.  `lags`: how many changes the server behind a listing is behind."""

    writes: Mapping[int, WriteFault] = field(default_factory=dict)
    events: Mapping[int, EventFault] = field(default_factory=dict)
    lags: Mapping[int, int] = field(default_factory=dict)


class PerturbedApi:
    """`api_port.Api` over a `MemoryApi` and its server.  `writes`: log of requests and their outcomes.

    With `write_s` every write is under way for so long, beside others; it lands also when its sender is gone by then.
    """

    def __init__(self, inner, server, plan, *, write_s=0.0):
        self._inner = inner
        self._write_s = write_s
        self._server = server
        self._plan = plan
        self.events = 0
        self._is_expired = False
        self.writes = []
        self.listings = 0
        self.watches = 0
        self.refused = 0
        self.away = None  # an error: every call is answered with it
        self.closed = {}  # by namespace the error with which every listing and watch of it is answered
        self.killed = asyncio.Event()
        self.ends_at_once = False  # as a server on its way down ends watches

    async def list(self, kind, scope=EVERYWHERE):
        self._check_away(scope)
        number, self.listings = self.listings, self.listings + 1
        lag = self._plan.lags.get(number, 0)
        return self._as_it_stood(kind, scope, lag) if lag else await self._inner.list(kind, scope)

    async def watch(self, kind, scope=EVERYWHERE, *, since, timeout_s, silence_s):
        self._check_away(scope)
        self.watches += 1
        if self.ends_at_once:
            return
        if self._is_expired:
            self._is_expired = False
            raise ExpiredError("too old resource version")
        stream = self._inner.watch(kind, scope, since=since, timeout_s=timeout_s, silence_s=silence_s)
        async with aclosing(stream) as events:
            async for event in events:
                for told in (event,) if event.type is EventType.BOOKMARK else await self._tell(event):
                    yield told

    async def _tell(self, event):
        """What comes in the place of an event."""
        number, self.events = self.events, self.events + 1
        match self._plan.events.get(number):
            case EventFault.CUT:
                raise UnavailableError("watch: connection lost", may_have_happened=False)
            case EventFault.GARBLED:
                raise MalformedError("watch: unexpected response")
            case EventFault.TWICE:
                return (event, event)
            case EventFault.LOST:
                return ()
            case EventFault.LATE:
                await asyncio.sleep(LATE_S)
        return (event,)

    def revive(self):
        """Another process goes on, with the same numbers."""
        self.killed.clear()

    def expire(self):
        """The next watch gets 410 (version compacted)."""
        self._is_expired = True

    async def get(self, kind, name, *, namespace=None, subresource=None):
        self._check_away()
        return await self._inner.get(kind, name, namespace=namespace, subresource=subresource)

    async def create(self, kind, body):
        return await self._write(f"create {kind.plural} {body['metadata']['name']}", self._inner.create(kind, body))

    async def check_create(self, kind, body):
        self._check_away()
        await self._inner.check_create(kind, body)

    async def apply(self, kind, body, *, subresource=None, is_forced=True):
        doing = f"apply {kind.plural} {body['metadata']['name']}"
        return await self._write(doing, self._inner.apply(kind, body, subresource=subresource, is_forced=is_forced))

    async def patch(self, kind, name, change, *, namespace=None, only=ANY, subresource=None):
        doing = f"patch {kind.plural} {name}"
        writing = self._inner.patch(kind, name, change, namespace=namespace, only=only, subresource=subresource)
        return await self._write(doing, writing)

    async def delete(self, kind, name, *, namespace=None, only=ANY, grace_s=None, propagation=None):
        doing = f"delete {kind.plural} {name}"
        writing = self._inner.delete(
            kind, name, namespace=namespace, only=only, grace_s=grace_s, propagation=propagation
        )
        await self._write(doing, writing)

    def log(self, pod, **how):
        return self._inner.log(pod, **how)

    async def close(self):
        await self._inner.close()

    def _check_away(self, scope=EVERYWHERE):
        if self.killed.is_set():
            raise Killed
        error = self.away or self.closed.get(scope.namespace)
        if error is not None:
            self.refused += 1
            raise error

    async def _write(self, doing, writing):
        try:
            self._check_away()
        except BaseException:
            writing.close()
            raise
        fault = self._plan.writes.get(len(self.writes))
        self.writes.append(f"{doing}: {fault or 'done'}")
        if fault not in DONE:
            writing.close()
            if fault is WriteFault.KILLED_BEFORE:
                self.killed.set()
            elif self._write_s:
                await asyncio.sleep(self._write_s)
            raise error_of(fault, doing)
        answer = await (asyncio.shield(self._land(writing)) if self._write_s else writing)
        if fault is WriteFault.KILLED_AFTER:
            self.killed.set()
            raise Killed(doing)
        if fault is WriteFault.REPLY_LOST:
            raise UnavailableError(f"{doing}: connection lost", may_have_happened=True)
        return answer

    async def _land(self, writing):
        await asyncio.sleep(self._write_s)
        return await writing

    def _as_it_stood(self, kind, scope, lag):
        """The listing before the last `lag` changes that the server remembers, of all kinds."""
        changes = self._server.history.kept_changes()[-lag:]
        items = {key_of(item): item for item in self._server.all(kind)}
        for change in reversed(changes):
            if change.kind == kind:
                items.pop(key_of(change.after or change.before), None)
                if change.before is not None:
                    items[key_of(change.before)] = change.before
        version = changes[0].version - 1 if changes else self._server.history.version
        matches = parse_scope(scope)
        kept = tuple(json.loads(json.dumps(items[key])) for key in sorted(items) if matches(items[key]))
        return Listing(items=kept, resource_version=str(version))


def error_of(fault, doing):
    """What is raised when nothing was done."""
    match fault:
        case WriteFault.KILLED_BEFORE:
            return Killed(doing)
        case WriteFault.NOT_SENT:
            return UnavailableError(f"{doing}: connection refused", may_have_happened=False)
        case WriteFault.SERVER_ERROR:
            return UnavailableError(f"{doing}: internal error", may_have_happened=True)
        case WriteFault.CONFLICT:
            return ConflictError(f"{doing}: changed meanwhile")
        case WriteFault.THROTTLED:
            return ThrottledError(f"{doing}: too many requests", retry_after_s=1.0)
        case WriteFault.FORBIDDEN:
            return ForbiddenError(f"{doing}: forbidden", RefusedBy.RBAC)
        case WriteFault.QUOTA:
            return ForbiddenError(f"{doing}: exceeded quota", RefusedBy.QUOTA)
        case _:
            raise AssertionError(fault)
