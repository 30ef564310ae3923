"""How many trainers one parameter server serves, where the job's file says `trainersPerServer: auto`: pure.

It begins as if nothing had been said, and then follows what the trainers measure: when they wait for servers much of
their time it falls, when fewer servers would still keep nobody waiting it rises.  What more or fewer servers would do
is `bottleneck`'s model.  Between the two lies a wide band, and a number of trainers and servers is judged once it has
stood for a while, by the mean of what was measured meanwhile: by the model no change calls for its opposite.

The planner takes what comes out as it takes a number from the file, with all of its windows: servers come into free
room only, leave voluntarily, and neither keeps the web waiting (ADR 0117).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from autoscaler.jobs.bottleneck import find_hint, speed
from autoscaler.jobs.progress import JobProgress
from autoscaler.manifests.api_types import MOST_REPLICAS, TRAINERS_PER_SERVER, ReplicaBounds

SETTLED_S: Final = 30.0
"""Trainers and servers have been as many for so long: longer than a move of buckets leaves them unsettled."""

CALM_SHARE: Final = 0.1
"""Fewer servers are enough if trainers would wait for them at most this part of their time.  Far below what calls for
more (`bottleneck.WAITING_SHARE`): between the two nothing changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRatio:
    """`trainers_per_server` is what holds; the rest is what it is judged by next.  Seconds on the caller's clock."""

    trainers_per_server: int = TRAINERS_PER_SERVER
    trainers: int = 0  # so many of both have stood since then
    servers: int = 0
    since_s: float = 0.0
    looks: int = 0
    waiting_share: float = 0.0  # on average, of those looks

    def describe_change(self, before: ServerRatio) -> str:
        """For people: why it changed from `before`."""
        each = "trainer" if self.trainers_per_server == 1 else f"{self.trainers_per_server} trainers"
        waited = (
            f"{before.trainers} trainers waited for {before.servers} servers {before.waiting_share:.0%} of their time"
        )
        return f"one server for every {each} now, in place of {before.trainers_per_server}: {waited}"


def parse_ratio(told: Any) -> ServerRatio:
    """As an earlier leader has told it; from the beginning where that is no number of trainers."""
    is_number = isinstance(told, int) and not isinstance(told, bool) and 1 <= told <= MOST_REPLICAS
    return ServerRatio(trainers_per_server=told) if is_number else ServerRatio()


def ratio_in_status(status: Mapping[str, Any]) -> ServerRatio:
    """The ratio that a TrainingJob's status tells."""
    servers = status.get("servers")
    return parse_ratio(servers.get("trainersPerServer") if isinstance(servers, Mapping) else None)


def observe_ratio(before: ServerRatio, progress: JobProgress, replicas: ReplicaBounds, now_s: float) -> ServerRatio:
    """The ratio after one more look at the job.  A number that the user has pinned is not judged."""
    is_as_before = (progress.training, progress.servers) == (before.trainers, before.servers)
    if progress.moving or replicas.pinned or not is_as_before or not (progress.training and progress.servers):
        return replace(
            before, trainers=progress.training, servers=progress.servers, since_s=now_s, looks=0, waiting_share=0.0
        )
    looks = before.looks + 1
    mean = before.waiting_share + (progress.waiting_share - before.waiting_share) / looks
    seen = replace(before, looks=looks, waiting_share=mean)
    if now_s < before.since_s + SETTLED_S:
        return seen
    return replace(seen, trainers_per_server=plan_ratio(seen, replicas), since_s=now_s, looks=0)


def plan_ratio(seen: ServerRatio, replicas: ReplicaBounds) -> int:
    """How many trainers a server is to serve, by what so many of both have measured."""
    ratio, servers = seen.trainers_per_server, seen.servers
    if hint := find_hint(servers=servers, waiting_share=seen.waiting_share):
        wanted = min(hint.better, replicas.maximum)
        if wanted <= servers or seen.trainers <= servers:
            return ratio
        return min(ratio, _lowered(seen.trainers, servers, wanted))
    if servers <= max(1, replicas.minimum):
        return ratio
    fewest = max(ratio, -(-seen.trainers // (servers - 1)))
    left = max(replicas.minimum, -(-seen.trainers // fewest))
    return fewest if left < servers and share_with(servers, left, seen.waiting_share) <= CALM_SHARE else ratio


def share_with(servers: int, others: int, waiting_share: float) -> float:
    """How much of their time trainers would wait for `others` in place of `servers`, by the model.  Shares: 0 to 1."""
    return waiting_share * servers / others * speed(servers, others, waiting_share)


def _lowered(trainers: int, servers: int, wanted: int) -> int:
    """The ratio that gives so many servers, or the nearest number above those there are that a ratio can give."""
    ratio = -(-trainers // wanted)
    return ratio - 1 if ratio > 1 and -(-trainers // ratio) <= servers else ratio
