"""Jobs live on an API server in memory: failures, ends, suspension, deadlines; and again after a change of leader."""

import asyncio
from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.api.errors import ConflictError
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.objects.fields import to_time
from autoscaler.domain import JobState, Role
from autoscaler.jobs.life_events import FailureReason
from autoscaler.jobs.lifecycle import CompletionReason, JobEnding, LifeStage
from autoscaler.jobs.progress import JobProgress, RefusedTrainer, WhyNoAnswer
from autoscaler.operator.job.pod_termination import TerminationCause
from master.api.master_status import JobPhase
from tests.harness import virtual_time
from tests.unit.operator.bench import JOB, OperatorBench

TRAINING = JobProgress(phase=JobPhase.TRAINING, total=100, done=10, committed=5, epochs=1, samples_per_s=1.0)
UNHEARD = JobProgress(phase=JobPhase.STARTING, term=1, has_heard_trainers=False)
COMPLETE = JobProgress(phase=JobPhase.COMPLETE, total=100, done=100, committed=100, epochs=1, checkpoint_age_s=5.0)


async def started(**spec):
    bench = OperatorBench(**spec)
    bench.says = TRAINING
    await bench.start()
    return bench


async def fail(bench, name="digits-trainer-0", *, code=1, ago_s=0.0):
    bench.server.logs["team-a", name] = [b"Traceback\n", b"ValueError: no\n"]
    bench.rest.end("team-a", name, code=code, at_s=bench.now_s - ago_s)
    await bench.round()
    await bench.round()


async def test_refused_trainer_is_told_and_counts_for_nothing():
    """Its master names it; the end of another one is a failure as ever."""
    bench = await started()
    told = RefusedTrainer(name="digits-trainer-0", process="p1", reason="layout: optimizer.0.lr is 0.2, and was 0.1")
    bench.says = replace(TRAINING, refused=(told,))
    await fail(bench)
    [note] = [note for note in bench.said if note.reason == "TrainerRefused"]
    assert "trainer digits-trainer-0 is refused, and the others train on: layout: optimizer.0.lr is 0.2" in note.message
    assert note.is_warning
    assert (bench.life.failures, bench.life.refusals) == (0, 1)
    assert "TrainerFailed" not in bench.reasons()
    await fail(bench, "digits-trainer-1")
    assert (bench.life.failures, bench.life.refusals) == (1, 1)


async def test_a_failed_trainer_is_told_with_its_last_lines_and_taken_away():
    bench = await started()
    await fail(bench)
    [note] = [note for note in bench.said if note.reason == "TrainerFailed"]
    assert "exited with code 1" in note.message
    assert "ValueError: no" in note.message
    assert "digits-trainer-0" not in bench.names(PODS)
    assert bench.life.failures == 1
    assert (Role.TRAINER, TerminationCause.OWN_EXIT) in bench.left


async def test_a_bug_in_judging_is_its_jobs_alone_and_the_pod_is_judged_after_a_pause():
    """It ended the term for all jobs once (A11)."""
    bench = await started()
    bench.rest.end("team-a", "digits-trainer-0", code=1)
    await bench.refresh()
    bench.says = "no progress"  # what no master's door lets through
    await bench.jobs.reconcile(JOB)
    await asyncio.gather(*bench.failures.tasks)
    assert "pod end: AttributeError" in bench.errors.problem(JOB)
    bench.says = TRAINING
    await bench.jobs.reconcile(JOB)
    assert not bench.failures.tasks, "it is not tried again at once"
    bench.now_s += 1.0
    await bench.round()
    assert bench.life.failures == 1
    assert bench.errors.problem(JOB) == ""


async def test_a_failure_is_counted_once_however_often_it_is_seen():
    bench = await started()
    await fail(bench)
    for _ in range(5):
        await bench.round()
    assert bench.life.failures == 1
    assert bench.reasons().count("TrainerFailed") == 1


async def test_so_many_failures_in_a_row_fail_the_job_and_everything_leaves():
    bench = await started(runPolicy={"backoffLimit": 2})
    await fail(bench)
    await fail(bench, "digits-trainer-1")
    assert bench.life.ending is JobEnding.FAILED
    await bench.settle()
    assert bench.pods("server") == bench.pods("master") == set()
    assert bench.names(DEPLOYMENTS) == set()
    assert bench.store.facts(bench.store.objects.jobs[JOB]).state is JobState.OVER


async def test_the_trainer_that_failed_the_job_stays_until_that_is_told():
    """An operator that dies before it has told finds the proof, and comes to the same end."""
    bench = await started(runPolicy={"backoffLimit": 1})
    await fail(bench)
    assert bench.life.ending is JobEnding.FAILED
    assert "digits-trainer-0" in bench.names(PODS)
    bench.lead()
    await bench.settle()
    assert bench.life.ending is JobEnding.FAILED
    bench.write_status({"conditions": [{"type": "Failed", "status": "True", "reason": "X", "message": "why"}]})
    await bench.settle()
    assert bench.names(PODS) == set()


async def test_a_batch_between_two_failures_starts_the_count_afresh():
    bench = await started(runPolicy={"backoffLimit": 2})
    await fail(bench)
    bench.says = JobProgress(phase=JobPhase.TRAINING, total=100, done=20, committed=5, epochs=1)
    await fail(bench, "digits-trainer-1")
    assert (bench.life.ending, bench.life.failures) == (None, 1)


async def test_a_trainer_that_is_told_to_leave_has_not_failed():
    bench = await started()
    raw = bench.server.get(PODS, "team-a", "digits-trainer-0")
    await bench.api.delete(PODS, "digits-trainer-0", namespace="team-a")
    await bench.refresh()
    await bench.jobs.reconcile(JOB)
    await bench.jobs.reconcile(JOB)
    assert (Role.TRAINER, TerminationCause.USER) in bench.left
    assert bench.left.count((Role.TRAINER, TerminationCause.USER)) == 1
    assert raw["metadata"]["uid"] in bench.store.records[JOB].departed
    await bench.settle()
    assert bench.life.failures == 0


async def test_what_the_planner_sends_away_is_put_down_to_edl():
    bench = await started()
    bench.store.record_deletion(JOB, f"{JOB}-trainer-0")
    await bench.api.delete(PODS, "digits-trainer-0", namespace="team-a")
    await bench.refresh()
    await bench.jobs.reconcile(JOB)
    assert (Role.TRAINER, TerminationCause.EDL) in bench.left


async def test_the_end_of_the_data_completes_the_job():
    bench = await started()
    bench.says = COMPLETE
    await bench.poller.poll(bench.store.objects.jobs[JOB])
    assert bench.life.stage is LifeStage.FINISHING
    for number in range(2):
        bench.rest.end("team-a", f"digits-trainer-{number}", code=0)
    await bench.settle()
    assert (bench.life.ending, bench.life.stage) == (JobEnding.COMPLETED, LifeStage.OVER)
    assert bench.life.failures == 0
    assert bench.names(PODS) == bench.names(DEPLOYMENTS) == set()


async def test_a_trainer_that_ends_as_the_data_does_has_not_failed():
    """Its master is asked once more before it is judged."""
    bench = await started()
    bench.says = COMPLETE
    await fail(bench, code=0)
    assert bench.life.failures == 0
    assert bench.life.stage in {LifeStage.FINISHING, LifeStage.STOPPING, LifeStage.OVER}


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_script_that_raises_after_the_end_is_told_in_the_jobs_condition(is_known):
    """Whether the operator knew of the end before, or hears of it as it judges the trainer."""
    bench = await started()
    bench.says = COMPLETE
    if is_known:
        await bench.poller.poll(bench.store.objects.jobs[JOB])
        assert bench.life.stage is LifeStage.FINISHING
    await fail(bench, code=1)
    assert bench.life.completion_reason is CompletionReason.SCRIPT_FAILED
    assert "but after the end trainer digits-trainer-0 exited with code 1" in bench.life.message
    assert "ValueError: no" in bench.life.message, "the last lines of its log"


@pytest.mark.parametrize(("ago_s", "is_late"), [(5.0, True), (7.0, False)])
@pytest.mark.parametrize("is_new_leader", [False, True])
async def test_a_script_that_raised_before_the_last_commit_is_no_part_of_the_end(ago_s, is_late, is_new_leader):
    """Another trainer has done its work; that the operator hears of both at once says nothing."""
    bench = await started()
    bench.rest.end("team-a", "digits-trainer-0", code=1, at_s=bench.now_s - ago_s)
    bench.says = COMPLETE
    if is_new_leader:
        bench.lead()
    for _ in range(4):
        await bench.round()
    assert bench.life.completion_reason is (CompletionReason.SCRIPT_FAILED if is_late else CompletionReason.ALL_TRAINED)


async def test_another_container_that_fails_after_the_end_is_not_the_script():
    bench = await started()
    bench.rest.end("team-a", "digits-trainer-0", code=0, at_s=bench.now_s)
    pod = bench.server.get(PODS, "team-a", "digits-trainer-0")
    sidecar = {"name": "logs", "state": {"terminated": {"exitCode": 1, "finishedAt": to_time(bench.now_s)}}}
    statuses = [*pod["status"]["containerStatuses"], sidecar]
    bench.server.rewrite(
        PODS, pod, pod | {"status": pod["status"] | {"phase": "Failed", "containerStatuses": statuses}}
    )
    bench.says = COMPLETE
    for _ in range(4):
        await bench.round()
    assert bench.life.completion_reason is CompletionReason.ALL_TRAINED


async def test_a_trainer_refused_at_the_end_was_no_part_of_the_job():
    bench = await started()
    told = RefusedTrainer(name="digits-trainer-0", process="p1", reason="layout: optimizer.0.lr is 0.2, and was 0.1")
    bench.says = replace(COMPLETE, refused=(told,))
    await fail(bench)
    assert bench.life.completion_reason is CompletionReason.ALL_TRAINED


async def test_the_trainer_that_failed_after_the_end_stays_until_that_is_told():
    """An operator that dies before it has told finds the proof, and comes to the same end."""
    bench = await started()
    bench.says = COMPLETE
    await fail(bench)
    assert bench.life.completion_reason is CompletionReason.SCRIPT_FAILED
    await bench.round()
    assert "digits-trainer-0" in bench.names(PODS)
    bench.lead()
    for _ in range(4):
        await bench.round()
    assert bench.life.completion_reason is CompletionReason.SCRIPT_FAILED
    bench.write_status({"conditions": [{"type": "Completed", "status": "True", "reason": "X", "message": "why"}]})
    await bench.settle()
    assert "digits-trainer-0" not in bench.names(PODS)


@pytest.mark.parametrize("code", [0, 137])
async def test_a_trainer_that_is_killed_after_the_end_has_lost_nothing(code):
    """A signal says nothing about its script."""
    bench = await started()
    bench.says = COMPLETE
    await fail(bench, code=code)
    assert bench.life.completion_reason is CompletionReason.ALL_TRAINED
    assert "TrainerFailed" not in bench.reasons()


async def test_a_trainer_that_ends_while_another_saves_has_not_failed():
    """It was told the end before its job is complete, and said to have left data untrained."""
    bench = await started(runPolicy={"backoffLimit": 1})
    bench.says = replace(COMPLETE, phase=JobPhase.SAVING)
    await fail(bench, code=0)
    assert (bench.life.failures, bench.life.stage) == (0, LifeStage.ACTIVE)
    assert "TrainerFailed" not in bench.reasons()
    await fail(bench, "digits-trainer-1", code=1)
    assert bench.life.ending is JobEnding.FAILED


async def test_script_that_ends_with_0_and_opened_no_session_fails_its_job_at_once():
    """It would train everything by itself again at each start; the message has the lines that it lacks."""
    bench = await started()
    bench.says = UNHEARD
    await fail(bench, code=0)
    assert (bench.life.ending, bench.life.failure_reason) == (JobEnding.FAILED, FailureReason.NO_SESSION)
    assert "trainer digits-trainer-0 exited with code 0, and opened no session with its job" in bench.life.message
    assert "session.dataset(...)" in bench.life.message
    assert "docs/guide.md" in bench.life.message
    assert "ValueError: no" in bench.life.message, "the last lines of its log"


@pytest.mark.parametrize("said", [replace(UNHEARD, has_heard_trainers=True), replace(UNHEARD, epochs=1, total=100)])
async def test_trainer_that_may_have_had_a_session_is_counted_as_a_failure(said):
    """Once a trainer has registered or data are declared, an early end has other reasons."""
    bench = await started()
    bench.says = said
    await fail(bench, code=0)
    assert (bench.life.ending, bench.life.failures) == (None, 1)


async def test_script_without_a_session_that_fails_is_a_failure_as_ever():
    """Its error may pass; and only one that ended well can have done all its work without EDL."""
    bench = await started()
    bench.says = UNHEARD
    await fail(bench, code=1)
    assert (bench.life.ending, bench.life.failures) == (None, 1)


def test_script_that_ends_before_its_master_has_started_is_judged_once_it_has():
    """It is replaced by nobody meanwhile: a plain script may end in less time than a master needs to start."""
    answers = iter((WhyNoAnswer.SILENT, replace(UNHEARD, term=0, has_heard_trainers=True), UNHEARD))

    async def poll(job, masters, **_):
        answer = next(answers)
        return answer if isinstance(answer, WhyNoAnswer) else (masters[0]["metadata"]["name"], answer)

    async def judged():
        bench = await started()
        bench.poll = poll
        bench.rest.end("team-a", "digits-trainer-0", code=0)
        await bench.refresh()
        await bench.jobs.reconcile(JOB)
        await asyncio.gather(*bench.failures.tasks)
        return bench.life

    life = virtual_time.run(judged())
    assert life.failure_reason is FailureReason.NO_SESSION
    assert life.failures == 0


async def test_a_question_that_fails_answers_nobody_who_waits_for_it():
    """Each of the others asks again: by what was known before, who has trained everything would have failed."""
    bench = await started()
    bench.reads_s = {JOB: 1e-4}
    await bench.poller.poll(bench.store.objects.jobs[JOB])  # its master rests for a moment, in which all of them come
    answers = iter(("no progress", COMPLETE, COMPLETE))

    async def poll(job, masters, **_):
        return masters[0]["metadata"]["name"], next(answers)

    bench.poll = poll
    for number in range(2):
        bench.rest.end("team-a", f"digits-trainer-{number}", code=0)
    await bench.refresh()
    await bench.jobs.reconcile(JOB)
    await asyncio.gather(*bench.failures.tasks)
    assert next(answers) is COMPLETE, "the second one has asked as well"
    assert bench.life.failures == 0


async def test_suspended_trainers_leave_first_and_the_job_comes_back():
    bench = await started()
    bench.edit(runPolicy={"suspend": True})
    await bench.settle()
    assert bench.life.stage is LifeStage.SUSPENDED
    assert bench.pods("trainer") == set()
    assert bench.store.facts(bench.store.objects.jobs[JOB]).state is JobState.SUSPENDED
    bench.edit(runPolicy={"suspend": False})
    await bench.settle()
    assert bench.life.stage is LifeStage.ACTIVE


async def test_the_deadline_fails_the_job():
    bench = await started(runPolicy={"activeDeadlineSeconds": 60})
    bench.now_s += 61
    await bench.settle()
    assert bench.life.ending is JobEnding.FAILED
    assert "activeDeadlineSeconds" in bench.life.message


async def test_the_job_goes_when_its_time_after_the_end_is_over():
    bench = await started(runPolicy={"backoffLimit": 1, "ttlSecondsAfterFinished": 30})
    await fail(bench)
    bench.write_status({"conditions": [{"type": "Failed", "status": "True", "message": "why"}]})
    await bench.settle()
    assert bench.names(TRAINING_JOBS) == {"digits"}
    bench.now_s += 60
    await bench.settle()
    assert bench.names(TRAINING_JOBS) == set()
    assert JOB not in bench.store.records


async def test_a_job_whose_time_was_prolonged_a_moment_ago_is_not_dropped():
    """The edit is not seen yet: what was decided was about another version of the object."""
    bench = await started(runPolicy={"backoffLimit": 1, "ttlSecondsAfterFinished": 30})
    await fail(bench)
    bench.write_status({"conditions": [{"type": "Failed", "status": "True", "message": "why"}]})
    await bench.settle()
    bench.now_s += 60
    await bench.refresh()
    bench.edit(runPolicy={"backoffLimit": 1, "ttlSecondsAfterFinished": 3_000})
    with pytest.raises(ConflictError):
        await bench.jobs.reconcile(JOB)
    await bench.settle()
    assert bench.names(TRAINING_JOBS) == {"digits"}


async def test_an_observed_job_is_left_alone():
    bench = await started()
    bench.edit(mode="observe", runPolicy={"suspend": True})
    await bench.settle()
    assert bench.pods("trainer") == {"digits-trainer-0", "digits-trainer-1"}


async def test_a_failed_write_is_made_good():
    """A refused deletion costs time, nothing else."""
    bench = await started()
    bench.edit(runPolicy={"suspend": True})
    await bench.refresh()
    whole, bench.cluster._writer._api = bench.cluster._writer._api, Deaf()
    with pytest.raises(Deaf.Error):
        await bench.jobs.reconcile(JOB)
    bench.cluster._writer._api = whole
    await bench.settle()
    assert bench.pods("trainer") == set()


class Deaf:
    """An API server that is not there."""

    class Error(Exception):
        pass

    def __getattr__(self, _):
        raise self.Error


async def test_a_forged_completion_does_not_end_a_running_job_under_a_new_leader():
    bench = await started()
    bench.write_status({"conditions": [{"type": "Completed", "status": "True", "message": "done"}]})
    bench.lead()
    await bench.settle()
    assert bench.life.ending is None
    assert bench.pods("trainer") == {"digits-trainer-0", "digits-trainer-1"}


async def test_a_new_leader_goes_on_counting():
    bench = await started(runPolicy={"backoffLimit": 2})
    await fail(bench)
    bench.write_status({"failures": 1})
    bench.lead()
    await bench.refresh()
    await fail(bench, "digits-trainer-1")
    assert bench.life.ending is JobEnding.FAILED


async def test_a_new_leader_keeps_what_was_told_of_resizes():
    bench = await started()
    told = {
        "time": "2027-01-15T08:00:00Z",
        "from": 2,
        "to": 3,
        "cause": "FreeCapacity",
        "by": "edl",
        "message": "grows",
    }
    bench.write_status({"resizes": [told]})
    bench.lead()
    await bench.settle()
    assert bench.store.records[JOB].resizes_before == (told,)


async def test_three_failures_on_a_node_make_the_job_avoid_it():
    bench = await started(runPolicy={"backoffLimit": 9})
    await fail(bench)
    await fail(bench, "digits-trainer-1")
    facts = bench.store.facts(bench.store.objects.jobs[JOB])
    assert facts.avoided_nodes == frozenset()
    record = bench.store.records[JOB]
    assert len(record.blocklist.failed_at_s["n1"]) == 2


async def test_a_failed_server_waits_before_it_comes_again():
    bench = await started()
    for _ in range(2):
        await fail(bench, "digits-server-0")
        break
    assert "ServerFailed" in bench.reasons()
    assert bench.life.failures == 0
