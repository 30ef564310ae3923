"""Digests of the replicas of one state, by which members see that they hold the same bits (rule 65).  Pure.

A script may make replicas differ: a rate that depends on the rank, weights changed by hand at one trainer.  The state
of every copy is compared, before the copy is offered, and so are some states between two copies, so that a script's
error shows in its first steps (ADR 0290).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from master.api.messages.generations import Generation, ReplicaComparison, StateId
from trainer_sdk.group.core.control_words import StepWord, layout_digest
from trainer_sdk.group.core.member_events import ReplicaDigest
from trainer_sdk.group.core.member_state import MemberPhase, MemberState

MOST_PARTS: Final = 512
"""Digests of a word; a replica of more tensors gives one for some consecutive ones together."""
PART_DIGITS: Final = 8
SAMPLED_STEPS: Final = 1024  # compared every so many steps, and after the steps 1, 2, 4, 8, ...


def digest_of(state: StateId, digests: Mapping[str, int]) -> ReplicaDigest:
    """Of the parts of a replica, in their order; numbers of 64 bits."""
    names = tuple(digests)
    stride = max(1, -(-len(names) // MOST_PARTS))
    bundles = [names[at : at + stride] for at in range(0, len(names), stride)]
    return ReplicaDigest(
        state=state,
        parts=tuple(one[0] if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in bundles),
        digests="".join(_short(digests[name] for name in one) for one in bundles),
    )


def _short(numbers: Iterable[int]) -> str:
    return blake2b(repr(tuple(numbers)).encode(), digest_size=PART_DIGITS // 2).hexdigest()


def is_digest_due(state: MemberState) -> bool:
    """True where the next word compares this state: the same at all members, by what all of them know."""
    record, own = state.record, state.state
    if not state.can_compare or state.phase is not MemberPhase.BOUNDARY or record is None or own is None:
        return False
    if len(record.members) == 1 or (state.digest is not None and state.digest.state == own):
        return False
    is_first = own.generation != record.number
    is_wanted = state.is_comparison_agreed or state.copy_shards > 0 or state.is_all_done
    return is_wanted or is_first or _is_sampled(own.step)


def last_word(state: MemberState) -> StepWord | None:
    """For the collective after the last step, which no step's word follows; None: it is over, or there is none."""
    is_alone = state.record is None or len(state.record.members) == 1
    if not state.can_compare or is_alone or not state.is_all_done or state.is_last_compared:
        return None
    return StepWord(
        generation=state.number,
        step=state.step,
        layout=layout_digest(state.layout),
        replica=word_digests(state),
        is_after_last=True,
    )


def _is_sampled(step: int) -> bool:
    return step > 0 and (step & (step - 1) == 0 or step % SAMPLED_STEPS == 0)


def word_digests(state: MemberState) -> str:
    """For the word of the step that begins from this state; empty: it is not compared."""
    return state.digest.digests if state.digest is not None and state.digest.state == state.state else ""


def difference(state: MemberState, record: Generation, words: Sequence[StepWord]) -> str:
    """Text on members that hold other replicas, and the first part that differs; empty: all hold the same."""
    given = [(word.replica, member.name) for word, member in zip(words, record.members, strict=True) if word.replica]
    for digests, name in given[1:]:
        first, other = given[0]
        if digests != first:
            return f"{_part(state, first, digests)} is not the same at {other} and {name} after step {state.step}"
    return ""


def comparison(state: MemberState, words: Sequence[StepWord]) -> ReplicaComparison | None:
    """Comparison of the state by these words, in which nothing differs; the one before if they do not compare it."""
    given = [word.replica for word in words if word.replica]
    if state.state is None or len(given) < 2:
        return state.compared
    digest = blake2b(given[0].encode(), digest_size=8).hexdigest()
    return ReplicaComparison(state=state.state, members=len(given), digest=digest)


def _part(state: MemberState, one: str, other: str) -> str:
    names = state.digest.parts if state.digest is not None else ()
    for place, name in enumerate(names):
        at = slice(place * PART_DIGITS, (place + 1) * PART_DIGITS)
        if one[at] != other[at]:
            return name
    return "the number of tensors"
