"""Work on the script's replica that a member's state asks for: load a checkpoint, exchange states, take a copy.

The script's thread does it, without the member's lock; a copy is written by a thread behind all that trains.  Not here:
when work is due (`core.script_work`), and the forms of a replica's files (`replica_files`).
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final, assert_never

from master.api.checkpoints.folder_contents import read_contents
from master.api.checkpoints.storage import Storage
from master.api.errors import StorageAlteredError, StorageError
from master.api.group_shares import total_steps
from trainer_sdk.collective import CollectiveAborted, HostCollective
from trainer_sdk.errors import CheckpointError, UsageError, WireError
from trainer_sdk.group.array_cuts import shard_of
from trainer_sdk.group.captured_state import MAX_STATE_BYTES, StateReceiver, check_captured, stream_pieces
from trainer_sdk.group.core.control_words import (
    MAX_ENTRY_BYTES,
    MAX_WORD_BYTES,
    decode_entry,
    decode_word,
    encode_entry,
    encode_word,
)
from trainer_sdk.group.core.member_events import (
    CompareReplicas,
    CopyTaken,
    CopyWritten,
    DigestTaken,
    GatherStates,
    GroupFailed,
    GroupWork,
    LoadHead,
    ReceiveState,
    ReplicasCompared,
    ReplicaTorn,
    SendState,
    StateCaptured,
    StatesGathered,
    StateTaken,
    TakeCopy,
    TakeDigest,
)
from trainer_sdk.group.core.replica_digests import digest_of
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.member_shell import MemberShell
from trainer_sdk.group.port import CapturedShard, CapturedState, ComparableReplica, ReplicaState, ShardedReplica
from trainer_sdk.group.replica_files import LoadedState, read_copy, write_shard

UNREADABLE_S: Final = 60.0
"""So long a checkpoint that cannot be read is read again: the default of the master's EDL_UNREADABLE_S."""
READ_AGAIN_S: Final = 2.0
WRITER_NICENESS: Final = 10  # hashing and writing a checkpoint takes what training leaves
WRITE_LIMIT_S: Final = 900.0  # storage that has not taken a copy by then has failed; all members wait for the next one

ReplicaTask = LoadHead | TakeDigest | TakeCopy | GroupWork


class ReplicaWork:
    """Carries out one task after the other; each ends in an event for the member's state."""

    def __init__(self, shell: MemberShell, replica: ReplicaState, storage: Storage) -> None:
        self._shell, self._replica, self._storage = shell, replica, storage
        self._writer: threading.Thread | None = None

    def carry_out(self, task: ReplicaTask) -> None:
        """Raises CheckpointError when the checkpoint cannot be read, and what the replica's `restore` raises."""
        match task:
            case LoadHead():
                self._load(task)
            case TakeCopy():
                self._take_copy(task)
            case TakeDigest(state=state):
                with self._shell.times.working():
                    digests = self._replica.digests() if isinstance(self._replica, ComparableReplica) else {}
                self._shell.handle(DigestTaken(digest=digest_of(state, digests)))
            case GatherStates() | SendState() | ReceiveState() | CompareReplicas():
                try:
                    self._exchange(task, self._shell.group(task.number))
                except (CollectiveAborted, WireError):
                    self._shell.handle(GroupFailed(number=task.number))
            case _:
                assert_never(task)

    def replica_bytes(self) -> int:
        """Bytes of a replica of which a copy may follow this step (rule 84); 0 otherwise, and if it is copied whole."""
        state = self._shell.state
        is_asked = state.wants_copy or state.step + 1 == total_steps(state.dataset)
        return self._replica.replica_bytes() if is_asked and isinstance(self._replica, ShardedReplica) else 0

    def _load(self, task: LoadHead) -> None:
        head = task.head
        with self._shell.times.working():
            loaded = self._try_read(task)
        if loaded is None:
            return
        if replace(loaded.state, is_stopped=head.state.is_stopped) != head.state:  # more epochs end a stop
            raise CheckpointError(head.files[0].name, f"is at {loaded.state}, not at {head.state}")
        self._restore(loaded.captured, StateTaken(number=task.number, state=head.state, skipped=loaded.skipped))

    def _try_read(self, task: LoadHead) -> LoadedState | None:
        """The checkpoint, or None once another task is due.

        A file that is not there, or cannot be read, may come back: it is read again for a minute, as servers do.
        Raises CheckpointError then, and at once for a file that was altered.
        """
        shell, began_s, told = self._shell, monotonic(), ""
        while True:
            try:
                return read_copy(self._storage, task.head.files)
            except CheckpointError as error:
                is_final = not isinstance(error.__cause__, StorageError) or monotonic() - began_s >= UNREADABLE_S
                if is_final or isinstance(error.__cause__, StorageAlteredError):
                    raise
                if str(error) != told:
                    told = str(error)
                    sys.stderr.write(f"edl: {told}; it is read again for {UNREADABLE_S:g} s\n")
            again_s = monotonic() + READ_AGAIN_S
            with shell.changed:
                while (is_due := next_work(shell.state) == task) and monotonic() < again_s:
                    shell.wait(began_s)
                if not is_due:
                    return None

    def _exchange(self, task: GroupWork, group: HostCollective) -> None:
        match task:
            case GatherStates(number=number, entry=entry):
                entries = group.all_gather(encode_entry(entry), MAX_ENTRY_BYTES)
                self._shell.handle(StatesGathered(number=number, entries=tuple(map(decode_entry, entries))))
            case SendState(number=number, to=to):
                with self._shell.times.working():
                    captured = check_captured(self._replica.capture())
                group.begin_sending(to, stream_pieces(captured))
                self._shell.handle(StateCaptured(number=number))
            case ReceiveState(number=number, source=source):
                receiver = StateReceiver()
                group.receive_state(source, receiver.place, MAX_STATE_BYTES)
                taken = StateTaken(number=number, state=task.state, skipped=task.skipped)
                self._restore(receiver.finish(), taken)
            case CompareReplicas(number=number, word=word):
                with self._shell.times.reducing():
                    words = group.all_gather(encode_word(word), MAX_WORD_BYTES)
                self._shell.handle(ReplicasCompared(number=number, words=tuple(map(decode_word, words))))
            case _:
                assert_never(task)

    def _restore(self, captured: CapturedState, taken: StateTaken) -> None:
        try:
            with self._shell.times.working():
                self._replica.restore(captured)
        except BaseException:
            self._shell.handle(ReplicaTorn())
            raise
        self._shell.handle(taken)

    def _take_copy(self, task: TakeCopy) -> None:
        """Copies now, writes in a thread; at most one at a time, though storage hangs: a copy takes memory."""
        if self._writer is not None and self._writer.is_alive():
            self._shell.handle(CopyTaken(work=task))
            self._give_up(task)
            return
        replica = self._replica
        with self._shell.times.working():
            if task.shards > 1 and isinstance(replica, ShardedReplica):
                part = replica.capture_shard(task.shard, task.shards)
            else:
                part = shard_of(replica.capture(), task.shard, task.shards)
        self._shell.handle(CopyTaken(work=task))
        self._writer = threading.Thread(target=self._write_copy, args=(task, part), name="edl-copy", daemon=True)
        self._writer.start()
        self._shell.stream.after(WRITE_LIMIT_S, partial(self._give_up, task))

    def _give_up(self, task: TakeCopy) -> None:
        """Nothing if the copy is written: else every agreement on another one would wait for it."""
        problem = f"storage: it has not taken a copy within {WRITE_LIMIT_S:.0f} s"
        self._shell.handle(CopyWritten(number=task.number, file=None, problem=problem))

    def _write_copy(self, task: TakeCopy, part: CapturedShard) -> None:
        state = task.state
        own = f"{self._shell.state.incarnation}-{task.number}"
        shard = f"-{task.shard}of{task.shards}" if task.shards > 1 else ""
        name = f"replica-{state.lineage}-{state.generation}-{state.step}-{own}{shard}.safetensors"
        written = CopyWritten(number=task.number, file=None)
        try:
            with suppress(OSError):  # elsewhere than on Linux a thread has none of its own
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), WRITER_NICENESS)
            self._delete_refused()
            file, contents = write_shard(
                self._storage, name, part, dataset=self._shell.state.dataset, state=state, skipped=task.skipped
            )
            written = replace(written, file=file, contents=contents)
        except (CheckpointError, UsageError) as error:
            self._shell.refusal = str(error)
            written = replace(written, problem=str(error))
            sys.stderr.write(f"edl: {error}; training continues, the next checkpoint will be attempted\n")
        finally:
            self._shell.handle(written)

    def _delete_refused(self) -> None:
        """Deletes this process's files that the master has refused: else they would fill storage until a commit.

        Now, and not when they are refused: a manifest that an earlier master began is there by now.  A file that one
        names stays, and all stay while a manifest cannot be read.
        """
        with self._shell.changed:
            refused, self._shell.refused_files = self._shell.refused_files, ()
        if not refused:
            return
        try:
            contents = read_contents(self._storage)
            named = {file.name for manifest in contents.known.values() for file in manifest.files}
            if not contents.damaged and not contents.damaged_retired:
                for name in set(refused) - named:
                    self._storage.delete(name)
        except StorageError as error:
            sys.stderr.write(f"edl: {error}; files of refused checkpoints stay: {', '.join(refused)}\n")
