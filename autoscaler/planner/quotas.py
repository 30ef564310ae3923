"""What namespaces may still ask for: ResourceQuota, seen before the API server refuses (`kubernetes.md` 9 and 19).

As with rooms there are two amounts.  `free` is left of the hard limit now: a pod created within it is accepted.
`later` counts what is leaving as gone, less what waits for it.  A quota bounds pods from creation until they are gone,
whoever made them, so `used` comes from the cluster and is never counted here.

Several quotas of a namespace hold at once.  Next: `draft`, which keeps these beside its rooms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from autoscaler.domain import Quota, Resources
from autoscaler.planner.words import describe_amount

Limit = tuple[str, str]
"""A quota's name and a resource."""


@dataclass(slots=True)
class Allowance:
    """What one namespace may still ask for.  No limit on a resource means no bound."""

    free: dict[Limit, int] = field(default_factory=dict)
    later: dict[Limit, int] = field(default_factory=dict)

    def copy(self) -> Allowance:
        """Return an independent copy for a trial."""
        return Allowance(dict(self.free), dict(self.later))

    def lacks(self, requests: Resources, *, now: bool) -> str:
        """Return what is too much, in words; empty if the requests are within every limit."""
        for limits in (self.later, self.free) if now else (self.later,):
            for (quota, resource), left in limits.items():
                amount = requests.amount(resource)
                if amount > max(0, left) and amount > 0:
                    had = describe_amount(resource, max(0, left))
                    return f"quota {quota} leaves {had} {resource} of {describe_amount(resource, amount)} asked for"
        return ""

    def take(self, requests: Resources, *, now: bool, times: int = 1) -> None:
        """Ask for so much; with `times` -1 give it back."""
        for limits in (self.later, self.free) if now else (self.later,):
            for limit in limits:
                limits[limit] -= times * requests.amount(limit[1])

    def vacate(self, requests: Resources) -> None:
        """A pod is told to leave: what it asked for can be promised from here on."""
        self.take(requests, now=False, times=-1)


def allowances(quotas: Iterable[Quota]) -> dict[str, Allowance]:
    """Return what each namespace with a quota may still ask for."""
    found: dict[str, Allowance] = {}
    for quota in quotas:
        allowance = found.setdefault(quota.namespace, Allowance())
        for limit in quota.limits:
            left = limit.hard - limit.used
            allowance.free[quota.name, limit.resource] = allowance.later[quota.name, limit.resource] = left
    return found
