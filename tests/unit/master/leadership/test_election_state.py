"""The life of one candidate, decision by decision."""

import pytest

from master.errors import InvalidSettingError
from master.leadership.election_events import (
    Campaign,
    CampaignEnded,
    CampaignWon,
    GiveBack,
    LeaderVanished,
    LeaseLost,
    LossReason,
    Renew,
    RenewFailed,
    RenewSucceeded,
    ResignRequested,
    StartLeading,
    StopLeading,
    Ticked,
)
from master.leadership.election_state import ElectionRole, ElectionState, LeadershipTiming, check, handle
from master.store.store_port import Leadership

TIMING = LeadershipTiming(lease_ttl_s=6, renew_deadline_s=4.0, retry_period_s=1.0)
MINE = Leadership(term=7, lease=70, holder="me")


class Candidate:
    """Feeds events to the decisions and checks the invariants after each."""

    def __init__(self):
        self.state = ElectionState(timing=TIMING)

    def on(self, event, now_s):
        step = handle(self.state, event, now_s)
        check(step.state)
        self.state = step.state
        return step.effects


@pytest.fixture
def candidate():
    return Candidate()


@pytest.fixture
def leader(candidate):
    assert candidate.on(Ticked(), 0.0) == (Campaign(),)
    assert candidate.on(CampaignWon(leadership=MINE, sent_s=0.0), 0.5) == (StartLeading(leadership=MINE),)
    return candidate


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"lease_ttl_s": 4, "renew_deadline_s": 4.0}, "leadership.lease_ttl_s"),
        ({"renew_deadline_s": 1.0, "retry_period_s": 1.0}, "leadership.renew_deadline_s"),
        ({"retry_period_s": 0.0}, "leadership.retry_period_s"),
        ({"retry_period_s": float("nan")}, "leadership.retry_period_s"),
    ],
)
def test_timing_that_breaks_the_rule_is_refused_by_field(settings, field):
    """lease ttl > renew deadline > retry period > 0, checked before anything starts."""
    with pytest.raises(InvalidSettingError) as refusal:
        LeadershipTiming(**settings)
    assert refusal.value.path == field


def test_campaign_that_ended_is_tried_again_after_the_retry_period(candidate):
    """A standby neither gives up nor hurries."""
    candidate.on(Ticked(), 0.0)
    assert candidate.on(CampaignEnded(), 0.2) == ()
    assert candidate.on(Ticked(), 1.1) == ()
    assert candidate.on(Ticked(), 1.2) == (Campaign(),)
    assert candidate.on(Ticked(), 9.0) == ()


def test_follower_campaigns_at_once_when_the_leader_vanishes(candidate):
    """A standby serves within the lease, not a retry period later (M5)."""
    candidate.on(Ticked(), 0.0)
    candidate.on(CampaignEnded(), 0.2)
    assert candidate.on(LeaderVanished(), 0.3) == (Campaign(),)
    assert candidate.on(LeaderVanished(), 0.4) == ()


def test_leader_renews_each_retry_period(leader):
    """One renewal at a time, and each that succeeds moves the deadline from when it was sent."""
    assert leader.on(Ticked(), 0.9) == ()
    assert leader.on(Ticked(), 1.0) == (Renew(leadership=MINE),)
    assert leader.on(Ticked(), 2.5) == ()
    assert leader.on(RenewSucceeded(leadership=MINE, sent_s=1.0), 2.6) == ()
    assert leader.state.stop_acting_s == 5.0
    assert leader.on(Ticked(), 3.6) == (Renew(leadership=MINE),)


def test_leader_that_cannot_renew_stops_before_the_lease_ends(leader):
    """It stops at the renew deadline, counted from before the last success was sent (M5)."""
    leader.on(Ticked(), 1.0)
    leader.on(RenewFailed(leadership=MINE, sent_s=1.0), 2.0)
    assert leader.on(Ticked(), 3.0) == (Renew(leadership=MINE),)
    assert leader.state.may_act(3.9)
    assert not leader.state.may_act(4.0)
    stop = StopLeading(leadership=MINE, reason=LossReason.NOT_RENEWED)
    assert leader.on(Ticked(), 4.0) == (stop, GiveBack(leadership=MINE))
    assert leader.state.role is ElectionRole.FOLLOWER


def test_leader_that_slept_past_its_deadline_stops_whatever_comes_first(leader):
    """After a long pause a failure, a stale success or a vanished leader finds a follower."""
    for event in (
        RenewFailed(leadership=MINE, sent_s=1.0),
        RenewSucceeded(leadership=MINE, sent_s=1.0),
        LeaderVanished(),
    ):
        step = handle(leader.state, event, 60.0)
        check(step.state)
        assert step.effects[0] == StopLeading(leadership=MINE, reason=LossReason.NOT_RENEWED)


def test_renewal_sent_late_and_answered_later_keeps_the_lease(leader):
    """What counts is when it was sent."""
    leader.on(Ticked(), 3.9)
    assert leader.on(RenewSucceeded(leadership=MINE, sent_s=3.9), 4.8) == ()
    assert leader.state.may_act(7.8)


def test_lost_lease_ends_the_term_at_once(leader):
    """The store says that the lease is gone."""
    effects = leader.on(LeaseLost(leadership=MINE), 1.0)
    assert effects[0] == StopLeading(leadership=MINE, reason=LossReason.LEASE_LOST)


def test_answers_of_an_older_term_change_nothing(leader):
    """A late answer means its own term only (M2)."""
    older = Leadership(term=3, lease=30, holder="me")
    before = leader.state
    for event in (
        RenewSucceeded(leadership=older, sent_s=1.0),
        RenewFailed(leadership=older, sent_s=1.0),
        LeaseLost(leadership=older),
        CampaignEnded(),
    ):
        assert leader.on(event, 1.0) == ()
        assert leader.state == before


def test_win_that_comes_too_late_is_given_back(candidate):
    """Half of its lease may be over, so it is not acted on."""
    candidate.on(Ticked(), 0.0)
    assert candidate.on(CampaignWon(leadership=MINE, sent_s=0.0), 4.0) == (GiveBack(leadership=MINE),)
    assert candidate.state.role is ElectionRole.FOLLOWER
    assert candidate.on(Ticked(), 4.9) == ()
    assert candidate.on(Ticked(), 5.0) == (Campaign(),)


def test_resigned_leader_gives_back_and_campaigns_no_more(leader):
    """A master that ends lets its standby in at once."""
    stop = StopLeading(leadership=MINE, reason=LossReason.RESIGNED)
    assert leader.on(ResignRequested(), 2.0) == (stop, GiveBack(leadership=MINE))
    assert leader.on(Ticked(), 99.0) == ()
    assert leader.on(LeaderVanished(), 99.0) == ()
    assert leader.on(CampaignWon(leadership=MINE, sent_s=99.0), 99.0) == (GiveBack(leadership=MINE),)
    assert leader.state.role is ElectionRole.RESIGNED


@pytest.fixture
def lone_leader():
    lone = Candidate()
    lone.state = ElectionState(timing=TIMING, is_alone=True)
    lone.on(Ticked(), 0.0)
    lone.on(CampaignWon(leadership=MINE, sent_s=0.0), 0.5)
    return lone


def test_the_only_master_goes_on_while_its_renewals_are_not_answered(lone_leader):
    """Nobody else can lead while the store is silent: it acts and renews, and its term outlives the silence (M6)."""
    for at_s in (1.0, 3.0, 5.0, 7.0):
        assert lone_leader.on(Ticked(), at_s) == (Renew(leadership=MINE),)
        assert lone_leader.on(RenewFailed(leadership=MINE, sent_s=at_s), at_s + 1.0) == ()
        assert lone_leader.state.may_act(at_s + 2.9)
    lone_leader.on(Ticked(), 9.0)
    assert lone_leader.on(RenewSucceeded(leadership=MINE, sent_s=9.0), 9.1) == ()
    assert lone_leader.state.stop_acting_s == 13.0


def test_the_only_master_asks_before_it_acts_after_a_pause_of_its_own(lone_leader):
    """Paused past the lease: nothing leaves until the store has answered, and a lost lease ends the term (M2).

    A renewal from before the pause that was given up says nothing of the store.
    """
    lone_leader.on(Ticked(), 1.0)
    assert lone_leader.on(RenewFailed(leadership=MINE, sent_s=1.0), 59.0) == ()
    assert not lone_leader.state.may_act(59.0)
    assert lone_leader.on(Ticked(), 60.0) == (Renew(leadership=MINE),)
    assert not lone_leader.state.may_act(60.1)
    stop = StopLeading(leadership=MINE, reason=LossReason.LEASE_LOST)
    assert lone_leader.on(LeaseLost(leadership=MINE), 60.2) == (stop, GiveBack(leadership=MINE))


def test_the_only_master_is_not_woken_for_a_deadline_that_does_not_stop_it(lone_leader):
    """A deadline that has passed is no instant to wake at, again and again."""
    step = handle(lone_leader.state, Ticked(), 9.0)
    assert step.wake_s is None
    assert handle(step.state, RenewFailed(leadership=MINE, sent_s=9.0), 10.0).wake_s == 11.0
