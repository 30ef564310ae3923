"""Two operators with a Lease each: the leader is paused, and continues when the other leads.

A stopped process is one whose every call hangs, before the fence asks for its right: what it was about to write when it
was stopped comes to the fence first when it goes on, before the process can find out that it leads no more.
"""

import asyncio
from contextlib import suppress

from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import LEASES
from autoscaler.clusters.kubernetes.memory_api import MemoryApi
from autoscaler.operator.leadership.candidate import LeaseTiming
from autoscaler.operator.leadership.lease import LeaseHolder, run_terms
from tests.harness.virtual_time import now
from tests.perturb.controllers import run_pod_controller
from tests.perturb.invariants import CheckedApi

NAMESPACE = "team-a"
NAME = "edl"
WRITES = frozenset({"create", "apply", "patch", "delete"})


class StoppableApi:
    """Every call, and every event of a watch, waits until its process runs.  `on_write` is called before each write."""

    def __init__(self, inner, running, on_write=lambda: None):
        self.running = running
        self._inner = inner
        self._on_write = on_write

    def __getattr__(self, name):
        call = getattr(self._inner, name)

        async def wait(*args, **more):
            if name in WRITES:
                self._on_write()
            await self.running.wait()
            return await call(*args, **more)

        return wait

    async def watch(self, *args, **more):
        async for event in self._inner.watch(*args, **more):
            await self.running.wait()
            yield event


class HoldersApi(CheckedApi):
    """Checks that what reaches the server here comes from the holder of the Lease."""

    def __init__(self, server, checker, operator, writes):
        super().__init__(server, checker)
        self._operator = operator
        self._writes = writes

    async def create(self, kind, body):
        self._check(f"create {kind.plural} {body['metadata']['name']}")
        return await super().create(kind, body)

    async def apply(self, kind, body, **more):
        self._check(f"apply {kind.plural} {body['metadata']['name']}")
        return await super().apply(kind, body, **more)

    async def patch(self, kind, name, change, **more):
        self._check(f"patch {kind.plural} {name}")
        return await super().patch(kind, name, change, **more)

    async def delete(self, kind, name, **more):
        self._check(f"delete {kind.plural} {name}")
        await super().delete(kind, name, **more)

    def _check(self, doing):
        self._writes.append(f"{self._operator.name}: {doing}")
        self._checker.store = self._operator.store
        holder = ""
        with suppress(NotFoundError):
            holder = self._server.get(LEASES, NAMESPACE, NAME)["spec"]["holderIdentity"]
        if holder != self._operator.name:
            self._checker.problems.append(f"at {now():.2f} s: {doing} by {self._operator.name}, but {holder} leads")


class StoppableLease(LeaseHolder):
    """A paused process notices the end of its term only when it continues."""

    def __init__(self, running, *args, **more):
        super().__init__(*args, **more)
        self._running = running

    async def wait_lost(self):
        await super().wait_lost()
        await self._running.wait()
        await asyncio.sleep(0.1)


class Operator:
    """Campaigns, and runs an autoscaler while it leads: the product's own terms, with a process that can be stopped."""

    def __init__(self, name, server, checker, writes, compose_one, on_write):
        self.name = name
        self.store = None
        self.one = None
        self.running = asyncio.Event()
        self.running.set()
        self.lease = StoppableLease(
            self.running,
            StoppableApi(MemoryApi(server), self.running),
            namespace=NAMESPACE,
            name=NAME,
            identity=name,
            timing=LeaseTiming(),
            clock=now,
            wall_s=now,
        )
        self._api = HoldersApi(server, checker, self, writes)
        self._compose_one = compose_one
        self._on_write = on_write

    async def run(self):
        await run_terms(self.lease, self._api, self._work)

    async def _work(self, fenced):
        self.one = self._compose_one(StoppableApi(fenced, self.running, self._on_write))
        self.store = self.one.store
        async with asyncio.TaskGroup() as tasks:
            for work in (self.one.run(), run_pod_controller(self.one)):
                tasks.create_task(work)

    def stop(self):
        """Pause the process, as SIGSTOP does."""
        self.running.clear()

    def go_on(self):
        self.running.set()
