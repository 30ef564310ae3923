"""How early a surplus trainer leaves when a scheduler chooses: its grade, 1 to 8, fixed when it is created.

The scheduler takes the lowest class first, so a trainer's class tells how large a share its job reaches with it:
grade k stands for class -k, and the first victims are the last trainers of the largest jobs.  That is max-min
fairness by preemption, with nobody there to decide (`kubernetes.md` 2).  Next: `emit`, which gives the grades.
"""

from __future__ import annotations

from typing import Final

from autoscaler.domain import Pod, Tier

GRADES: Final = 8
"""With 8 classes as with 10, what is left unfair is at most one class wide; below -10 pods count as expendable."""


def grade_of(share: int, largest: int) -> int:
    """Return 1 + floor(8 * share / largest), from 1 to 8.

    `share`: the weighted dominant share that the job reaches with this trainer; `largest`: the largest that any
    admitted job reaches at its maximum, in the same unit.  With nothing to compare the grade is 1.
    """
    if largest <= 0:
        return 1
    return max(1, min(1 + GRADES * share // largest, GRADES))


def grade_of_pod(pod: Pod) -> int:
    """The grade of a pod that stands; 0 of core.  Where surplus is at core's level all grades are alike."""
    if pod.tier is not Tier.SURPLUS:
        return 0
    return -pod.priority if 1 <= -pod.priority <= GRADES else 1
