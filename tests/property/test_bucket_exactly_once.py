"""The parameter server's core under random pushes, holds, cuts, skips, restores and repeats, with a ledger for tables.

Claims, after every step: each bucket has applied each position at most once, live and in the fork; marks say exactly
what the ledger says; a fork that is written holds exactly the positions of its cut, less what it skips (M1, rule 21).
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from master.api.identities import CutId, Incarnation, Lineage, ManifestId, Term, Version
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.to_members import Cut, Drop, Hold, Restore, Skip
from master.api.positions import EMPTY, PositionSet, union
from trainer_sdk.pserver.core.event_table import handle, next_deadline
from trainer_sdk.pserver.core.messages import Push, PushTarget, PushVerdict
from trainer_sdk.pserver.core.pushes import handle_push
from trainer_sdk.pserver.core.server_events import (
    ApplyBoth,
    ApplyLive,
    DropFork,
    FileWritten,
    LoadModel,
    ModelLoaded,
    OpenFork,
    WriteFork,
)
from trainer_sdk.pserver.core.server_state import CutPhase, ServerState, check_state

BUCKETS = 4
POSITIONS = 12
spans = st.builds(
    lambda start, length: PositionSet.span(start, min(POSITIONS, start + length)),
    st.integers(0, POSITIONS - 1),
    st.integers(1, 5),
)
some_buckets = st.sets(st.integers(0, BUCKETS - 1), min_size=1).map(lambda found: PositionSet.of(*found))


rarely = st.sampled_from([0, 0, 0, 0, 0, 1])


class Ledger:
    """How often each bucket has applied each position: what the tables would hold."""

    def __init__(self):
        self.counts = {bucket: [0] * POSITIONS for bucket in range(BUCKETS)}

    def copy(self):
        out = Ledger()
        out.counts = {bucket: list(row) for bucket, row in self.counts.items()}
        return out

    def add(self, buckets, positions):
        for bucket in buckets:
            for position in positions:
                self.counts[bucket][position] += 1

    def applied(self, bucket):
        assert max(self.counts[bucket]) <= 1, f"bucket {bucket} applied a position twice: {self.counts[bucket]}"
        return PositionSet.of(*(p for p, count in enumerate(self.counts[bucket]) if count))


class Server(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.state = ServerState(incarnation=Incarnation("i"))
        self.live, self.fork = Ledger(), None
        self.data = EMPTY  # of the open cut
        self.sequence = 0
        self.written = []
        self.base = (Ledger(), ())
        self.restore(1)

    def take(self, event):
        step = handle(self.state, event, 0.0)
        self.state = step.state
        for effect in step.effects:
            self.carry_out(effect)

    def carry_out(self, effect):
        match effect:
            case OpenFork():
                self.fork = self.live.copy()
            case DropFork():
                self.fork = None
            case WriteFork():
                for group in effect.marks:
                    for bucket in group.buckets:
                        assert self.fork.applied(bucket) == group.applied
                        assert group.applied == self.data
                assert union(group.buckets for group in effect.marks) == PositionSet.span(0, BUCKETS)
                self.written.append((self.fork.copy(), effect.marks))
            case LoadModel():
                self.live = self.base[0].copy()

    @rule(positions=spans, buckets=some_buckets, lineage=rarely, version=rarely)
    def push(self, positions, buckets, lineage, version):
        target = PushTarget(buckets=buckets, version=Version(version or 0))
        event = Push(lineage=Lineage(self.state.lineage - lineage), positions=positions, targets=(target,))
        step = handle_push(self.state, event)
        applied = EMPTY
        for effect in step.effects:
            if isinstance(effect, ApplyLive | ApplyBoth):
                assert effect.buckets.isdisjoint(applied)
                applied |= effect.buckets
                self.live.add(effect.buckets, positions)
                if isinstance(effect, ApplyBoth):
                    self.fork.add(effect.buckets, positions)
            else:
                self.carry_out(effect)
        said = EMPTY
        for ruling in step.answer.rulings:
            assert ruling.buckets.isdisjoint(said)
            said |= ruling.buckets
            assert (ruling.verdict is PushVerdict.APPLIED) <= (ruling.buckets <= applied)
        assert said == buckets
        assert not applied or not self.state.is_holding
        assert not applied or lineage == 0
        self.state = step.state

    @rule(step=st.integers(0, 2))
    def hold(self, step):
        self.sequence += step
        self.take(Hold(cut=self.cut_id(self.sequence)))

    @rule(more=spans)
    def cut_at_once(self, more):
        self.hold(1)
        self.cut(more, less=False)

    @rule(more=spans, less=st.booleans())
    def cut(self, more, less):
        if self.state.is_holding:
            marks = union(group.applied for group in self.state.groups)
            self.data = marks - more if less else marks | more
        self.take(Cut(cut=self.cut_id(self.sequence), data=self.data))

    @rule()
    def drop(self):
        self.take(Drop(cut=self.cut_id(self.sequence)))

    @rule(positions=spans)
    def skip(self, positions):
        self.take(Skip(lineage=self.state.lineage, positions=positions))

    @precondition(lambda self: next_deadline(self.state) is not None)
    @rule()
    def deadline_passes(self):
        self.take(next_deadline(self.state)[1])

    @precondition(lambda self: self.state.cut is not None and self.state.cut.phase is CutPhase.SEALED)
    @rule()
    def file_is_written(self):
        cut = self.state.cut.cut
        self.base = self.written[-1]
        self.take(
            FileWritten(cut=cut, file=FileRecord(name="f", size_bytes=0, digest="", lineage=cut.lineage, marks=()))
        )
        assert self.fork is None

    @rule(step=st.integers(0, 1))
    def restore(self, step):
        before = (self.state.lineage, self.live.counts)
        order = Restore(
            incarnation=Incarnation("i"),
            lineage=Lineage(self.state.newest_restore + step),
            base=ManifestId("m"),
            files=(),
            data=EMPTY,
            quarantine=EMPTY,
            tables=(),
            bucket_count=BUCKETS,
            buckets=PositionSet.span(0, BUCKETS),
            version=Version(0),
        )
        self.take(replace(order, incarnation=Incarnation("another")))
        self.take(order)
        if step:
            self.take(ModelLoaded(lineage=order.lineage, marks=self.base[1]))
        else:
            assert before == (self.state.lineage, self.live.counts)

    def cut_id(self, sequence):
        return CutId(term=Term(1), lineage=self.state.lineage, sequence=sequence)

    @invariant()
    def marks_say_what_was_applied(self):
        check_state(self.state)
        for group in self.state.groups:
            for bucket in group.buckets:
                assert self.live.applied(bucket) == group.applied
                if group.fork is not None:
                    assert self.fork.applied(bucket) == group.fork.applied
                    assert group.fork.applied <= self.data
        assert (self.fork is not None) == any(group.fork is not None for group in self.state.groups)


Server.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestServer = Server.TestCase
