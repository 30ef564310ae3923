"""A veto against the deed: how long after `edl keep` a pod's GPUs may still be given back (ADR 0288).

The operator's own code over an API server in memory, in virtual time.  Each request takes as long as one of a busy
server does, half of it on the way there.  The owner says no at any instant around the deed.  What counts is the time
from the API server's yes to the veto until a deed that came all the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from autoscaler.clusters.kubernetes.api.kinds import EVICTIONS, PODS, STATEFUL_SETS
from autoscaler.clusters.kubernetes.objects.labels import IDLE_MINIMUM, IDLE_RECLAIM, KEEP_UNTIL
from bench.reporting.result_rows import Row, print_rows
from tests.unit.operator.idle.idle_scene import ACT, IdleScene

TRIALS: Final = 200
SEED: Final = 7
AROUND_S: Final = 2.0
"""The veto comes so long before or after the instant at which the deed is due, evenly."""

MEDIAN_S, SPREAD, LONGEST_S = 0.05, 0.8, 0.5
"""Of a request: log-normal, one of a hundred takes 0.3 s."""

POD: Final = "alice-0"
IDLE: Final = {IDLE_RECLAIM: "30m", IDLE_MINIMUM: "0"}
KEPT: Final = {"metadata": {"annotations": {KEEP_UNTIL: "2100-01-01T00:00:00Z"}}}

Request = Callable[..., Awaitable[Any]]


class Trial:
    """One idle pod that is due, and its owner, who says no.  `deed_after_s`: after the veto; None: it was honoured."""

    def __init__(self, number: int, *, is_owned: bool) -> None:
        self._random = random.Random(f"{SEED} {number}")  # noqa: S311 - trials that can be repeated
        self._is_owned = is_owned
        self._scene: Any = IdleScene()
        self._write = self._scene.api.patch
        self._veto_at_s = float("inf")
        self._is_kept = False
        self.deed_after_s: float | None = None

    async def run(self) -> None:
        """Let the notice pass, then the seconds around the deed with a slow server."""
        scene = self._scene
        ref = await scene.add_owner(STATEFUL_SETS, "alice") if self._is_owned else None
        await scene.add(POD, IDLE, owner=ref)
        await scene.add("bob", {})
        while not scene.said("IdleGpus"):
            await self._tick(1.0)
        due_s = scene.now_unix_s + ACT.idle_notice_s
        while scene.now_unix_s < due_s - AROUND_S:
            await self._tick(min(20.0, due_s - AROUND_S - scene.now_unix_s))
        self._veto_at_s = due_s + AROUND_S * self._random.uniform(-1.0, 1.0)
        for name in ("get", "list", "create", "patch"):
            setattr(scene.api, name, self._slow(getattr(scene.api, name)))
        while not self._is_kept or scene.now_unix_s < due_s + 2 * AROUND_S:
            scene.report(**{POD: 90})
            await scene.reclaimer.act()  # by the plan before: the veto is not in it
            await self._pass(1.0)

    async def _tick(self, seconds: float) -> None:
        self._scene.report(**{POD: 90})
        await self._scene.tick(seconds)

    def _slow(self, request: Request) -> Request:
        async def slow(kind: Any, *of: Any, **how: Any) -> Any:
            takes_s = min(LONGEST_S, MEDIAN_S * self._random.lognormvariate(0.0, SPREAD))
            await self._pass(takes_s / 2)
            found = await request(kind, *of, **how)
            is_deed = kind == EVICTIONS or (kind == STATEFUL_SETS and request.__name__ == "patch")
            if is_deed and self._is_kept:
                self.deed_after_s = self._scene.now_unix_s - self._veto_at_s
            await self._pass(takes_s / 2)
            return found

        return slow

    async def _pass(self, seconds: float) -> None:
        """Let time pass; the veto is written at its instant."""
        ends_s = self._scene.now_unix_s + seconds
        if not self._is_kept and self._veto_at_s <= ends_s:
            self._is_kept = True
            if any(name == POD for name in self._scene.names()):
                await self._write(PODS, POD, KEPT, namespace="nb")
        self._scene.now_unix_s = ends_s


async def measure() -> list[Row]:
    """Play all trials, half of them with an owner that is scaled."""
    after = []
    for number in range(TRIALS):
        trial = Trial(number, is_owned=number % 2 == 1)
        await trial.run()
        after.append(trial.deed_after_s)
    late = [one for one in after if one is not None]
    note = f"{len(late)} of {TRIALS} vetoes within {AROUND_S:g} s of a deed came too late for it; virtual time"
    return [
        Row(
            name="gpus: veto to a deed after it, largest",
            value=max(late, default=0.0),
            unit="s",
            goal="<= 1",
            note=note,
        )
    ]


def main() -> None:
    """Measure and print the rows."""
    print_rows(asyncio.run(measure()))


if __name__ == "__main__":
    main()
