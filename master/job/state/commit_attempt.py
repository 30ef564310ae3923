"""The end of an attempt at a commit: given up, or with a new head.

Both the commit (`job.commit`) and the loss of the model (`recovery.rollback`) end attempts.
"""

from __future__ import annotations

from dataclasses import replace

from master.api.messages.to_members import Drop
from master.api.positions import EMPTY
from master.job.domain.effects import Retain
from master.job.state.job_state import Turn
from master.job.state.protocol_state import CommitPhase, CommitState


def end_attempt(commit: CommitState) -> CommitState:
    """An idle commit: only the numbers that were used stay of the attempt."""
    return CommitState(
        sequence=commit.sequence,
        due=commit.due,
        refusals=commit.refusals,
        problem=commit.problem,
        committed_at=commit.committed_at,
    )


def give_up(turn: Turn, problem: str, *, is_storage: bool = False) -> None:
    """Ends the attempt, at every server too; the next one comes after a pause that doubles up to a bound.

    Storage that fails gets more time.  Other problems (a busy server, a moving bucket) end soon and another attempt
    costs a round trip: it comes no later than a commit in its turn would.
    """
    config, given_up = turn.state.config, turn.state.commit
    if given_up.phase in (CommitPhase.HOLDING, CommitPhase.WRITING) and given_up.cut:
        for server in turn.state.members.servers.values():
            turn.send(server.key, Drop(cut=given_up.cut))
    in_turn_ns = max(config.retry_first_ns, config.checkpoint_every_ns)
    longest_ns = config.retry_last_ns if is_storage else min(config.retry_last_ns, in_turn_ns)
    pause_ns = min(longest_ns, config.retry_first_ns << min(given_up.refusals, 16))
    turn.change(
        commit=replace(
            end_attempt(given_up),
            due=turn.after(pause_ns),
            is_backing_off=True,
            refusals=given_up.refusals + 1,
            problem=problem,
        ),
        dispatch=replace(turn.state.dispatch, wanted_by_cut=EMPTY),
    )


def retain(turn: Turn) -> None:
    """Head and the lineage's base stay in the folder (rule 25)."""
    state = turn.state
    ids = (state.head_id, state.lineage.base if state.lineage else None)
    turn.emit(Retain(manifests=frozenset(one for one in ids if one is not None)))
