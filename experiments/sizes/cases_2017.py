"""The cases of 2017 with efficiency on: what the measuring and the stopping cost where nobody asked for either."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Final

from autoscaler.clusters.simulated import run_loop
from autoscaler.loop import Loop
from experiments.arms.ours import make_policy
from experiments.arms.pass_setup import PassSetup
from experiments.measuring.pass_metrics import measure
from experiments.measuring.pass_record import read_pass_record
from experiments.running.tasks import Selection, list_tasks
from experiments.scenarios.loading import find_scenario
from experiments.scenarios.node_mixes import read_mixes
from experiments.sizes.trace_pass import POLL_S, Observer

CASES: Final = ("edl2017-case1", "edl2017-case2")


def measure_case(task: tuple[str, float, int]) -> dict[str, float]:
    """Return the metrics of one pass of EDL on a case.  `task`: case, efficiency, number of the pass."""
    name, efficiency, number = task
    selection = Selection(arm="ours-planner", passes=number)
    mix = read_mixes()[0]
    setting = list_tasks(find_scenario(name), [mix], selection)[-1].setting
    setup = PassSetup(setting)
    for submission in setup.submissions:
        job = submission.job
        asked = replace(job, trainer=replace(job.trainer, efficiency=efficiency))
        setup.at(submission.at_s, partial(setup.cluster.submit, asked, submission.work))
    if efficiency:
        setup.every(POLL_S, Observer(cluster=setup.cluster).tick)
    setup.at(setting.scenario.measured_until_s, setup.cluster.record_samples)
    asyncio.run(run_loop(Loop(setup.cluster, make_policy(setting)), setup.cluster, setup.end_s))
    return measure(read_pass_record(setup, {}, ()))
