"""One term of an operator after another: the fence, and the end of a term's work."""

import asyncio

import pytest

from autoscaler.clusters.kubernetes.api.errors import NotLeadingError
from autoscaler.clusters.kubernetes.api.kinds import LEASES, PODS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.operator.leadership.candidate import LeaseTiming
from autoscaler.operator.leadership.lease import LeaseHolder, run_terms
from tests.harness import virtual_time
from tests.harness.virtual_time import now

NAMESPACE, NAME = "edl", "edl"
TIMING = LeaseTiming()


class Stage:
    """One operator on an API server of its own; what each term was given, and which of them work."""

    def __init__(self):
        self.server = MemoryServer(now=now, namespaces=(NAMESPACE,))
        self.apis = []
        self.working = set()
        self.most_at_once = 0
        self.failure = None
        self.lease = LeaseHolder(
            MemoryApi(self.server), namespace=NAMESPACE, name=NAME, identity="me", timing=TIMING, clock=now, wall_s=now
        )

    async def work(self, api):
        term = len(self.apis)
        self.apis.append(api)
        self.working.add(term)
        self.most_at_once = max(self.most_at_once, len(self.working))
        try:
            if self.failure is not None:
                raise self.failure
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.5)  # its last calls take a while to break off
            self.working.remove(term)

    async def run(self):
        await run_terms(self.lease, MemoryApi(self.server), self.work)

    def hold(self, holder):
        """Somebody else writes the Lease."""
        raw = self.server.get(LEASES, NAMESPACE, NAME)
        self.server.rewrite(LEASES, raw, raw | {"spec": raw["spec"] | {"holderIdentity": holder}})

    def holder(self):
        return self.server.get(LEASES, NAMESPACE, NAME)["spec"]["holderIdentity"]


def on_a_stage(body):
    """Runs `body(stage)` beside an operator, in virtual time."""

    async def main():
        stage = Stage()
        operator = asyncio.create_task(stage.run())
        try:
            await body(stage)
        finally:
            operator.cancel()
            ended = await asyncio.gather(operator, return_exceptions=True)
        return stage, ended[0]

    return virtual_time.run(main())


def pod(name):
    spec = {"containers": [{"name": "web", "image": "nginx"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": NAMESPACE, "name": name}, "spec": spec}


def test_a_second_term_is_begun_anew_after_the_first_has_ended():
    """Two terms of one process never work side by side, and each has a fence of its own (A9)."""

    async def lose_it_once(stage):
        await asyncio.sleep(1.0)
        stage.hold("another")
        await asyncio.sleep(60.0)
        assert len(stage.apis) == 2
        assert stage.working == {1}

    stage, _ = on_a_stage(lose_it_once)
    assert stage.most_at_once == 1
    assert stage.apis[0] is not stage.apis[1]


def test_nothing_is_written_after_a_term_was_lost():
    """What the work of a lost term still tries is refused before it leaves, though its process goes on (A9)."""

    async def write_late(stage):
        await asyncio.sleep(1.0)
        await stage.apis[0].create(PODS, pod("in-time"))
        stage.hold("another")
        await asyncio.sleep(TIMING.renew_deadline_s + TIMING.retry_s)
        with pytest.raises(NotLeadingError):
            await stage.apis[0].create(PODS, pod("late"))
        assert {raw["metadata"]["name"] for raw in stage.server.all(PODS)} == {"in-time"}

    on_a_stage(write_late)


def test_the_lease_is_given_back_after_the_work_has_ended():
    """Who leads next meets nobody's last writes."""
    seen = []

    async def watch(stage):
        await asyncio.sleep(1.0)
        original = stage.lease._give_back

        async def give_back():
            seen.append(set(stage.working))
            await original()

        stage.lease._give_back = give_back

    stage, ended = on_a_stage(watch)
    assert seen == [set()]
    assert stage.holder() == ""
    assert isinstance(ended, asyncio.CancelledError)


def test_a_fault_of_the_work_ends_the_process():
    """A bug that no job explains is no reason to campaign again: the cluster starts a fresh process."""

    async def fail(stage):
        stage.failure = RuntimeError("a bug")
        await asyncio.sleep(5.0)

    stage, ended = on_a_stage(fail)
    assert stage.working == set()
    assert isinstance(ended, ExceptionGroup)
    assert str(ended.exceptions[0]) == "a bug"
