"""Holder of this operator's Lease, and the terms that it leads one after another: the shell around `candidate`.

    won -> work(fenced API) until the Lease is lost -> cancel the work, wait for its end -> campaign again

`FencedApi` calls `may_write` before every write; the answer depends on the clock alone, so it is correct even right
after the process was paused.  The Lease itself is written past the fence: its resourceVersion is its own.

Each term starts its work from nothing: a deposed leader keeps nothing in its memory (A9).  An error of the work ends
the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions, Raw
from autoscaler.clusters.kubernetes.api.decorators import FencedApi
from autoscaler.clusters.kubernetes.api.errors import AlreadyExistsError, ConflictError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import LEASES
from autoscaler.clusters.kubernetes.objects.fields import to_micro_time
from autoscaler.errors import ClusterError
from autoscaler.operator.leadership.candidate import (
    LeaseCandidate,
    LeaseRecord,
    LeaseTiming,
    RetryAt,
    WriteLease,
    observe_lease,
    plan_lease,
    renew_hold,
    resign,
)

RELEASE_LIMIT_S: Final = 2.0  # to give the Lease back while leaving; else the next one waits for its end

log = logging.getLogger(__name__)


class LeaseHolder:
    """One operator's side of the Lease NAMESPACE/NAME.

    `clock` runs on while the machine sleeps; `wall_s` is the time of day, written for people only.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTiming,
        clock: Callable[[], float],
        wall_s: Callable[[], float],
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._wall_s = wall_s
        self._candidate = LeaseCandidate(identity=identity, timing=timing)
        self._acquired_at_s = 0.0
        self._news = asyncio.Event()

    @property
    def name(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self._namespace}/{self._name}"

    def may_write(self) -> bool:
        """True if this operator leads now."""
        return self._candidate.may_write(self._clock())

    @property
    def holder(self) -> str:
        """The holder of the Lease when it was last read; empty: nobody."""
        return self._candidate.seen.holder if self._candidate.seen is not None else ""

    async def run(self) -> None:
        """Campaign and renew until cancelled; then give the Lease back, if the API server answers soon."""
        try:
            while True:  # noqa: ASYNC110 - a Lease brings no news of itself
                await asyncio.sleep(await self._campaign_once())
        finally:
            await self._give_back()

    async def wait_won(self) -> None:
        """Return once this operator leads."""
        while not self.may_write():
            self._news.clear()
            await self._news.wait()

    async def wait_lost(self) -> None:
        """Return once it does not lead any more."""
        while (left_s := self._candidate.held_until_s - self._clock()) > 0:  # noqa: ASYNC110 - it moves with each renewal
            await asyncio.sleep(left_s)

    # ---- one try ------------------------------------------------------------------------------------------------

    async def _campaign_once(self) -> float:
        """Read the Lease, decide, write; return the pause before the next try."""
        try:
            if not self.may_write():
                await self._observe()
            match plan_lease(self._candidate, self._clock()):
                case RetryAt(until_s=until_s):
                    return max(0.0, until_s - self._clock())
                case WriteLease() as write:
                    await self._write(write)
        except ClusterError as error:
            log.warning("lease %s: %s", self.name, error)
        return self._candidate.timing.retry_s

    async def _observe(self) -> None:
        self._candidate = observe_lease(self._candidate, await self._read(), self._clock())

    async def _read(self) -> LeaseRecord | None:
        try:
            return to_record(await self._api.get(LEASES, self._name, namespace=self._namespace))
        except NotFoundError:
            return None

    async def _write(self, write: WriteLease) -> None:
        sent_s = self._clock()
        if not self.may_write():
            self._acquired_at_s = self._wall_s()
        spec = self._spec(write)
        try:
            raw = await (self._create(spec) if write.over is None else self._replace(write.over, spec))
        except (ConflictError, AlreadyExistsError, NotFoundError):
            await self._observe()  # our own write may have succeeded without an answer
            return
        was_leading = self.may_write()
        self._candidate = renew_hold(self._candidate, to_record(raw), sent_s=sent_s)
        if not was_leading and self.may_write():
            log.info("this operator leads (lease %s)", self.name)
            self._news.set()

    def _spec(self, write: WriteLease) -> Raw:
        return {
            "holderIdentity": self._candidate.identity,
            "leaseDurationSeconds": self._candidate.timing.duration_s,
            "acquireTime": to_micro_time(self._acquired_at_s),
            "renewTime": to_micro_time(self._wall_s()),
            "leaseTransitions": write.transitions,
        }

    async def _create(self, spec: Raw) -> Raw:
        metadata = {"name": self._name, "namespace": self._namespace}
        return await self._api.create(
            LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        )

    async def _replace(self, over: LeaseRecord, spec: Raw) -> Raw:
        only = Preconditions(resource_version=over.resource_version)
        return await self._api.patch(LEASES, self._name, {"spec": spec}, namespace=self._namespace, only=only)

    async def _give_back(self) -> None:
        """Release the Lease, so that the next leader need not wait for its expiry."""
        held, self._candidate = self.may_write(), resign(self._candidate)
        over = self._candidate.seen
        if not held or over is None:
            return
        try:
            async with asyncio.timeout(RELEASE_LIMIT_S):
                await self._replace(over, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except (ClusterError, TimeoutError) as error:
            log.warning("lease %s could not be given back: %s", self.name, error)


def to_record(raw: Raw) -> LeaseRecord:
    """Read a Lease; what is not there is as if given back."""
    spec = raw.get("spec") or {}
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        resource_version=str(raw["metadata"]["resourceVersion"]),
        transitions=int(spec.get("leaseTransitions") or 0),
        duration_s=float(spec.get("leaseDurationSeconds") or 0),
    )


async def run_terms(lease: LeaseHolder, api: Api, work: Callable[[Api], Awaitable[None]]) -> None:
    """Campaign, lead, campaign again, until cancelled; then give the Lease back.

    `work` gets an `api` that refuses every write once the term is over.  It has ended before the next term begins, and
    before the Lease is given back.  Raises what it raises.
    """
    async with asyncio.TaskGroup() as tasks:  # the campaign ends last, so that the work still holds the Lease
        tasks.create_task(lease.run(), name="lease")
        while True:
            await lease.wait_won()
            await _run_term(lease, work(FencedApi(api, lease.may_write)))


async def _run_term(lease: LeaseHolder, work: Awaitable[None]) -> None:
    """Return when the term is lost, and its work has ended."""
    working = asyncio.ensure_future(work)
    lost = asyncio.create_task(lease.wait_lost(), name="wait for the end of the term")
    try:
        await asyncio.wait({working, lost}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(working, lost)
    if lost.done() and not lost.cancelled():
        log.warning("lease %s is lost; nothing is written from now on", lease.name)


async def _end(*tasks: asyncio.Future[None]) -> None:
    """Cancel and wait; what ended by an error of its own raises it."""
    for task in tasks:
        task.cancel()
    for end in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(end, Exception):
            raise end
