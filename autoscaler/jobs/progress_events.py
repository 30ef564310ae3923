"""Events on a job's progress, from two answers of its master: what only the master knows and users must not miss.

Also what a trainer did wrong that ended too early, in the words that follow its exit code.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from autoscaler.jobs.progress import JobProgress, positions_missed, positions_undone


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
    return positions_undone(before, now) + (positions_missed(before, now) if now.lineage > before.lineage else 0)


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


_FIVE_LINES: Final = (
    "five lines are missing: edl.open(), replicate(session, ...), loader(session, ...), loader.epochs() in place of "
    "range(epochs), loader.backward(loss) in place of loss.backward(); docs/pytorch.md shows them in a whole script"
)
_THREE_LINES: Final = (
    "it lacks with edl.open() as session, the loop over session.dataset(...) and batch.done() in it; "
    "docs/guide.md shows them in a whole script"
)


def has_opened_no_session(progress: JobProgress | None) -> bool:
    """True if no trainer has ever registered with a master of the job: whatever ended did not train for it."""
    return progress is not None and progress.has_begun and not progress.epochs and not progress.has_heard_trainers


def no_session_problem(*, is_group: bool) -> str:
    """Return what is wrong with a script that ended with 0 without a session, to follow "exited with code 0"."""
    lines = _FIVE_LINES if is_group else _THREE_LINES
    return f", and opened no session with its job: the script does not use EDL, and would only be repeated; {lines}"


def early_exit_problem(progress: JobProgress | None, *, has_servers: bool, is_group: bool) -> str:
    """Return what a trainer did wrong that ended with 0 before the data had ended, to follow "exited with code 0"."""
    if progress is not None and progress.epochs:
        text = ", but the data set is not finished: a script must not end before its loop over the session's data set"
        return f"{text}; in PyTorch, loader.stop() ends the job early" if is_group else text
    known = "nothing is known of a data set yet" if progress is None else "no trainer has declared a data set"
    text = f", but {known}: "
    if is_group:
        return f"{text}the script of a group names its model by replicate(...) and loops over its steps"
    text += "a script loops over session.dataset(...)"
    if not has_servers:
        return text
    return f"{text} and keeps its model in session.tables(...), or the job has no spec.parameterServer"
