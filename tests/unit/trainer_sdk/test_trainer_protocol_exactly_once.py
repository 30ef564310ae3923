"""A trainer amid buckets that have some of it already, want it in parts, move, or forget: exactly once all the same.

The buckets here are the textbook of rule 6 on plain sets; the checker (tests/protocol) drives the real ones.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from master.api.identities import DatasetSpec, Incarnation, Lease, LeaseToken, Lineage, MemberName, TableSpec, Term
from master.api.messages.from_members import Ack, Acquire, Declare, RegisterTrainer, Return
from master.api.messages.to_members import Fenced, Granted, Registered, RouteChanged, Wait
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.protocol.trainer_events import (
    BatchRequested,
    Discard,
    DrainDeadlinePassed,
    DrainRequested,
    GiveBatch,
    MasterStreamBroken,
    MasterStreamOpened,
    ParametersPulled,
    PushAnswered,
    PushRequested,
    ReportDue,
    ResendPush,
    SendPush,
    SendToMaster,
    SpecDeclared,
)
from trainer_sdk.protocol.trainer_state import TrainerState, check_invariants
from trainer_sdk.protocol.transitions import handle
from trainer_sdk.pserver.core.messages import PushVerdict, Ruling

SIZE, EPOCHS, BATCH, BUCKETS = 12, 2, 4, 3
ELSEWHERE = (PushVerdict.MOVED, PushVerdict.FROZEN, PushVerdict.NOT_YET)
ALL = PositionSet.span(0, SIZE * EPOCHS)
SPEC = Declare(
    dataset=DatasetSpec(name="d", size=SIZE, epochs=EPOCHS, batch_size=BATCH),
    tables=(TableSpec(name="w", shape=(8,)),),
)
SUBSETS = st.sets(st.integers(0, SIZE * EPOCHS - 1), max_size=6).map(lambda s: PositionSet.of(*s))


class OneTrainer(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.state = TrainerState(name=MemberName("t"), ordinal=0, incarnation=Incarnation("i"))
        self.lineage = Lineage(1)
        self.number = 0
        self.requests = []  # Acquires without an answer
        self.grants = []
        self.told = [EMPTY] * BUCKETS  # what each bucket has said to be complete
        self.leased = {}  # as the master sees them: token -> positions
        self.acked = EMPTY
        self.applied_at = {self.lineage: [EMPTY] * BUCKETS}
        self.skipped = EMPTY
        self.cut = EMPTY
        self.registering = None
        self.given = {}  # flights in the script's hands
        self.pushes = {}  # flights pushed, not answered: what the last Push or PushAgain said
        self.feed(SpecDeclared(spec=SPEC))

    def feed(self, event):
        step = handle(self.state, event)
        self.state = step.state
        for effect in step.effects:
            match effect:
                case SendToMaster(message=message):
                    self.hear(message)
                case GiveBatch(flight=flight, positions=positions):
                    assert 0 < len(positions) <= BATCH
                    assert len({p // SIZE for p in positions}) == 1, "a batch crosses an epoch's end"
                    self.given[flight] = positions
                case Discard(flight=flight):
                    self.given.pop(flight, None)
                    self.pushes.pop(flight, None)
                case SendPush(positions=positions, buckets=buckets):
                    assert all(positions.isdisjoint(self.told[b]) for b in buckets), "sends what is confirmed"
                    self.pushes[effect.flight] = buckets
                case ResendPush():
                    self.pushes[effect.flight] = effect.buckets
        return step

    def hear(self, message):
        match message:
            case RegisterTrainer():
                self.registering = message
                self.told = [EMPTY] * BUCKETS
                self.requests.clear()
            case Ack(token=token, positions=positions):
                complete = [applied | self.skipped for applied in self.applied_at[token.lineage]]
                assert all(positions <= c for c in complete), "acks what some bucket has not confirmed (rule 12)"
                if token.lineage == self.lineage:  # rule 15: those of another lineage are refused
                    self.forget(token, positions)
                    self.acked |= positions
            case Return(token=token, positions=positions) if token.lineage == self.lineage:
                self.forget(token, positions)
            case Acquire(request=request) if request not in self.requests and self.state.lineage == self.lineage:
                self.requests.append(request)  # a repeat gets one answer, one of an older lineage none

    def forget(self, token, positions):
        assert positions <= self.leased[token], "acks or returns what it does not hold"
        self.leased[token] -= positions
        if not self.leased[token]:
            del self.leased[token]

    @property
    def applied(self):
        """What each bucket has now; what it had at an earlier lineage is kept for acks that are still under way."""
        return self.applied_at[self.lineage]

    @property
    def free(self):
        return ALL - self.acked - PositionSet.from_ranges(r for s in self.leased.values() for r in s.ranges())

    # ---- the master -------------------------------------------------------------------------------------------------

    @initialize()
    def joins(self):
        self.feed(MasterStreamOpened())
        self.master_registers(drop=set())
        self.master_grants(count=10)

    @precondition(lambda self: self.state.phase == "apart")
    @rule()
    def stream_opens(self):
        self.feed(MasterStreamOpened())

    @precondition(lambda self: self.state.phase == "joined")
    @rule(odds=st.integers(0, 4))
    def stream_breaks(self, odds):
        if odds:
            return
        self.registering = None
        self.requests.clear()
        self.feed(MasterStreamBroken())

    @precondition(lambda self: self.registering is not None)
    @rule(drop=st.sets(st.integers(0, 2), max_size=2))
    def master_registers(self, drop):
        """Leases of the same lineage may be kept, under new tokens (rule 18)."""
        held = {lease.token: lease.positions for lease in self.registering.held}
        same = self.state.lineage == self.lineage
        if same:
            assert all(held[token] == self.leased.get(token, EMPTY) for token in held), "claims what it does not have"
        self.leased = {}
        kept = []
        for place, positions in enumerate(held.values()):
            if place in drop or not same:
                continue
            kept.append(Lease(token=self.token(), positions=positions))
            self.leased[kept[-1].token] = positions
        self.registering = None
        self.feed(
            Registered(
                term=Term(1),
                lineage=self.lineage,
                kept=tuple(kept),
                dataset=SPEC.dataset,
                tables=SPEC.tables,
                head=None,
                report_every_s=1.0,
            )
        )
        self.feed(RouteChanged(route=None, bucket_count=BUCKETS))

    def token(self):
        self.number += 1
        return LeaseToken(term=Term(1), lineage=self.lineage, incarnation=Incarnation("i"), number=self.number)

    @precondition(lambda self: self.requests and self.free)
    @rule(count=st.integers(1, 10))
    def master_grants(self, count):
        lease = Lease(token=self.token(), positions=self.free.first(count))
        self.leased[lease.token] = lease.positions
        self.grants.append(Granted(request=self.requests.pop(0), leases=(lease,)))
        self.feed(self.grants[-1])

    @precondition(lambda self: self.grants)
    @rule(which=st.integers(0, 3))
    def a_grant_arrives_again(self, which):
        """A repeat of an answer is no second lease."""
        self.feed(self.grants[-1 - which % len(self.grants)])

    @precondition(lambda self: self.requests)
    @rule()
    def master_says_wait(self):
        self.feed(Wait(request=self.requests[0], retry_after_s=1.0))

    @precondition(lambda self: self.registering is None and self.lineage < 4)
    @rule(odds=st.integers(0, 4))
    def servers_are_rolled_back(self, odds):
        """Rule 26: lineage + 1, all leases void; the buckets begin anew, and what was acked is to do again."""
        if odds:
            return
        self.lineage = Lineage(self.lineage + 1)
        self.applied_at[self.lineage] = [EMPTY] * BUCKETS
        self.leased = {}
        self.requests.clear()  # nobody is given anything before registering at the new lineage
        self.acked = self.cut = EMPTY

    @precondition(lambda self: self.state.phase == "joined" and self.state.lineage < self.lineage)
    @rule()
    def master_fences(self):
        """Rule 14; a trainer may have learnt of the roll-back from a bucket before."""
        self.feed(Fenced(reason="rolled back"))

    # ---- the script -------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.given and not self.state.final)
    @rule()
    def script_asks(self):
        self.feed(BatchRequested())

    @precondition(lambda self: self.given)
    @rule()
    def script_pulls_and_pushes(self):
        flight = min(self.given)
        del self.given[flight]
        self.feed(ParametersPulled(lineage=self.lineage))
        self.feed(PushRequested(flight=flight))

    @rule()
    def clock_reports(self):
        self.feed(ReportDue(steps=1))

    @precondition(lambda self: self.state.next_flight > 5)
    @rule(hard=st.booleans(), odds=st.integers(0, 4))
    def cluster_drains(self, hard, odds):
        """M7."""
        if odds:
            return
        self.feed(DrainRequested(reason="scale-down"))
        assert not any(h.remaining for h in self.state.leases)
        if hard:
            self.feed(DrainDeadlinePassed())
            if self.registering is None and self.state.phase == "left":
                assert not self.state.held_positions

    # ---- the buckets ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.pushes)
    @rule(
        moved=st.dictionaries(st.integers(0, 2 * BUCKETS), st.sampled_from(ELSEWHERE), max_size=2),
        loses_answer=st.sampled_from([False, False, False, True]),
    )
    def buckets_answer(self, moved, loses_answer):
        flight = min(self.pushes)
        buckets = self.pushes.pop(flight)
        positions = next(f.positions for f in self.state.flights if f.number == flight)
        token = next(f.token for f in self.state.flights if f.number == flight)
        rulings = tuple(self.judge(b, positions, token, moved.get(b)) for b in buckets)
        for ruling in () if loses_answer else rulings:
            self.listen(ruling, positions)
        self.feed(PushAnswered(flight=flight, rulings=() if loses_answer else rulings))

    def listen(self, ruling, positions):
        complete = {
            PushVerdict.APPLIED: positions,
            PushVerdict.REPEAT: positions,
            PushVerdict.OVERLAP: positions - ruling.positions,
            PushVerdict.SKIPPED: ruling.positions,
        }.get(ruling.verdict, EMPTY)
        for bucket in ruling.buckets:
            self.told[bucket] |= complete

    def judge(self, bucket, positions, token, elsewhere):
        """Rules 6 and 50, in their order."""
        me = PositionSet.of(bucket)
        have = self.applied[bucket]
        if token.lineage != self.lineage:
            return Ruling(buckets=me, verdict=PushVerdict.STALE_LINEAGE)
        if elsewhere in (PushVerdict.MOVED, PushVerdict.NOT_YET):
            return Ruling(buckets=me, verdict=elsewhere)
        if positions & self.skipped:
            return Ruling(buckets=me, verdict=PushVerdict.SKIPPED, positions=positions & self.skipped)
        if positions <= have:
            return Ruling(buckets=me, verdict=PushVerdict.REPEAT)
        if elsewhere:
            return Ruling(buckets=me, verdict=elsewhere)
        if positions & have:
            return Ruling(buckets=me, verdict=PushVerdict.OVERLAP, positions=positions - have)
        inside = positions & self.cut
        if inside and inside != positions:
            return Ruling(buckets=me, verdict=PushVerdict.SPLIT, positions=inside)
        self.applied[bucket] |= positions
        return Ruling(buckets=me, verdict=PushVerdict.APPLIED)

    @rule(bucket=st.integers(0, BUCKETS - 1), positions=SUBSETS)
    def another_trainer_was_there(self, bucket, positions):
        """A zombie, or a trainer that died between two buckets."""
        self.applied[bucket] |= positions - self.skipped

    @rule(positions=SUBSETS)
    def positions_are_quarantined(self, positions):
        untouched = positions
        for applied in self.applied:
            untouched -= applied
        self.skipped |= untouched

    @rule(every=st.integers(2, 3))
    def a_cut_opens(self, every):
        self.cut = PositionSet.of(*range(0, SIZE * EPOCHS, every))

    @invariant()
    def nothing_is_in_two_places(self):
        check_invariants(self.state)

    @invariant()
    def master_and_trainer_agree_while_joined(self):
        """Whatever the master believes leased is held here: nothing leaks until a lease runs out."""
        if self.state.phase == "joined" and self.state.lineage == self.lineage:
            leased = PositionSet.from_ranges(r for s in self.leased.values() for r in s.ranges())
            assert self.state.held_positions == leased


OneTrainer.TestCase.settings = settings(stateful_step_count=60)  # cases: the profile of tests/conftest.py
TestOneTrainer = OneTrainer.TestCase


def test_acks_under_way_at_a_roll_back_were_true_when_said():
    """An ack of the older lineage is refused (rule 15); it told the truth of the model that is gone (rule 12)."""
    run = OneTrainer()
    run.joins()
    run.script_asks()
    run.script_pulls_and_pushes()
    run.buckets_answer(moved={}, loses_answer=False)
    run.servers_are_rolled_back(odds=0)

    run.clock_reports()

    assert not run.acked
    check_invariants(run.state)


def test_servers_that_become_ready_while_a_question_is_open_are_not_asked_again():
    """One question, one lease: the route that follows Registered repeats no Acquire (rule 10)."""
    run = OneTrainer()
    run.feed(MasterStreamOpened())
    run.master_registers(drop=set())
    assert run.requests == [1]

    step = run.feed(RouteChanged(route=None, bucket_count=BUCKETS))
    assert not [e for e in step.effects if isinstance(e, SendToMaster)]

    run.master_grants(count=10)
    run.master_and_trainer_agree_while_joined()


@pytest.mark.parametrize("verdict", ELSEWHERE)
def test_what_is_elsewhere_gets_the_same_gradient_and_is_not_acked_before(verdict):
    """Rules 50, 51: the other buckets are done, this one is asked again, whoever owns it by then."""
    run = OneTrainer()
    run.joins()
    run.script_asks()
    run.script_pulls_and_pushes()
    (flight,) = run.pushes

    run.buckets_answer(moved={1: verdict}, loses_answer=False)
    run.clock_reports()
    assert run.pushes == {flight: PositionSet.of(1)}
    assert not run.acked

    run.buckets_answer(moved={}, loses_answer=False)
    run.clock_reports()
    assert len(run.acked) == BATCH
