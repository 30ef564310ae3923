"""Runtime of a group member: the calls of the script's thread, which also does what the state asks for (ADR 0236).

The state stands in `MemberShell`, behind its lock; work on the replica is `ReplicaWork`'s, without the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from time import monotonic

from master.api.checkpoints.storage import Storage
from master.api.group_shares import steps_per_epoch
from master.api.identities import ManifestId
from trainer_sdk.collective import CollectiveAborted, CollectiveListener
from trainer_sdk.errors import CheckpointError, MasterUnavailableError, StepAborted, UsageError, WireError
from trainer_sdk.group.core.control_words import MAX_WORD_BYTES, StepWord, decode_word, encode_word
from trainer_sdk.group.core.member_events import (
    Await,
    ContributeWord,
    CopyNow,
    DrainAsked,
    FinalHookDone,
    FinishScript,
    GiveStep,
    GraceEnded,
    GroupFailed,
    ScriptRaised,
    StepApplied,
    StepReduced,
    StopAsked,
    TakeCopy,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.steps import expected_share
from trainer_sdk.group.core.transitions import give
from trainer_sdk.group.member_shell import MemberShell
from trainer_sdk.group.port import GroupFinish, HostArray, ReplicaState, StepShare
from trainer_sdk.group.replica_work import ReplicaWork
from trainer_sdk.master_stream import DRAIN_LIMIT_S, MasterAddress

MAX_GATHER_BYTES = 64 << 20
MASTER_BUDGET_S = 120.0  # without any master, while nothing else can be done


class MemberRuntime:
    """This process's place in the group.  `leave` it in any case.

        while isinstance(step := runtime.begin_step(), StepShare):
            try:
                for gradient in gradients_of(step.positions, step.records):
                    runtime.all_reduce(gradient)
            except StepAborted:
                continue  # the same step comes again, maybe with another share
            if runtime.end_step():
                apply(gradients)

    All calls come from the script's thread, except `all_reduce`, which one other thread may make in its place between
    `begin_step` and `end_step`.
    """

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
        self._master_budget_s = master_budget_s
        self.shell = shell = MemberShell(
            state, listener=listener, master=master, master_budget_s=master_budget_s, check_alive=check_alive
        )
        self._work = ReplicaWork(shell, replica, storage)

    # ---- the script's side ------------------------------------------------------------------------------------------

    def begin_step(self) -> StepShare | GroupFinish:
        """The next step, or the same one again after an abort; calling it says that the step before was applied.

        Waits for a generation, and brings the replica to its state (rules 70, 71).  From the end of the grace period on
        it is a finish, and collectives are aborted, so a step in hand ends soon.  Raises MasterUnavailableError when no
        master answered for the budget, UsageError if the master refuses this trainer.
        """
        with self.shell.times.asking():
            self.shell.tell_ready()
            return self._next_step()

    def _next_step(self) -> StepShare | GroupFinish:
        self._end_applied_step()
        shell, began_s = self.shell, monotonic()
        while True:
            with shell.changed:
                work = next_work(shell.state)
                if shell.complaint and not isinstance(work, FinishScript):
                    raise UsageError(shell.complaint)
                if isinstance(work, Await):
                    shell.wait(began_s)
                    continue
                if isinstance(work, GiveStep):
                    shell.state = give(shell.state)
                    shell.times.begin(work.share, monotonic())
                    return work.share
            if isinstance(work, FinishScript):
                return work.finish
            self._work.carry_out(work)
            shell.tell_ready()

    def all_reduce(self, array: HostArray, *, dtype: str = "") -> None:
        """The array becomes the sum over all ranks, in place; in the same order at all ranks.

        `dtype` names one that NumPy lacks: "bfloat16", given as uint16.  Raises StepAborted as soon as the group
        breaks: the step is dropped, and `begin_step` comes next.
        """
        shell = self.shell
        with shell.changed:
            number, is_given = shell.state.number, shell.state.is_step_given
        if not is_given:
            raise StepAborted("the group broke: begin_step() gives this step again")
        with shell.collective(number):
            shell.group(number).all_reduce(array, dtype or None)

    def computed(self, *, is_known: bool = True) -> None:
        """The script has all gradients of its share, if that `is_known`: what comes next is the wait for others."""
        self.shell.times.computed(monotonic(), is_known=is_known)

    @property
    def is_step_dropped(self) -> bool:
        """True once the step that the script has in hand is not the group's any more: computing on is in vain."""
        state = self.shell.state
        return not (state.is_step_given or state.phase is MemberPhase.COMPLETE)

    def end_step(self, *, sample: str = "") -> bool:
        """True: the step is complete at this member, which applies it now.  False: it is dropped (rules 67, 68).

        `sample`: position and digest of what it has read of `StepShare.sample`.
        """
        is_complete = self.complete_step(sample=sample)
        if is_complete:
            with self.shell.changed:
                self.shell.times.end(monotonic())
        return is_complete

    def complete_step(self, *, sample: str = "") -> bool:
        """As `end_step`, before the gradients are computed: for a step to which no other member contributes."""
        shell = self.shell
        effects = shell.handle(StepReduced(sample=sample, replica_bytes=self._work.replica_bytes()))
        words = [effect for effect in effects if isinstance(effect, ContributeWord)]
        if not words:
            return False
        (word,) = words
        try:
            with shell.times.reducing():
                gathered = self._gather_words(word)
            shell.handle(WordsGathered(number=word.number, words=gathered))
        except (CollectiveAborted, WireError):
            shell.handle(GroupFailed(number=word.number))
        with shell.changed:
            return shell.state.phase is MemberPhase.COMPLETE

    def _gather_words(self, mine: ContributeWord) -> tuple[StepWord, ...]:
        if self.size == 1:
            return (mine.word,)
        texts = self.shell.group(mine.number).all_gather(encode_word(mine.word), MAX_WORD_BYTES)
        return tuple(map(decode_word, texts))

    def gather(self, data: bytes) -> list[bytes]:
        """What all members gave, by rank; between a complete, applied step and the next `begin_step`.

        Raises StepAborted when the group breaks: what was gathered for is done again after the next `begin_step`.
        """
        with self.shell.changed:
            state = self.shell.state
            number = state.number if state.phase is MemberPhase.COMPLETE and not state.broken else 0
        with self.shell.collective(number):
            return self.shell.group(number).all_gather(data, MAX_GATHER_BYTES)

    def loading(self) -> AbstractContextManager[None]:
        """Within it the script waits for its data."""
        return self.shell.times.loading()

    def expected_share(self, step: int) -> StepShare | None:
        """Share that this rank would have of a step in the present generation, for reading ahead."""
        with self.shell.changed:
            return expected_share(self.shell.state, step)

    @property
    def rank(self) -> int:
        return max(0, self.shell.state.rank)

    @property
    def size(self) -> int:
        record = self.shell.state.record
        return 1 if record is None else len(record.members)

    @property
    def step(self) -> int:
        """Steps that the replica has done."""
        return self.shell.state.step

    @property
    def epoch(self) -> int:
        return self.shell.state.step // steps_per_epoch(self.shell.state.dataset)

    @property
    def is_leader(self) -> bool:
        """True for rank 0."""
        return self.shell.state.rank == 0

    @property
    def is_draining(self) -> bool:
        return self.shell.state.is_leaving

    def report_metrics(self, metrics: Mapping[str, float]) -> None:
        """Shows these with the job from the next report on, in place of those of earlier calls."""
        self.shell.metrics = metrics

    def checkpoint(self) -> ManifestId:
        """Commits the replica as it is now, between two steps; the manifest's id.

        Raises CheckpointError when it could not be committed, MasterUnavailableError when no answer came.
        """
        with self.shell.times.asking():
            self.shell.tell_ready()
            return self._next_checkpoint()

    def _next_checkpoint(self) -> ManifestId:
        self._end_applied_step()
        shell, began_s, copy, is_asked = self.shell, monotonic(), 0, False
        while True:
            with shell.changed:
                state = shell.state
                if copy and (state.copy is None or state.copy.number != copy):
                    if is_asked or state.step <= state.committed[0]:
                        return self._committed()
                    copy = 0  # a shard was given up, since another one did not come: the whole is copied
                work = next_work(state)
                if isinstance(work, FinishScript) or (isinstance(work, GiveStep) and state.step <= state.committed[0]):
                    return self._committed()
                if shell.complaint:
                    raise UsageError(shell.complaint)
                if isinstance(work, GiveStep) and not is_asked:
                    is_asked, shell.refusal = True, ""
                    shell.handle(CopyNow())
                    continue
                if isinstance(work, Await | GiveStep):
                    began_s = self._wait_for_commit(began_s, is_writing=_is_writing(state))
                    continue
            if isinstance(work, TakeCopy):
                copy = work.number
            self._work.carry_out(work)
            shell.tell_ready()

    def _wait_for_commit(self, began_s: float, *, is_writing: bool) -> float:
        """Waits for a change; the time since which the master is waited for.  Raises MasterUnavailableError.

        Not while this process writes its copy, which has a limit of its own.
        """
        self.shell.wait(began_s)
        if is_writing:
            return monotonic()
        if monotonic() - began_s > self._master_budget_s:
            budget_s = self._master_budget_s
            raise MasterUnavailableError(f"the master did not commit the checkpoint within {budget_s:g} s")
        return began_s

    def _committed(self) -> ManifestId:
        state = self.shell.state
        head = state.offered.head if state.offered is not None else None
        is_head = head is not None and head.state.progress == state.committed
        manifest = head.manifest if head is not None and is_head else self.shell.manifest
        if manifest is None or state.step > state.committed[0]:
            problem = self.shell.refusal or "no step is trained since the last one, or this trainer leaves its group"
            raise CheckpointError(f"of step {state.step}", f"nothing was committed: {problem}")
        return manifest

    def stop(self) -> None:
        """Training ends with the last step that is complete here, for the whole group (rule 97)."""
        self.shell.handle(StopAsked())

    def script_failed(self, message: str, *, is_misuse: bool) -> None:
        """Tells the master that the script raised in the step in hand (M4); misuse is not the fault of its records.

        A report comes first: the master compares what was in hand with the step that this process is at.
        """
        self.shell.handle(self.shell.times.report(self.shell.metrics))
        self.shell.handle(ScriptRaised(message=message, is_in_step=self.shell.times.is_in_step, is_misuse=is_misuse))

    def final_hook_done(self) -> None:
        self.shell.handle(FinalHookDone())

    def drain(self, *, deadline_s: float, reason: str) -> None:
        """Leaves by the next planned generation, at the latest after `deadline_s`.  Safe in a signal handler."""
        self.shell.stream.post(lambda: self.shell.handle(DrainAsked(grace_s=deadline_s, reason=reason)))
        self.shell.stream.after(deadline_s, lambda: self.shell.handle(GraceEnded()))

    def leave(self, reason: str, *, farewell_s: float = DRAIN_LIMIT_S) -> None:
        """Says goodbye to the master, for so long, and to the members.  A second call does nothing."""
        self.shell.leave(reason, farewell_s=farewell_s)

    def _end_applied_step(self) -> None:
        with self.shell.changed:
            if self.shell.state.phase is MemberPhase.COMPLETE:
                self.shell.times.end(monotonic())
            self.shell.handle(StepApplied())


def _is_writing(state: MemberState) -> bool:
    return state.copy is not None and state.copy.file is None
