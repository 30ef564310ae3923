"""What a plan takes of quotas, counted from job to job as they change, is the sum over all jobs (A2)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import Cause, Role, Tier
from autoscaler.planner.phases.p7_actions import gate_growth
from autoscaler.planner.working_copy import memo
from autoscaler.planner.working_copy.quota_usage import QuotaUsage
from tests.property.planner_cases import NO_GATES, Driver
from tests.property.planner_draws import clusters, gated_policies, open_policies, stories
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, node
from tests.unit.planner.test_scoped_quotas import CORE, SURPLUS, quota


class Summed(QuotaUsage):
    """Quotas that sum all up anew beside each question."""

    def __init__(self, view, shapes, jobs, *more):
        self.all_jobs = list(jobs)
        super().__init__(view, shapes, self.all_jobs, *more)

    def _count_changed(self, namespace):
        super()._count_changed(namespace)
        there = [job for job in self.all_jobs if job.spec.namespace == namespace]
        for limit in self._limits[namespace]:
            if limit.resource in self._shapes.columns:
                column = self._shapes.columns.index(limit.resource)
                parts = [self.part_of(limit.quota, job, column) for job in there]
                assert (limit.taken_now, limit.taken_later) == (sum(p[0] for p in parts), sum(p[1] for p in parts))


@pytest.fixture
def _summed(monkeypatch):
    monkeypatch.setattr(memo, "QuotaUsage", Summed)


@given(clusters(), stories(), st.sampled_from(["", "blue", "red"]), st.one_of(gated_policies, open_policies))
def test_use_counted_by_changes_is_the_sum_over_all_jobs(cluster, story, scoped, policy):
    """At each question of each plan, in the middle of trials too."""
    if scoped:
        core, more = {"name": "core", **CORE}, {"name": "more", **SURPLUS}
        cluster.scoped = tuple(quota(5_000, namespace=scoped, **scope) for scope in ({}, core, more))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memo, "QuotaUsage", Summed)
        Driver(cluster, policy).live(story)


@pytest.mark.usefixtures("_summed")
def test_each_way_in_which_pods_come_and_go_counts():
    """Also creations that are withdrawn, and growth that a window holds back."""
    cluster = MemoryCluster([node("a", 16_000)], [job("j", high=8)])
    cluster.scoped = (quota(9_000), quota(8_000, name="z", **SURPLUS))
    driver = Driver(cluster, NO_GATES)
    driver.settle()
    view = cluster.view(history=driver.history)
    copy = memo.Memo().begin(view, replace(NO_GATES, up_window_s=1e6), cluster.now())
    grown, taken = copy.jobs["j"], []

    def ask():
        roles = [Role.TRAINER] * 9
        taken.append([copy.quotas.excess(grown, copy.quotas.new_pods(grown, roles), now=now) for now in (True, False)])

    ask()
    mark = copy.mark()
    copy.remove(grown, grown.trainers[-2:], Cause.TRANSFER)
    ask()
    undone = copy.roll_back(mark)
    ask()
    copy.redo(undone)
    ask()
    copy.create(grown, Role.TRAINER, Tier.SURPLUS, "a", Cause.FREE_CAPACITY)
    copy.reserve(grown, Role.TRAINER, Tier.SURPLUS, "a")
    ask()
    mark = copy.mark()
    copy.withdraw(grown)
    ask()
    copy.roll_back(mark)
    ask()
    gate_growth(copy, grown, is_allowed=False)
    ask()
    left = [[excess.remaining // 1_000 for excess in asked] for asked in taken]
    assert left == [[1, 1], [1, 3], [1, 1], [1, 3], [-1, 1], [1, 3], [-1, 1], [0, 1]]
