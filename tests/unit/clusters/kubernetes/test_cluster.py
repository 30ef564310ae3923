"""The Kubernetes adapter on an API server in memory: the contract of every cluster, revisions and pacing of views."""

import asyncio
from itertools import pairwise

import pytest

from autoscaler.cluster_port import WriteResult
from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.kubernetes.api.kinds import (
    DEPLOYMENTS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
)
from autoscaler.clusters.kubernetes.cluster_view.workload_view import ANNOUNCED_S
from autoscaler.clusters.kubernetes.gangs.start_backoff import BIND_LIMIT_S
from autoscaler.clusters.kubernetes.kubernetes_cluster import SETTLE_EVERY_S
from tests.harness import virtual_time
from tests.unit.clusters.cluster_contract import ClusterContract
from tests.unit.clusters.kubernetes.cluster_bench import JOB, Bench, gang_of, small_job
from tests.unit.clusters.kubernetes.fake_controllers import add_job, observe
from tests.unit.clusters.kubernetes.raw_objects import template


class TestContract(ClusterContract):
    """Every promise of the port."""


@pytest.mark.asyncio
class TestViews:
    async def test_revision_rises_with_each_difference_and_with_nothing_else(self, bench):
        """A quota is a difference too: who plans on the revision would not see it else."""
        before = bench.cluster.view().revision
        await bench.refresh()
        assert bench.cluster.view().revision == before
        quota = {"metadata": {"name": "team", "namespace": "team-a"}, "spec": {"hard": {"requests.cpu": "3"}}}
        await bench.api.create(RESOURCE_QUOTAS, quota)
        await bench.refresh()
        view = bench.cluster.view()
        assert view.revision > before
        assert [one.namespace for one in view.quotas] == ["team-a"]

    async def test_measured_pause_of_a_resize_is_in_the_planners_job(self, bench):
        """ADR 0234: what the operator knows of a running group counts in the next plan."""
        await bench.refresh()
        before = bench.cluster.view()
        bench.resize_pause_s = 3.5
        view = bench.cluster.view()
        assert [job.pause_s for job in (*before.jobs, *view.jobs)] == [0.0, 3.5]
        assert view.revision > before.revision

    async def test_a_class_of_another_value_changes_what_wants_it(self, bench):
        """The Deployment itself has not changed."""
        pod = template(cpu="1", spec={"priorityClassName": "web"})
        web = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pod}
        await bench.api.create(DEPLOYMENTS, {"metadata": {"name": "web", "namespace": "team-a"}, "spec": web})
        await bench.api.create(PRIORITY_CLASSES, {"metadata": {"name": "web"}, "value": 1_000})
        await bench.refresh()
        (load,) = bench.cluster.view().workloads
        assert load.priority == 1_000
        await bench.api.delete(PRIORITY_CLASSES, "web")
        await bench.api.create(PRIORITY_CLASSES, {"metadata": {"name": "web"}, "value": 2_000})
        await bench.refresh()
        (load,) = bench.cluster.view().workloads
        assert load.priority == 2_000

    async def test_growth_of_which_nothing_comes_is_believed_for_a_while(self, bench):
        """A Deployment whose replicas never come kept all free room, of which no quota speaks (A11)."""
        pod = template(cpu="1", memory="128Mi")
        web = {"replicas": 9_000, "selector": {"matchLabels": {"app": "web"}}, "template": pod}
        await bench.api.create(DEPLOYMENTS, {"metadata": {"name": "web", "namespace": "team-a"}, "spec": web})

        async def wanted(*, after_s=0.0, **change):
            bench.now_s += after_s
            if change:
                patch = {"spec": change} if "replicas" in change else {"status": {"replicas": change["made"]}}
                part = None if "replicas" in change else Subresource.STATUS
                await bench.api.patch(DEPLOYMENTS, "web", patch, namespace="team-a", subresource=part)
            observe(bench.server, bench.server.get(DEPLOYMENTS, "team-a", "web"))
            await bench.refresh()
            (load,) = bench.cluster.view().workloads
            return load.desired_replicas

        assert await wanted() == 9_000
        assert await wanted(after_s=ANNOUNCED_S - 1.0) == 9_000
        assert await wanted(after_s=1.0) == 0
        assert await wanted(replicas=0) == 0
        assert await wanted(replicas=8_000) == 0, "who goes back and forth is believed no more"
        assert await wanted(made=2) == 8_000, "they come"
        assert await wanted(after_s=ANNOUNCED_S - 1.0, made=3) == 8_000
        assert await wanted(after_s=ANNOUNCED_S - 1.0) == 8_000
        assert await wanted(made=8_000) == 8_000
        assert await wanted(after_s=ANNOUNCED_S, replicas=8_500) == 8_500
        assert await wanted(after_s=ANNOUNCED_S) == 8_000


class TimedBench(Bench):
    """On the loop's own clock, which jumps."""

    @property
    def now_s(self):
        return 1_000.0 + virtual_time.now()

    @now_s.setter
    def now_s(self, _):
        pass


def test_news_in_a_row_is_looked_at_together():
    """A look goes over all jobs, and while hundreds start there is news of one of them all the time."""

    async def main():
        bench = TimedBench()
        await bench.refresh()
        looks, settle = [], bench.cluster._gangs.settle

        async def counted(now_s):
            looks.append(now_s)
            await settle(now_s)

        bench.cluster._gangs.settle = counted
        keeping = asyncio.create_task(bench.cluster.settle_gangs())
        for _ in range(300):
            bench.cluster.touch()
            await asyncio.sleep(SETTLE_EVERY_S / 100)
        keeping.cancel()
        assert 3 <= len(looks) <= 4
        assert all(later - before >= SETTLE_EVERY_S for before, later in pairwise(looks))

    virtual_time.run(main())


def test_a_start_that_runs_out_of_time_is_seen_without_any_news():
    """Nothing changes in the cluster any more: the limit itself wakes whoever keeps the gangs."""

    async def main():
        bench = TimedBench()
        bench.rest.add_node("n1", cpu="4")
        add_job(bench.server, small_job())
        await bench.refresh()
        assert (await bench.cluster.apply(gang_of(JOB))).result is WriteResult.DONE
        await bench.refresh()
        keeping = asyncio.create_task(bench.cluster.settle_gangs())
        await asyncio.sleep(BIND_LIMIT_S / 2)
        await bench.refresh()
        assert bench.names() == {"digits-trainer-0"}
        await asyncio.sleep(BIND_LIMIT_S / 2 + 1.0)
        assert bench.names() == set()
        keeping.cancel()

    virtual_time.run(main())
