"""Cases of a group member that tests of its core share: states at a boundary, words, and events fed one by one."""

from dataclasses import replace

from master.api.messages.generations import (
    CopyWanted,
    NewGeneration,
    StateId,
)
from tests.unit.trainer_sdk.group.group_world import LINEAGE, fresh, record_of
from trainer_sdk.group.core.control_words import (
    StepWord,
    SyncEntry,
    layout_digest,
    record_digest,
)
from trainer_sdk.group.core.member_events import (
    GroupConnected,
    ReportRequested,
    StatesGathered,
    StepReduced,
    TellMaster,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase, check_member
from trainer_sdk.group.core.transitions import give, handle_member

COPY_WANTED = CopyWanted(deadline_s=30.0)


def feed(state, *events):
    """The state after these events, and the effects of the last."""
    effects = ()
    for event in events:
        state, effects = (step := handle_member(state, event)).state, step.effects
        check_member(state)
    return state, effects


def reports(effects):
    return [e.message for e in effects if isinstance(e, TellMaster)]


def sid(generation, step):
    return StateId(lineage=LINEAGE, generation=generation, step=step)


def entry(record, state, **kw):
    return SyncEntry(digest=record_digest(record, "layout"), state=state, **kw)


def synced(*, members=(0, 1), number=1, me=0, step=0, **kw):
    """Member `me` at the boundary of this step, in this generation."""
    record = record_of(number, *members)
    state = replace(fresh(me), state=sid(number - 1, step), is_fresh=False, **kw)
    entries = tuple(entry(record, sid(number - 1, step)) for _ in members)
    state, _ = feed(
        state,
        NewGeneration(record=record),
        GroupConnected(number=number),
        StatesGathered(number=number, entries=entries),
    )
    assert state.phase is MemberPhase.BOUNDARY
    return state


def word(state, **kw):
    return StepWord(generation=state.number, step=state.step, layout=layout_digest("layout"), **kw)


def complete(state, *others):
    """The state with its step complete, its own word first."""
    state, effects = feed(give(state), StepReduced())
    (contributed,) = effects
    return feed(state, WordsGathered(number=state.number, words=(contributed.word, *others)))[0]


def prepared(plan):
    return feed(synced(), NewGeneration(record=plan), GroupConnected(number=plan.number))[0]


def reported_phase(state, **said):
    """What the member reports when it is asked; `said` is of its script."""
    (report,) = reports(feed(replace(state, is_registered=True), ReportRequested(**said))[1])
    return report.phase
