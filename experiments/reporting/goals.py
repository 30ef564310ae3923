"""Goals of the 2017 cases, as data: a metric, a limit that may rest on a bound or on the static arm.

A goal is judged on every mix by itself; it is met where all mixes meet it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from experiments.reporting.statistics import Gathered

Values = Mapping[str, float]
"""Means over the passes of one mix; those of the static arm with `static.` in front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`limit` gives the number to reach from the mix's own values; `at_least`: the value must reach the limit, else
    stay below it.
    """

    experiment: str
    arms: tuple[str, ...]
    metric: str
    text: str
    limit: Callable[[Values], float]
    at_least: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalResult:
    """A goal on one mix."""

    goal: Goal
    arm: str
    mix: str
    value: float
    limit: float
    pinned: float | None  # the bounds in percent, of the mean or of the steady state as the metric is; None: none
    free: float | None

    @property
    def is_met(self) -> bool:
        """True if the value is within the limit, but for rounding."""
        slack = 1e-9
        return self.value >= self.limit - slack if self.goal.at_least else self.value <= self.limit + slack


PLANNER, SCHEDULER = "ours-planner", "ours-scheduler"
BOTH: Final = (PLANNER, SCHEDULER)
CASE_1, CASE_2 = "edl2017-case1", "edl2017-case2"
MOVES, EAGER = f"{PLANNER}+moves", f"{PLANNER}+moves-eager"
FAIR, CALM = PLANNER, f"{PLANNER}+burst-11s"


def fixed(limit: float) -> Callable[[Values], float]:
    """A limit that is the same on every mix."""
    return lambda _: limit


def at_least(experiment: str, arms: tuple[str, ...], metric: str, text: str, limit: Callable[[Values], float]) -> Goal:
    """Goal with a lower limit."""
    return Goal(experiment=experiment, arms=arms, metric=metric, text=text, limit=limit, at_least=True)


def at_most(experiment: str, arms: tuple[str, ...], metric: str, text: str, limit: Callable[[Values], float]) -> Goal:
    """Goal with an upper limit."""
    return Goal(experiment=experiment, arms=arms, metric=metric, text=text, limit=limit, at_least=False)


GOALS: Final = (
    at_least(CASE_2, BOTH, "mean_utilisation_percent", "mean utilisation at least 88 %", fixed(88.0)),
    at_least(
        CASE_2,
        BOTH,
        "mean_utilisation_percent",
        "mean utilisation at least pinned - 1.5 points",
        lambda v: v["pinned_mean_percent"] - 1.5,
    ),
    at_least(
        CASE_2,
        (MOVES, EAGER),
        "mean_utilisation_percent",
        "servers that move: mean utilisation at least free - 1.5 points",
        lambda v: v["free_mean_percent"] - 1.5,
    ),
    at_least(
        CASE_2,
        (f"{PLANNER}+quiet-10s",),
        "mean_utilisation_percent",
        "with a quiet window of 10 s: at least pinned - 3 points",
        lambda v: v["pinned_mean_percent"] - 3.0,
    ),
    at_most(
        CASE_2,
        BOTH,
        "price_of_servers_points",
        "servers well placed: free - pinned at most 4.5 points",
        fixed(4.5),
    ),
    at_most(
        CASE_2,
        (PLANNER,),
        "web_wait_first_s",
        "100 to 200: a web pod waits at most drain + 1.5 s for capacity",
        fixed(3.5),
    ),
    at_most(
        CASE_2,
        (SCHEDULER,),
        "web_wait_first_s",
        "100 to 200: a web pod waits at most drain + 3 s for capacity",
        fixed(5.0),
    ),
    at_most(
        CASE_2,
        BOTH,
        "web_shortfall_percent",
        "web shortfall at most 1.2 points above the static arm",
        lambda v: v["static.web_shortfall_percent"] + 1.2,
    ),
    at_most(
        CASE_2,
        (f"{PLANNER}+headroom-13",),
        "web_wait_max_s",
        "with headroom for 100 web pods the web waits no longer than beside the static arm",
        lambda v: v["static.web_wait_max_s"] + 0.1,
    ),
    at_least(CASE_2, BOTH, "web_back_at_peak_passes_percent", "every pass back at 400 web pods", fixed(100.0)),
    at_most(
        CASE_2,
        BOTH,
        "trainers_removed",
        "trainers removed at most 1.15 R",
        lambda v: 1.15 * v["removals_needed"],
    ),
    at_most(CASE_2, BOTH, "transfers", "transfers at most 10 % of 1.15 R", lambda v: 0.115 * v["removals_needed"]),
    at_most(CASE_2, BOTH, "trainers_killed", "all removed trainers drained", fixed(0.0)),
    at_most(CASE_2, BOTH, "samples_lost", "no sample lost", fixed(0.0)),
    at_most(CASE_1, BOTH, "trainable_pending_s", "trainable after at most 20 s", fixed(20.0)),
    at_most(CASE_1, BOTH, "all_trainable_at_s", "all 20 jobs running by 210 s", fixed(210.0)),
    at_least(
        CASE_1,
        BOTH,
        "steady_utilisation_percent",
        "steady utilisation at least free - 1.5 points",
        lambda v: v["free_steady_percent"] - 1.5,
    ),
    at_least(
        CASE_1,
        (*BOTH, CALM),
        "jain_after_last_arrival_min",
        "Jain at least 0.98 from 30 s after the last arrival",
        fixed(0.98),
    ),
    at_least(CASE_1, (FAIR,), "mean_utilisation_percent", "frontier, fair end: mean at least 85 %", fixed(85.0)),
    at_most(CASE_1, (FAIR,), "trainers_removed", "frontier, fair end: at most 520 removed", fixed(520.0)),
    at_least(CASE_1, (CALM,), "mean_utilisation_percent", "frontier, calm end: mean at least 76 %", fixed(76.0)),
    at_most(CASE_1, (CALM,), "trainers_removed", "frontier, calm end: at most 120 removed", fixed(120.0)),
)


def evaluate_goals(gathered: Mapping[tuple[str, str], Gathered]) -> list[GoalResult]:
    """Return every goal on every mix for which its arm was run."""
    verdicts = []
    for goal in GOALS:
        for arm in goal.arms:
            found = gathered.get((goal.experiment, arm))
            for mix in found.by_mix if found is not None and found.has(goal.metric) else ():
                values = values_on(gathered, goal.experiment, arm, mix)
                try:
                    limit = goal.limit(values)
                except KeyError:  # the arm that it is measured against was not run
                    continue
                span = "steady" if goal.metric.startswith("steady") else "mean"
                verdicts.append(
                    GoalResult(
                        goal=goal,
                        arm=arm,
                        mix=mix,
                        value=values[goal.metric],
                        limit=limit,
                        pinned=values.get(f"pinned_{span}_percent"),
                        free=values.get(f"free_{span}_percent"),
                    )
                )
    return verdicts


def values_on(gathered: Mapping[tuple[str, str], Gathered], experiment: str, arm: str, mix: str) -> dict[str, float]:
    """Return an arm's means on a mix, and the static arm's."""
    values: dict[str, float] = {}
    for prefix, name in (("", arm), ("static.", "static")):
        found = gathered.get((experiment, name))
        if found is not None and mix in found.by_mix:
            metrics = [metric for metric in found.by_mix[mix][0].metrics if found.has(metric)]
            values |= {prefix + metric: found.on(mix, metric).value for metric in metrics}
    return values
