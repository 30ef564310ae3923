"""Pods of others that were evicted, or whose owner was scaled for them, until each is seen leaving.

A scale names no pod: one beside it may leave in its place.  So GPUs are counted and told as given back only once the
very pod leaves; until then it counts on in the plan, so that those that leave for the same beneficiary stay enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, text
from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.domain import PodName
from autoscaler.operator.idle.consent import Consent

LEAVES_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A pod that should be leaving; `how`: what was done for that."""

    name: PodName
    raw: Raw
    consent: Consent  # by which the plan counts it on: no owner counts it
    gpu_count: int
    beneficiary: str
    how: str
    until_s: float

    @property
    def uid(self) -> str:
        return text(self.raw, "metadata", "uid")


class Departures:
    """Those of one term.  `clock` runs evenly."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._expected: dict[str, Departure] = {}  # by UID

    @property
    def keys(self) -> Collection[tuple[str, str]]:
        """Namespace and name of each."""
        return [split_key(one.name) for one in self._expected.values()]

    def expect(self, name: PodName, raw: Raw, consent: Consent, *, gpu_count: int, beneficiary: str, how: str) -> None:
        """Expect the pod to be leaving within `LEAVES_WITHIN_S`."""
        one = Departure(
            name=name,
            raw=raw,
            consent=replace(consent, replicas=None),
            gpu_count=gpu_count,
            beneficiary=beneficiary,
            how=how,
            until_s=self._clock() + LEAVES_WITHIN_S,
        )
        self._expected[one.uid] = one

    def consent_of(self, raw: Raw) -> Consent | None:
        """Return the consent to plan with for a pod that should be leaving; None for any other."""
        one = self._expected.get(text(raw, "metadata", "uid"))
        return None if one is None else one.consent

    def take_ended(self, raw_of: Callable[[PodName], Raw | None]) -> tuple[Sequence[Departure], Sequence[Departure]]:
        """Return, and forget, those that are seen leaving or are gone, and those that stayed in spite of it."""
        left, stayed = [], []
        for uid, one in tuple(self._expected.items()):
            raw = raw_of(one.name)
            is_there = raw is not None and text(raw, "metadata", "uid") == uid
            if raw is None or not is_there or text(raw, "metadata", "deletionTimestamp"):
                left.append(one)
            elif self._clock() >= one.until_s:
                stayed.append(one)
            else:
                continue
            del self._expected[uid]
        return left, stayed
