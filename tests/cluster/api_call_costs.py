"""API calls of the operator for one resize, by its own count and by the pods that followed."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api, Raw, Scope
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.clusters.kubernetes.objects.labels import JOB, ROLE, TIER
from tests.cluster.pod_watch import follow_pods

BESIDE: Final = frozenset({"watch", "list", "leases", "customresourcedefinitions"})
"""Verbs that keep the store fresh, the Lease, and the look at the definition once a minute."""

_CALL: Final = re.compile(r'edl_api_calls_total\{kind="([\w.]+)",outcome="(\w+)",verb="(\w+)"\} (\S+)')


def calls_in(metrics: str) -> Counter[str]:
    """Calls by verb and kind, without those that are made although nothing changes."""
    found: Counter[str] = Counter()
    for kind, _outcome, verb, count in _CALL.findall(metrics):
        if verb not in BESIDE and kind not in BESIDE:
            found[f"{verb} {kind}"] += int(float(count))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One resize: pods of the job's trainers and servers, and calls of the operator, by verb and kind."""

    core_created: int
    surplus_created: int
    deleted: int
    calls: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.calls.values())

    @property
    def most(self) -> int:
        """The goal of the design: each pod's own writes, a status and an event."""
        return 2 * self.core_created + self.surplus_created + self.deleted + 2


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Observes creations and deletions of jobs' pods in all namespaces, by this process's clock.  `run` it beside."""

    api: Api
    job_of: dict[str, str] = field(default_factory=dict)  # by UID: NAMESPACE/JOB
    tier_of: dict[str, str] = field(default_factory=dict)
    came_at_s: dict[str, float] = field(default_factory=dict)
    told_at_s: dict[str, float] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    is_synced: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until it is cancelled."""
        scope = Scope(labels=f"{JOB},{ROLE} in (trainer,server)")
        await follow_pods(self.api, scope, self._see, listed=self.is_synced)

    def standing(self, job: str) -> int:
        """Pods of the job that run and stay."""
        return sum(uid not in self.told_at_s for uid in self.running if self.job_of[uid] == job)

    def first_after(self, job: str, at_s: float) -> float | None:
        """Time of the first creation or deletion of a pod of the job from then on."""
        times = (*self.came_at_s.items(), *self.told_at_s.items())
        return min((one_s for uid, one_s in times if one_s >= at_s and self.job_of[uid] == job), default=None)

    def cost(self, since_s: float, calls: Counter[str]) -> Cost:
        """Pods of all jobs created and deleted since then."""
        came = [self.tier_of[uid] for uid, at_s in self.came_at_s.items() if at_s >= since_s]
        return Cost(
            core_created=came.count("core"),
            surplus_created=came.count("surplus"),
            deleted=sum(at_s >= since_s for at_s in self.told_at_s.values()),
            calls=dict(calls),
        )

    def _see(self, raw: Raw, is_gone: bool) -> None:
        now_s, uid = time.monotonic(), text(raw, "metadata", "uid")
        if uid not in self.came_at_s:
            self.came_at_s[uid] = now_s
            self.job_of[uid] = f"{raw['metadata']['namespace']}/{text(raw, 'metadata', 'labels', JOB)}"
            self.tier_of[uid] = text(raw, "metadata", "labels", TIER)
        if raw["metadata"].get("deletionTimestamp") or is_gone:
            self.told_at_s.setdefault(uid, now_s)
        if text(raw, "status", "phase") == "Running" and not is_gone:
            self.running.add(uid)
        else:
            self.running.discard(uid)
