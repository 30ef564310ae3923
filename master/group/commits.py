"""Commits of a group: copies are asked for, offered in shards, and become head in one transaction (rules 84 to 90).

A copy is an ancestor of the group's current state if its stamp is the record's number, or that of the generation that
the record is planned from.  The transaction compares record, lineage and head, so that holds when it lands (87).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from master.api.checkpoints.manifest import Manifest
from master.api.group_shares import copy_marks, data_of
from master.api.messages.generations import CopyFailed, CopyWanted, Generation, OfferState
from master.api.messages.to_members import OfferAnswered
from master.group.generations import is_gathering
from master.group.group_events import CheckpointDue
from master.group.group_state import CopyPhase, GroupState, GroupTurn, Replica, ShardOffer, StateCommit, keys_of
from master.job.domain.durable_records import SECOND, SwapHead
from master.job.domain.effects import Retain, WriteManifest
from master.job.domain.job_events import HeadNamed, ManifestWriteFailed, ManifestWritten
from master.job.state.bucket_marks import manifest_id

ASK_AGAIN_NS: Final = 60 * SECOND  # after a copy was asked for in vain
MOST_SHARDS: Final = 4096
_OTHER_ARRAYS: Final = "two trainers' replicas consist of different arrays: replicate() must get the same parts on all"
_SHARD_LACKS: Final = "another trainer could not write its shard"


def ask_for_copy(turn: GroupTurn) -> None:
    """The time of the next copy is set; the last step's copy is asked for at once."""
    state, current = turn.state, turn.state.current
    if state.dataset is None or current is None or state.is_complete:
        return
    if state.pace.due is None:
        turn.change(pace=replace(state.pace, due=turn.after(state.config.checkpoint_every_ns)))
    training = training_generation(state)
    if training is not None and _is_trained(state, training):
        asked = (training.number, training.members[0].name)
        if state.pace.final_asked != asked:
            turn.change(pace=replace(turn.state.pace, final_asked=asked, due=turn.after(ASK_AGAIN_NS)))
            turn.send(keys_of(training)[0], CopyWanted(deadline_s=ASK_AGAIN_NS / SECOND))


def training_generation(state: GroupState) -> Generation | None:
    """The generation that trains: a planned one does only after its sync, and never if no step is left to switch by."""
    if state.current is None or is_gathering(state):
        return None
    return state.before or (state.current if state.synced >= state.current.number else None)


def _is_trained(state: GroupState, training: Generation) -> bool:
    """True if the first rank holds the last step: the job's, or the one that a script has stopped at (rule 97)."""
    first = state.try_replica(keys_of(training)[0])
    own = first.state if first is not None else None
    return state.newest == state.steps or (own is not None and own.is_stopped and own.lineage == state.number)


def handle_due(turn: GroupTurn, event: CheckpointDue) -> None:
    """The first rank is asked for a copy, where there is something new to copy."""
    state, training = turn.state, training_generation(turn.state)
    if state.pace.due != event.deadline:
        return
    again = min(ASK_AGAIN_NS, max(SECOND, state.config.checkpoint_every_ns))
    turn.change(pace=replace(state.pace, due=turn.after(again)))
    if training is None:
        return
    is_new = state.newest > state.head_state.state.step or _is_trained(state, training)  # a stop may be all that is new
    if not is_new or state.is_complete:
        return
    if state.commit.phase in (CopyPhase.IDLE, CopyPhase.OFFERED):
        turn.send(keys_of(training)[0], CopyWanted(deadline_s=ASK_AGAIN_NS / SECOND))


def handle_offer(turn: GroupTurn, replica: Replica, said: OfferState) -> None:
    """Commits the offered state once all of its shards are here; asked by the writer until answered (rule 87)."""
    state, commit = turn.state, turn.state.commit
    head = state.head
    offer = ShardOffer(member=replica.key, offer=said.offer, stamp=said.stamp, file=said.file)
    if head is not None and head.state == said.state and said.file in head.files:
        if commit.phase is CopyPhase.NAMING:
            turn.change(commit=replace(commit, offers=commit.offers.put(said.shard, offer)))
        elif state.is_head_named:  # else an earlier master's swap, and the writer asks again
            turn.send(replica.key, OfferAnswered(offer=said.offer, manifest=head.id))
        return
    if reason := _problem(state, said):
        if reason == _OTHER_ARRAYS:
            turn.change(pace=replace(state.pace, problem=reason))
        turn.send(replica.key, OfferAnswered(offer=said.offer, manifest=None, reason=reason))
        return
    is_open = commit.phase in (CopyPhase.IDLE, CopyPhase.OFFERED)
    if _is_of(commit, said):
        known = commit.offers.get(said.shard)
        if is_open or (known and known.file == said.file):
            turn.change(commit=replace(commit, offers=commit.offers.put(said.shard, offer)))
    elif is_open:
        turn.change(
            commit=StateCommit(
                phase=CopyPhase.OFFERED,
                state=said.state,
                skipped=said.skipped,
                shards=said.shards,
                contents=said.contents,
                offers=StateCommit().offers.put(said.shard, offer),
            )
        )
    _record(turn)


def _is_of(commit: StateCommit, said: OfferState) -> bool:
    """True for a shard of the checkpoint under way (rule 88)."""
    mine = (commit.state, commit.skipped, commit.shards, commit.contents)
    return mine == (said.state, said.skipped, said.shards, said.contents)


def handle_copy_failed(turn: GroupTurn, replica: Replica, said: CopyFailed) -> None:
    """The other shards of that state are given up; the next copy is asked for after a pause that doubles."""
    commit = turn.state.commit
    _postpone(turn, f"{replica.key.name}: {said.reason}")
    turn.change(pace=replace(turn.state.pace, failed=said.state))
    if commit.phase is CopyPhase.OFFERED and (commit.state, commit.shards) == (said.state, said.shards):
        _refuse_all(turn, commit, _SHARD_LACKS)


def is_current(state: GroupState, stamp: int) -> bool:
    """True if a copy with this stamp is an ancestor of the group's state (rule 87)."""
    if state.record is None:
        return False
    before = state.record.before
    return stamp in (state.record.current.number, before.number if before else -1) and stamp > 0


def _problem(state: GroupState, said: OfferState) -> str:
    if state.dataset is None or state.record is None:
        return "no generation is recorded"
    if said.state.lineage != state.number:
        return f"it is of lineage {said.state.lineage}, the job's is {state.number}"
    if not is_current(state, said.stamp):
        return f"its stamp is generation {said.stamp}, the group's is {state.record.current.number}"
    if not state.head_state.state.progress < said.state.progress <= (state.steps, True):
        return f"it is of step {said.state.step}, head is of step {state.head_state.state.step} of {state.steps}"
    if not (1 <= said.shards <= MOST_SHARDS and 0 <= said.shard < said.shards):
        return f"it is shard {said.shard} of {said.shards}"
    dataset = state.dataset.dataset
    if not said.skipped <= data_of(dataset, said.state.step):
        return "it says that it has skipped positions of later steps"
    if said.file.marks != copy_marks(dataset, said.state.step, said.skipped, said.shard):
        return f"the marks of {said.file.name} are not those of its step"
    if said.file.lineage != said.state.lineage:
        return f"{said.file.name} is of lineage {said.file.lineage}"
    if said.shards > 1:
        return _problem_of_shard(state, said)
    return ""


def _problem_of_shard(state: GroupState, said: OfferState) -> str:
    """Rule 88: a shard is of use only where the others come, and are cut from the same arrays."""
    commit = state.commit
    if said.state == state.pace.failed:
        return _SHARD_LACKS
    if commit.phase is not CopyPhase.OFFERED or commit.state is None:
        return ""
    if commit.state > said.state:
        return f"a copy of step {commit.state.step} is under way"
    if (commit.state, commit.shards) == (said.state, said.shards) and commit.contents != said.contents:
        return _OTHER_ARRAYS
    return ""


def _record(turn: GroupTurn) -> None:
    """Writes the manifest once every shard of one id is here (rule 88)."""
    state, commit = turn.state, turn.state.commit
    if commit.phase is not CopyPhase.OFFERED or len(commit.offers) < commit.shards:
        return
    assert commit.state is not None
    assert state.dataset is not None
    dataset, sequence = state.dataset.dataset, state.pace.sequence + 1
    manifest = Manifest(
        id=manifest_id(state.term, state.number, sequence, state.origin.fresh),
        parent=state.head_id,
        lineage=state.number,
        term=state.term,
        data=data_of(dataset, commit.state.step) - commit.skipped,
        quarantine=commit.skipped,
        files=tuple(commit.offers[shard].file for shard in range(commit.shards)),
        dataset=dataset,
        tables=(),
        bucket_count=commit.shards,
        step=commit.state.step,
        created_at_s=0.0,  # stamped by the shell, which has a calendar
        history=state.origin.history,
        founded=state.origin.founded,
        state=commit.state,
    )
    turn.change(
        commit=replace(commit, phase=CopyPhase.RECORDING, manifest=manifest),
        pace=replace(state.pace, sequence=sequence),
    )
    turn.emit(WriteManifest(manifest=manifest))


def handle_manifest_written(turn: GroupTurn, event: ManifestWritten) -> None:
    commit = turn.state.commit
    if commit.phase is CopyPhase.RECORDING and commit.manifest and commit.manifest.id == event.manifest:
        turn.change(commit=replace(commit, phase=CopyPhase.WRITTEN))


def handle_manifest_write_failed(turn: GroupTurn, event: ManifestWriteFailed) -> None:
    """The writers are told, so they copy again; the next copy is asked for after a pause that doubles."""
    commit = turn.state.commit
    if commit.phase is not CopyPhase.RECORDING or commit.manifest is None or commit.manifest.id != event.manifest:
        return
    problem = f"the manifest could not be written: {event.reason}"
    _refuse_all(turn, commit, problem)
    _postpone(turn, problem)


def _refuse_all(turn: GroupTurn, commit: StateCommit, reason: str) -> None:
    for offer in commit.offers.values():
        turn.send(offer.member, OfferAnswered(offer=offer.offer, manifest=None, reason=reason))
    turn.change(commit=StateCommit())


def _postpone(turn: GroupTurn, problem: str) -> None:
    config, pace = turn.state.config, turn.state.pace
    pause_ns = min(config.retry_last_ns, config.retry_first_ns << min(pace.refusals, 16))
    turn.change(pace=replace(pace, due=turn.after(pause_ns), refusals=pace.refusals + 1, problem=problem))


def swap(turn: GroupTurn) -> None:
    """Moves head to the written manifest, if its stamps are still current; else writers ask again (rule 86)."""
    state, commit = turn.state, turn.state.commit
    if commit.phase is CopyPhase.OFFERED and not all(is_current(state, one.stamp) for one in commit.offers.values()):
        turn.change(commit=StateCommit())  # who keeps its copy stamps and offers it anew
        return
    if commit.phase is not CopyPhase.WRITTEN or state.writing or commit.manifest is None or state.lineage is None:
        return
    is_ancestor = all(is_current(state, offer.stamp) for offer in commit.offers.values())
    if not is_ancestor or commit.manifest.parent != state.head_id or commit.manifest.lineage != state.number:
        turn.change(commit=StateCommit())
        return
    turn.change(commit=replace(commit, phase=CopyPhase.SWAPPING))
    parent, manifest = commit.manifest.parent, commit.manifest.id
    turn.write(SwapHead(parent=parent, lineage=state.lineage, manifest=manifest, generation=state.record))


def handle_swapped(turn: GroupTurn) -> None:
    """The checkpoint is head: a record may name it.  Its writers hear of it once HEAD names it too."""
    state, commit = turn.state, turn.state.commit
    assert commit.manifest is not None
    due = turn.after(state.config.checkpoint_every_ns)
    pace = replace(state.pace, due=due, refusals=0, problem="", failed=None)
    turn.change(head=commit.manifest, commit=replace(commit, phase=CopyPhase.NAMING), pace=pace)
    kept = (commit.manifest.id, state.lineage.base if state.lineage else None)
    turn.emit(Retain(manifests=frozenset(one for one in kept if one is not None)))


def handle_head_named(turn: GroupTurn, event: HeadNamed) -> None:
    """The checkpoint outlives the loss of the store: its writers are answered."""
    commit = turn.state.commit
    if event.manifest == turn.state.head_id:
        turn.change(is_head_named=True)
    if commit.phase is not CopyPhase.NAMING or commit.manifest is None or commit.manifest.id != event.manifest:
        return
    for offer in commit.offers.values():
        turn.send(offer.member, OfferAnswered(offer=offer.offer, manifest=event.manifest))
    pace = replace(turn.state.pace, committed_at=turn.now)
    turn.change(named=commit.manifest, commit=StateCommit(), pace=pace)
