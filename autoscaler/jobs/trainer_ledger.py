"""Ledger of a job's trainers: which of them do no work, by their master's count of batches (ADR 0287).

    answers of the master -> LedgerHistory -> TrainerVerdict: working, excused, idle or hung

A counter of the ledger that stands still is proof that nothing is trained.  It is no proof that the trainer is to
blame: where a checkpoint, a restore, a first batch or an evaluation explains it, the clock stands.  The clock counts
time between answers of the master alone, so a master that is silent, or an operator that was away, makes nobody idle.
A commit stops the clock and leaves the verdict: checkpoints come every half minute, and would end it each time.

An idle trainer may be given to others.  A hung one is told of early, and given away or replaced only where its device
is seen to do nothing as well: a batch may be compiled anew, a script may evaluate for an hour, and only the device
tells that apart.

Pure.  Not here: what the planner does with an idle trainer, the agents' verdicts on devices, words (`idle_report`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Final, assert_never

from autoscaler.jobs.progress import JobProgress, TrainerEntry
from master.api.master_status import JobPhase
from master.api.messages.generations import GroupPhase

HUNG_BATCHES: Final = 3
"""Median batches without one more, after which a trainer that should work is hung ..."""
HUNG_AFTER_S: Final = 5.0
"""... and so many seconds more: with the report (1 s) and the poll (2.5 s) it is told of within 10 s."""
COMPILING_S: Final = 120.0
"""Least time of a batch of a size that is new to its trainer: it may compile, as its master allows (ADR 0257)."""
OWN_CODE_S: Final = 120.0
"""Least time in its script's own code after which the only trainer of a group is hung: with others, its group leaves it
behind then.
"""
OWN_CODE_TIMES: Final = 2  # ... and so many times as long as it was without a batch before: it evaluates now and then
LONGEST_GAP_S: Final = 30.0
"""Between two answers: what happened in a longer gap is not known, and counts for nothing."""
LEAST_SMOOTHING_S: Final = 300.0
"""Shares of time are smoothed over the job's window, and over this where that is shorter, or 0: nobody is idle."""
TOLD_STEP: Final = 0.05
"""Change of a smoothed share from which it is told: single answers differ, and each new text is a write."""
BATCHES_KEPT: Final = 15
STEPS_PER_BATCH: Final = 2  # of a trainer with leases: one count as a batch is given, one as it is done


class WorkState(StrEnum):
    WORKING = "working"
    EXCUSED = "excused"  # it completes no batch, and nothing follows from that
    IDLE = "idle"  # no batch for the window
    HUNG = "hung"  # no batch for much longer than one takes, though it has work


class ScriptPlace(StrEnum):
    """Place of a trainer's script."""

    BATCH = "batch"  # it computes on a batch: the next move is its own
    WAITS = "waits"  # for a batch, for servers, for other trainers or for its loader
    OWN_CODE = "own code"  # between batches: it may evaluate for as long as it likes


class Device(StrEnum):
    """Use of a trainer's device, by the agent on its node."""

    NONE = "none"  # it asks for none: the ledger alone decides who is idle
    UNKNOWN = "unknown"  # no agent reports on it: who holds a batch may compute, and nobody is replaced
    LOW = "low"  # nobody has computed there for the agent's window
    BUSY = "busy"  # somebody computes there, or the report is stale or contradicts itself


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRecord:
    """One trainer's entries so far.  Instants on the cluster's clock."""

    steps: int
    seen_at_s: float  # the last answer that named it
    worked_at_s: float  # the last answer that showed work
    still_s: float = 0.0  # without a batch since then, while one was to be expected
    excuse: str = ""  # why none is to be expected now; empty: one is
    place: ScriptPlace = ScriptPlace.WAITS
    may_compile: bool = False  # it computes on a batch of a new size
    is_left_behind: bool = False  # of a group
    is_alone: bool = False  # of a group: nobody else trains, so none would go on without it
    longest_s: float = 0.0  # it was without a batch for so long before, and then completed one
    has_worked: bool = False  # it has completed a batch since it came, or since its group has changed
    batches_s: tuple[float, ...] = ()
    waiting_share: float = 0.0  # of its time, what is older than `smoothing_s` fading away
    told_share: float = 0.0  # the same as it was when it last changed by TOLD_STEP

    @property
    def is_excused(self) -> bool:
        """True if it is neither idle nor hung, whatever was seen before."""
        return self.excuse not in {"", _COMMITS}

    @property
    def is_stuck_alone(self) -> bool:
        """True if its script's own code holds up the whole job for longer than an evaluation would explain."""
        limit_s = max(OWN_CODE_S, OWN_CODE_TIMES * self.longest_s)
        return self.is_alone and self.place is ScriptPlace.OWN_CODE and self.still_s >= limit_s

    @property
    def hung_after_s(self) -> float | None:
        """After how long without a batch it is hung; None while its usual batch is not known."""
        if not self.batches_s:
            return None
        usual_s = HUNG_BATCHES * median(self.batches_s) + HUNG_AFTER_S
        return max(usual_s, COMPILING_S) if self.may_compile else usual_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerHistory:
    """The trainers of one job by name, as of the last answer of its master."""

    trainers: Mapping[str, TrainerRecord] = field(default_factory=dict)
    generation: int = 0  # of a group


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """Context that all entries of one answer share.  `excuse`: why no trainer can be expected to complete a batch."""

    excuse: str
    now_s: float
    is_group: bool
    window_s: float
    is_alone: bool

    @property
    def steps_per_batch(self) -> int:
        return 1 if self.is_group else STEPS_PER_BATCH

    def shows_batch(self, entry: TrainerEntry, steps: int) -> bool:
        """True if so many more steps, or those with all before them, are a completed batch.

        A group's steps are not its trainers' own: who joins takes over those of the others.
        """
        own = steps if self.is_group else entry.steps
        return own >= self.steps_per_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerVerdict:
    """`gives`: nobody loses anything if its GPU goes to others; `is_replaceable`: a new process in its place works.

    `is_stuck_alone`: the only one, in its script's own code, where it may evaluate: it is told of and kept.
    """

    name: str
    state: WorkState
    since_s: float
    gives: bool = False
    is_replaceable: bool = False
    is_stuck_alone: bool = False


# ---- what is learnt from an answer ----------------------------------------------------------------------------------


def observe_ledger(
    before: LedgerHistory, progress: JobProgress, now_s: float, *, is_group: bool, window_s: float
) -> LedgerHistory:
    """Return the history with one more answer of the job's master; trainers that it does not name are forgotten."""
    is_same_group = progress.generation == before.generation
    known = {
        entry.name: record
        for entry in progress.ledger
        if (record := before.trainers.get(entry.name)) is not None and (is_same_group or entry.is_left_behind)
    }
    context = _Context(
        excuse=_shared_excuse(progress, known, is_group=is_group),
        now_s=now_s,
        is_group=is_group,
        window_s=window_s,
        is_alone=is_group and sum(one.is_connected and not one.is_left_behind for one in progress.ledger) == 1,
    )
    trainers = {}
    for entry in progress.ledger:
        record = known.get(entry.name)
        if record is None or 0 < entry.steps < record.steps:  # it has come, or another process has its name
            record = _begun(entry, now_s, has_worked=not is_group and entry.steps >= STEPS_PER_BATCH)
        trainers[entry.name] = _with_entry(record, entry, context)
    return LedgerHistory(trainers=trainers, generation=progress.generation)


def _begun(entry: TrainerEntry, now_s: float, *, has_worked: bool) -> TrainerRecord:
    return TrainerRecord(
        steps=entry.steps,
        seen_at_s=now_s,
        worked_at_s=now_s,
        excuse=_NOT_SEEN,
        has_worked=has_worked,
        waiting_share=entry.waiting_share,
        told_share=entry.waiting_share,
    )


def smoothing_s(window_s: float) -> float:
    """Return over how long shares of time are smoothed."""
    return max(window_s, LEAST_SMOOTHING_S)


def _with_entry(record: TrainerRecord, entry: TrainerEntry, context: _Context) -> TrainerRecord:
    """Return the record with one more entry.  Time counts only where no batch was excused at either end of it."""
    now_s = context.now_s
    gap_s, steps = now_s - record.seen_at_s, max(0, entry.steps - record.steps)  # 0 before its first report
    is_followed = 0.0 <= gap_s <= LONGEST_GAP_S
    has_worked = record.has_worked or context.shows_batch(entry, steps)
    excuse = _own_excuse(entry, has_worked=has_worked) or context.excuse
    batches_s = record.batches_s
    if steps and is_followed and record.has_worked:
        batches_s = (*batches_s, (now_s - record.worked_at_s) * context.steps_per_batch / steps)[-BATCHES_KEPT:]
    still_s = 0.0 if steps or not is_followed else record.still_s
    if not (steps or excuse or record.excuse) and is_followed:
        still_s += gap_s
    part = min(1.0, max(0.0, gap_s) / smoothing_s(context.window_s))
    waiting_share = record.waiting_share + (entry.waiting_share - record.waiting_share) * part
    return TrainerRecord(
        steps=max(record.steps, entry.steps),
        seen_at_s=now_s,
        worked_at_s=now_s if steps or not is_followed else record.worked_at_s,
        still_s=still_s,
        excuse=excuse,
        place=_place_of(entry),
        may_compile=entry.phase == GroupPhase.WARM_UP,
        is_left_behind=entry.is_left_behind,
        is_alone=context.is_alone and entry.is_connected and not entry.is_left_behind,
        longest_s=max(record.longest_s, record.still_s) if steps else record.longest_s,
        has_worked=has_worked,
        batches_s=batches_s,
        waiting_share=waiting_share,
        told_share=waiting_share if abs(waiting_share - record.told_share) >= TOLD_STEP else record.told_share,
    )


# ---- rules ----------------------------------------------------------------------------------------------------------

EXCUSING_PHASES: Final = frozenset(JobPhase) - {JobPhase.TRAINING}
"""It starts, restores, commits, saves or is over: no batch is to be expected of any trainer."""

EXCUSED_IN_GROUP: Final = frozenset({GroupPhase.SYNC, GroupPhase.TRANSFER, GroupPhase.RESTORE, GroupPhase.DONE})
"""The group changes, or is done."""

IN_SCRIPT: Final = frozenset({GroupPhase.SCRIPT, GroupPhase.UNREADY})
IN_BATCH: Final = frozenset({GroupPhase.COMPUTE, GroupPhase.WARM_UP})

_NOT_SEEN: Final = "it has just been seen for the first time"
_COMMITS: Final = "the job commits"


def _shared_excuse(progress: JobProgress, known: Mapping[str, TrainerRecord], *, is_group: bool) -> str:
    """Reason for which none of the job's trainers can be expected to complete a batch; empty: they can."""
    commits = _COMMITS if progress.phase is JobPhase.COMMITTING else ""
    if progress.phase in EXCUSING_PHASES and not commits:
        return f"the job is {progress.phase}"
    if progress.problem:
        return "the job has a problem"
    return (_group_excuse(progress, known) if is_group else "") or commits


def _group_excuse(progress: JobProgress, known: Mapping[str, TrainerRecord]) -> str:
    """Reason for which no member of the job's group can be expected to complete a batch; empty: they can."""
    members = [entry for entry in progress.ledger if entry.is_connected and not entry.is_left_behind]
    if any(entry.phase in EXCUSED_IN_GROUP for entry in members):
        return "its group changes, or is done"
    is_first = not all(
        (record := known.get(entry.name)) is not None and (record.has_worked or entry.steps > record.steps)
        for entry in members
    )
    if is_first:
        return "a trainer of its group is in its first step"
    is_any_in_script = len(members) > 1 and any(entry.phase in IN_SCRIPT for entry in members)
    return "a trainer of its group is in its script's own code" if is_any_in_script else ""


def _own_excuse(entry: TrainerEntry, *, has_worked: bool) -> str:
    """Reason for which this trainer cannot be expected to complete a batch; empty: it can."""
    if not entry.is_connected:
        return "its master does not hear of it"
    if not entry.steps:
        return "it has reported nothing yet"
    if entry.is_left_behind:
        return ""
    return "" if has_worked else "it has completed no batch yet"


def _place_of(entry: TrainerEntry) -> ScriptPlace:
    """Place of the script, by the entry."""
    if entry.phase:
        if entry.phase in IN_SCRIPT:
            return ScriptPlace.OWN_CODE
        return ScriptPlace.BATCH if entry.phase in IN_BATCH else ScriptPlace.WAITS
    if entry.is_computing:
        return ScriptPlace.BATCH
    return ScriptPlace.WAITS if entry.is_waiting else ScriptPlace.OWN_CODE


def judge(name: str, record: TrainerRecord, *, window_s: float, device: Device) -> TrainerVerdict:
    """Return the verdict on one trainer.  `window_s` 0: it is never idle, and never replaced.

    Missing or contradicting data never makes it idle (promise A12).
    """
    is_due = 0 < window_s <= record.still_s
    state = _state_of(record, is_due=is_due, device=device)
    is_still = state in {WorkState.IDLE, WorkState.HUNG}
    is_stuck_alone = state is WorkState.HUNG and record.is_stuck_alone
    may_compute = device is Device.BUSY or (device is Device.UNKNOWN and record.place is ScriptPlace.BATCH)
    return TrainerVerdict(
        name=name,
        state=state,
        since_s=record.worked_at_s,
        gives=is_still and is_due and not may_compute and not is_stuck_alone,
        is_replaceable=state is WorkState.HUNG and is_due and device is Device.LOW and not is_stuck_alone,
        is_stuck_alone=is_stuck_alone,
    )


def _state_of(record: TrainerRecord, *, is_due: bool, device: Device) -> WorkState:
    """The rule, most special case first (ADR 0287)."""
    if record.is_excused:
        return WorkState.EXCUSED
    match record.place:
        case ScriptPlace.OWN_CODE:  # it may evaluate: only a device that does nothing says otherwise
            if record.is_stuck_alone and device is not Device.BUSY and not (is_due and device is Device.LOW):
                return WorkState.HUNG
            if device is not Device.LOW:
                return WorkState.EXCUSED
            return WorkState.HUNG if is_due and record.is_left_behind else _idle_if(is_due)
        case ScriptPlace.BATCH:
            hung_after_s = record.hung_after_s
            is_late = is_due if hung_after_s is None else record.still_s >= hung_after_s
            return WorkState.HUNG if is_late else WorkState.WORKING
        case ScriptPlace.WAITS:
            return WorkState.WORKING if device is Device.BUSY else _idle_if(is_due)
        case place:
            assert_never(place)


def _idle_if(is_due: bool) -> WorkState:
    return WorkState.IDLE if is_due else WorkState.WORKING


def judge_all(
    history: LedgerHistory, *, window_s: float, devices: Mapping[str, Device], default: Device = Device.UNKNOWN
) -> tuple[TrainerVerdict, ...]:
    """Return the verdicts on the job's idle and hung trainers, by name.  `devices`: of those whose node reports."""
    found = (
        judge(name, record, window_s=window_s, device=devices.get(name, default))
        for name, record in sorted(history.trainers.items())
    )
    return tuple(one for one in found if one.state in {WorkState.IDLE, WorkState.HUNG})
