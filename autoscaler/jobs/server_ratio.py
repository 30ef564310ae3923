"""The ratio of trainers to parameter servers, measured where the job's file says `trainersPerServer: auto`.  Pure.

The ratio starts at its default and follows the trainers' measured waiting time: it falls while they wait much, and
rises when fewer servers would do.  Between the two thresholds it stays.  A number of trainers and servers is judged
after it has been stable for `SETTLED_S`, by the mean of the samples since; by the model no change triggers its
reversal.  The planner takes the ratio as it takes a number from the file, with all of its windows: servers come into
free room only, leave voluntarily, and no web pod waits for either (ADR 0117).

The model of the bottleneck.  A trainer's time is computing and waiting for servers to answer pulls and pushes; each
server has its share of the model, so what a trainer waits for falls with their number: `w` of the time with n servers
is `w n / m` with m, while computing stays as it is.  A job then trains 1 / (1 - w + w n / m) times as fast.  That is
an upper bound: more servers shorten neither round trips nor a saturated machine's computing.  The SDK measures `w`
(`Progress.waiting_share`), averaged over the trainers that train (`progress`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from autoscaler.jobs.progress import JobProgress
from autoscaler.manifests.api_types import MOST_REPLICAS, TRAINERS_PER_SERVER, ReplicaBounds

SETTLED_S: Final = 30.0
"""Time with unchanged numbers of trainers and servers before the ratio is judged; longer than a move of buckets
takes.
"""

FEWER_SUFFICE_SHARE: Final = 0.1
"""Waiting share below which fewer servers are enough.

It is far below what calls for more (`WAITING_SHARE`): between the two nothing changes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRatio:
    """Measured ratio; the other fields are the samples for its next change.  Seconds on the caller's clock."""

    trainers_per_server: int = TRAINERS_PER_SERVER
    trainers: int = 0  # so many of both have stood since then
    servers: int = 0
    since_s: float = 0.0
    observations: int = 0
    waiting_share: float = 0.0  # mean over `observations`

    def describe_change(self, before: ServerRatio) -> str:
        """Text for people: why the ratio changed from `before`."""
        each = "trainer" if self.trainers_per_server == 1 else f"{self.trainers_per_server} trainers"
        waited = (
            f"{before.trainers} trainers waited for {before.servers} servers {before.waiting_share:.0%} of their time"
        )
        return f"one server for every {each} now, in place of {before.trainers_per_server}: {waited}"


def parse_ratio(text: Any) -> ServerRatio:
    """Return the ratio that an earlier leader wrote; the default if the text is not a valid ratio."""
    is_number = isinstance(text, int) and not isinstance(text, bool) and 1 <= text <= MOST_REPLICAS
    return ServerRatio(trainers_per_server=text) if is_number else ServerRatio()


def ratio_in_status(status: Mapping[str, Any]) -> ServerRatio:
    """Return the ratio in a TrainingJob's status."""
    servers = status.get("servers")
    return parse_ratio(servers.get("trainersPerServer") if isinstance(servers, Mapping) else None)


def observe_ratio(before: ServerRatio, progress: JobProgress, replicas: ReplicaBounds, now_s: float) -> ServerRatio:
    """Return the ratio after one more observation of the job.  A number that the user has pinned is not judged."""
    is_as_before = (progress.training, progress.servers) == (before.trainers, before.servers)
    if progress.moving or replicas.pinned or not is_as_before or not (progress.training and progress.servers):
        return replace(
            before,
            trainers=progress.training,
            servers=progress.servers,
            since_s=now_s,
            observations=0,
            waiting_share=0.0,
        )
    looks = before.observations + 1
    mean = before.waiting_share + (progress.waiting_share - before.waiting_share) / looks
    seen = replace(before, observations=looks, waiting_share=mean)
    if now_s < before.since_s + SETTLED_S:
        return seen
    return replace(seen, trainers_per_server=plan_ratio(seen, replicas), since_s=now_s, observations=0)


def plan_ratio(seen: ServerRatio, replicas: ReplicaBounds) -> int:
    """Next ratio, by the waiting share measured with these replicas."""
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
    return fewest if left < servers and share_with(servers, left, seen.waiting_share) <= FEWER_SUFFICE_SHARE else ratio


def share_with(servers: int, others: int, waiting_share: float) -> float:
    """Return the share of time that trainers would wait for `others` in place of `servers`; 0 to 1, by the model."""
    return waiting_share * servers / others * speed(servers, others, waiting_share)


def _lowered(trainers: int, servers: int, wanted: int) -> int:
    """Return the ratio that gives so many servers, or the nearest number above today's that a ratio can give."""
    ratio = -(-trainers // wanted)
    return ratio - 1 if ratio > 1 and -(-trainers // ratio) <= servers else ratio


WAITING_SHARE: Final = 0.25
"""Waiting share above which servers count as the bottleneck; below it a second server gains at most 14 %."""

LEAST_GAIN: Final = 0.1
"""One server more is named as long as it gives at least so much over one fewer."""

MOST_TIMES_PRESENT: Final = 2
"""Largest suggested number, as a multiple of the present one; the model is unreliable beyond it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersHint:
    """With `better` in place of `servers`, samples a second would rise by at most `gain` (0.4: 40 %)."""

    servers: int
    better: int
    gain: float
    waiting_share: float

    def describe(self, most: int) -> str:
        """Hint as a text for people; `most`: what the job's file allows."""
        text = f"trainers wait for servers {self.waiting_share:.0%} of their time"
        text = f"{text}; {self.better} in place of {self.servers}: at most {self.gain:+.0%}"
        return text if self.better <= most else f"{text} (maxReplicas is {most})"


def find_hint(*, servers: int, waiting_share: float) -> ServersHint | None:
    """Return how many servers to have instead if servers are the bottleneck; None if they are not."""
    if servers < 1 or waiting_share < WAITING_SHARE:
        return None
    better = servers
    while better < MOST_TIMES_PRESENT * servers and _is_worth_one_more(servers, better, waiting_share):
        better += 1
    if better == servers:
        return None
    gain = speed(servers, better, waiting_share) - 1
    return ServersHint(servers=servers, better=better, gain=gain, waiting_share=waiting_share)


def describe_data_wait(*, servers: int, waiting_share: float) -> str:
    """Hint for people, of a job without servers whose trainers wait for their data; empty: they hardly do."""
    if servers or waiting_share < WAITING_SHARE:
        return ""
    return f"trainers wait for their data {waiting_share:.0%} of their time: give the loader more num_workers"


def _is_worth_one_more(servers: int, others: int, waiting_share: float) -> bool:
    return speed(servers, others + 1, waiting_share) >= (1 + LEAST_GAIN) * speed(servers, others, waiting_share)


def speed(servers: int, others: int, waiting_share: float) -> float:
    """Return how many times as fast the job trains at most with `others` in place of `servers`.  Shares are 0 to 1."""
    return 1 / (1 - waiting_share + waiting_share * servers / others)
