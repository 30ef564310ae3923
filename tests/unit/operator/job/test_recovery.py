"""A new leader's picture of a job's life: what stands decides, and no forged status speaks against it (ADR 0152)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import Role
from autoscaler.jobs.life_events import FailureReason
from autoscaler.jobs.lifecycle import CompletionReason, JobEnding, LifeStage
from autoscaler.operator.job.job_pods import roles_of
from autoscaler.operator.job.recovery import FoundJob, recover_life
from tests.unit.clusters.kubernetes.raw_objects import CREATED_S, UID, kube_job, raw_pod

NOW_S = 5_000.0
OFFSET_S = NOW_S - (CREATED_S + 1_000.0)  # the job is a thousand seconds old
OWNER = {"kind": "TrainingJob", "apiVersion": "edl.dev/v1alpha1", "uid": UID, "controller": True, "name": "digits"}


def pod(role="trainer", number=0, *, is_leaving=False, **status):
    return raw_pod(
        f"digits-{role}-{number}",
        node="n1",
        labels={"edl.dev/job": "digits", "edl.dev/role": role, "edl.dev/tier": "core"},
        owner=OWNER,
        meta={"deletionTimestamp": "2026-01-02T03:05:00Z"} if is_leaving else None,
        status=status or None,
    )


def told(kind, *, message="why", status="True"):
    return {"type": kind, "status": status, "message": message}


def found(*pods, conditions=(), **status):
    raws = list(pods)
    return FoundJob(
        status={"conditions": list(conditions)} | status, pods=raws, roles=roles_of(raws, has_master=bool(raws))
    )


def life(what, **spec):
    return recover_life(kube_job(**spec), what, offset_s=OFFSET_S, now_s=NOW_S)


def test_a_new_job_is_active():
    new = life(found())
    assert (new.stage, new.ending, new.started_at_s, new.failures) == (LifeStage.ACTIVE, None, None, 0)


@pytest.mark.parametrize("ending", [JobEnding.COMPLETED, JobEnding.FAILED])
def test_an_ending_is_believed_when_nothing_stands(ending):
    restored = life(found(conditions=[told(ending)], completionTime="2026-01-02T03:10:00Z"))
    assert (restored.stage, restored.ending, restored.message) == (LifeStage.OVER, ending, "why")
    assert restored.ended_at_s == pytest.approx(CREATED_S + 355 + OFFSET_S)


@pytest.mark.parametrize(
    ("written", "reason"),
    [*((reason.value, reason) for reason in FailureReason), ("Anything", FailureReason.GIVEN_UP)],
)
def test_the_reason_of_a_failure_is_kept(written, reason):
    restored = life(found(conditions=[told("Failed") | {"reason": written}]))
    assert (restored.ending, restored.failure_reason) == (JobEnding.FAILED, reason)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("NoModelKept", CompletionReason.NO_MODEL_KEPT),
        ("ScriptFailed", CompletionReason.SCRIPT_FAILED),
        ("AllTrained", CompletionReason.ALL_TRAINED),
        ("StoppedEarly", CompletionReason.STOPPED_EARLY),
        ("x", CompletionReason.ALL_TRAINED),
    ],
)
def test_the_reason_of_a_completion_is_kept(written, reason):
    assert life(found(conditions=[told("Completed") | {"reason": written}])).completion_reason is reason


def test_an_ending_goes_on_stopping_what_is_left():
    restored = life(found(pod("server"), pod("trainer", is_leaving=True), conditions=[told("Failed")]))
    assert (restored.stage, restored.ending, restored.stopped_role_count) == (LifeStage.STOPPING, JobEnding.FAILED, 1)


@pytest.mark.parametrize("ending", [JobEnding.COMPLETED, JobEnding.FAILED])
def test_an_ending_beside_a_standing_trainer_is_not_believed(ending):
    """A forged status ends nothing that runs."""
    assert life(found(pod(), conditions=[told(ending)])).ending is None


def test_a_condition_that_is_not_true_ends_nothing():
    assert life(found(conditions=[told("Completed", status="False")])).ending is None


def test_failures_are_believed_below_the_limit():
    """A number alone fails no job."""
    assert life(found(failures=2), runPolicy={"backoffLimit": 6}).failures == 2
    assert life(found(failures=99), runPolicy={"backoffLimit": 6}).failures == 5
    assert life(found(failures=-3)).failures == 0


def test_a_suspended_job_is_found_suspended():
    spec = {"runPolicy": {"suspend": True}}
    assert life(found(), **spec).stage is LifeStage.SUSPENDED
    assert life(found(pod()), **spec).stage is LifeStage.SUSPENDING


def test_a_start_is_believed_within_what_stands():
    early, late = "2001-01-01T00:00:00Z", "2090-01-01T00:00:00Z"
    assert life(found(pod(), startTime=early)).started_at_s == pytest.approx(CREATED_S + OFFSET_S)
    assert life(found(startTime=late)).started_at_s == NOW_S
    assert life(found(pod(), startTime=late)).started_at_s == pytest.approx(CREATED_S + OFFSET_S)
    assert life(found(pod(), startTime="soon")).started_at_s is None


words = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20), st.lists(st.integers(), max_size=2))
forged = st.fixed_dictionaries(
    {},
    optional={
        "conditions": st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["Completed", "Failed", "Suspended", "x"]), "status": words, "message": words}
            ),
            max_size=4,
        ),
        "failures": words,
        "startTime": st.one_of(words, st.just("1900-01-01T00:00:00Z"), st.just("2999-01-01T00:00:00Z")),
        "completionTime": st.one_of(words, st.just("1900-01-01T00:00:00Z")),
    },
)


@given(forged, st.sampled_from([{}, {"suspend": True}]))
def test_no_status_ends_a_job_whose_trainers_stand(status, policy):
    pods = [pod(), pod("server")]
    what = FoundJob(status=status, pods=pods, roles=frozenset({Role.TRAINER, Role.SERVER, Role.MASTER}))
    restored = recover_life(kube_job(runPolicy=policy), what, offset_s=OFFSET_S, now_s=NOW_S)
    assert restored.ending is None
    assert restored.stage in {LifeStage.ACTIVE, LifeStage.SUSPENDING}
    assert restored.failures < max(1, restored.policy.backoff_limit)
    if restored.started_at_s is not None:
        assert CREATED_S + OFFSET_S <= restored.started_at_s <= NOW_S
