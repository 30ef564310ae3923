"""Starts and pods that must get there soon: who has lost that race, and how long its job waits then.

EDL proves a room and ties the pod to its node; another controller's pod can still be bound there first.  A pod not
bound within `BIND_LIMIT_S` has lost: of a starting gang all pods go, for a part of it would only hold room; of a
running job that pod alone.  A start is over when the master's Deployment stands too; one that has not come so far
within `START_LIMIT_S` has lost likewise.  The job then creates nothing for 10, 20, 40 s (`kubernetes.md` 9).

Pure: `look` takes in what stands and returns who has lost.  All of it can be forgotten: a new leader counts afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from autoscaler.domain import JobName, PodName

BIND_LIMIT_S: Final = 10.0
START_LIMIT_S: Final = 20.0
"""From the gang's first pod to the master's Deployment, which is asked for when all pods are bound (ADR 0159)."""

PAUSES_S: Final = (10.0, 20.0, 40.0)
FORGOTTEN_AFTER_S: Final = 60.0
"""A running job that has tried nothing for so long after a pause begins anew; a plan is made every 10 s."""

TAKEN_AFTER: Final = 3
"""So many lost races in a row are reported as `RoomTaken`: somebody else fills the room as fast as it is proved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What a job has lost lately.  `refusal`: what the API server said, if it was that which ended the last start."""

    lost: int = 0
    hold_until_s: float = 0.0
    refusal: str = ""

    @property
    def is_taken(self) -> bool:
        """Whether others take the room again and again."""
        return self.lost >= TAKEN_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What stands of a job that EDL made.  `unbound`: gated, un-gated or created with a node, and not there yet."""

    job: JobName
    is_starting: bool  # its master's Deployment does not stand, and has not stood
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
    """What is remembered: since when each pod is unbound and each gang starts, and what each job has lost."""

    unbound_since_s: Mapping[PodName, float] = field(default_factory=dict)
    begun_s: Mapping[JobName, float] = field(default_factory=dict)
    races: Mapping[JobName, Race] = field(default_factory=dict)

    def race(self, job: JobName) -> Race:
        """Return the job's account; of one that never lost, an empty one."""
        return self.races.get(job, Race())

    @property
    def wake_at_s(self) -> float | None:
        """When the next pod or start may have lost; None: none is under way."""
        limits = [at_s + BIND_LIMIT_S for at_s in self.unbound_since_s.values()]
        return min([*limits, *(at_s + START_LIMIT_S for at_s in self.begun_s.values())], default=None)


def look(starts: Starts, standing: Iterable[Standing], now_s: float) -> tuple[Starts, tuple[Lost, ...]]:
    """Take in what stands of every job.

    Jobs and pods that are not named are forgotten.  A start that is over has lost nothing any more; of a job that runs
    that holds once its pause is over and the next pod is bound: when the one that lost is gone, all that stands is
    bound.
    """
    since_s: dict[PodName, float] = {}
    begun_s: dict[JobName, float] = {}
    races: dict[JobName, Race] = {}
    lost: list[Lost] = []
    for item in standing:
        mine = {pod: starts.unbound_since_s.get(pod, now_s) for pod in item.unbound}
        late = frozenset(pod for pod, at_s in mine.items() if now_s - at_s >= BIND_LIMIT_S)
        started_s = starts.begun_s.get(item.job, now_s)
        is_slow = item.is_starting and now_s - started_s >= START_LIMIT_S
        race = starts.race(item.job)
        if late or is_slow:
            race = lose(race, now_s)
            gone = item.bound | item.unbound if item.is_starting else late
            lost.append(Lost(job=item.job, pods=gone, reason=story(late, is_starting=item.is_starting)))
            mine = {pod: at_s for pod, at_s in mine.items() if pod not in gone}
        elif item.is_starting and (item.bound or item.unbound):
            begun_s[item.job] = started_s
        elif item.bound and not item.unbound:
            race = _after(race, item, starts, now_s)
        since_s |= mine
        if race != Race():
            races[item.job] = race
    return Starts(unbound_since_s=since_s, begun_s=begun_s, races=races), tuple(lost)


def _after(race: Race, item: Standing, starts: Starts, now_s: float) -> Race:
    """What is left of the account of a job that runs, all of whose pods are bound."""
    has_started = item.job in starts.begun_s
    has_won = now_s >= race.hold_until_s and not item.bound.isdisjoint(starts.unbound_since_s)
    return Race() if has_started or has_won or now_s >= race.hold_until_s + FORGOTTEN_AFTER_S else race


def lose(race: Race, now_s: float, refusal: str = "") -> Race:
    """One more race lost: the next pause."""
    pause_s = PAUSES_S[min(race.lost, len(PAUSES_S) - 1)]
    return Race(lost=race.lost + 1, hold_until_s=now_s + pause_s, refusal=refusal)


def refuse(starts: Starts, job: JobName, now_s: float, refusal: str) -> Starts:
    """The API server refused what the job needs (a quota, say): the same pauses, and nothing is tried in a storm."""
    begun_s = {name: at_s for name, at_s in starts.begun_s.items() if name != job}
    return replace(starts, begun_s=begun_s, races={**starts.races, job: lose(starts.race(job), now_s, refusal)})


def story(late: frozenset[PodName], *, is_starting: bool) -> str:
    """Tell it to the user."""
    if not late:
        return f"the gang is bound and its master's Deployment not made within {START_LIMIT_S:g} s; it starts again"
    named = ", ".join(sorted(late)[:3]) + (f" and {len(late) - 3} more" if len(late) > 3 else "")
    rest = "; the gang starts again as a whole" if is_starting else ""
    return f"{named} not bound within {BIND_LIMIT_S:g} s: the proved room was taken by others{rest}"
