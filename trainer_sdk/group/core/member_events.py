"""Events, effects and the script's work of a group member.  Pure data.

Events in the past tense come from the master's stream, the collectives and the script; effects in the imperative are
for the shell, in this order.  Work is what the script's thread does, which alone touches the replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from master.api.identities import Incarnation
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.from_members import ReplicaMessage
from master.api.messages.generations import Generation, HeadState, StateId
from master.api.messages.to_members import ToReplica
from master.api.positions import PositionSet
from trainer_sdk.group.core.control_words import StepWord, SyncEntry
from trainer_sdk.group.port import GroupFinish, StepShare


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDigest:
    """Digest of one member's replica at this state: names of its parts, and their hexadecimal digests in one text."""

    state: StateId
    parts: tuple[str, ...] = ()
    digests: str = ""


# ---- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """A stream to the master is open: register."""


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """The stream broke; the group trains on (rule 91)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequested:
    """Time for a progress report."""

    is_reducing: bool = False  # the script waits in a collective
    is_loading: bool = False  # the script waits for its data loader
    is_in_script: bool = False  # the script has not asked for its next step yet
    is_working: bool = False  # it has, and its thread loads, copies, digests or restores the replica
    is_in_step: bool = False  # the script has a step in hand, which may be complete already
    is_size_new: bool = False  # this process has trained no such number of records before: the step may compile
    steps_begun: int = 0
    median_step_s: float = 0.0
    samples_per_s: float = 0.0
    pause_s: float = 0.0
    waiting_share: float = 0.0
    reducing_s: float = 0.0  # since the script has waited in its collective
    compute_rate: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConnected:
    """This generation's members are connected."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFailed:
    """A connection attempt or a collective of this generation failed here (rule 73)."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesGathered:
    """The first collective of this generation: what each member holds, by rank (rule 70)."""

    number: int
    entries: tuple[SyncEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCaptured:
    """What this member sends is copied, and on its way to its receivers: its replica may change again."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTaken:
    """The replica is this state now: received or loaded into a second place, checked, swapped (rule 71).

    True also if this member has left the generation meanwhile.  `skipped` is that of the file if it was loaded (90).
    """

    number: int
    state: StateId
    skipped: PositionSet


@dataclass(frozen=True, slots=True)
class ReplicaTorn:
    """The replica is nothing: a restore failed half way (rule 66)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestTaken:
    """The digests of the replica, as `TakeDigest` asked for."""

    digest: ReplicaDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReduced:
    """The script asks whether the step is complete: every gradient is reduced here (rule 68).

    `replica_bytes`: size of the replica, as far as it is known and may be copied in shards (rule 84).
    """

    sample: str = ""  # as in `StepWord`
    replica_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsGathered:
    """The step's flag collective: every member's control word, by rank (rule 67)."""

    number: int
    words: tuple[StepWord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasCompared:
    """Every member's word after the last step, by rank, as `CompareReplicas` asked for."""

    number: int
    words: tuple[StepWord, ...]


@dataclass(frozen=True, slots=True)
class StepApplied:
    """The script has applied the complete step."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The script ends training with the last step that is complete here (rule 97)."""


@dataclass(frozen=True, slots=True)
class CopyNow:
    """This member copies the whole replica at this very boundary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeCopy:
    """Capture the replica, or a shard of it, answer CopyTaken, and write it in the background; answered CopyWritten."""

    number: int  # of the copy within this process
    stamp: int
    state: StateId
    skipped: PositionSet
    shard: int = 0
    writers: tuple[Incarnation, ...] = ()  # of the shards, in their order; none: the copy is whole

    @property
    def shards(self) -> int:
        return len(self.writers) or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTaken:
    """The replica was copied to host memory, as this work says (rule 85)."""

    work: TakeCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyWritten:
    """The copy of this number is complete in storage; file None: it could not be written, for this reason."""

    number: int
    file: FileRecord | None
    contents: str = ""  # digest of the whole replica's names, dtypes and shapes
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainAsked:
    """This process terminates within `grace_s` (M7)."""

    grace_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GraceEnded:
    """The grace period is over: leave now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRaised:
    """The script raised in the step that it had been given; `message` is for its author.

    `is_in_step`: it had not ended that step, which may be complete already where no other trainer contributes.
    """

    message: str
    is_in_step: bool = False
    is_misuse: bool = False  # whatever the records were


@dataclass(frozen=True, slots=True)
class FinalHookDone:
    """The script's final hook has returned."""


GroupEvent = (
    ToReplica
    | StreamOpened
    | StreamClosed
    | ReportRequested
    | GroupConnected
    | GroupFailed
    | StatesGathered
    | StateCaptured
    | StateTaken
    | ReplicaTorn
    | DigestTaken
    | StepReduced
    | WordsGathered
    | ReplicasCompared
    | StepApplied
    | StopAsked
    | CopyNow
    | CopyTaken
    | CopyWritten
    | DrainAsked
    | GraceEnded
    | ScriptRaised
    | FinalHookDone
)

# ---- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TellMaster:
    """Send this to the master; lost without a stream, and the state knows what to repeat."""

    message: ReplicaMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectGroup:
    """Connect this generation's members in the background; answered GroupConnected or GroupFailed."""

    record: Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortGroup:
    """Abort this generation's collectives at once, or its connection attempt."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseGroup:
    """Close this generation's connections: every member has done its last collective (rule 82)."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContributeWord:
    """Take part in the step's flag collective with this word; answered WordsGathered or GroupFailed."""

    number: int
    word: StepWord


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseScript:
    """Raise UsageError in the script's thread: what it declared, or what it holds, cannot go on."""

    field: str
    message: str


GroupEffect = TellMaster | ConnectGroup | AbortGroup | CloseGroup | ContributeWord | RefuseScript

# ---- what the script's thread does ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for the next event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherStates:
    """Take part in the first collective with this entry; answered StatesGathered or GroupFailed."""

    number: int
    entry: SyncEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class SendState:
    """Capture the replica and send it to these ranks; answered StateCaptured or GroupFailed."""

    number: int
    to: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveState:
    """Receive the replica from this rank; answered StateTaken, GroupFailed or ReplicaTorn."""

    number: int
    source: int
    state: StateId
    skipped: PositionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadHead:
    """Restore the replica from the head's file; answered StateTaken or ReplicaTorn."""

    number: int
    head: HeadState


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeDigest:
    """Digest the replica, which is at this state, part by part; answered DigestTaken."""

    state: StateId


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareReplicas:
    """Take part in the collective after the last step with this word; answered ReplicasCompared or GroupFailed."""

    number: int
    word: StepWord


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveStep:
    """Give this step to the script."""

    share: StepShare


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishScript:
    """Give no more steps."""

    finish: GroupFinish


GroupWork = GatherStates | SendState | ReceiveState | CompareReplicas
"""Takes place in the collectives of a generation."""

ScriptWork = GroupWork | Await | LoadHead | TakeDigest | TakeCopy | GiveStep | FinishScript
