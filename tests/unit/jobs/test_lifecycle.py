"""A job's life beside its sizes: failures, the end, the order of stopping."""

from dataclasses import replace

import pytest

from autoscaler.domain import JobState, Role
from autoscaler.jobs.life_events import (
    Announce,
    BatchesCompleted,
    DeleteJob,
    DeletionRequested,
    EndReached,
    FailureReason,
    GivenUp,
    PodsObserved,
    SuspendRequested,
    TrainerFailed,
    TrainerRefused,
)
from autoscaler.jobs.lifecycle import FINISHING_S, CompletionReason, JobEnding, Life, LifeStage, handle
from autoscaler.jobs.progress import JobProgress
from autoscaler.manifests.api_types import RunPolicy
from master.api.master_status import JobPhase

POLICY = RunPolicy(backoff_limit=3, active_deadline_s=None, ttl_after_finished_s=None, suspend=False)
ALL = frozenset({Role.TRAINER, Role.SERVER, Role.MASTER})
FAILURE = TrainerFailed(pod="digits-trainer-2", exit_description="exited with 1; ValueError: no")


def run(life, *events, now_s=100.0):
    effects = []
    for event in events:
        step = handle(life, event, now_s)
        life = step.life
        effects += step.effects
    return life, effects


def test_failures_in_a_row_fail_the_job_and_say_why():
    """`backoffLimit` of them, with the job's trainer and its last words (bad input is never a silent retry loop)."""
    life, _ = run(Life(policy=POLICY), FAILURE, FAILURE, FAILURE)
    assert (life.stage, life.ending, life.state) == (LifeStage.STOPPING, JobEnding.FAILED, JobState.ENDING)
    assert life.failure_reason is FailureReason.BACKOFF_LIMIT_EXCEEDED
    assert "digits-trainer-2 exited with 1; ValueError: no" in life.message
    assert life.leaving_roles == {Role.TRAINER}


def test_why_a_job_was_given_up_is_not_read_from_words():
    """Its message may quote a log that names any limit."""
    life, _ = run(Life(policy=POLICY), GivenUp(message="no tables; backoffLimit, activeDeadlineSeconds"))
    assert (life.ending, life.failure_reason) == (JobEnding.FAILED, FailureReason.GIVEN_UP)


def test_a_batch_between_failures_starts_the_count_afresh():
    """A job that gets on is never failed by kills from outside."""
    life, _ = run(Life(policy=POLICY), *[FAILURE, FAILURE, BatchesCompleted()] * 10)
    assert (life.stage, life.ending) == (LifeStage.ACTIVE, None)


def test_the_pause_grows_with_failures_and_is_told():
    """At once first; the user reads what happens next."""
    life, effects = run(Life(policy=replace(POLICY, backoff_limit=9)), FAILURE)
    assert life.hold_until_s == 100.0
    assert "starts at once" in effects[-1].message
    life, effects = run(life, FAILURE, FAILURE)
    assert life.hold_until_s == 102.0
    assert "3 failures since a trainer of this job last completed a batch, and 9 fail the job" in effects[-1].message
    assert "in 2 s" in effects[-1].message


def test_refused_trainers_fail_no_job_and_come_more_and_more_seldom():
    """The job trains on; who reads the event learns why, and when the next one comes."""
    refused = TrainerRefused(pod="digits-trainer-2", reason="layout: optimizer.0.lr is 0.2, and was 0.1")
    life, effects = run(Life(policy=POLICY), refused)
    assert (life.hold_until_s, effects[0].reason) == (105.0, "TrainerRefused")
    assert life.hold_reason == "pause after trainer digits-trainer-2 was refused: " + refused.reason
    assert run(life, FAILURE)[0].hold_reason == "", "a failure is told as one"
    assert "layout: optimizer.0.lr is 0.2, and was 0.1\nit does not count" in effects[0].message
    life, _ = run(life, *[refused] * 20)
    assert (life.stage, life.failures, life.hold_until_s) == (LifeStage.ACTIVE, 0, 400.0)
    life, _ = run(life, refused, now_s=2000.0)
    assert life.hold_until_s == 2005.0


def test_a_failure_while_the_job_stops_is_no_failure():
    """Pods that are told to leave may die as they like."""
    life, _ = run(Life(policy=POLICY), EndReached(), FAILURE, FAILURE, FAILURE)
    assert life.stage is LifeStage.FINISHING


def test_completion_waits_for_trainers_then_stops_servers_then_the_master():
    """The final save happens while everything it needs still runs."""
    life, _ = run(Life(policy=POLICY), PodsObserved(roles=ALL), EndReached(), PodsObserved(roles=ALL))
    assert life.stage is LifeStage.FINISHING
    assert life.leaving_roles == frozenset()
    life, _ = run(life, PodsObserved(roles=ALL - {Role.TRAINER}))
    assert life.ending is JobEnding.COMPLETED
    assert life.leaving_roles == {Role.TRAINER}
    life, effects = run(life, PodsObserved(roles=ALL - {Role.TRAINER}))
    assert (life.leaving_roles, effects) == ({Role.TRAINER, Role.SERVER}, [])
    life, effects = run(life, PodsObserved(roles=frozenset({Role.MASTER})))
    assert (life.leaving_roles, effects) == (ALL, [])
    life, effects = run(life, PodsObserved(roles=frozenset()))
    assert (life.stage, life.state, effects) == (LifeStage.OVER, JobState.OVER, [])


@pytest.mark.parametrize(("quarantined", "told"), [(0, "committed"), (7, "committed, but for 7 in quarantine: ")])
def test_what_was_left_out_is_told_at_the_end(quarantined, told):
    """A job with samples in quarantine does not claim that it trained every one."""
    life, effects = run(
        Life(policy=POLICY),
        PodsObserved(roles=ALL),
        EndReached(quarantined=quarantined),
        PodsObserved(roles=frozenset()),
    )
    assert f"every sample was trained and {told}" in life.message
    assert [e.reason for e in effects if isinstance(e, Announce)] == ["EndReached", JobEnding.COMPLETED]
    assert life.message.endswith("committed") == (quarantined == 0)


def test_an_early_end_is_told_with_its_step():
    """A job whose script ended it does not claim that it trained every sample."""
    early = JobProgress(phase=JobPhase.COMPLETE, steps=1200, stopped_at=32)
    end = EndReached(trained_text=early.trained_text, is_stopped=True)
    life, _ = run(Life(policy=POLICY), PodsObserved(roles=ALL), end, PodsObserved(roles=frozenset()))
    assert life.completion_reason is CompletionReason.STOPPED_EARLY
    assert life.message.startswith("the script ended training early, after step 32 of 1,200: every sample until then")


def test_a_failure_among_trainers_that_complete_batches_counts_from_the_last_of_these():
    """Whoever reads of one failure sees what is counted: a batch of any trainer sets the count back."""
    _, effects = run(Life(policy=POLICY), FAILURE, BatchesCompleted(), FAILURE)
    assert "1 failure since a trainer of this job last completed a batch" in effects[-1].message


def test_a_job_that_shared_out_records_only_says_that_no_model_is_kept():
    """Completed alone would be read as: the model is somewhere."""
    ended = PodsObserved(roles=frozenset())
    life, _ = run(Life(policy=POLICY), PodsObserved(roles=ALL), EndReached(is_model_kept=False), ended)
    assert life.completion_reason is CompletionReason.NO_MODEL_KEPT
    assert "every sample was trained and committed; no model is kept: " in life.message
    life, _ = run(Life(policy=POLICY), PodsObserved(roles=ALL), EndReached(), ended)
    assert life.completion_reason is CompletionReason.ALL_TRAINED
    assert "no model" not in life.message


def test_a_script_that_fails_after_the_end_is_told_and_costs_no_completion():
    """All is trained and committed; Completed alone would be read as: what the script did then is done, too."""
    ended = PodsObserved(roles=frozenset())
    life, effects = run(Life(policy=POLICY), PodsObserved(roles=ALL), EndReached(), FAILURE, FAILURE, ended, FAILURE)
    assert (life.ending, life.completion_reason) == (JobEnding.COMPLETED, CompletionReason.SCRIPT_FAILED)
    assert life.message == (
        "every sample was trained and committed; "
        "but after the end trainer digits-trainer-2 exited with 1; ValueError: no"
    )
    assert [e.reason for e in effects if isinstance(e, Announce)] == ["EndReached", "TrainerFailed", "Completed"]


def test_a_trainer_that_does_not_leave_at_the_end_is_told_to():
    """The farewell has a deadline."""
    life, _ = run(Life(policy=POLICY), EndReached())
    life, effects = run(life, PodsObserved(roles=ALL), now_s=99.0 + FINISHING_S)
    assert not effects
    assert life.leaving_roles == frozenset()
    life, _ = run(life, PodsObserved(roles=ALL), now_s=100.0 + FINISHING_S)
    assert life.leaving_roles == {Role.TRAINER}


def test_the_active_deadline_fails_the_job():
    """Counted from the first pods."""
    life, _ = run(Life(policy=replace(POLICY, active_deadline_s=60.0)), PodsObserved(roles=ALL))
    assert run(life, PodsObserved(roles=ALL), now_s=159.0)[0].ending is None
    life, _ = run(life, PodsObserved(roles=ALL), now_s=160.0)
    assert (life.ending, life.failure_reason) == (JobEnding.FAILED, FailureReason.DEADLINE_EXCEEDED)
    assert "activeDeadlineSeconds 60" in life.message


def test_the_active_deadline_stands_still_while_a_job_is_suspended():
    """As Kubernetes has it: a suspended job is not active, and its time begins anew with its next pods."""
    life, _ = run(
        Life(policy=replace(POLICY, active_deadline_s=60.0)), PodsObserved(roles=ALL), SuspendRequested(on=True)
    )
    life, _ = run(life, PodsObserved(roles=ALL), now_s=170.0)
    life, _ = run(life, PodsObserved(roles=frozenset()), now_s=180.0)
    assert life.stage is LifeStage.SUSPENDED
    life, _ = run(
        life, PodsObserved(roles=frozenset()), SuspendRequested(on=False), PodsObserved(roles=frozenset()), now_s=1000.0
    )
    life, _ = run(life, PodsObserved(roles=ALL), now_s=1010.0)
    assert run(life, PodsObserved(roles=ALL), now_s=1069.0)[0].ending is None
    assert run(life, PodsObserved(roles=ALL), now_s=1070.0)[0].ending is JobEnding.FAILED


def test_a_finished_job_is_forgotten_after_its_time():
    """ttlSecondsAfterFinished, from the end."""
    life = Life(policy=replace(POLICY, ttl_after_finished_s=5.0))
    life, _ = run(life, GivenUp(message="no"), PodsObserved(roles=frozenset()))
    assert run(life, PodsObserved(roles=frozenset()), now_s=104.0)[1] == []
    assert run(life, PodsObserved(roles=frozenset()), now_s=105.0)[1] == [DeleteJob()]


@pytest.mark.parametrize("before", [(), (EndReached(),), (GivenUp(message="no"),)])
def test_deletion_stops_everything_and_forgets(before):
    """At any stage."""
    life, _ = run(Life(policy=POLICY), PodsObserved(roles=ALL), *before, DeletionRequested())
    assert life.stage is LifeStage.STOPPING
    life, effects = run(life, PodsObserved(roles=frozenset()))
    assert life.stage is LifeStage.OVER
    assert DeleteJob() in effects


def test_suspension_lets_trainers_finish_and_servers_commit_before_the_rest_goes():
    """While they leave, the planner neither refills nor takes away the servers and the master that they need."""
    life, _ = run(Life(policy=POLICY), SuspendRequested(on=True), PodsObserved(roles=ALL))
    assert (life.state, life.leaving_roles) == (JobState.ENDING, {Role.TRAINER})
    life, effects = run(life, PodsObserved(roles=ALL - {Role.TRAINER}))
    assert (life.state, life.leaving_roles, effects) == (JobState.ENDING, {Role.TRAINER, Role.SERVER}, [])
    life, effects = run(life, PodsObserved(roles=frozenset({Role.MASTER})))
    assert (life.state, effects) == (JobState.SUSPENDED, [])


def test_a_job_without_servers_is_suspended_once_its_trainers_are_gone():
    life, _ = run(Life(policy=POLICY), SuspendRequested(on=True))
    assert life.leaving_roles == {Role.TRAINER}
    life, _ = run(life, PodsObserved(roles=frozenset({Role.MASTER})))
    assert life.state is JobState.SUSPENDED


def test_suspension_and_resumption_are_told_once():
    """At any of its stages."""
    life, effects = run(
        Life(policy=POLICY), SuspendRequested(on=True), SuspendRequested(on=True), PodsObserved(roles=frozenset())
    )
    assert [e.reason for e in effects] == ["Suspended"]
    life, effects = run(life, SuspendRequested(on=True), SuspendRequested(on=False), SuspendRequested(on=False))
    assert life.state is JobState.ACTIVE
    assert [e.reason for e in effects] == ["Resumed"]
