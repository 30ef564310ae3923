"""Standstill of a job: its master trains, and no trainer takes part, so nothing is trained until one does.

The last trainer was killed, its node is gone, or its successor does not start: the master waits in the phase of
training, and would be told of as one that trains.  The time until a successor usually takes part is not told of.

Pure.  Not here: a trainer that hangs beside others (`trainer_ledger`), a master that is silent (`training_health`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from autoscaler.jobs.progress import JobProgress, TrainerEntry
from master.api.master_status import JobPhase
from master.api.messages.generations import GroupPhase

STANDSTILL_TOLD_AFTER_S: Final = 10.0
"""Between two answers of the master that show no trainer; a new process that loads few libraries is there by then."""
MOST_NAMED: Final = 5

_WITH_TRAINERS: Final = frozenset({JobPhase.TRAINING, JobPhase.COMMITTING})


def takes_part(entry: TrainerEntry) -> bool:
    """True if the trainer is one that its master counts on."""
    return entry.is_connected and not entry.is_left_behind and entry.phase != GroupPhase.UNREADY


def observe_standstill(since_s: float | None, progress: JobProgress, now_s: float) -> float | None:
    """Return since when no trainer takes part, with one more answer of the job's master; None: one does.

    A master whose term has not begun knows of no trainer yet, and changes nothing.
    """
    if not progress.term:
        return since_s
    if progress.phase not in _WITH_TRAINERS or any(map(takes_part, progress.ledger)):
        return None
    return now_s if since_s is None else since_s


def is_standstill_told(since_s: float | None, answered_at_s: float) -> bool:
    """True if the standstill has lasted, by the master's last answer; what happens while it is silent nobody knows."""
    return since_s is not None and answered_at_s - since_s >= STANDSTILL_TOLD_AFTER_S


def standstill_text(since: str, progress: JobProgress) -> str:
    """Text on a standstill: since when ("since 2026-01-02T03:04:05Z"), and what it costs."""
    if progress.generation:
        cost = "training goes on with the state of a trainer that comes back, or else of the last checkpoint"
    elif progress.servers:
        cost = "the parameter servers keep what was trained"
    else:
        cost = "what is in no checkpoint is trained again"
    return f"no trainer takes part {since}, so nothing is trained; {cost}"


def awaited_text(progress: JobProgress, trainers: Sequence[str], scaling: str, waiting: Mapping[str, str]) -> str:
    """Text on what is being done about a standstill.

    `trainers`: names of the job's trainer pods; `scaling`: why there are no more of them; `waiting`: why containers do
    not run yet, by the pod's name.
    """
    if not trainers:
        return f"EDL starts a new trainer as soon as it can: {scaling}" if scaling else "EDL starts a new trainer"
    entries = {entry.name: entry for entry in progress.ledger}
    by_state: dict[str, list[str]] = {}
    for name in trainers:
        why = waiting.get(name)
        state = f"its containers do not run yet ({why})" if why else _state_of(entries.get(name))
        by_state.setdefault(state, []).append(name)
    told = "; ".join(f"{_named(names)}: {state}" for state, names in by_state.items())
    with_log = next((name for name in trainers if name not in waiting), None)
    return told if with_log is None else f"{told} (edl logs tj/NAME --trainer {with_log.rpartition('-')[2]})"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _state_of(entry: TrainerEntry | None) -> str:
    if entry is None or not entry.is_connected:
        return "not connected to the job's master, as while a script starts, or where the network is cut"
    if entry.phase == GroupPhase.UNREADY:
        return "in the script's own code, and no step is asked for"
    return "silent, as a process that is stopped"
