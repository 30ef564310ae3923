"""A step, from the script's request to its end: rules 63, 67, 68, 69, 81 and 94.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from master.api.group_shares import shares, step_positions, steps_per_epoch, takers_wait, total_steps
from master.api.messages.generations import Generation, StateId
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.group.core.control_words import StepWord, layout_digest
from trainer_sdk.group.core.copies import agreed_shards, compared, wished_shards
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    ContributeWord,
    ReplicasCompared,
    StepReduced,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, MemberState, MemberStep, changed, rank_in
from trainer_sdk.group.core.membership import leave, switch
from trainer_sdk.group.core.replica_digests import comparison, difference, last_word, word_digests
from trainer_sdk.group.port import StepShare


def share_of(state: MemberState) -> StepShare:
    """The next step and this rank's part: a function of record and step alone (rules 63, 94)."""
    share = expected_share(state, state.step)
    assert share is not None
    return share


def expected_share(state: MemberState, step: int) -> StepShare | None:
    """Share that this rank would have of a step, should the generation last so long; None outside steps or in none."""
    record = state.record
    if record is None or not 0 <= step < total_steps(state.dataset):
        return None
    positions = step_positions(state.dataset, step)
    rank = state.rank
    waits = _is_first(state, step) and takers_wait(state.dataset, step)
    mine = shares(record, positions, is_first=waits)[rank]
    usual = mine or shares(record, positions)[rank]
    return StepShare(
        step=step,
        epoch=step // steps_per_epoch(state.dataset),
        positions=mine,
        records=len(positions - record.quarantine),
        rank=rank,
        size=len(record.members),
        generation=record.number,
        is_redo=step <= state.newest_given,
        spare=EMPTY if mine else _spare(state, step, len(usual)),
        sample=_sample(state, step),
    )


def _spare(state: MemberState, step: int, count: int) -> PositionSet:
    """So many records, two at least, which no batch normalisation refuses, of the step before: these are trained.

    What another rank trains in this step might be a poison record, and would take two processes.  Of the job's first
    step, or after one with no record to train, two of this step, or of the first one that has some.
    """
    record, steps = state.record, range(total_steps(state.dataset))
    assert record is not None
    for one in chain(steps[max(0, step - 1) : step], steps[step:], steps[:step]):
        if some := step_positions(state.dataset, one) - record.quarantine - record.suspects:
            return some.first(max(2, count) if one < step else 2)
    return EMPTY


def _sample(state: MemberState, step: int) -> PositionSet:
    """A position of the step before, which is trained, so that no poison record is read by all at once (rule 63)."""
    record, place = state.record, step % steps_per_epoch(state.dataset)
    assert record is not None
    if len(record.members) == 1 or place == 0 or not (_is_first(state, step) or place == 1):
        return EMPTY
    return (step_positions(state.dataset, step - 1) - record.quarantine - record.suspects).first(1)


def _is_first(state: MemberState, step: int) -> bool:
    """True if the step would be the first one that its generation completes; it is for all members alike (rule 70)."""
    own, record = state.state, state.record
    return record is not None and own is not None and own.step == step and own.generation != record.number


def handle_reduced(state: MemberState, event: StepReduced) -> MemberStep:
    """The flag collective before the update: its word names generation, step and the prepared plan (67, 68, 81)."""
    if state.phase is not MemberPhase.BOUNDARY or not state.is_step_given:
        return MemberStep(state)
    promised = state.plan if state.is_prepared else None
    word = StepWord(
        generation=state.number,
        step=state.step,
        prepared=promised.number if promised is not None else 0,
        copy_shards=wished_shards(state, event.replica_bytes),
        layout=layout_digest(state.layout),
        sample=event.sample,
        replica=word_digests(state),
        wants_comparison=state.wants_comparison,
    )
    contributed = changed(state, phase=MemberPhase.CONTRIBUTED, promised=promised)
    return MemberStep(contributed, (ContributeWord(number=state.number, word=word),))


def handle_words(state: MemberState, event: WordsGathered) -> MemberStep:
    """Complete here with all members' words, all of this generation and step (67); else the group is left (73).

    Every member's plan equal and prepared: the switch follows this step (81).  Replicas that differ end it (65).
    """
    record = state.record
    if record is None or event.number != record.number or state.phase is not MemberPhase.CONTRIBUTED:
        return MemberStep(state)
    if not _is_agreed(state, record, event.words, is_after_last=False):
        return leave(state, record.number)
    if differs := difference(state, record, event.words):
        return leave(state, record.number, differs=differs)
    same = compared(state)
    state = same.state
    plans = {word.prepared for word in event.words}
    is_agreed = state.promised is not None and plans == {state.promised.number}
    shards = 0 if is_agreed else agreed_shards(event.words)  # after a switch others hold the replica too (rule 84)
    complete = changed(
        state,
        phase=MemberPhase.COMPLETE,
        is_agreed=is_agreed,
        is_step_given=False,
        wants_copy=state.wants_copy and not shards,
        wants_comparison=False,
        is_comparison_agreed=any(word.wants_comparison for word in event.words),
        compared=comparison(state, event.words),
        copy_shards=shards,
        data_problem=state.data_problem or _difference(record, event.words),
    )
    return MemberStep(complete, same.effects)


def _is_agreed(state: MemberState, record: Generation, words: Sequence[StepWord], *, is_after_last: bool) -> bool:
    """True if each member of the generation means what this one means."""
    mine = (record.number, state.step, layout_digest(state.layout), is_after_last)
    given = [(word.generation, word.step, word.layout, word.is_after_last) for word in words]
    return given == [mine] * len(record.members)


def handle_last_words(state: MemberState, event: ReplicasCompared) -> MemberStep:
    """After the last step: its copy may be taken, or the group is left, as after a step's words (rule 65)."""
    record = state.record
    if record is None or event.number != record.number or last_word(state) is None:
        return MemberStep(state)
    if not _is_agreed(state, record, event.words, is_after_last=True):  # one has stopped, another has not (97)
        return leave(state, record.number)
    if differs := difference(state, record, event.words):
        return leave(state, record.number, differs=differs)
    return compared(changed(state, is_last_compared=True, compared=comparison(state, event.words)))


def _difference(record: Generation, words: Sequence[StepWord]) -> str:
    """Text on members that have read other data at one position; empty: none (rule 63)."""
    read: dict[str, tuple[str, str]] = {}  # by position: digest, and the first member that has it
    for word, member in zip(words, record.members, strict=True):
        position, _, digest = word.sample.partition(" ")
        known, first = read.setdefault(position, (digest, member.name))
        if digest != known:
            return (
                f"the data set is not deterministic: {first} and {member.name} have read other data at position "
                f"{position}; a record may depend on its number and on the generators of torch, NumPy and Python alone"
            )
    return ""


def handle_applied(state: MemberState) -> MemberStep:
    """The replica is whole at the next step (66); then the switch, or a break that came meanwhile."""
    record = state.record
    if state.phase is not MemberPhase.COMPLETE or record is None:
        return MemberStep(state)
    skipped = state.skipped | (step_positions(state.dataset, state.step) & record.quarantine)  # rule 94
    done = state.step + 1
    is_early = state.must_stop and done < total_steps(state.dataset)
    applied = changed(
        state,
        phase=MemberPhase.BOUNDARY,
        state=StateId(lineage=record.lineage, generation=record.number, step=done, is_stopped=is_early),
        skipped=skipped,
        must_stop=False,
        broken=0,
        promised=None,
        is_agreed=False,
    )
    promised = state.promised
    if state.broken:
        left = leave(applied, state.broken)
        lost = _unused_promise(state)
        return MemberStep(left.state, (*lost, *left.effects))
    if state.is_agreed and promised is not None:
        switched = switch(applied, promised)
        return MemberStep(switched.state, switched.effects)
    return MemberStep(applied, _unused_promise(state))


def handle_stop(state: MemberState) -> MemberStep:
    """Rule 97: this replica's state is the last one, now or once the step in hand is applied.

    The others learn it as it travels.  A step that is not complete here is given up.  The job's last step is the last
    one anyway, and its state has one id.  A state of an older lineage, of which nothing more is committed, is named as
    this generation's, in which all members have loaded it from a checkpoint.
    """
    own, lineage = state.state, state.lineage if state.record is None else state.record.lineage
    if state.is_all_done:
        return MemberStep(state)
    if state.phase in (MemberPhase.COMPLETE, MemberPhase.CONTRIBUTED, MemberPhase.TRANSFER) or own is None:
        return MemberStep(changed(state, must_stop=True))
    if own.lineage != lineage:
        if state.phase is not MemberPhase.BOUNDARY:  # it is loaded again by then
            return MemberStep(changed(state, must_stop=True))
        own = StateId(lineage=lineage, generation=state.number, step=own.step)
    return MemberStep(changed(state, state=replace(own, is_stopped=True), is_step_given=False))


def _unused_promise(state: MemberState) -> tuple[AbortGroup, ...]:
    """Connections that were kept for a promise, and that a newer plan has replaced since."""
    promised = state.promised
    if promised is None or promised == state.plan or rank_in(promised, state.incarnation) < 0:
        return ()
    return (AbortGroup(number=promised.number),)
