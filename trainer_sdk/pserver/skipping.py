"""SKIP: positions that no bucket is to apply any more (rule 31).  It goes on while a cut holds pushes.  Pure."""

from __future__ import annotations

from dataclasses import replace

from master.api.messages import Skip, SkipAnswer
from master.api.positions import EMPTY
from trainer_sdk.pserver import fork
from trainer_sdk.pserver.messages import Tell
from trainer_sdk.pserver.state import Group, ServerState, Step, merged


def skip(state: ServerState, event: Skip) -> Step:
    """Marks what is not applied yet as skipped, and answers which buckets skip some of it and which have applied some.

    A bucket may be in both.  A repeat gets the same answer.  A server of another lineage names its own and no bucket;
    of a bucket that is frozen or staged nothing is said: its owner is asked again (rule 60).
    """
    skipped = applied = EMPTY
    groups: list[Group] = []
    if state.is_ready and state.lineage == event.lineage:
        for group in state.groups:
            if group.is_frozen or group.is_backup is not event.of_backups:
                groups.append(group)
                continue
            missing = event.positions - group.applied
            if missing:
                skipped |= group.buckets
            if missing != event.positions:
                applied |= group.buckets
            groups.append(replace(group, skipped=group.skipped | missing))
    answer = Tell(
        message=SkipAnswer(
            lineage=state.lineage,
            positions=event.positions,
            skipped=skipped,
            applied=applied,
            of_backups=event.of_backups,
        )
    )
    if not skipped:
        return Step(state, (answer,))
    after = replace(state, groups=merged(groups))
    after, effects = fork.given_up_if_hopeless(after)
    return Step(after, (answer, *effects))
