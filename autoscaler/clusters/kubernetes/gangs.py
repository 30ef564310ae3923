"""Pods that were given a node and must be bound there soon: who has lost that race, and how long its job waits then.

EDL proves a room and ties the pod to its node; another controller's pod can still be bound there first.  A pod not
bound within `BIND_LIMIT_S` has lost: of a starting gang all pods go, for a part of it would only hold room; of a
running job that pod alone.  The job then creates nothing for 10, 20, 40 s (`kubernetes.md` 9).

Pure: `look` takes in what stands and returns who has lost.  All of it can be forgotten: a new leader counts afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from autoscaler.domain import JobName, PodName

BIND_LIMIT_S: Final = 10.0
PAUSES_S: Final = (10.0, 20.0, 40.0)
FORGOTTEN_AFTER_S: Final = 60.0
"""A running job that has tried nothing for so long after a pause begins anew; a plan is made every 10 s."""

TAKEN_AFTER: Final = 3
"""So many lost races in a row are reported as `RoomTaken`: somebody else fills the room as fast as it is proved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What a job has lost lately."""

    lost: int = 0
    hold_until_s: float = 0.0

    @property
    def is_taken(self) -> bool:
        """Whether others take the room again and again."""
        return self.lost >= TAKEN_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What stands of a job.  `unbound`: un-gated or created with a node, and not there yet."""

    job: JobName
    is_starting: bool  # its gang has not been bound as a whole
    bound: frozenset[PodName] = frozenset()
    unbound: frozenset[PodName] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """These pods of a job have to go."""

    job: JobName
    pods: frozenset[PodName]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """What is remembered: since when each pod is unbound, and what each job has lost."""

    unbound_since_s: Mapping[PodName, float] = field(default_factory=dict)
    races: Mapping[JobName, Race] = field(default_factory=dict)

    def race(self, job: JobName) -> Race:
        """Return the job's account; of one that never lost, an empty one."""
        return self.races.get(job, Race())

    @property
    def wake_at_s(self) -> float | None:
        """When the next pod may have lost; None: none is under way."""
        return min(self.unbound_since_s.values()) + BIND_LIMIT_S if self.unbound_since_s else None


def look(starts: Starts, standing: Iterable[Standing], now_s: float) -> tuple[Starts, tuple[Lost, ...]]:
    """Take in what stands of every job.

    Jobs and pods that are not named are forgotten.  A job whose pods are all bound has lost nothing any more, once its
    pause is over and, if it runs, the next pod is bound too: when the one that lost is gone, all that stands is bound.
    """
    since_s: dict[PodName, float] = {}
    races: dict[JobName, Race] = {}
    lost: list[Lost] = []
    for item in standing:
        mine = {pod: starts.unbound_since_s.get(pod, now_s) for pod in item.unbound}
        late = frozenset(pod for pod, at_s in mine.items() if now_s - at_s >= BIND_LIMIT_S)
        race = starts.race(item.job)
        if late:
            race = lose(race, now_s)
            gone = item.bound | item.unbound if item.is_starting else late
            lost.append(Lost(job=item.job, pods=gone, reason=story(late, is_starting=item.is_starting)))
            mine = {pod: at_s for pod, at_s in mine.items() if pod not in gone}
        elif item.bound and not item.unbound and now_s >= race.hold_until_s:
            has_won = item.is_starting or not item.bound.isdisjoint(starts.unbound_since_s)
            race = Race() if has_won or now_s >= race.hold_until_s + FORGOTTEN_AFTER_S else race
        since_s |= mine
        if race != Race():
            races[item.job] = race
    return Starts(unbound_since_s=since_s, races=races), tuple(lost)


def lose(race: Race, now_s: float) -> Race:
    """One more race lost: the next pause."""
    pause_s = PAUSES_S[min(race.lost, len(PAUSES_S) - 1)]
    return Race(lost=race.lost + 1, hold_until_s=now_s + pause_s)


def refuse(starts: Starts, job: JobName, now_s: float) -> Starts:
    """The API server refused the job's pods (a quota): the same pauses, so that nothing is tried in a storm."""
    return replace(starts, races={**starts.races, job: lose(starts.race(job), now_s)})


def story(late: frozenset[PodName], *, is_starting: bool) -> str:
    """Tell it to the user."""
    named = ", ".join(sorted(late)[:3]) + (f" and {len(late) - 3} more" if len(late) > 3 else "")
    rest = "; the gang starts again as a whole" if is_starting else ""
    return f"{named} not bound within {BIND_LIMIT_S:g} s: the proved room was taken by others{rest}"
