"""Pods tied to a node that are not bound there: one race lost, then the job waits."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.kubernetes.gangs import start_backoff
from autoscaler.clusters.kubernetes.gangs.start_backoff import (
    BIND_LIMIT_S,
    FORGOTTEN_AFTER_S,
    LONGEST_BIND_S,
    START_LIMIT_S,
    BindDeadline,
    GangStarts,
    GangStatus,
    StartBackoff,
    StartRecord,
)
from autoscaler.domain import JobName, PodName
from autoscaler.fault_isolation import GuardedTask, JobErrors

JOB = JobName("team/digits")


def pods(*names):
    return frozenset(PodName(f"team/digits-{name}") for name in names)


def gang(*, bound=(), unbound=(), is_starting=True):
    return GangStatus(job=JOB, is_starting=is_starting, bound=pods(*bound), unbound=pods(*unbound))


def look(starts, standing, now_s):
    """All jobs that stand, and none with which anything is wrong."""
    jobs = {item.job for item in standing}
    return start_backoff.observe_gangs(
        starts, standing, now_s, jobs=jobs, managed=jobs, errors=JobErrors(lambda: now_s)
    )


def wake_at_s(starts):
    return starts.record(JOB).late_at_s


def refuse(starts, job, now_s, refusal):
    return start_backoff.record_refusal(starts, job, now_s, refusal, generation=1)


def test_a_gang_bound_in_time_has_lost_nothing():
    starts, lost = look(GangStarts(), [gang(unbound=("trainer-0", "server-0"))], 0.0)
    assert (lost, wake_at_s(starts)) == ((), BIND_LIMIT_S)
    starts, lost = look(starts, [gang(bound=("trainer-0", "server-0"))], 9.0)
    assert (lost, wake_at_s(starts)) == ((), START_LIMIT_S)
    starts, lost = look(starts, [gang(bound=("trainer-0", "server-0"), is_starting=False)], 9.5)
    assert (lost, starts) == ((), GangStarts())


def test_a_gang_whose_master_is_not_made_in_time_goes_whole():
    """A start ends with the master's Deployment, one way or the other (ADR 0159)."""
    standing = gang(bound=("trainer-0", "server-0"))
    starts, _ = look(GangStarts(), [standing], 0.0)
    starts, lost = look(starts, [standing], START_LIMIT_S - 0.1)
    assert lost == ()
    starts, (lost,) = look(starts, [standing], START_LIMIT_S)
    assert (lost.pods, starts.record(JOB).begun) == (standing.bound, None)
    assert "its master's Deployment was not created within 20 s" in lost.reason
    assert starts.backoff(JOB) == StartBackoff(lost_races=1, hold_until_s=START_LIMIT_S + 10.0)


def test_a_start_that_is_refused_again_and_again_waits_longer_each_time():
    """That all its pods were bound meanwhile is no success."""
    starts, now_s, pauses = GangStarts(), 0.0, []
    for _ in range(7):
        starts, _ = look(starts, [gang(bound=("trainer-0",))], now_s)
        starts = refuse(starts, JOB, now_s + 1.0, "no")
        pauses.append(starts.backoff(JOB).hold_until_s - (now_s + 1.0))
        assert (starts.backoff(JOB).refusal, starts.record(JOB).begun) == ("no", None)
        starts, _ = look(starts, [gang()], now_s + 1.0)
        now_s += 100.0
    assert pauses == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


def test_pods_that_the_scheduler_binds_at_its_own_pace_have_lost_nothing():
    """A gang of 1,000 takes kube-scheduler 40 s at 25 pods a second; so do many small gangs together."""
    names = [f"trainer-{number}" for number in range(1_000)]
    starts = GangStarts()
    for second in range(41):
        bound = names[: 25 * second]
        starts, lost = look(starts, [gang(bound=bound, unbound=names[25 * second :])], float(second))
        assert lost == ()
        assert wake_at_s(starts) == (40.0 if second < 40 else 50.0)


def test_no_number_of_pods_makes_a_race_endless():
    """The room of a lost one comes back (A11)."""
    names = [f"trainer-{number}" for number in range(10_000)]
    starts, _ = look(GangStarts(), [gang(unbound=names)], 0.0)
    assert wake_at_s(starts) == LONGEST_BIND_S
    _, (lost,) = look(starts, [gang(unbound=names)], LONGEST_BIND_S)
    assert len(lost.pods) == len(names)
    assert "not bound within 120 s" in lost.reason


def test_a_starting_gang_with_one_pod_left_over_goes_whole():
    standing = gang(bound=("server-0",), unbound=("trainer-0",))
    starts, _ = look(GangStarts(), [standing], 0.0)
    starts, (lost,) = look(starts, [standing], 10.0)
    assert lost.pods == pods("server-0", "trainer-0")
    assert "team/digits-trainer-0 not bound within 10 s" in lost.reason
    assert starts.backoff(JOB) == StartBackoff(lost_races=1, hold_until_s=20.0)


def test_a_running_job_loses_that_pod_alone():
    standing = gang(bound=("trainer-0",), unbound=("trainer-1",), is_starting=False)
    starts, _ = look(GangStarts(), [standing], 0.0)
    _, (lost,) = look(starts, [standing], 10.0)
    assert lost.pods == pods("trainer-1")


def test_a_running_job_waits_though_all_that_is_left_is_bound():
    standing = gang(bound=("trainer-0",), unbound=("trainer-1",), is_starting=False)
    starts, _ = look(GangStarts(), [standing], 0.0)
    starts, _ = look(starts, [standing], 10.0)
    left = gang(bound=("trainer-0",), is_starting=False)
    starts, _ = look(starts, [left], 10.1)
    assert starts.backoff(JOB).hold_until_s == 20.0
    starts, _ = look(starts, [left], 20.0 + FORGOTTEN_AFTER_S)
    assert starts == GangStarts()


def test_a_running_job_that_loses_again_waits_longer_until_it_wins():
    """Between its pause and the next pod all that stands is bound, and that is no race won."""
    starts, now_s, pauses = GangStarts(), 0.0, []
    left = gang(bound=("trainer-0",), is_starting=False)
    one_more = gang(bound=("trainer-0",), unbound=("trainer-1",), is_starting=False)
    for _ in range(4):
        starts, _ = look(starts, [one_more], now_s)
        starts, _ = look(starts, [one_more], now_s + 10.0)
        pauses.append(starts.backoff(JOB).hold_until_s - (now_s + 10.0))
        now_s = starts.backoff(JOB).hold_until_s + 5.0
        starts, _ = look(starts, [left], now_s)
    assert pauses == [10.0, 20.0, 40.0, 40.0]
    starts, _ = look(starts, [one_more], now_s)
    starts, _ = look(starts, [gang(bound=("trainer-0", "trainer-1"), is_starting=False)], now_s + 1.0)
    assert starts == GangStarts()


def test_what_the_scheduler_said_of_a_lost_pod_stands_until_the_job_wins():
    """Between two tries nothing of it stands, and its owner still reads why."""
    standing = replace(gang(unbound=("trainer-0",)), unschedulable_reason="unbound claim")
    starts, _ = look(GangStarts(), [standing], 0.0)
    starts, _ = look(starts, [standing], 10.0)
    starts, _ = look(starts, [gang()], 11.0)
    assert starts.backoff(JOB).unschedulable_reason == "unbound claim"
    starts, _ = look(starts, [gang(bound=("trainer-0",))], 30.0)
    starts, _ = look(starts, [gang(bound=("trainer-0",), is_starting=False)], 31.0)
    assert starts.backoff(JOB).unschedulable_reason == ""


def test_pauses_double_and_three_lost_races_are_told():
    starts, now_s, pauses = GangStarts(), 0.0, []
    for attempt in range(4):
        standing = gang(unbound=(f"trainer-{attempt}",))
        starts, _ = look(starts, [standing], now_s)
        starts, _ = look(starts, [standing], now_s + 10.0)
        pauses.append(starts.backoff(JOB).hold_until_s - (now_s + 10.0))
        assert starts.backoff(JOB).is_capacity_taken is (attempt >= 2)
        now_s += 100.0
        starts, _ = look(starts, [gang()], now_s)  # nothing of it stands while it waits
    assert pauses == [10.0, 20.0, 40.0, 40.0]


def test_a_start_that_succeeds_forgets_what_was_lost():
    starts = refuse(refuse(GangStarts(), JOB, 0.0, "no"), JOB, 10.0, "no")
    assert starts.backoff(JOB).hold_until_s == 30.0
    starts, _ = look(starts, [gang(bound=("trainer-0",))], 40.0)
    starts, _ = look(starts, [gang(bound=("trainer-0",), is_starting=False)], 41.0)
    assert starts == GangStarts()


def test_refusals_count_from_the_last_race_that_was_lost_otherwise():
    """Whose room was taken was not refused: the pauses beyond 40 s are for refusals in a row."""
    starts, _ = look(GangStarts(), [gang(unbound=("trainer-0",))], 0.0)
    starts, _ = look(starts, [gang(unbound=("trainer-0",))], 10.0)
    pauses = []
    for _ in range(4):
        starts = refuse(starts, JOB, 100.0, "no")
        pauses.append(starts.backoff(JOB).hold_until_s - 100.0)
    assert pauses == [20.0, 40.0, 40.0, 80.0]


def test_a_job_that_is_gone_is_forgotten():
    starts, _ = look(refuse(GangStarts(), JOB, 0.0, "no"), [], 1.0)
    assert starts == GangStarts()


def test_a_job_of_which_nothing_can_be_said_keeps_its_limits_and_its_pause():
    """A fault of EDL with one look is no end of its start, and lifts no pause (A11)."""
    starts, _ = look(refuse(GangStarts(), JOB, 0.0, "no"), [gang(unbound=("trainer-0",))], 1.0)
    kept, lost = start_backoff.observe_gangs(starts, [], 2.0, jobs={JOB}, managed={JOB}, errors=JobErrors(lambda: 2.0))
    assert (kept, lost) == (starts, ())


def test_a_job_that_is_not_managed_for_a_while_keeps_what_it_has_lost():
    """Its pause goes on; no pod of it is waited for meanwhile."""
    refused = refuse(GangStarts(), JOB, 0.0, "no")
    starts, _ = look(refused, [gang(unbound=("trainer-0",))], 1.0)
    kept, lost = start_backoff.observe_gangs(starts, [], 2.0, jobs={JOB}, managed=set(), errors=JobErrors(lambda: 2.0))
    assert (kept, lost, wake_at_s(kept)) == (refused, (), math.inf)
    starts, _ = look(GangStarts(), [gang(unbound=("trainer-0",))], 1.0)
    kept, _ = start_backoff.observe_gangs(starts, [], 2.0, jobs={JOB}, managed=set(), errors=JobErrors(lambda: 2.0))
    assert kept == GangStarts()


def test_a_fault_with_one_job_is_noted_and_the_other_loses_its_race():
    """What cannot be taken in of one job stops no other, and its account stays (A11)."""
    poisoned, pod = JobName("team/poisoned"), PodName("team/poisoned-trainer-0")
    before = StartRecord(unbound={pod: BindDeadline(since_s=0.0, limit_s=None)})
    honest = StartRecord(unbound={one: BindDeadline(since_s=0.0, limit_s=BIND_LIMIT_S) for one in pods("trainer-0")})
    starts = GangStarts(records={poisoned: before, JOB: honest})
    standing = [
        GangStatus(job=poisoned, is_starting=True, unbound=frozenset([pod])),
        gang(unbound=("trainer-0",)),
    ]
    errors = JobErrors(lambda: BIND_LIMIT_S)
    jobs = {poisoned, JOB}
    starts, lost = start_backoff.observe_gangs(starts, standing, BIND_LIMIT_S, jobs=jobs, managed=jobs, errors=errors)
    assert [one.job for one in lost] == [JOB]
    assert errors.fails(poisoned, GuardedTask.POD_BINDING)
    assert starts.record(poisoned) == before


def test_a_job_that_is_edited_after_a_refusal_is_tried_again_at_once():
    """What was refused is no longer what it asks for; edits in a row try it every 10 s at most."""
    starts = GangStarts()
    for attempt in range(5):
        starts = refuse(starts, JOB, 1_000.0 * attempt, "no")
    race = starts.backoff(JOB)
    assert race.held_until_s(1) == 4_000.0 + 160.0
    assert race.held_until_s(2) == 4_000.0 + 10.0


def test_an_edit_ends_no_pause_after_a_lost_race():
    """Others took its room, whatever it asks for."""
    starts, _ = look(GangStarts(), [gang(unbound=("trainer-0",))], 0.0)
    starts, _ = look(starts, [gang(unbound=("trainer-0",))], 10.0)
    assert starts.backoff(JOB).held_until_s(1) == starts.backoff(JOB).held_until_s(2) == 20.0


NAMES = st.frozensets(st.sampled_from(["a", "b", "c"]))


@given(
    steps=st.lists(st.tuples(st.floats(0.0, 6.0), NAMES, NAMES, st.booleans()), max_size=20),
)
def test_no_pod_goes_before_its_time_and_none_stays_beyond_it(steps):
    starts, now_s, since_s, begun_s = GangStarts(), 0.0, {}, None
    for passed_s, bound, unbound, is_starting in steps:
        now_s += passed_s
        standing = gang(bound=bound - unbound, unbound=unbound, is_starting=is_starting)
        since_s = {pod: since_s.get(pod, now_s) for pod in standing.unbound}
        late = {pod for pod, at_s in since_s.items() if now_s - at_s >= BIND_LIMIT_S}
        there = standing.bound | standing.unbound
        begun_s = (now_s if begun_s is None else begun_s) if is_starting and there else None
        has_lost = bool(late) or (begun_s is not None and now_s - begun_s >= START_LIMIT_S)
        starts, lost = look(starts, [standing], now_s)
        gone = lost[0].pods if lost else frozenset()
        assert late <= gone <= (there if has_lost else frozenset())
        assert gone == (there if is_starting and has_lost else late)
        begun_s = None if has_lost else begun_s
        for pod in gone:
            since_s.pop(pod, None)
