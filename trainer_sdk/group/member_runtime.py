"""Runtime of a group member: the core between the master's stream, the collectives and the script's thread (ADR 0236).

One lock guards the state; the thread that brings an event handles it.  The script's thread does the work that the
state asks for, without the lock; a message of the master aborts its collective at once.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import assert_never, cast

from master.api.checkpoints.storage import Storage
from master.api.group_shares import steps_per_epoch, total_steps
from master.api.identities import ManifestId
from master.api.messages.generations import ReplicaRegistered
from master.api.messages.to_members import MasterMessage, OfferAnswered, ToReplica
from trainer_sdk.collective import CollectiveAborted, CollectiveListener, HostCollective
from trainer_sdk.errors import CheckpointError, MasterUnavailableError, StepAborted, UsageError, WireError
from trainer_sdk.group.array_cuts import shard_of
from trainer_sdk.group.captured_state import MAX_STATE_BYTES, StateReceiver, stream_pieces
from trainer_sdk.group.collectives import GroupCollectives
from trainer_sdk.group.core.control_words import (
    MAX_ENTRY_BYTES,
    MAX_WORD_BYTES,
    StepWord,
    decode_entry,
    decode_word,
    encode_entry,
    encode_word,
)
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    Await,
    CloseGroup,
    ConnectGroup,
    ContributeWord,
    CopyDue,
    CopyNow,
    CopyTaken,
    CopyWritten,
    DrainAsked,
    FinalHookDone,
    FinishScript,
    GatherStates,
    GiveStep,
    GraceEnded,
    GroupConnected,
    GroupEffect,
    GroupEvent,
    GroupFailed,
    LoadHead,
    ReceiveState,
    RefuseScript,
    ReplicaTorn,
    ScriptRaised,
    ScriptWork,
    SendState,
    StatesGathered,
    StatesSent,
    StateTaken,
    StepApplied,
    StepReduced,
    StopAsked,
    StreamClosed,
    StreamOpened,
    TakeCopy,
    TellMaster,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.steps import expected_share
from trainer_sdk.group.core.transitions import give, handle_member, leave_job
from trainer_sdk.group.port import (
    CapturedShard,
    CapturedState,
    GroupFinish,
    HostArray,
    ReplicaState,
    ShardedReplica,
    StepShare,
)
from trainer_sdk.group.replica_files import read_copy, write_shard
from trainer_sdk.group.step_times import StepTimes
from trainer_sdk.master_stream import DRAIN_LIMIT_S, MasterAddress, MasterStream

MAX_GATHER_BYTES = 64 << 20
FIRST_REPORT_S = 1.0
WRITER_NICENESS = 10  # hashing and writing a checkpoint takes what training leaves
MASTER_BUDGET_S = 120.0  # without any master, while nothing else can be done


class MemberRuntime:
    """A `GroupRuntime` over a master.  `leave` in any case."""

    def __init__(
        self,
        state: MemberState,
        *,
        replica: ReplicaState,
        listener: CollectiveListener,
        storage: Storage,
        master: MasterAddress,
        master_budget_s: float = MASTER_BUDGET_S,
        check_alive: Callable[[], None] = lambda: None,
    ) -> None:
        """`state` is that of a process that has just begun; its address is the listener's.

        `check_alive` raises when waiting is pointless, because the process that would answer has ended.
        """
        self._state = state
        self._replica, self._storage = replica, storage
        self._master_budget_s, self._check_alive = master_budget_s, check_alive
        self._groups = GroupCollectives(listener)
        self._changed = threading.Condition(threading.RLock())
        self._complaint = ""
        self._apart_since_s: float | None = monotonic()
        self._apart_reason = "no answer yet"
        self._report_every_s = FIRST_REPORT_S
        self._is_closed = False
        self._manifest: ManifestId | None = None  # of the newest checkpoint that this process has offered
        self._refusal = ""  # of the one that failed last
        self._times = StepTimes()
        self.metrics: Mapping[str, float] = {}
        self._stream = MasterStream(self)
        self._stream.connect(master)
        self._stream.after(self._report_every_s, self._report)

    # ---- the script's side ------------------------------------------------------------------------------------------

    def begin_step(self) -> StepShare | GroupFinish:
        with self._times.asking():
            self._tell_ready()
            return self._next_step()

    def _next_step(self) -> StepShare | GroupFinish:
        self._end_applied_step()
        began_s = monotonic()
        while True:
            with self._changed:
                work = next_work(self._state)
                if self._complaint and not isinstance(work, FinishScript):
                    raise UsageError(self._complaint)
                if isinstance(work, Await):
                    self._wait(began_s)
                    continue
                if isinstance(work, GiveStep):
                    self._state = give(self._state)
                    self._times.begin(work.share, monotonic())
                    return work.share
            if isinstance(work, FinishScript):
                return work.finish
            self._carry_out(work)

    def _tell_ready(self) -> None:
        """Who is in no generation is listed once its script asks, so the master hears of it at once (rule 75)."""
        with self._changed:
            if self._state.phase is MemberPhase.OUT:
                self._tell_progress()

    def all_reduce(self, array: HostArray, *, dtype: str = "") -> None:
        with self._changed:
            number = self._state.number
            group = self._groups.get(number) if self._state.is_step_given else None
        if group is None:
            raise StepAborted("the group broke: begin_step() gives this step again")
        with self._times.reducing(), self._collective(number):
            group.all_reduce(array, dtype or None)

    def end_step(self, *, sample: str = "") -> bool:
        is_complete = self.complete_step(sample=sample)
        if is_complete:
            with self._changed:
                self._times.end(monotonic())
        return is_complete

    def complete_step(self, *, sample: str = "") -> bool:
        """As `end_step`, before the gradients are computed: for a step to which no other member contributes."""
        words = [
            effect
            for effect in self._handle(StepReduced(sample=sample, replica_bytes=self._replica_bytes()))
            if isinstance(effect, ContributeWord)
        ]
        if not words:
            return False
        (word,) = words
        try:
            self._handle(WordsGathered(number=word.number, words=self._gather_words(word)))
        except (CollectiveAborted, WireError):
            self._handle(GroupFailed(number=word.number))
        with self._changed:
            return self._state.phase is MemberPhase.COMPLETE

    def _replica_bytes(self) -> int:
        """Asked for where a copy may follow this step (rule 84); 0 otherwise, and of a replica that is copied whole."""
        state = self._state
        is_asked = state.wants_copy or state.step + 1 == total_steps(state.dataset)
        return self._replica.replica_bytes() if is_asked and isinstance(self._replica, ShardedReplica) else 0

    def _gather_words(self, mine: ContributeWord) -> tuple[StepWord, ...]:
        if self.size == 1:
            return (mine.word,)
        texts = self._group(mine.number).all_gather(encode_word(mine.word), MAX_WORD_BYTES)
        return tuple(map(decode_word, texts))

    def gather(self, data: bytes) -> list[bytes]:
        with self._changed:
            state = self._state
            number = state.number if state.phase is MemberPhase.COMPLETE and not state.broken else 0
        with self._times.reducing(), self._collective(number):
            return self._group(number).all_gather(data, MAX_GATHER_BYTES)

    def loading(self) -> AbstractContextManager[None]:
        """Within it the script waits for its data."""
        return self._times.loading()

    def expected_share(self, step: int) -> StepShare | None:
        """What this rank would be given of a step in the present generation, for reading ahead."""
        with self._changed:
            return expected_share(self._state, step)

    @property
    def rank(self) -> int:
        return max(0, self._state.rank)

    @property
    def size(self) -> int:
        record = self._state.record
        return 1 if record is None else len(record.members)

    @property
    def step(self) -> int:
        return self._state.step

    @property
    def epoch(self) -> int:
        return self._state.step // steps_per_epoch(self._state.dataset)

    @property
    def is_leader(self) -> bool:
        return self._state.rank == 0

    @property
    def is_draining(self) -> bool:
        return self._state.is_leaving

    def request_copy(self) -> None:
        """A checkpoint at the next boundary, as when one is due."""
        self._handle(CopyDue())

    def checkpoint(self) -> ManifestId:
        """Commits the replica as it is now, between two steps; the manifest's id.

        Raises CheckpointError when it could not be committed, MasterUnavailableError when no answer came.
        """
        with self._times.asking():
            self._tell_ready()
            return self._next_checkpoint()

    def _next_checkpoint(self) -> ManifestId:
        self._end_applied_step()
        began_s, copy, is_asked = monotonic(), 0, False
        while True:
            with self._changed:
                state = self._state
                if copy and (state.copy is None or state.copy.number != copy):
                    return self._committed()
                work = next_work(state)
                if isinstance(work, FinishScript) or (isinstance(work, GiveStep) and state.step <= state.committed[0]):
                    return self._committed()
                if self._complaint:
                    raise UsageError(self._complaint)
                if isinstance(work, GiveStep) and not is_asked:
                    is_asked, self._refusal = True, ""
                    self._handle(CopyNow())
                    continue
                if isinstance(work, Await | GiveStep):
                    self._wait(began_s)
                    if monotonic() - began_s > self._master_budget_s:
                        budget_s = self._master_budget_s
                        raise MasterUnavailableError(f"the master did not commit the checkpoint within {budget_s:g} s")
                    continue
            if isinstance(work, TakeCopy):
                copy = work.number
            self._carry_out(work)

    def _committed(self) -> ManifestId:
        state = self._state
        head = state.offered.head if state.offered is not None else None
        is_head = head is not None and head.state.progress == state.committed
        manifest = head.manifest if head is not None and is_head else self._manifest
        if manifest is None or state.step > state.committed[0]:
            problem = self._refusal or "no step is trained since the last one, or this trainer leaves its group"
            raise CheckpointError(f"of step {state.step}", f"nothing was committed: {problem}")
        return manifest

    def stop(self) -> None:
        """Training ends with the last step that is complete here, for the whole group (rule 97)."""
        self._handle(StopAsked())

    def script_failed(self, message: str, *, is_misuse: bool) -> None:
        """Tells the master that the script raised in the step in hand (M4); misuse is not the fault of its records.

        A report comes first: the master compares what was in hand with the step that this process is at.
        """
        self._handle(self._times.report(self.metrics))
        self._handle(ScriptRaised(message=message, is_in_step=self._times.is_in_step, is_misuse=is_misuse))

    def final_hook_done(self) -> None:
        self._handle(FinalHookDone())

    def drain(self, *, deadline_s: float, reason: str) -> None:
        """Leaves by the next planned generation, at the latest after `deadline_s`.  Safe in a signal handler."""
        self._stream.post(lambda: self._handle(DrainAsked(grace_s=deadline_s, reason=reason)))
        self._stream.after(deadline_s, lambda: self._handle(GraceEnded()))

    def leave(self, reason: str, *, farewell_s: float = DRAIN_LIMIT_S) -> None:
        """Says goodbye to the master, for so long, and to the members.  A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._perform(leave_job(reason))
        self._groups.close()
        self._stream.close(farewell_s=farewell_s)

    # ---- the script's work ------------------------------------------------------------------------------------------

    def _carry_out(self, work: ScriptWork) -> None:
        match work:
            case LoadHead(number=number, head=head):
                loaded = read_copy(self._storage, head.files)
                if replace(loaded.state, is_stopped=head.state.is_stopped) != head.state:  # more epochs end a stop
                    raise CheckpointError(head.files[0].name, f"is at {loaded.state}, not at {head.state}")
                self._restore(loaded.captured, StateTaken(number=number, state=head.state, skipped=loaded.skipped))
            case TakeCopy():
                self._take_copy(work)
            case GatherStates() | SendState() | ReceiveState():
                try:
                    self._exchange(work, self._group(work.number))
                except (CollectiveAborted, WireError):
                    self._handle(GroupFailed(number=work.number))
            case Await() | GiveStep() | FinishScript():
                return
            case _:
                assert_never(work)

    def _exchange(self, work: GatherStates | SendState | ReceiveState, group: HostCollective) -> None:
        match work:
            case GatherStates(number=number, entry=entry):
                entries = group.all_gather(encode_entry(entry), MAX_ENTRY_BYTES)
                self._handle(StatesGathered(number=number, entries=tuple(map(decode_entry, entries))))
            case SendState(number=number, to=to):
                captured = self._replica.capture()
                for rank in to:
                    group.send_state(rank, stream_pieces(captured))
                self._handle(StatesSent(number=number))
            case ReceiveState(number=number, source=source):
                receiver = StateReceiver()
                group.receive_state(source, receiver.place, MAX_STATE_BYTES)
                taken = StateTaken(number=number, state=work.state, skipped=work.skipped)
                self._restore(receiver.finish(), taken)
            case _:
                assert_never(work)

    def _restore(self, captured: CapturedState, taken: StateTaken) -> None:
        try:
            self._replica.restore(captured)
        except BaseException:
            self._handle(ReplicaTorn())
            raise
        self._handle(taken)

    def _take_copy(self, work: TakeCopy) -> None:
        """Copies now, writes in a thread; at most one at a time, for the core asks for no second one before."""
        replica = self._replica
        if work.shards > 1 and isinstance(replica, ShardedReplica):
            part = replica.capture_shard(work.shard, work.shards)
        else:
            part = shard_of(replica.capture(), work.shard, work.shards)
        self._handle(CopyTaken(work=work))
        thread = threading.Thread(target=self._write_copy, args=(work, part), name="edl-copy", daemon=True)
        thread.start()

    def _write_copy(self, work: TakeCopy, part: CapturedShard) -> None:
        """In a thread of its own, behind all that trains."""
        state = work.state
        own = f"{self._state.incarnation}-{work.number}"
        shard = f"-{work.shard}of{work.shards}" if work.shards > 1 else ""
        name = f"replica-{state.lineage}-{state.generation}-{state.step}-{own}{shard}.safetensors"
        written = CopyWritten(number=work.number, file=None)
        try:
            with suppress(OSError):  # elsewhere than on Linux a thread has none of its own
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), WRITER_NICENESS)
            file, contents = write_shard(
                self._storage, name, part, dataset=self._state.dataset, state=state, skipped=work.skipped
            )
            written = replace(written, file=file, contents=contents)
        except (CheckpointError, UsageError) as error:
            self._refusal = str(error)
            written = replace(written, problem=str(error))
            sys.stderr.write(f"edl: {error}; training continues, the next checkpoint will be attempted\n")
        finally:
            self._handle(written)

    def _group(self, number: int) -> HostCollective:
        group = self._groups.get(number)
        if group is None:
            raise CollectiveAborted(f"generation {number} was left")
        return group

    @contextmanager
    def _collective(self, number: int) -> Iterator[None]:
        """A collective of this generation; its failure is a StepAborted for the script."""
        try:
            yield
        except (CollectiveAborted, WireError) as error:
            self._handle(GroupFailed(number=number))
            raise StepAborted(str(error)) from error

    def _end_applied_step(self) -> None:
        with self._changed:
            if self._state.phase is MemberPhase.COMPLETE:
                self._times.end(monotonic())
            self._handle(StepApplied())

    def _wait(self, began_s: float) -> None:
        self._check_alive()
        apart_s, budget_s = self._apart_since_s, self._master_budget_s
        if apart_s is not None and monotonic() - max(began_s, apart_s) > budget_s:
            raise MasterUnavailableError(
                f"no master of this job could be reached for {budget_s:g} s ({self._apart_reason}). "
                "Is the job's master running, is EDL_MASTER its address, and does EDL_TLS_DIR hold for both sides?"
            )
        self._changed.wait(timeout=0.5)

    # ---- events in, effects out -------------------------------------------------------------------------------------

    def _handle(self, event: GroupEvent) -> tuple[GroupEffect, ...]:
        with self._changed:
            step = handle_member(self._state, event)
            self._state = step.state
            self._perform(step.effects)
            self._changed.notify_all()
            return step.effects

    def _perform(self, effects: tuple[GroupEffect, ...]) -> None:
        for effect in effects:
            match effect:
                case TellMaster(message=message):
                    self._stream.send((message,))
                case ConnectGroup(record=record):
                    self._groups.connect(
                        record,
                        self._state.incarnation,
                        connected=lambda number: self._handle(GroupConnected(number=number)),
                        failed=lambda number: self._handle(GroupFailed(number=number)),
                    )
                case AbortGroup(number=number):
                    self._groups.abort(number, "the generation was left")
                case CloseGroup(number=number):
                    self._groups.close_group(number)
                case RefuseScript(field=field, message=message):
                    self._complaint = f"{field}: {message}"
                case ContributeWord():
                    continue  # by the script's thread
                case _:
                    assert_never(effect)

    def _tell_progress(self) -> None:
        with self._changed:
            self._handle(self._times.report(self.metrics))

    def _report(self) -> None:
        self._tell_progress()
        if not self._is_closed:
            self._stream.after(self._report_every_s, self._report)

    # ---- the stream's side: StreamListener --------------------------------------------------------------------------

    def stream_opened(self) -> None:
        self._handle(StreamOpened())

    def stream_broken(self, reason: str) -> None:
        with self._changed:
            self._apart_since_s = self._apart_since_s or monotonic()
            self._apart_reason = reason
        self._handle(StreamClosed())

    def refused(self, reason: str) -> None:
        with self._changed:
            self._complaint = f"the master refuses this trainer: {reason}"
            self._changed.notify_all()

    def received(self, messages: tuple[MasterMessage, ...]) -> None:
        for message in messages:
            if isinstance(message, ReplicaRegistered):
                self._apart_since_s = None
                self._report_every_s = max(0.05, message.report_every_s)
            if isinstance(message, OfferAnswered):
                self._manifest, self._refusal = message.manifest or self._manifest, message.reason
            self._handle(cast(ToReplica, message))
            if isinstance(message, ReplicaRegistered):  # its registration does not say where its script is
                self._tell_progress()
