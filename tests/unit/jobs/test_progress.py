"""What the cluster side takes out of a master's status."""

from dataclasses import replace

from autoscaler.jobs.progress import merge_progress, progress_of
from autoscaler.jobs.progress_events import (
    early_exit_problem,
    has_opened_no_session,
    no_session_problem,
    progress_events,
)
from master.api.identities import MemberRole
from master.api.master_status import JobPhase, JobStatus, MemberStatus, PositionCounts
from master.api.positions import EMPTY


def member(name, *, loss=None, is_connected=True, samples_per_s=100.0, waiting_share=0.0):
    return MemberStatus(
        name=name,
        role=MemberRole.TRAINER,
        ordinal=0,
        is_connected=is_connected,
        is_serving=True,
        leased=0,
        steps=1,
        samples_per_s=samples_per_s,
        metrics={} if loss is None else {"loss": loss},
        waiting_share=waiting_share,
    )


def server(name, took_over=0):
    return replace(member(name), role=MemberRole.SERVER, took_over=took_over)


def status(phase=JobPhase.TRAINING, members=(), problem="", resize_pause_s=0.0):
    counts = PositionCounts(total=1000, todo=500, leased=100, done=100, skipping=0, committed=300, quarantined=0)
    return JobStatus(
        phase=phase,
        problem=problem,
        checkpoint_problem="",
        store_problem="",
        moves_problem="",
        term=2,
        lineage=1,
        head=None,
        checkpoint_age_s=None,
        epochs=10,
        epoch_size=100,
        positions=counts,
        per_epoch=(),
        epochs_committed=3,
        quarantine=EMPTY,
        reworked=7,
        members=members,
        servers=2,
        servers_wanted=3,
        servers_max=4,
        moving=1,
        waiting_to_move=5,
        copies=2,
        single_copies=3,
        failures=(),
        failures_in_a_row=0,
        resize_pause_s=resize_pause_s,
    )


def test_members_whose_stream_is_broken_are_not_connected():
    """That is how a server is heard of."""
    members = (member("here"), member("away", is_connected=False))
    assert progress_of(status(members=members)).connected == {"here"}


def test_done_includes_what_is_committed():
    """So that progress is one number that grows."""
    progress = progress_of(status())
    assert (progress.done, progress.committed, progress.total, progress.epoch) == (400, 300, 1000, 4)


def test_metrics_are_means_and_throughput_a_sum_of_those_present():
    """Trainers that report nothing do not count as zero."""
    progress = progress_of(
        status(members=(member("a", loss=1.0), member("b", loss=3.0), member("c", is_connected=False)))
    )
    assert progress.loss == 2.0
    assert progress.samples_per_s == 200.0


def test_waiting_is_the_mean_over_those_that_train():
    """One that has only begun, or has gone, knows nothing of how fast servers answer."""
    members = (
        member("a", waiting_share=0.5),
        member("b", waiting_share=0.3),
        member("new", samples_per_s=0.0),
        member("gone", waiting_share=1.0, is_connected=False),
    )
    assert progress_of(status(members=members)).waiting_share == 0.4
    assert progress_of(status()).waiting_share == 0.0


def test_pause_of_a_resize_is_kept_until_another_is_measured():
    """A new master has heard no member yet, and those that measured it may all have left (ADR 0234)."""
    measured = progress_of(status(resize_pause_s=3.5))
    assert measured.resize_pause_s == 3.5
    assert merge_progress(measured, progress_of(status())).resize_pause_s == 3.5
    assert merge_progress(measured, progress_of(status(resize_pause_s=0.5))).resize_pause_s == 0.5


def test_the_end_and_a_failure_are_known_by_the_phase():
    """END comes after the final save; a failure brings its reason."""
    assert progress_of(status(JobPhase.COMPLETE)).is_complete
    assert not progress_of(status(JobPhase.SAVING)).is_complete
    failed = progress_of(status(JobPhase.FAILED, problem="no"))
    assert (failed.has_failed, failed.problem) == (True, "no")


ALONE = {"has_servers": False, "is_group": False}
WITH_SERVERS = ALONE | {"has_servers": True}


def test_a_script_that_ends_too_soon_hears_what_it_should_have_done():
    """One that never declared anything hears of that, and of the servers or the model that its job has."""
    declared = progress_of(status())
    assert "its loop over the session's data set" in early_exit_problem(declared, **WITH_SERVERS)
    assert "nothing is known of a data set yet: a script loops over" in early_exit_problem(None, **WITH_SERVERS)
    assert "loader.stop()" in early_exit_problem(declared, **ALONE | {"is_group": True})
    nothing = replace(declared, epochs=0, total=0)
    assert "spec.parameterServer" in early_exit_problem(nothing, **WITH_SERVERS)
    assert "session.dataset" in early_exit_problem(nothing, **ALONE)
    assert "parameterServer" not in early_exit_problem(nothing, **ALONE)
    in_group = early_exit_problem(nothing, **ALONE | {"is_group": True})
    assert "replicate(" in in_group
    assert "session.dataset" not in in_group


def test_trainers_once_heard_stay_heard_under_a_later_master():
    """A new master has heard none yet; a standby, whose term has not begun, knows nothing of them."""
    unheard = replace(status(), epochs=0, has_heard_trainers=False)
    first = progress_of(unheard)
    assert has_opened_no_session(first)
    assert not has_opened_no_session(progress_of(status()))
    assert not has_opened_no_session(None)
    heard = merge_progress(first, progress_of(replace(unheard, has_heard_trainers=True)))
    assert not has_opened_no_session(merge_progress(heard, first))
    before_its_term = replace(heard, term=0, total=0)
    assert not has_opened_no_session(before_its_term)
    assert has_opened_no_session(merge_progress(before_its_term, first))


def test_missing_lines_are_those_of_the_job_s_kind():
    assert "loader.backward(loss)" in no_session_problem(is_group=True)
    assert "docs/pytorch.md" in no_session_problem(is_group=True)
    assert "batch.done()" in no_session_problem(is_group=False)


def test_copies_are_told_and_who_took_over():
    told = progress_of(status(members=(server("s-0"), server("s-1", took_over=32))))
    assert (told.copies, told.single_copy_buckets, told.buckets_taken_over) == (2, 3, (("s-1", 32),))


def news(before, now, **more):
    """What is news when servers' counts were `before` and are `now`."""
    earlier, later = (
        replace(progress_of(status()), buckets_taken_over=tuple(found.items())) for found in (before, now)
    )
    return progress_events(earlier, replace(later, **more))


def test_a_lost_server_whose_buckets_go_on_is_told_with_who_has_them():
    """Once; and again when another one is lost, under a new master and of a new process too."""
    words = "which had their second copies: nothing is trained again"
    assert news({}, {"s-1": 32}) == (("ServerLost", f"32 buckets continue on s-1, {words}"),)
    assert news({}, {"s-1": 1}) == (("ServerLost", f"one bucket continues on s-1, {words}"),)
    assert news({"s-1": 32}, {"s-1": 32}) == ()
    assert "30 buckets continue on s-1" in str(news({"s-1": 2}, {"s-1": 32}))
    assert "32 buckets continue on s-1" in str(news({"s-1": 32}, {"s-1": 32}, term=3))
    assert "2 buckets continue on s-1" in str(news({"s-1": 32}, {"s-1": 2}))
    assert len(news({}, {"s-0": 1, "s-1": 1})) == 2
    assert news({}, {"s-1": 32}, phase=JobPhase.COMPLETE) == (), "servers that leave at the job's end are not lost"


def test_servers_that_leave_one_before_the_other_are_not_lost():
    """A job that is suspended or deleted: the buckets of the first are the second's for a moment."""
    before = progress_of(status())
    after = replace(before, buckets_taken_over=(("s-1", 32),), reworked=before.reworked + 8)
    assert [reason for reason, _ in progress_events(before, after, is_active=False)] == ["RolledBack"]


def test_what_is_trained_again_is_told_with_how_much_it_is():
    """Where the second copy is lost too, `nothing is trained again` is not the last word."""
    before = progress_of(status())
    ((reason, message),) = progress_events(before, replace(before, reworked=before.reworked + 1576))
    assert (reason, message.split(":")[0]) == ("RolledBack", "1,576 positions are trained again")
    assert progress_events(before, replace(before, reworked=3, term=before.term + 1)) == (), (
        "another master counts anew"
    )


def looks(*said):
    """What is news, look after look, of what masters say."""
    told, before = [], None
    for now in said:
        followed = merge_progress(before, now)
        told.append(
            [
                message.partition(" ")[0]
                for reason, message in progress_events(before, followed)
                if reason == "RolledBack"
            ]
        )
        before = followed
    assert before.reworked_in_all == 7 + sum(int(count) for counts in told for count in counts)
    return told


def test_a_master_that_is_lost_with_a_server_is_followed_by_one_that_cannot_know_what_was_done():
    """It tells what is committed, and once too few servers have come it goes back there under the next lineage."""
    old = progress_of(status())
    new = replace(old, term=3, done=300, reworked=0, phase=JobPhase.WAITING_FOR_SERVERS)
    back = replace(new, lineage=2, phase=JobPhase.RESTORING)
    on = replace(back, done=320, phase=JobPhase.TRAINING)
    lost_again = replace(on, done=300, reworked=20, lineage=3)
    assert looks(old, new, new, back, on, lost_again) == [[], [], [], ["100"], [], ["20"]]
    assert looks(old, back) == [[], ["100"]]
    half = replace(new, done=390, phase=JobPhase.TRAINING)  # 10 have yet to be trained again, and then all are lost
    undone = replace(half, done=300, reworked=90, phase=JobPhase.WAITING_FOR_SERVERS)
    assert looks(old, new, half, undone, replace(undone, lineage=2)) == [[], [], [], ["90"], ["10"]]
    assert looks(old, half, replace(undone, lineage=2)) == [[], [], ["100"]]


def test_a_new_master_whose_servers_are_all_there_sets_nothing_back():
    """Nor does a job that goes on after a suspension with all that it had committed meanwhile."""
    old = progress_of(status())
    new = replace(old, term=3, done=300, reworked=0, phase=JobPhase.WAITING_FOR_SERVERS)
    served = replace(new, done=400, phase=JobPhase.TRAINING)
    assert looks(old, new, served, replace(served, lineage=2)) == [[], [], [], []]
    resumed = replace(new, done=410)
    assert looks(old, resumed, replace(resumed, lineage=2)) == [[], [], []]


def test_whoever_looks_for_the_first_time_hears_of_no_earlier_losses():
    """An operator that starts would tell them all again."""
    assert progress_events(None, replace(progress_of(status()), buckets_taken_over=(("s-1", 32),))) == ()


def test_a_master_that_cannot_begin_knows_nothing_and_hides_nothing():
    """What was trained and committed is told as before, and what goes back afterwards is counted from it."""
    before = progress_of(status())
    nothing = PositionCounts(total=0, todo=0, leased=0, done=0, skipping=0, committed=0, quarantined=0)
    waiting = replace(status(phase=JobPhase.STARTING, problem="file x"), term=0, lineage=0, epochs=0, positions=nothing)
    told = merge_progress(before, progress_of(waiting))
    assert (told.phase, told.problem) == (JobPhase.STARTING, "file x")
    assert (told.done, told.committed, told.epochs, told.training) == (before.done, before.committed, 10, 0)
    fewer = PositionCounts(total=1000, todo=700, leased=0, done=0, skipping=0, committed=300, quarantined=0)
    fallen = replace(status(), term=3, lineage=2, positions=fewer, reworked=0, fell_back="fell back to 1: file x")
    news = dict(progress_events(told, merge_progress(told, progress_of(fallen))))
    assert news["FellBack"] == "fell back to 1: file x"
    assert news["RolledBack"].startswith("100 positions are trained again")


def test_each_fallback_is_told_and_told_once():
    """Every master tells of the last one until the job goes on from elsewhere; another one costs other samples."""
    first = replace(progress_of(status()), fell_back="fell back to 1: 40 samples go back")
    assert dict(progress_events(None, first))["FellBack"] == first.fell_back
    waiting = merge_progress(first, replace(first, term=0, total=0, problem="file y", fell_back=""))
    same = merge_progress(waiting, replace(first, term=4))
    assert "FellBack" not in dict(progress_events(waiting, same))
    second = merge_progress(waiting, replace(first, term=4, fell_back="fell back to 7: 90 samples go back"))
    assert dict(progress_events(waiting, second))["FellBack"] == second.fell_back


def test_data_that_differ_between_trainers_are_told_once_and_stop_nothing():
    """An event when it is found; the job trains on."""
    quiet = progress_of(status())
    told = progress_of(replace(status(), data_problem="position 4"))
    assert ("DataDiffers", "position 4") in progress_events(quiet, told)
    assert progress_events(told, told) == ()
