"""What KEEP rests on (rule 30), left out of the real cores one thing at a time, as in the other breaks.

Not here, because each server looks for itself (`restoring`): a master that names too much, or by too old a table.  Not
found, because something else stands in front: acks that outlive a KEEP (a cut forgets what it does not see), marks
that are not read before the first grant (a cut finishes a SKIP that was half done).  A server that keeps what is of an
earlier lineage than the order says needs a larger job than was explored; that is in
`unit/trainer_sdk/pserver/test_restore_keeping`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from master.api.messages.to_members import Restore
from master.api.positions import EMPTY, union
from master.job.commit import commit_protocol
from master.job.recovery import rollback
from master.job.state.protocol_state import RecoveryStage
from tests.protocol.breaks.cuts import commit_goes_on
from tests.protocol.breaks.left_out import Break
from tests.protocol.breaks.masters import raised_to_the_same
from tests.protocol.breaks.pushes import any_lineage
from tests.protocol.draft import Draft
from tests.protocol.explore import Limits
from tests.protocol.model import JobModel
from tests.protocol.settings import Faults, Setting
from tests.protocol.steps import trainers
from tests.protocol.steps.change import Change, Label
from trainer_sdk.pserver.core import event_table, pushes, restore
from trainer_sdk.pserver.core.server_state import BucketGroup, ServerState, ServerStep

_kept, _restore, _model_loaded = restore._kept, event_table.handle_restore, event_table.handle_model_loaded


def kept_without_marks(state: ServerState, order: Restore) -> Iterator[BucketGroup]:
    return (replace(group, applied=EMPTY) for group in _kept(state, order))


def kept_with_the_marks_of_the_base(state: ServerState, order: Restore) -> Iterator[BucketGroup]:
    return (replace(group, applied=order.data) for group in _kept(state, order))


def kept_at_its_version(state: ServerState, order: Restore) -> Iterator[BucketGroup]:
    versions = {b: group.version for group in state.groups for b in group.buckets}
    return (replace(group, version=versions[min(group.buckets)]) for group in _kept(state, order))


def lost_with_the_marks_of_the_kept(state: ServerState, event: Any) -> ServerStep:
    newest = union(group.applied for group in state.kept)
    return _model_loaded(state, replace(event, marks=tuple(replace(m, applied=newest) for m in event.marks)))


def floors_stay(state: ServerState, event: Any) -> ServerStep:
    step = _restore(state, event)
    if not step.state.kept or step.state is state:
        return step
    return ServerStep(replace(step.state, moves=replace(state.moves, staged=())), step.effects)


def kept_whatever_is_wrong(state: Any) -> Any:
    return state.recovery.kept or state.route


def nobody_trains(cast: Any, world: Any) -> Iterator[Change]:
    """Not the hole: a smaller world, for what servers do with buckets alone.  At any time nobody wants more of them."""
    if any(world.faults):
        yield Change(Label("nothing else will go WRONG"), _let_be)


def _let_be(draft: Draft) -> None:
    draft.faults = (0,) * len(draft.faults)


def all_is_quiet(model: Any, world: Any) -> bool:
    """Not the hole: where nobody trains, this is the END that must be within reach."""
    master = model.cast.masters[world.leader]
    leader = master.state
    slots = [model.cast.servers[number] for number in world.servers]
    is_busy = any(world.faults) or bool(leader.moves.intents or master.writes) or any(slot.inbox for slot in slots)
    are_here = all(slot.process.state.lineage == leader.number and slot.link == leader.term for slot in slots)
    return leader.stage is RecoveryStage.SERVING and are_here and not is_busy


CRASH: Final = Setting(trainers=1, keeps=True, faults=Faults(server_crash=1))
ALONE: Final = Setting(trainers=1, positions=1, keeps=True, faults=Faults(server_crash=1))
MOVED: Final = replace(ALONE, buckets=3, faults=Faults(move=1, server_crash=1))  # one that moves, one that stays

IDLE: Final = ((trainers, "of_trainers", nobody_trains), (JobModel, "is_end", all_is_quiet))

BREAKS: Final = (
    Break(
        name="keep-no-lineage",
        rule="6, 30: what was kept refuses gradients of the lineage before",
        patches=((pushes, "handle_push", any_lineage),),
        setting=replace(CRASH, trainers=2),
    ),
    Break(
        name="keep-same-lineage",
        rule="26, 30: lineage + 1 where nobody rolls back, too",
        patches=((rollback, "raise_lineage", raised_to_the_same),),
        setting=CRASH,
    ),
    Break(
        name="keep-without-marks",
        rule="30: marks stay with the parameters",
        patches=((restore, "_kept", kept_without_marks),),
        setting=ALONE,
    ),
    Break(
        name="keep-marks-of-base",
        rule="30: marks are not those of head",
        patches=((restore, "_kept", kept_with_the_marks_of_the_base),),
        setting=CRASH,
    ),
    Break(
        name="keep-marks-for-lost",
        rule="30: what comes from head has head's marks",
        patches=((event_table, "handle_model_loaded", lost_with_the_marks_of_the_kept),),
        setting=ALONE,
    ),
    Break(
        name="keep-version",
        rule="37: versions count from 0 in each lineage",
        patches=((restore, "_kept", kept_at_its_version), *IDLE),
        setting=MOVED,
    ),
    Break(
        name="keep-floors",
        rule="39, 49: floors end with the lineage",
        patches=((event_table, "handle_restore", floors_stay), *IDLE),
        setting=replace(MOVED, faults=Faults(move=2, server_crash=1)),
    ),
    Break(
        name="keep-torn-skip",
        rule="31: buckets that disagree about a SKIP roll back",
        patches=((rollback, "table_for_kept_buckets", kept_whatever_is_wrong),),
        setting=replace(ALONE, quarantine_after=1, faults=Faults(raising=1)),
        limits=Limits(states=60_000),
    ),
    Break(
        name="commit-survives-keep",
        rule="26, 30: a KEEP aborts the commit",
        patches=((rollback, "lose_model", commit_goes_on), (commit_protocol, "lose_model", commit_goes_on)),
        setting=ALONE,
    ),
)
