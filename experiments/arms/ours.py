"""Our arms: the loop and the planner as they run anywhere, with `reclaim: planner` or `reclaim: scheduler`."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from math import ceil

from autoscaler.cluster_port import WriteResult
from autoscaler.clusters.simulated import run_loop
from autoscaler.domain import Cause, DeletePod, Headroom, Policy, Reclaim, Role
from autoscaler.loop import Loop, LoopPass
from experiments.arms.pass_setup import SERVERS_MOVED, PassSetting, PassSetup, make_shape


def run(setup: PassSetup) -> Counter[str]:
    """Run EDL's loop to the scenario's end; return the planner's removals of trainers by cause, and servers moved."""
    removals: Counter[str] = Counter()

    def count_removals(step: LoopPass) -> None:
        for action, outcome in step.applied:
            if isinstance(action, DeletePod) and outcome.result is WriteResult.DONE:
                if action.role is Role.TRAINER:
                    removals[action.cause.value] += 1
                elif action.role is Role.SERVER and action.cause is Cause.DEFRAGMENTATION:
                    removals[SERVERS_MOVED] += 1

    for submission in setup.submissions:
        setup.at(submission.at_s, partial(setup.cluster.submit, submission.job, submission.work))
    loop = Loop(setup.cluster, make_policy(setup.setting), listener=count_removals)
    asyncio.run(run_loop(loop, setup.cluster, setup.end_s))
    return removals


def make_policy(setting: PassSetting) -> Policy:
    """Return the planner's defaults with what the setting changes; surplus gets the grace that it needs to drain."""
    given = setting.policy
    policy = Policy(
        reclaim=Reclaim.SCHEDULER if setting.arm == "ours-scheduler" else Reclaim.PLANNER,
        surplus_grace_s=setting.physics.drain_s,
        headroom=make_headroom(setting),
    )
    if given.quiet_window_s is not None:
        policy = replace(policy, quiet_window_s=given.quiet_window_s)
    if given.transfers_per_minute is not None:
        policy = replace(policy, transfers_per_minute=given.transfers_per_minute, transfers_percent_per_minute=0)
    if given.burst_window_s is not None:
        policy = replace(policy, burst_window_s=given.burst_window_s)
    if given.victim_age_s is not None:
        policy = replace(policy, victim_age_s=given.victim_age_s)
    return policy


def make_headroom(setting: PassSetting) -> tuple[Headroom, ...]:
    """Return headroom: as many of the first web's pods as the percentage of the nodes' CPU amounts to."""
    if not setting.policy.headroom_percent or not setting.scenario.web:
        return ()
    pod = setting.scenario.web[0].pod
    if setting.mix is not None:
        cpu_milli = 1_000 * sum(setting.mix.cores())
    else:
        cpu_milli = sum(spec.count * spec.cpu for spec in setting.scenario.nodes)
    count = ceil(cpu_milli * setting.policy.headroom_percent / 100 / pod.cpu)
    return (Headroom(shape=make_shape(pod), count=count),)
