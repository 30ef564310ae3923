"""The throughput of a job from its master's answers to the planner, the status, and the next leader (ADR 0267)."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.api.kinds import NODES
from autoscaler.jobs.progress import JobProgress
from autoscaler.operator.job.throughput_status import throughput_status
from master.api.master_status import JobPhase
from tests.unit.operator.bench import JOB, OperatorBench

POLL_S = 2.0


async def train(bench, trainers, rate, seconds=60.0, *, done=0):
    """The job's master is polled while the job trains so fast."""
    bench.says = bench.says or JobProgress(phase=JobPhase.TRAINING, term=1)
    job = bench.store.records[JOB].job
    for _ in range(round(seconds / POLL_S)):
        bench.now_s += POLL_S
        done += round(rate * POLL_S)
        bench.says = replace(bench.says, training=trainers, servers=1, done=done, total=10**9)
        await bench.poller.poll(job)
    return done


@pytest.fixture
async def bench():
    made = OperatorBench()
    await made.start()
    return made


async def test_planner_gets_a_curve_once_two_sizes_were_seen(bench):
    done = await train(bench, 2, 100.0)
    assert not bench.cluster.view().jobs[0].throughput.is_known
    await train(bench, 3, 130.0, done=done)
    curve = bench.cluster.view().jobs[0].throughput
    assert curve.sizes == (2, 3)
    assert curve.expected.samples_per_s(3) == pytest.approx(130.0, rel=0.03)


async def test_next_leader_knows_what_was_measured(bench):
    """From the status alone; it measures on from there."""
    done = await train(bench, 2, 100.0)
    done = await train(bench, 3, 130.0, done=done)
    before = bench.store.records[JOB].throughput
    bench.write_status({"throughput": throughput_status(before, None)})
    bench.lead()
    await bench.settle()
    await train(bench, 3, 130.0, seconds=4.0, done=done)
    after = bench.store.records[JOB].throughput
    assert {one.trainers for one in after.log.points} == {2, 3}
    assert after.curve.sizes == before.curve.sizes


async def test_hardware_is_told_apart(bench):
    """The labels of the nodes say what the trainers run on."""
    done = await train(bench, 2, 100.0)
    for raw in bench.server.all(NODES):
        labels = {**raw["metadata"].get("labels", {}), "nvidia.com/gpu.product": "H100"}
        bench.server.rewrite(NODES, raw, raw | {"metadata": raw["metadata"] | {"labels": labels}})
    await bench.refresh()
    await train(bench, 2, 300.0, done=done)
    assert {one.setting: one.samples_per_s for one in bench.store.records[JOB].throughput.log.points} == {
        "": pytest.approx(100.0, rel=0.02),
        "H100": pytest.approx(300.0, rel=0.02),
    }


async def test_status_has_points_curve_and_the_size_that_pays(bench):
    done = await train(bench, 2, 100.0)
    await train(bench, 3, 130.0, done=done)
    report = throughput_status(bench.store.records[JOB].throughput, 3)
    assert [point["trainers"] for point in report["points"]] == [2, 3]
    assert report["worthwhile"] == 3
    assert set(report["curve"]) == {"work", "serial", "exchange", "overlap", "even", "rest", "error"}
