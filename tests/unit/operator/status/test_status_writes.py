"""When a job's status is written: if it differs, and progress alone only now and then."""

from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS
from autoscaler.operator.controllers.status_writer import PROGRESS_EVERY_S, StatusWriter
from tests.unit.operator.bench import JOB, OperatorBench


class Writing:
    """Statuses of one job on an API server in memory."""

    def __init__(self):
        self.bench = OperatorBench()
        self.wanted = {"observedGeneration": 1, "failures": 0}
        self.statuses = StatusWriter(self.bench.api, self.bench.store, self)

    def status_of(self, _job):
        return dict(self.wanted)

    async def write(self):
        await self.bench.refresh()
        await self.statuses.write(JOB)
        await self.bench.refresh()
        raw = self.bench.server.get(TRAINING_JOBS, "team-a", "digits")
        return raw.get("status"), int(raw["metadata"]["resourceVersion"])


async def test_a_status_is_written_when_it_differs():
    writing = Writing()
    standing, version = await writing.write()
    assert standing == writing.wanted
    assert await writing.write() == (standing, version)
    writing.wanted["failures"] = 1
    assert (await writing.write())[0]["failures"] == 1


async def test_progress_alone_is_written_now_and_then():
    writing = Writing()
    await writing.write()
    writing.wanted["progress"] = {"epoch": 1}
    writing.bench.now_s += 1
    assert "progress" not in (await writing.write())[0]
    writing.bench.now_s += PROGRESS_EVERY_S
    assert (await writing.write())[0]["progress"] == {"epoch": 1}


async def test_what_somebody_else_wrote_is_put_right():
    writing = Writing()
    await writing.write()
    writing.bench.write_status({"failures": 99, "observedGeneration": 1})
    assert (await writing.write())[0]["failures"] == 0


async def test_a_job_that_is_gone_is_no_error():
    writing = Writing()
    await writing.write()
    await writing.bench.api.delete(TRAINING_JOBS, "digits", namespace="team-a")
    await writing.statuses.write(JOB)  # before the watch has shown it
    assert writing.bench.names(TRAINING_JOBS) == set()
