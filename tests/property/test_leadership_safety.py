"""Two candidates, a store that grants leases, delays and losses of answers, pauses: at most one acts at any instant."""

from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from master.leadership.election_events import (
    Campaign,
    CampaignEnded,
    CampaignWon,
    GiveBack,
    LeaseLost,
    Renew,
    RenewFailed,
    RenewSucceeded,
    StartLeading,
    StopLeading,
    Ticked,
)
from master.leadership.election_state import ElectionState, LeadershipTiming, check, handle
from master.store.store_port import Leadership

TIMING = LeadershipTiming(lease_ttl_s=6, renew_deadline_s=4.0, retry_period_s=1.0)


@dataclass
class LeaseStore:
    """One leader key whose lease runs from when the request *arrives*."""

    terms: int = 0
    leader: Leadership | None = None
    expires_s: float = 0.0

    def expire(self, now_s):
        if self.leader and now_s >= self.expires_s:
            self.leader = None

    def grant(self, holder, now_s):
        self.expire(now_s)
        if self.leader:
            return None
        self.terms += 1
        self.leader = Leadership(term=self.terms, lease=self.terms, holder=holder)
        self.expires_s = now_s + TIMING.lease_ttl_s
        return self.leader

    def renew(self, leadership, now_s):
        self.expire(now_s)
        if self.leader != leadership:
            return False
        self.expires_s = now_s + TIMING.lease_ttl_s
        return True

    def revoke(self, leadership):
        if self.leader == leadership:
            self.leader = None


@dataclass
class Candidate:
    name: str
    state: ElectionState = field(default_factory=lambda: ElectionState(timing=TIMING))
    under_way: list = field(default_factory=list)  # (effect, sent_s)
    answers: list = field(default_factory=list)
    believes: Leadership | None = None

    def on(self, event, now_s):
        step = handle(self.state, event, now_s)
        check(step.state)
        self.state = step.state
        for effect in step.effects:
            match effect:
                case StartLeading():
                    assert self.believes is None
                    self.believes = effect.leadership
                case StopLeading():
                    assert self.believes == effect.leadership
                    self.believes = None
                case Campaign() | Renew() | GiveBack():
                    self.under_way.append((effect, now_s))

    def arrive(self, store, now_s, is_lost):
        """The oldest request reaches the store; its answer comes later, or is lost and told as a failure."""
        effect, sent_s = self.under_way.pop(0)
        match effect:
            case Campaign():
                won = store.grant(self.name, now_s)
                answer = CampaignWon(leadership=won, sent_s=sent_s) if won and not is_lost else CampaignEnded()
                self.answers.append(answer)
            case Renew():
                leadership = effect.leadership
                if is_lost:
                    self.answers.append(RenewFailed(leadership=leadership, sent_s=sent_s))
                elif store.renew(leadership, now_s):
                    self.answers.append(RenewSucceeded(leadership=leadership, sent_s=sent_s))
                else:
                    self.answers.append(LeaseLost(leadership=leadership))
            case GiveBack():
                if not is_lost:
                    store.revoke(effect.leadership)


moves = st.lists(
    st.tuples(
        st.sampled_from(["tick", "arrive", "lose", "answer"]),
        st.integers(0, 1),
        st.sampled_from([0.0, 0.1, 0.7, 1.0, 2.5, 4.0, 7.0]),
    ),
    max_size=120,
)


LATE_ANSWER = [  # a renewal that arrives at once and is answered 2.5 s later, and then nothing until its lease ends
    *[(kind, 0, 0.0) for kind in ("tick", "arrive", "answer")],
    *[("tick", 0, 1.0), ("arrive", 0, 0.0), ("answer", 0, 2.5)],
    *[("tick", 1, passed_s) for passed_s in (2.5, 1.0, 0.1)],
]


@example(LATE_ANSWER)
@settings(max_examples=300)
@given(moves)
def test_at_most_one_candidate_may_act(moves):
    """Whatever is delayed, lost or paused: who may act holds a live lease at the store, so nobody else acts (M5)."""
    store, candidates, now_s = LeaseStore(), [Candidate("a"), Candidate("b")], 0.0
    for kind, who, passed_s in moves:
        now_s += passed_s
        one = candidates[who]
        if kind == "tick":
            one.on(Ticked(), now_s)
        elif kind == "answer" and one.answers:
            one.on(one.answers.pop(0), now_s)
        elif kind in {"arrive", "lose"} and one.under_way:
            one.arrive(store, now_s, is_lost=kind == "lose")
        store.expire(now_s)
        acting = [one for one in candidates if one.state.may_act(now_s)]
        assert len(acting) <= 1
        for one in acting:
            assert one.believes is not None
            assert store.leader == one.believes
