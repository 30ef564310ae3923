"""Faults of the plan of perturbations (A9) on a real API server and a real scheduler: a short day, and the same end.

Three runs here; `make perturb ARGS=--real` makes all thirty, which takes some eight minutes.
"""

import asyncio
import os
import random
import time
from collections import Counter

import pytest
from kubernetes import client

from autoscaler.clusters.kubernetes.api.api_port import Scope
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.cache.reflector import WatchPolicy
from autoscaler.clusters.kubernetes.cluster_view import JobRuntime
from autoscaler.clusters.kubernetes.objects.labels import JOB, ROLE, TIER
from autoscaler.domain import JobState, Policy, Reclaim
from tests.cluster.kwok_nodes import NodeShape
from tests.cluster.trainingjobs import GROUP
from tests.cluster.workloads import installed, job_of, web_of
from tests.harness.api_faults import EventFault, FaultPlan, PerturbedApi, WriteFault
from tests.harness.waiting import BUDGET_S
from tests.perturb.composition import compose
from tests.perturb.controllers import run_pod_controller

POLICY = Policy(
    reclaim=Reclaim.PLANNER,
    up_window_s=0.5,
    down_window_s=1.0,
    quiet_window_s=0.2,
    surplus_grace_s=2.0,
    victim_age_s=0.0,
    burst_window_s=0.0,
    payoff_s=0.0,
)
CORE = Counter({("master", "core"): 1, ("server", "core"): 1, ("trainer", "core"): 2})

ALL = [
    *(FaultPlan(writes={number: WriteFault.KILLED_AFTER}) for number in range(0, 28, 2)),
    *(FaultPlan(writes={number: WriteFault.REPLY_LOST}) for number in range(1, 28, 4)),
    *(FaultPlan(writes={number: WriteFault.NOT_SENT}) for number in (2, 12, 22)),
    *(FaultPlan(events={number: EventFault.CUT}) for number in (20, 45, 70)),
    *(FaultPlan(events={number: EventFault.LOST}) for number in (30, 60, 90)),
]
CHOSEN = ALL if os.environ.get("EDL_PERTURB") == "all" else [ALL[1], ALL[16], ALL[-1]]


class Perturbed:
    """One autoscaler after another on an API on which things go wrong."""

    def __init__(self, api):
        self.api = api

    async def keep(self):
        while True:
            one = compose(
                self.api,
                POLICY,
                clock=time.monotonic,
                offset_s=time.monotonic() - time.time(),
                jitter=random.random,
                facts_of=lambda _job: JobRuntime(state=JobState.ACTIVE),
                prepare=nothing,
                listen=lambda _step: None,
                watching=WatchPolicy(relist_s=10.0),
            )
            works = [asyncio.create_task(work) for work in (one.run(), run_pod_controller(one))]
            killed = asyncio.create_task(self.api.killed.wait())
            try:
                await asyncio.wait((*works, killed), return_when=asyncio.FIRST_COMPLETED)
                assert self.api.killed.is_set()
            finally:
                for task in (*works, killed):
                    task.cancel()
                await asyncio.gather(*works, killed, return_exceptions=True)
            self.api.revive()


async def nothing(_job):
    """Pods of stand-in nodes mount nothing."""


async def stands(api, namespace):
    """How many pods of each role and tier are bound and run; others by what they lack."""
    found = Counter()
    for pod in (await api.list(PODS, Scope(namespace=namespace))).items:
        labels, state = pod["metadata"].get("labels", {}), ()
        if pod["status"].get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]:
            state = ("not at rest",)
        found[labels.get(ROLE, "web"), labels.get(TIER if JOB in labels else "", "none"), *state] += 1
    return found


async def wait_until(api, namespace, wanted):
    until_s = time.monotonic() + BUDGET_S
    while (found := await stands(api, namespace)) != wanted:
        assert time.monotonic() < until_s, f"{dict(found)}, not {dict(wanted)}"
        await asyncio.sleep(0.2)


def day(surplus, web=0):
    return CORE + Counter({("trainer", "surplus"): surplus, ("web", "none"): web})


@pytest.mark.asyncio
@pytest.mark.parametrize("plan", CHOSEN, ids=lambda plan: f"writes {dict(plan.writes)} events {dict(plan.events)}")
async def test_the_end_is_the_same(control_plane, api, namespace, nodes, plan):
    nodes(*[NodeShape(cpu="4", memory="16Gi")] * 4)
    custom, apps = client.CustomObjectsApi(api), client.AppsV1Api(api)
    with installed(control_plane, api):
        inner = await connect(control_plane.kubeconfig)
        perturbed = PerturbedApi(inner, None, plan)
        keeping = asyncio.create_task(Perturbed(perturbed).keep())
        try:
            custom.create_namespaced_custom_object(namespace=namespace, body=job_of("digits"), **GROUP)
            await wait_until(inner, namespace, day(12))
            apps.create_namespaced_deployment(namespace, web_of("web", replicas=5))
            await wait_until(inner, namespace, day(7, web=5))
            apps.delete_namespaced_deployment("web", namespace)
            await wait_until(inner, namespace, day(12))
            assert not keeping.done()
            custom.delete_namespaced_custom_object(name="digits", namespace=namespace, **GROUP)
            await wait_until(inner, namespace, Counter())
            assert len(perturbed.writes) > max(plan.writes, default=0)
            assert perturbed.events > max(plan.events, default=0)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await inner.close()
