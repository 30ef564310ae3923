"""What a job's status says while its master does not, and since when it waits or stands still: told by time, across
operators.
"""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.objects.fields import to_time, unix_s
from autoscaler.jobs.progress import WhyNoAnswer
from autoscaler.jobs.restart_policy import SILENCE_LIMIT_S
from autoscaler.jobs.standstill import STANDSTILL_TOLD_AFTER_S
from autoscaler.jobs.training_health import UNANSWERED_LIMIT_S
from autoscaler.operator.job.job_pods import STARTING_S
from master.api.master_status import JobPhase
from tests.unit.clusters.kubernetes.raw_objects import template
from tests.unit.operator.bench import JOB, START_S
from tests.unit.operator.fake_master import HERE, progress
from tests.unit.operator.term import Term

START_STEPS = 12


class Talk(Term):
    """A term whose job's master says what it is told to say."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.says = WhyNoAnswer.SILENT

    def lead(self):
        super().lead()
        self.leading.masters.poll = self.poll

    async def poll(self, job, masters, **_):
        said = self.says if masters else WhyNoAnswer.SILENT
        return said if isinstance(said, WhyNoAnswer) else (masters[0]["metadata"]["name"], said)

    async def live(self, seconds):
        for _ in range(int(seconds)):
            await self.step()
            if JOB in self.leading.store.objects.jobs:
                await self.leading.poller.poll(self.leading.store.objects.jobs[JOB])
        await self.step()

    def metric(self, name):
        lines = self.metrics.render().decode().splitlines()
        found = [float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{")]
        return found[0] if found else None


def trains(**more):
    return progress(phase=JobPhase.TRAINING, wanted=1, total=200, done=50, committed=40, **more)


@pytest.fixture
async def talk():
    """It runs and trains."""
    talk = Talk()
    await talk.live(START_STEPS)
    talk.says = trains(checkpoint_age_s=3.0)
    await talk.live(2)
    assert talk.told("Progressing") == ("True", "Training")
    assert talk.told("CheckpointsCurrent") == ("True", "UpToDate")
    return talk


@pytest.mark.parametrize(
    ("says", "reason"), [(WhyNoAnswer.SILENT, "MasterUnreachable"), (WhyNoAnswer.NOT_LEADING, "NoLeader")]
)
async def test_a_master_that_falls_silent_does_not_leave_its_old_words(talk, says, reason):
    """The conditions stood at what it had said last, True perhaps, for as long as etcd was away."""
    talk.says = says
    await talk.live(UNANSWERED_LIMIT_S - 2)
    assert talk.told("Progressing") == ("True", "Training"), "another one may be about to lead"
    await talk.live(4)
    assert talk.told("Progressing") == ("Unknown", reason)
    assert talk.told("CheckpointsCurrent") == ("Unknown", reason)
    assert talk.status()["reason"] == reason
    talk.says = trains(checkpoint_age_s=3.0)
    await talk.live(2)
    assert talk.told("Progressing") == ("True", "Training")


async def test_a_master_that_falls_silent_leaves_no_old_throughput(talk):
    """A board showed its last samples per second for as long as it was away; how far it was stays known."""
    talk.says = trains(samples_per_s=120.0)
    await talk.live(1)
    assert talk.metric("edl_job_samples_per_second") == 120.0
    talk.says = WhyNoAnswer.SILENT
    await talk.live(SILENCE_LIMIT_S - 2)
    assert talk.metric("edl_job_samples_per_second") == 120.0
    await talk.live(4)
    assert talk.metric("edl_job_samples_per_second") is None
    assert talk.metric("edl_job_waiting_ratio") is None
    assert talk.metric("edl_job_progress_ratio") == 0.25
    talk.says = trains(samples_per_s=90.0)
    await talk.live(1)
    assert talk.metric("edl_job_samples_per_second") == 90.0


async def test_a_problem_that_is_over_is_over_in_the_status_at_once(talk):
    talk.says = trains(checkpoint_problem="no room")
    await talk.live(1)
    assert talk.told("CheckpointsCurrent") == ("False", "CommitFails")
    assert talk.told("Progressing") == ("True", "Training")
    assert "CommitFails" in talk.reasons()
    talk.says = trains()
    await talk.live(1)
    assert talk.told("CheckpointsCurrent") == ("True", "UpToDate")


async def test_the_last_checkpoint_is_known_after_operator_and_master_were_lost(talk):
    """The new master does not know when the earlier one committed: the alert had no series left."""
    name = "edl_job_uncommitted_since_timestamp_seconds"
    before = talk.metric(name)
    assert before == pytest.approx(talk.bench.now_s - 4.0, abs=2.0)
    talk.metrics.forget_jobs()
    talk.lead()
    talk.says = trains(checkpoint_age_s=None)
    await talk.live(3)
    assert talk.metric(name) == pytest.approx(before, abs=1.0)
    assert "lastCheckpointTime" in talk.status()["progress"]


async def test_a_job_counts_from_its_start_until_its_first_checkpoint():
    """Silent before the first checkpoint: a job that never makes one was never told of."""
    talk = Talk()
    await talk.live(START_STEPS)
    talk.says = trains(checkpoint_age_s=None)
    await talk.live(2)
    started_s = unix_s(talk.status()["startTime"])
    assert talk.metric("edl_job_uncommitted_since_timestamp_seconds") == pytest.approx(started_s, abs=1.0)


async def test_a_job_whose_last_trainer_is_lost_tells_it_once_under_every_operator(talk):
    """Reason, event and instant; the next leader goes on with the same instant, and training ends it."""
    talk.says = trains(ledger=(replace(HERE, is_connected=False),))
    await talk.live(STANDSTILL_TOLD_AFTER_S - 2)
    assert talk.told("Progressing") == ("True", "Training"), "its successor may be about to come"
    await talk.live(4)
    assert talk.told("Progressing") == ("False", "NoTrainer")
    assert talk.status()["reason"] == "NoTrainer"
    [event] = [note for reason, note in talk.notes() if reason == "NoTrainer"]
    since = talk.status()["standstillSince"]
    assert f"no trainer takes part since {since}" in event
    assert "digits-trainer-0, digits-trainer-1" in event
    assert ": not connected to the job's master" in event
    talk.bench.now_s += 500.0
    talk.lead()
    await talk.live(3)
    assert talk.told("Progressing") == ("False", "NoTrainer")
    assert talk.status()["standstillSince"] == since
    await talk.live(STANDSTILL_TOLD_AFTER_S)
    assert talk.reasons().count("NoTrainer") == 1, "what an earlier leader told is no news"
    talk.says = trains()
    await talk.live(2)
    assert talk.told("Progressing") == ("True", "Training")
    assert "standstillSince" not in talk.status()


def bind_trainers(talk, *, bound_s):
    """Their pods have had a node since then, and their image is being pulled."""
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": to_time(bound_s)}
    creating = [{"name": "trainer", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    for pod in talk.server.all(PODS):
        if "-trainer-" in pod["metadata"]["name"]:
            status = pod["status"] | {"conditions": [bound], "containerStatuses": creating}
            talk.server.rewrite(PODS, pod, pod | {"status": status})


async def test_a_resumed_job_whose_trainers_still_start_says_so_and_tells_no_standstill():
    """With its data set known it is in the phase of training at once, while its image is pulled (ADR 0261)."""
    talk = Talk()
    await talk.live(START_STEPS)
    bound_s = talk.bench.now_s
    bind_trainers(talk, bound_s=bound_s)
    talk.says = trains(ledger=())
    await talk.live(STANDSTILL_TOLD_AFTER_S + 4)
    assert talk.told("Progressing") == ("False", "Starting")
    [one] = [one for one in talk.status()["conditions"] if one["type"] == "Progressing"]
    assert "digits-trainer-3: its containers do not run yet (ContainerCreating)" in one["message"]
    assert "edl logs" not in one["message"]
    talk.lead()
    await talk.live(STANDSTILL_TOLD_AFTER_S + 4)
    assert talk.told("Progressing") == ("False", "Starting"), "nor under another operator"
    assert "NoTrainer" not in talk.reasons()
    assert "standstillSince" not in talk.status()
    talk.bench.now_s = bound_s + STARTING_S + 1.0
    await talk.live(2)
    assert talk.told("Progressing") == ("False", "NoTrainer"), "nothing starts for as long"
    assert talk.reasons().count("NoTrainer") == 1


async def test_a_successor_that_starts_after_the_last_trainer_was_lost_is_no_standstill(talk):
    lost = trains(ledger=(replace(HERE, is_connected=False),))
    talk.says = lost
    bind_trainers(talk, bound_s=talk.bench.now_s)
    await talk.live(STANDSTILL_TOLD_AFTER_S + 4)
    assert talk.told("Progressing") == ("False", "Starting")
    talk.says = trains()
    await talk.live(2)
    assert talk.told("Progressing") == ("True", "Training")
    assert "NoTrainer" not in talk.reasons()
    talk.says = lost
    await talk.live(STANDSTILL_TOLD_AFTER_S + 4)
    assert talk.told("Progressing") == ("False", "NoTrainer"), "it has taken part, and is lost itself"


WAITING = "edl_job_waiting_since_timestamp_seconds"


async def test_a_job_without_room_says_since_when_it_waits_under_every_operator():
    talk = Talk(job={"trainer": too_large()})
    await talk.live(3)
    assert talk.told("Admitted")[0] == "False"
    since_s = talk.metric(WAITING)
    assert since_s == pytest.approx(START_S, abs=1.0), "its creation"
    talk.bench.now_s += 500.0
    talk.metrics.forget_jobs()
    talk.lead()
    await talk.live(3)
    assert talk.metric(WAITING) == pytest.approx(since_s, abs=1.0)


async def test_the_time_of_a_suspension_is_no_waiting():
    talk = Talk(job={"trainer": too_large(), "runPolicy": {"suspend": True}})
    await talk.live(3)
    assert talk.metric(WAITING) is None
    talk.bench.now_s += 500.0
    resumed_s = talk.bench.now_s
    talk.bench.edit(runPolicy={"suspend": False})
    await talk.live(3)
    assert talk.metric(WAITING) == pytest.approx(resumed_s, abs=2.0)


async def test_a_job_that_has_started_waits_no_longer(talk):
    assert talk.metric(WAITING) is None
    assert "waitingSince" not in talk.status()


def too_large():
    """More than the two nodes have."""
    return {"minReplicas": 40, "maxReplicas": 40, "template": template(cpu="1")}
