"""Progress of a job, derived from its master's status (`master.api.master_status.JobStatus`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from master.api.identities import MemberRole
from master.api.master_status import JobPhase, JobStatus, MemberStatus

LONGEST_PROBLEM: Final = 1000
"""Longest problem text of a master, in characters: what a condition and an event can hold."""

_HEAD, _CUT, _TAIL = 400, " ... ", LONGEST_PROBLEM - 405  # of a longer one

_OVER_BACKOFF_LIMIT: Final = re.compile(r"\d+ failures? (in a row )?without one ")  # `describe_limit`


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerEntry:
    """One trainer in its master's ledger: what it has done, and what it does now.

    `steps` grows with its batches: by two for one with leases, by one in a group.
    """

    name: str
    steps: int
    phase: str = ""  # of a group (`GroupPhase`)
    is_connected: bool = True
    is_left_behind: bool = False  # of a group: the others train on without it
    is_computing: bool = False  # of one with leases: on a batch, waiting for nobody
    is_waiting: bool = False  # of such a one: for a batch, or for parameter servers; neither: in its script's own code
    waiting_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTrainer:
    """A trainer that a group's master refused beside others that train.  `process`: tells its processes apart."""

    name: str
    process: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """Positions of the whole job (all epochs).  `done` includes `committed`, which is what a checkpoint holds."""

    phase: JobPhase
    problem: str = ""  # training stops because of it; the problems below do not stop training
    checkpoint_problem: str = ""
    store_problem: str = ""
    moves_problem: str = ""
    data_problem: str = ""
    trainers_problem: str = ""
    total: int = 0
    done: int = 0
    committed: int = 0
    quarantined: int = 0
    reworked: int = 0  # counted by the present master
    epochs: int = 0
    epochs_committed: int = 0
    lineage: int = 0
    term: int = 0
    head: str = ""
    checkpoint_age_s: float | None = None
    connected: frozenset[str] = frozenset()  # names of the members with a live stream to the master
    servers: int = 0  # that own buckets, or wait for some
    servers_wanted: int = 0  # the number that the master is set to (`MasterConnections.set_servers`)
    moving: int = 0  # buckets that wait to move to another server, or are in transit
    buckets: tuple[tuple[int, int], ...] = ()  # a server's ordinal, and how many it owns: of the servers that it knows
    copies: int = 1  # of each bucket, while there are servers for them
    single_copy_buckets: int = 0  # buckets that have one copy where two are wanted
    buckets_taken_over: tuple[tuple[str, int], ...] = ()  # by server: buckets of lost servers, in this term
    training: int = 0  # trainers that are connected and complete batches
    samples_per_s: float = 0.0
    waiting_share: float = 0.0  # of the trainers' time, on average: for servers to answer pulls and pushes
    step: int = 0  # of a group: steps that it has done
    steps: int = 0  # ... of so many; 0: no group, or nothing is declared yet
    resize_pause_s: float = 0.0  # of a group: how long its last change of members stopped it; 0: not measured yet
    compared_step: int = 0  # of a group: step at which its trainers compared their replicas last, and found them equal
    compared_by: int = 0  # ... number of these trainers; 0: nothing is compared yet
    compared_digest: str = ""
    compared_request: str = ""  # the last request for a comparison that is answered by it
    stopped_at: int | None = None  # the step after which its script ended training early; None: it did not
    metrics: tuple[tuple[str, float], ...] = ()
    missing: int = 0  # positions that were done under an earlier master, and are not (yet) under this one: `follow`
    is_model_kept: bool = True  # false: the job shares out records only
    fell_back: str = ""  # to which checkpoint, from which one that cannot be read; empty: to none
    reworked_earlier: int = 0  # re-worked positions under earlier masters
    generation: int = 0  # of a group
    ledger: tuple[TrainerEntry, ...] = ()  # of all trainers that the master knows
    refused: tuple[RefusedTrainer, ...] = ()  # of a group: the last refusal of each trainer
    has_heard_trainers: bool = True  # false: no trainer has registered at a master of the job yet

    @property
    def is_complete(self) -> bool:
        """END: everything is trained and committed, the final save included."""
        return self.phase is JobPhase.COMPLETE

    @property
    def is_trained(self) -> bool:
        """True if everything is trained and committed; trainers without a final save have ended."""
        return self.phase in {JobPhase.SAVING, JobPhase.COMPLETE}

    @property
    def has_begun(self) -> bool:
        """True if the term of the master that sent it had begun: only then does it know anything of the job."""
        return bool(self.term or self.total)

    @property
    def trained_text(self) -> str:
        """Text on what a job that has ended well has trained."""
        if self.stopped_at is None:
            return "every sample was trained and committed"
        until = f"after step {self.stopped_at:,} of {self.steps:,}"
        return f"the script ended training early, {until}: every sample until then was trained and committed"

    @property
    def is_over_backoff_limit(self) -> bool:
        """The master failed the job for its failures in a row; only the beginning of `problem` says so."""
        return self.has_failed and _OVER_BACKOFF_LIMIT.match(self.problem) is not None

    @property
    def has_failed(self) -> bool:
        """The master gave the job up; `problem` says why."""
        return self.phase is JobPhase.FAILED

    @property
    def epoch(self) -> int:
        """Whole epochs' worth of positions that are done."""
        return self.done * self.epochs // self.total if self.total else 0

    @property
    def reworked_in_all(self) -> int:
        """Positions that were trained again, since the operator or run started to observe the job."""
        return self.reworked_earlier + self.reworked

    @property
    def loss(self) -> float | None:
        """The mean of what the trainers reported under the name `loss`."""
        return dict(self.metrics).get("loss")


def progress_of(status: JobStatus) -> JobProgress:
    """Return the progress that a master's status contains; metrics and throughput are over all trainers."""
    counts = status.positions
    return JobProgress(
        phase=status.phase,
        problem=shortened(status.problem),
        checkpoint_problem=shortened(status.checkpoint_problem),
        store_problem=shortened(status.store_problem),
        moves_problem=shortened(status.moves_problem),
        data_problem=shortened(status.data_problem),
        trainers_problem=shortened(status.trainers_problem),
        fell_back=shortened(status.fell_back),
        is_model_kept=status.is_model_kept,
        total=counts.total,
        done=counts.done + counts.committed,
        committed=counts.committed,
        quarantined=counts.quarantined,
        reworked=status.reworked,
        epochs=status.epochs,
        epochs_committed=status.epochs_committed,
        lineage=status.lineage,
        term=status.term,
        head=status.head or "",
        checkpoint_age_s=status.checkpoint_age_s,
        connected=frozenset(member.name for member in status.members if member.is_connected),
        servers=status.servers,
        servers_wanted=status.servers_wanted,
        moving=status.moving + status.waiting_to_move,
        buckets=tuple((one.ordinal, one.buckets) for one in status.members if one.role is MemberRole.SERVER),
        copies=status.copies,
        single_copy_buckets=status.single_copies,
        buckets_taken_over=tuple((one.name, one.took_over) for one in status.members if one.took_over),
        training=len(_training(status.members)),
        samples_per_s=sum(member.samples_per_s for member in status.members if member.is_connected),
        waiting_share=_mean_waiting(status.members),
        step=status.group_step,
        steps=status.group_steps,
        resize_pause_s=status.resize_pause_s,
        compared_step=status.compared_step,
        compared_by=status.compared_by,
        compared_digest=shortened(status.compared_digest),
        compared_request=shortened(status.compared_request),
        stopped_at=status.stopped_at,
        metrics=tuple(sorted(_mean_metrics(status.members).items())),
        generation=status.generation,
        ledger=tuple(_entry(one) for one in status.members if one.role is MemberRole.TRAINER),
        refused=tuple(
            RefusedTrainer(name=one.member, process=one.process, reason=shortened(one.message))
            for one in status.refusals
        ),
        has_heard_trainers=status.has_heard_trainers,
    )


def _entry(member: MemberStatus) -> TrainerEntry:
    return TrainerEntry(
        name=member.name,
        steps=member.steps,
        phase=member.group_phase,
        is_connected=member.is_connected,
        is_left_behind=bool(member.group_phase) and not member.is_serving,
        is_computing=member.is_computing,
        is_waiting=member.is_waiting,
        waiting_share=member.waiting_share,
    )


def shortened(text: str) -> str:
    """Return a job's text in at most LONGEST_PROBLEM characters, without control characters.

    The middle goes: a traceback says first what failed, and last why.
    """
    cut = text if len(text) <= LONGEST_PROBLEM else text[:_HEAD] + _CUT + text[-_TAIL:]
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in cut)


def merge_progress(before: JobProgress | None, now: JobProgress) -> JobProgress:
    """Merge the master's present progress with counts it cannot know (members that have left, earlier masters).

    Until servers have reported, a new master counts only committed positions as done; whether others are lost is
    known once the servers are connected or the lineage has grown.
    """
    if before is None:
        return now
    if not now.has_begun:
        return replace(
            before,
            phase=now.phase,
            problem=now.problem,
            checkpoint_problem="",
            store_problem="",
            moves_problem="",
            trainers_problem="",
            checkpoint_age_s=None,
            connected=now.connected,
            training=0,
            samples_per_s=0.0,
            ledger=(),
        )
    missed = positions_missed(before, now)
    earlier = before.reworked_earlier + (before.reworked if before.term != now.term else 0)
    return replace(
        now,
        metrics=now.metrics if now.training else now.metrics or before.metrics,
        resize_pause_s=now.resize_pause_s or before.resize_pause_s,  # those that measured it may all have left
        missing=missed if now.lineage == before.lineage else 0,
        reworked_earlier=earlier + (missed if now.lineage > before.lineage else 0),
        has_heard_trainers=now.has_heard_trainers or (before.term > 0 and before.has_heard_trainers),
    )


def positions_undone(before: JobProgress, now: JobProgress) -> int:
    """Positions that were done under this master, and are to be trained again."""
    return max(0, now.reworked - before.reworked) if before.term == now.term else 0


def positions_missed(before: JobProgress, now: JobProgress) -> int:
    """Positions that were done under an earlier master and have not been under this one."""
    is_followed = before.term == now.term and not before.missing
    return 0 if is_followed else max(0, before.done + before.missing - now.done - positions_undone(before, now))


def _training(members: Iterable[MemberStatus]) -> list[MemberStatus]:
    return [one for one in members if one.role is MemberRole.TRAINER and one.is_connected and one.samples_per_s > 0]


def _mean_waiting(members: Iterable[MemberStatus]) -> float:
    shares = [one.waiting_share for one in _training(members)]
    return round(sum(shares) / len(shares), 2) if shares else 0.0


def _mean_metrics(members: Iterable[MemberStatus]) -> Mapping[str, float]:
    values: dict[str, list[float]] = {}
    for member in members:
        for name, value in member.metrics.items():
            values.setdefault(name, []).append(value)
    return {name: sum(value / len(found) for value in found) for name, found in values.items()}  # stays finite


class WhyNoAnswer(StrEnum):
    """Reason for which a job's progress is not known."""

    SILENT = "no answer"  # starting, ended, partitioned, stopped or hung
    NOT_LEADING = "not leading"


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedAnswer:
    """An answer that this version does not read, or with a value that cannot be.  `problem` names the field."""

    problem: str


MissingAnswer: TypeAlias = WhyNoAnswer | MalformedAnswer
