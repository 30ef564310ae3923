"""Progress of a job, derived from its master's status (`master.api.master_status.JobStatus`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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
    buckets_taken_over: tuple[
        tuple[str, int], ...
    ] = ()  # a server, and how many buckets of lost ones it has, by this master
    training: int = 0  # trainers that are connected and complete batches
    samples_per_s: float = 0.0
    waiting_share: float = 0.0  # of the trainers' time, on average: for servers to answer pulls and pushes
    step: int = 0  # of a group: steps that it has done
    steps: int = 0  # ... of so many; 0: no group, or nothing is declared yet
    resize_pause_s: float = 0.0  # of a group: how long its last change of members stopped it; 0: not measured yet
    stopped_at: int | None = None  # the step after which its script ended training early; None: it did not
    metrics: tuple[tuple[str, float], ...] = ()
    missing: int = 0  # positions that were done under an earlier master, and are not (yet) under this one: `follow`
    is_model_kept: bool = True  # false: the job shares out records only
    fell_back: str = ""  # to which checkpoint, from which one that cannot be read; empty: to none
    reworked_earlier: int = 0  # re-worked positions under earlier masters
    generation: int = 0  # of a group
    ledger: tuple[TrainerEntry, ...] = ()  # of all trainers that the master knows

    @property
    def is_complete(self) -> bool:
        """END: everything is trained and committed, the final save included."""
        return self.phase is JobPhase.COMPLETE

    @property
    def is_trained(self) -> bool:
        """True if everything is trained and committed; trainers without a final save have ended."""
        return self.phase in {JobPhase.SAVING, JobPhase.COMPLETE}

    @property
    def trained_text(self) -> str:
        """What a job that has ended well has trained, for people."""
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
        stopped_at=status.stopped_at,
        metrics=tuple(sorted(_mean_metrics(status.members).items())),
        generation=status.generation,
        ledger=tuple(_entry(one) for one in status.members if one.role is MemberRole.TRAINER),
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
    if not (now.term or now.total):  # its term has not begun: it knows nothing of the job yet
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
    missed = _missed(before, now)
    earlier = before.reworked_earlier + (before.reworked if before.term != now.term else 0)
    return replace(
        now,
        metrics=now.metrics if now.training else now.metrics or before.metrics,
        resize_pause_s=now.resize_pause_s or before.resize_pause_s,  # those that measured it may all have left
        missing=missed if now.lineage == before.lineage else 0,
        reworked_earlier=earlier + (missed if now.lineage > before.lineage else 0),
    )


def progress_events(
    before: JobProgress | None, now: JobProgress, *, is_active: bool = True
) -> tuple[tuple[str, str], ...]:
    """Return events, as reason and message, about facts that only the master knows and the user must not miss.

    `is_active`: its pods are not being terminated; otherwise servers that leave are not reported as lost.
    """
    events: list[tuple[str, str]] = []
    if not now.has_failed:
        known = dict(_problems(before)) if before is not None else {}
        events += [(reason, text) for reason, text in _problems(now) if text and not known.get(reason)]
        if now.fell_back and (before is None or now.fell_back != before.fell_back):  # masters repeat it in every status
            events.append(("FellBack", now.fell_back))
    fresh = now.quarantined - (before.quarantined if before is not None else 0)
    if fresh > 0:
        events.append(("Quarantined", _describe_quarantine(fresh)))
    if before is not None and (again := _trained_again(before, now)):
        events.append(("RolledBack", _describe_rollback(again)))
    if before is not None and is_active and not now.is_complete:
        events += [("ServerLost", _describe_take_over(*one)) for one in _taken_over(before, now)]
    return tuple(events)


def _problems(progress: JobProgress) -> tuple[tuple[str, str], ...]:
    return (
        ("Problem", progress.problem),
        ("CommitFails", progress.checkpoint_problem),
        ("StoreUnavailable", progress.store_problem),
        ("BucketsLate", progress.moves_problem),
        ("DataDiffers", progress.data_problem),
        ("TrainerHangs", progress.trainers_problem),
    )


def _trained_again(before: JobProgress, now: JobProgress) -> int:
    """Positions to be trained again: by this master's count, or lost with an earlier master."""
    return _undone(before, now) + (_missed(before, now) if now.lineage > before.lineage else 0)


def _undone(before: JobProgress, now: JobProgress) -> int:
    """Positions that were done under this master, and are to be trained again."""
    return max(0, now.reworked - before.reworked) if before.term == now.term else 0


def _missed(before: JobProgress, now: JobProgress) -> int:
    """Positions that were done under an earlier master and have not been under this one."""
    is_followed = before.term == now.term and not before.missing
    return 0 if is_followed else max(0, before.done + before.missing - now.done - _undone(before, now))


def _taken_over(before: JobProgress, now: JobProgress) -> Iterator[tuple[str, int]]:
    """Servers and their newly taken over buckets; counts start at 0 with each master and with each process of a
    server.
    """
    known = dict(before.buckets_taken_over) if before.term == now.term else {}
    for server, count in now.buckets_taken_over:
        fresh = count - known.get(server, 0)
        if fresh:
            yield server, fresh if fresh > 0 else count


def _describe_quarantine(count: int) -> str:
    if count == 1:
        return "one record is left out of training, because trainers failed on it; edl data audit lists its position"
    return f"{count:,} records are left out of training, because trainers failed on them; edl data audit lists them"


def _describe_rollback(count: int) -> str:
    positions = "one position is" if count == 1 else f"{count:,} positions are"
    return f"{positions} trained again: the model lost part of the training since the last checkpoint"


def _describe_take_over(server: str, count: int) -> str:
    buckets = "one bucket continues" if count == 1 else f"{count} buckets continue"
    return f"{buckets} on {server}, which had their second copies: nothing is trained again"


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


def early_exit_problem(progress: JobProgress | None, *, has_servers: bool, is_group: bool) -> str:
    """Return what a trainer did wrong that ended with 0 before the data had ended, to follow "exited with code 0"."""
    if progress is None or progress.epochs:
        text = ", but the data set is not finished: a script must not end before its loop over the session's data set"
        return f"{text}; in PyTorch, loader.stop() ends the job early" if is_group else text
    text = ", but no trainer has declared a data set: "
    if is_group:
        return f"{text}the script of a group names its model by replicate(...) and loops over its steps"
    text += "a script loops over session.dataset(...)"
    if not has_servers:
        return text
    return f"{text} and keeps its model in session.tables(...), or the job has no spec.parameterServer"


class WhyNoAnswer(StrEnum):
    """Why a job's progress is not known."""

    SILENT = "no answer"  # starting, ended, partitioned, stopped or hung
    NOT_LEADING = "not leading"


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedAnswer:
    """An answer that this version does not read, or with a value that cannot be.  `problem` names the field."""

    problem: str


MissingAnswer: TypeAlias = WhyNoAnswer | MalformedAnswer
