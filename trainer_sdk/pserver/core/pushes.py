"""Verdicts on pushes: every push is applied at most once to every bucket, whatever the network does (rule 6).

A bucket's marks, the set of positions it has applied, change together with its parameters and go wherever they go.
`handle_push` evaluates a push bucket by bucket and names the buckets that get the gradient; `event_table` handles all
other events.  Sockets, files, clocks and NumPy are in the shell: it applies effects and new state under one lock, so
that parameters and marks change as one.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from master.api.identities import Incarnation, ServerPlace, Version
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.pserver.core import fork
from trainer_sdk.pserver.core.messages import (
    CONFIRMED,
    BackupAnswer,
    BackupPush,
    Push,
    PushAnswer,
    PushTarget,
    PushVerdict,
    Ruling,
)
from trainer_sdk.pserver.core.server_events import (
    ApplyBoth,
    ApplyLive,
    PushEffect,
)
from trainer_sdk.pserver.core.server_state import BucketGroup, ForkMarks, ServerState, joined, merge_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOutcome:
    """Result of a push: the shell sends the answer once the effects are applied and `state` holds."""

    state: ServerState
    answer: PushAnswer
    effects: tuple[PushEffect, ...] = ()
    backup_pushes: tuple[BackupPush, ...] = ()


def handle_push(state: ServerState, event: Push, backup_answers: tuple[BackupAnswer, ...] | None = None) -> PushOutcome:
    """Evaluates a push by rule 6 and marks the buckets that apply it.

    A bucket is in one Apply effect if its verdict is APPLIED, else in none.  With HELD in the answer nothing has
    changed: the shell retries when the hold is over, or lets the trainer send the push again.

    With `backup_pushes` nothing has changed and nothing is answered.  The shell sends these to the backups and calls
    again with their `backup_answers`: an owner applies only what its backup has confirmed at this very version (rule
    61).  A bucket whose backup was not asked by then is NOT_YET, and the trainer sends the push again.
    """
    return _evaluate_targets(
        state, event, _PushEvaluation(state=state, positions=event.positions, backup_answers=backup_answers)
    )


def handle_backup_push(state: ServerState, event: Push) -> PushOutcome:
    """Evaluates a push that an owner sends on; only buckets backed here at that version apply it (61, 62)."""
    return _evaluate_targets(state, event, _PushEvaluation(state=state, positions=event.positions, of_backups=True))


def parse_backup_answer(one: BackupPush, answer: PushAnswer) -> tuple[BackupAnswer, ...]:
    """The rulings of a backup's answer, each with the version that it was asked for."""
    return tuple(
        BackupAnswer(backup=one.to.incarnation, version=target.version, ruling=inside)
        for target in one.targets
        for ruling in answer.rulings
        if (inside := _within(ruling, target.buckets)) is not None
    )


def _evaluate_targets(state: ServerState, event: Push, evaluation: _PushEvaluation) -> PushOutcome:
    if not state.is_ready:
        return _refused(state, event, PushVerdict.NOT_READY)
    if event.lineage != state.lineage:
        return _refused(state, event, PushVerdict.STALE_LINEAGE)
    groups = state.groups
    for target in event.targets:
        groups = evaluation.evaluate_target(target, groups)
    answer = PushAnswer(lineage=state.lineage, rulings=tuple(evaluation.rulings))
    if evaluation.unasked:
        return PushOutcome(state=state, answer=answer, backup_pushes=evaluation.backup_pushes())
    if not (evaluation.live or evaluation.both):
        return PushOutcome(state=state, answer=answer)
    after = ServerState(  # by name, not `replace`: this is the path of every push
        incarnation=state.incarnation,
        limits=state.limits,
        lineage=state.lineage,
        newest_restore=state.newest_restore,
        restoring=state.restoring,
        groups=groups if len(groups) == 1 else merge_groups(groups),
        cut=state.cut,
        moves=state.moves,
    )
    effects: list[PushEffect] = []
    if evaluation.live:
        effects.append(ApplyLive(buckets=evaluation.live))
    if evaluation.both:
        effects.append(ApplyBoth(buckets=evaluation.both))
        after, writes = fork.seal_if_complete(after)
        effects += writes
    return PushOutcome(state=after, answer=answer, effects=tuple(effects))


class _PushEvaluation:
    """Evaluation of a push: rulings so far, and the buckets that get the gradient, live alone or with the fork."""

    __slots__ = (
        "_backup_answers",
        "_held",
        "_moves",
        "_of_backups",
        "_positions",
        "both",
        "live",
        "rulings",
        "unasked",
    )

    def __init__(
        self,
        *,
        state: ServerState,
        positions: PositionSet,
        of_backups: bool = False,
        backup_answers: tuple[BackupAnswer, ...] | None = None,
    ) -> None:
        self._held = state.held_buckets if state.cut is not None else EMPTY
        self._moves = state.moves
        self._positions = positions
        self._of_backups = of_backups
        self._backup_answers = backup_answers
        self.rulings: list[Ruling] = []
        self.live = EMPTY
        self.both = EMPTY
        self.unasked: dict[Incarnation, tuple[ServerPlace, dict[Version, PositionSet]]] = {}

    def evaluate_target(self, target: PushTarget, groups: tuple[BucketGroup, ...]) -> tuple[BucketGroup, ...]:
        """Evaluates the target's buckets; returns all groups afterwards, split where they now differ."""
        after: list[BucketGroup] = []
        missing = target.buckets
        for group in groups:
            is_meant = group.version == target.version and group.is_backup is self._of_backups
            if not is_meant or not (inside := _common(group.buckets, target.buckets)):
                after.append(group)
                continue
            missing = EMPTY if inside is missing else missing - inside
            if inside is not group.buckets and (rest := group.buckets - inside):
                after.append(replace(group, buckets=rest))
            if self._held and (free := inside - self._held) and free != inside:
                after += self._mark_confirmed(group, free)
                inside = inside & self._held
            after += self._mark_confirmed(group, inside)
        if missing:
            self._rule_on_missing(missing)
        return tuple(after)

    def _rule_on_missing(self, missing: PositionSet) -> None:
        staged = missing & self._moves.staged_buckets
        if staged:
            self._add_ruling(staged, PushVerdict.NOT_YET)
        if rest := missing - staged:
            self._add_ruling(rest, PushVerdict.MOVED)

    def backup_pushes(self) -> tuple[BackupPush, ...]:
        return tuple(
            BackupPush(to=place, targets=tuple([PushTarget(buckets=b, version=v) for v, b in by_version.items()]))
            for place, by_version in self.unasked.values()
        )

    def _mark_confirmed(self, group: BucketGroup, buckets: PositionSet) -> tuple[BucketGroup, ...]:
        """As `_mark`; of a bucket with a backup only what the backup has confirmed is applied (rule 61)."""
        if group.backup is None:
            return (self._mark(group, buckets),)
        is_holding = bool(self._held) and not buckets.isdisjoint(self._held)
        if verdict_of(group, self._positions, is_holding=is_holding)[0] is not PushVerdict.APPLIED:
            return (self._mark(group, buckets),)
        confirmed = self._collect_confirmed(group, group.backup, buckets)
        if not confirmed:
            return (_narrowed(group, buckets),)
        marked, rest = self._mark(group, confirmed), buckets - confirmed
        return (marked, _narrowed(group, rest)) if rest else (marked,)

    def _collect_confirmed(self, group: BucketGroup, backup: ServerPlace, buckets: PositionSet) -> PositionSet:
        """The buckets that their backup has confirmed; the others are ruled on, or sent to the backup first."""
        if self._backup_answers is None:
            _, by_version = self.unasked.setdefault(backup.incarnation, (backup, {}))
            before = by_version.get(group.version)
            by_version[group.version] = buckets if before is None else before | buckets
            return EMPTY
        confirmed, rest = EMPTY, buckets
        for answer in self._backup_answers:
            if (answer.backup, answer.version) != (backup.incarnation, group.version):
                continue
            inside = _common(answer.ruling.buckets, rest)
            if inside and answer.ruling.verdict in CONFIRMED:
                confirmed = confirmed | inside if confirmed else inside
                rest -= inside
            elif inside and answer.ruling.verdict is PushVerdict.OVERLAP:
                ahead = self._positions - answer.ruling.positions  # which the backup has applied before
                self._add_ruling(inside, PushVerdict.SPLIT, ahead)
                rest -= inside
        if rest:
            self._add_ruling(rest, PushVerdict.NOT_YET)
        return confirmed

    def _mark(self, group: BucketGroup, buckets: PositionSet) -> BucketGroup:
        """The group's part with these buckets: marked if the verdict is APPLIED, else as before."""
        is_holding = self._held and not buckets.isdisjoint(self._held)
        verdict, named = verdict_of(group, self._positions, is_holding=bool(is_holding))
        self._add_ruling(buckets, verdict, named)
        if verdict is not PushVerdict.APPLIED:
            return _narrowed(group, buckets)
        if group.fork is not None and not self._positions.isdisjoint(group.fork.wanted):
            self.both = joined(self.both, buckets) if self.both else buckets
            forked: ForkMarks | None = fork.mark_fork(group.fork, self._positions)
        else:
            self.live = joined(self.live, buckets) if self.live else buckets
            forked = group.fork
        return BucketGroup(
            buckets=buckets,
            version=group.version,
            applied=group.applied | self._positions,
            skipped=group.skipped,
            fork=forked,
            backup=group.backup,
            is_backup=group.is_backup,
        )

    def _add_ruling(self, buckets: PositionSet, verdict: PushVerdict, positions: PositionSet = EMPTY) -> None:
        for number, known in enumerate(self.rulings):  # few, nearly always none yet
            if known.verdict is verdict and known.positions == positions:
                self.rulings[number] = replace(known, buckets=joined(known.buckets, buckets))
                return
        self.rulings.append(Ruling(buckets=buckets, verdict=verdict, positions=positions))


def verdict_of(group: BucketGroup, positions: PositionSet, *, is_holding: bool) -> tuple[PushVerdict, PositionSet]:
    """The verdict of rule 6 for buckets that are live at the right lineage and version, and its positions.

    A hold stops only what would be applied.  A push without positions is a REPEAT: it would mark nothing.
    """
    if group.skipped and (quarantined := group.skipped & positions):
        return PushVerdict.SKIPPED, quarantined
    if not positions:
        return PushVerdict.REPEAT, EMPTY
    before = group.applied & positions
    if before and before == positions:
        return PushVerdict.REPEAT, EMPTY
    if group.is_frozen:
        return PushVerdict.FROZEN, EMPTY
    if before:
        return PushVerdict.OVERLAP, positions - before
    if is_holding:
        return PushVerdict.HELD, EMPTY
    if group.fork is not None and (inside := group.fork.wanted & positions) and inside != positions:
        return PushVerdict.SPLIT, inside
    return PushVerdict.APPLIED, EMPTY


def _narrowed(group: BucketGroup, buckets: PositionSet) -> BucketGroup:
    """The group with these of its buckets alone, which are nearly always all."""
    return group if buckets == group.buckets else replace(group, buckets=buckets)


def _within(ruling: Ruling, buckets: PositionSet) -> Ruling | None:
    """The part of the ruling about these buckets; None if it names none of them."""
    if ruling.buckets == buckets:
        return ruling
    common = ruling.buckets & buckets
    return replace(ruling, buckets=common) if common else None


def _common(held: PositionSet, named: PositionSet) -> PositionSet:
    """The intersection; the very object `named` if the sets are equal, as they nearly always are."""
    return named if held == named else held & named


def _refused(state: ServerState, event: Push, verdict: PushVerdict) -> PushOutcome:
    buckets = EMPTY
    for target in event.targets:
        buckets |= target.buckets
    return PushOutcome(
        state=state,
        answer=PushAnswer(lineage=state.lineage, rulings=(Ruling(buckets=buckets, verdict=verdict),)),
    )
