"""Single decisions of the trainer's protocol, told one by one."""

import pytest

from master.api.identities import DatasetSpec, Incarnation, Lease, LeaseToken, Lineage, MemberName, Term
from master.api.messages.from_members import (
    Ack,
    Acquire,
    Declare,
    Failed,
    FinalSaved,
    Leave,
    RegisterTrainer,
    Return,
)
from master.api.messages.to_members import Drain, Ended, Fenced, Granted, Registered, Wait
from master.api.positions import PositionSet
from trainer_sdk.protocol.trainer_events import (
    AcquireDue,
    BatchDone,
    BatchRequested,
    Discard,
    DrainDeadlinePassed,
    DrainRequested,
    FinalHookRun,
    Finish,
    FinishReason,
    GiveBatch,
    LeaveRequested,
    MasterStreamBroken,
    MasterStreamOpened,
    ScriptFailed,
    SendToMaster,
    SpecDeclared,
)
from trainer_sdk.protocol.trainer_state import TrainerState, check_invariants
from trainer_sdk.protocol.transitions import handle

DATASET = DatasetSpec(name="d", size=100, epochs=2, batch_size=4)
span = PositionSet.span


def token(number, *, lineage=1, term=1):
    return LeaseToken(term=Term(term), lineage=Lineage(lineage), incarnation=Incarnation("i"), number=number)


def registered(**changes):
    known = {"term": Term(1), "lineage": Lineage(1), "kept": (), "dataset": DATASET, "tables": (), "head": None}
    return Registered(**(known | {"report_every_s": 1.0} | changes))


class Trainer:
    """A trainer and what it said since the last look."""

    def __init__(self):
        self.state = TrainerState(name=MemberName("t"), ordinal=0, incarnation=Incarnation("i"))
        self.effects = []
        self.feed(SpecDeclared(spec=Declare(dataset=DATASET)))

    def feed(self, *events):
        """The effects of these events, sends as the messages themselves."""
        effects = []
        for event in events:
            step = handle(self.state, event)
            self.state = step.state
            check_invariants(self.state)
            effects += [e.message if isinstance(e, SendToMaster) else e for e in step.effects]
        return effects

    def join(self, **changes):
        return self.feed(MasterStreamOpened(), registered(**changes))

    def grant(self, start, stop, *, number=1):
        lease = Lease(token=token(number), positions=span(start, stop))
        return self.feed(Granted(request=self.state.request, leases=(lease,)))


@pytest.fixture
def trainer():
    """Joined, with positions 0 to 19 and nothing given."""
    trainer = Trainer()
    trainer.join()
    trainer.grant(0, 20)
    return trainer


def test_a_batch_boundary_needs_no_call(trainer):
    """Acks are collected and the next lease is asked for while half of this one is still to be given."""
    assert trainer.feed(BatchRequested()) == [GiveBatch(flight=0, positions=span(0, 4))]
    assert trainer.feed(BatchDone(flight=0)) == []
    assert trainer.feed(BatchRequested(), BatchDone(flight=1)) == [GiveBatch(flight=1, positions=span(4, 8))]
    assert trainer.feed(BatchRequested()) == [
        GiveBatch(flight=2, positions=span(8, 12)),
        Ack(token=token(1), positions=span(0, 8)),
        Acquire(request=2),
    ]


def test_a_batch_ends_where_its_epoch_ends():
    """A batch never crosses an epoch's end."""
    trainer = Trainer()
    trainer.join()
    trainer.grant(97, 105)

    given = [e.positions for e in trainer.feed(BatchRequested(), BatchRequested()) if isinstance(e, GiveBatch)]

    assert given == [span(97, 100), span(100, 104)]


def test_wait_is_asked_again_under_the_same_number():
    """Rule 10: the same request, so that a lost answer is repeated and not doubled."""
    trainer = Trainer()
    trainer.join()
    trainer.feed(Wait(request=1, retry_after_s=0.5))

    assert trainer.feed(AcquireDue(request=1)) == [Acquire(request=1)]


def test_an_empty_answer_is_not_the_end():
    """M3: WAIT while others hold positions, END only when all is committed."""
    trainer = Trainer()
    trainer.join()

    assert not [e for e in trainer.feed(BatchRequested(), Wait(request=1, retry_after_s=0.5)) if isinstance(e, Finish)]
    assert trainer.feed(Ended(request=1, final_saver=True)) == [Finish(reason=FinishReason.ENDED, final_saver=True)]


def test_drain_returns_what_is_not_begun_and_acks_what_is_finished(trainer):
    """M7: sample granularity; the batch in hand still counts."""
    trainer.feed(BatchRequested())

    assert trainer.feed(DrainRequested(reason="SIGTERM")) == [Return(token=token(1), positions=span(4, 20))]
    assert trainer.feed(BatchDone(flight=0)) == [Ack(token=token(1), positions=span(0, 4))]
    assert trainer.feed(BatchRequested()) == [Finish(reason=FinishReason.DRAINED)]
    assert trainer.feed(LeaveRequested(reason="drained")) == [Leave(reason="drained")]


def test_a_drain_that_runs_out_of_time_returns_the_batch_in_hand(trainer):
    """Rule 13: what is unconfirmed is returned, never acked; a late done() finds nothing."""
    trainer.feed(BatchRequested(), DrainRequested(reason="SIGTERM"))

    effects = trainer.feed(DrainDeadlinePassed())

    assert effects[0] == Return(token=token(1), positions=span(0, 4))
    assert Discard(flight=0) in effects
    assert isinstance(effects[-1], Leave)
    assert trainer.feed(BatchDone(flight=0), LeaveRequested(reason="late")) == []


def test_fenced_drops_everything_and_registers_again_without_it(trainer):
    """Rule 14: keep the process, not the leases."""
    trainer.feed(BatchRequested())

    discard, message = trainer.feed(Fenced(reason="no progress"))

    assert discard == Discard(flight=0)
    assert isinstance(message, RegisterTrainer)
    assert message.held == ()
    assert trainer.feed(BatchDone(flight=0)) == []


def test_a_broken_stream_keeps_the_leases_and_their_new_token(trainer):
    """Rule 18: trained while apart, acked under the token of the new term."""
    trainer.feed(BatchRequested(), MasterStreamBroken(), BatchDone(flight=0), BatchRequested())
    (message,) = trainer.feed(MasterStreamOpened())
    assert [lease.positions for lease in message.held] == [span(0, 20)]

    trainer.feed(registered(term=Term(2), kept=(Lease(token=token(7, term=2), positions=span(0, 20)),)))
    trainer.feed(BatchDone(flight=1))

    acks = [e for e in trainer.feed(LeaveRequested(reason="bye")) if isinstance(e, Ack)]
    assert acks == [Ack(token=token(7, term=2), positions=span(0, 8))]


def test_a_script_that_raises_names_what_was_in_hand_and_returns_all(trainer):
    """M4: the positions in flight are what the failure is counted against."""
    trainer.feed(BatchRequested())

    failed, returned, _, farewell = trainer.feed(ScriptFailed(message="ValueError"))

    assert failed == Failed(positions=span(0, 4), message="ValueError")
    assert returned == Return(token=token(1), positions=span(0, 20))
    assert isinstance(farewell, Leave)


def test_a_batch_whose_lease_was_not_kept_is_void(trainer):
    """Rule 18: of the same lineage; the leases are another's by now, and so is what was in hand of them."""
    trainer.feed(BatchRequested(), MasterStreamBroken(), MasterStreamOpened())

    effects = trainer.feed(registered())

    assert effects[0] == Discard(flight=0)
    assert trainer.feed(BatchDone(flight=0)) == []


def test_the_final_hook_is_told_while_there_is_somebody_to_tell(trainer):
    """The job is complete once it ran (rule 32)."""
    assert trainer.feed(FinalHookRun()) == [FinalSaved()]
    assert trainer.feed(MasterStreamBroken(), FinalHookRun()) == []


def test_a_second_request_to_drain_changes_nothing(trainer):
    """SIGTERM may come twice, and beside the master's word; after the end nothing is asked for either."""
    trainer.feed(DrainRequested(reason="SIGTERM"))
    before = trainer.state
    assert trainer.feed(Drain(reason="scaled down", deadline_s=1.0), DrainRequested(reason="SIGTERM")) == []
    assert trainer.state == before
    trainer.feed(LeaveRequested(reason="drained"))
    assert trainer.feed(DrainRequested(reason="SIGTERM")) == []
