"""Whether parameter servers are what keeps a job from training faster, and what more of them would give: pure.

The model.  A trainer's time is computing and waiting for servers to answer pulls and pushes; each server has its share
of the model, so what a trainer waits for falls with their number: `w` of the time with n servers is `w n / m` with m,
while computing stays as it is.  A job then trains 1 / (1 - w + w n / m) times as fast.  That is the most that m servers
can give: round trips, and a machine whose processors are all busy, do not become fewer.

Measured by the SDK (`Progress.waiting_share`), averaged over the trainers that train (`progress`).  Not here: choosing
the number; the planner goes by `trainersPerServer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WAITING_SHARE: Final = 0.25
"""Less waiting is the price of a model kept elsewhere: a second server would give at most 14 %."""

WORTH_IT: Final = 0.1
"""One server more is named as long as it gives at least so much over one fewer."""

FURTHEST: Final = 2
"""So many times the present number at most: further away the model is a guess; it is measured again there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersHint:
    """With `better` in place of `servers`, samples a second would rise by at most `gain` (0.4: 40 %)."""

    servers: int
    better: int
    gain: float
    waiting_share: float

    def describe(self, most: int) -> str:
        """For people; `most`: what the job's file allows."""
        told = f"trainers wait for servers {self.waiting_share:.0%} of their time"
        told = f"{told}; {self.better} in place of {self.servers}: at most {self.gain:+.0%}"
        return told if self.better <= most else f"{told} (maxReplicas is {most})"


def find_hint(*, servers: int, waiting_share: float) -> ServersHint | None:
    """How many servers to have instead, where they are the bottleneck; None where they are not."""
    if servers < 1 or waiting_share < WAITING_SHARE:
        return None
    better = servers
    while better < FURTHEST * servers and _is_worth_one_more(servers, better, waiting_share):
        better += 1
    if better == servers:
        return None
    gain = speed(servers, better, waiting_share) - 1
    return ServersHint(servers=servers, better=better, gain=gain, waiting_share=waiting_share)


def _is_worth_one_more(servers: int, others: int, waiting_share: float) -> bool:
    return speed(servers, others + 1, waiting_share) >= (1 + WORTH_IT) * speed(servers, others, waiting_share)


def speed(servers: int, others: int, waiting_share: float) -> float:
    """How many times as fast the job trains with `others` in place of `servers`, at most.  Shares are 0 to 1."""
    return 1 / (1 - waiting_share + waiting_share * servers / others)
