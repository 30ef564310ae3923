"""Report on trainers that do no work, or wait much: the condition Idle, events and `edl why`.

Texts contain no changing numbers, since each change would be a new write of the status.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final

from autoscaler.jobs.trainer_ledger import LedgerHistory, TrainerVerdict, WorkState, smoothing_s

MUCH: Final = 0.5  # of a trainer's time: it waits much
TOLD_SHARES: Final = 20  # a share of time is told in steps of 1/20, and so is a number of trainers
MOST_NAMED: Final = 5


class IdleReason(StrEnum):
    """Reasons of the condition Idle."""

    TRAINERS_HANG = "TrainersHang"
    TRAINERS_IDLE = "TrainersIdle"
    TRAINERS_WAIT = "TrainersWait"
    ALL_WORK = "AllWork"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReport:
    """`holds`: some trainer does no work."""

    holds: bool
    reason: IdleReason
    message: str = ""


ALL_WORK: Final = IdleReport(holds=False, reason=IdleReason.ALL_WORK)


def idle_report(
    verdicts: Sequence[TrainerVerdict],
    history: LedgerHistory,
    *,
    is_group: bool,
    window_s: float,
    format_since: Callable[[float], str],
) -> IdleReport:
    """Return what the condition Idle says.  `format_since` formats an instant as a date."""
    hung = [one for one in verdicts if one.state is WorkState.HUNG]
    idle = [one for one in verdicts if one.state is WorkState.IDLE]
    if not verdicts:
        waits = describe_waiting(history, is_group=is_group, window_s=window_s)
        return IdleReport(holds=False, reason=IdleReason.TRAINERS_WAIT if waits else IdleReason.ALL_WORK, message=waits)
    reason = IdleReason.TRAINERS_HANG if hung else IdleReason.TRAINERS_IDLE
    message = "; ".join((*_hung_texts(hung, format_since), *_idle_texts(idle, format_since)))
    return IdleReport(holds=True, reason=reason, message=message)


def idle_events(
    before: Iterable[TrainerVerdict], now: Iterable[TrainerVerdict], *, format_since: Callable[[float], str]
) -> list[tuple[str, str]]:
    """Return reason and message for each trainer that has just become idle or hung."""
    known = {(one.name, one.state) for one in before}
    fresh = [one for one in now if (one.name, one.state) not in known]
    hung = [one for one in fresh if one.state is WorkState.HUNG]
    idle = [one for one in fresh if one.state is WorkState.IDLE]
    return [
        *(("TrainerHangs", text) for text in _hung_texts(hung, format_since)),
        *(("TrainerIdle", text) for text in _idle_texts(idle, format_since)),
    ]


def _hung_texts(found: Sequence[TrainerVerdict], format_since: Callable[[float], str]) -> Iterator[str]:
    for one in found:
        if one.is_stuck_alone:
            yield (
                f"{one.name} is the only trainer, and has been in its script's own code since "
                f"{format_since(one.since_s)}, much longer than before: it may evaluate, or hang. EDL leaves it as it "
                "is, for what it has trained since the last checkpoint is nowhere else; look into it (py-spy dump "
                "--pid PID), or kill its process, and a new one goes on from that checkpoint"
            )
    hung = [one for one in found if not one.is_stuck_alone]
    if hung:
        does = "holds a batch and has" if len(hung) == 1 else "hold batches and have"
        since = format_since(min(one.since_s for one in hung))
        yield (
            f"{_names(hung)} {does} not moved since {since}, several times as long as a batch usually takes; "
            "its work goes to the others, and a new process takes its place once its GPU is seen to do nothing as well"
        )


def _idle_texts(idle: Sequence[TrainerVerdict], format_since: Callable[[float], str]) -> Iterator[str]:
    if idle:
        has = "has" if len(idle) == 1 else "have"
        since = format_since(min(one.since_s for one in idle))
        yield (
            f"{_names(idle)} {has} completed no batch since {since}; what is above the job's minimum goes to whoever "
            "waits for a GPU"
        )


def describe_waiting(history: LedgerHistory, *, is_group: bool, window_s: float) -> str:
    """Return who waits for at least half of the time, and how many trainers would do; empty: nobody does.

    Servers are shared: while they are waited for, fewer trainers get as much out of them.  A group's loaders are each
    trainer's own, so fewer trainers would train less.
    """
    working = [one for one in history.trainers.values() if one.has_worked and not one.is_excused]
    much = [one.told_share for one in working if one.told_share >= MUCH]
    if not much:
        return ""
    share = round(sum(much) / len(much) * TOLD_SHARES) * 100 // TOLD_SHARES
    whose = "data" if is_group else "parameter servers"
    count, lasted = _coarse(len(much), len(working)), _duration(smoothing_s(window_s))
    text = f"{count} of {len(working)} trainers waited for {whose} {share} % of the last {lasted}"
    enough = _coarse(ceil(len(working) - sum(one.told_share for one in working)), len(working))
    return text if is_group or enough >= len(working) else f"{text}; {enough} would train as fast"


def _coarse(count: int, total: int) -> int:
    """Return the count rounded up to steps of about 1/20 of the total; at least 1."""
    step = max(1, total // TOLD_SHARES)
    return min(total, max(1, ceil(count / step) * step))


def _names(verdicts: Sequence[TrainerVerdict]) -> str:
    more = f" and {len(verdicts) - MOST_NAMED} more" if len(verdicts) > MOST_NAMED else ""
    return ", ".join(one.name for one in verdicts[:MOST_NAMED]) + more


def _duration(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
