"""`python -m tests.perturb [--json] [--seed N --only M] [--family WORD] [--processes 2] [--real]`: the systematic plan.

Exit code 0: every run ended as the one without faults did, and every promise held at every step.
"""

import argparse
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections import Counter
from multiprocessing import get_context

from tests.perturb.plan import trials
from tests.perturb.trial_run import run_trial
from tests.perturb.trial_verdict import REFERENCE, problems_of


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.perturb", description=__doc__)
    parser.add_argument("--only", type=int, default=0, help="so many runs, drawn by the seed; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", default="", help="those whose family or name contains this")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one document instead of lines")
    parser.add_argument("--real", action="store_true", help="thirty on a real control plane instead, about ten minutes")
    arguments = parser.parse_args()
    if arguments.real:
        return real()

    def say(line):
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    logging.getLogger("autoscaler").setLevel(logging.ERROR)
    began_s = time.monotonic()
    reference = run_trial(REFERENCE)
    say(f"without faults: {len(reference.writes)} writes, {reference.events} events, {len(reference.end)} lines of end")
    plan = [trial for trial in trials(reference) if arguments.family in f"{trial.family}: {trial.name}"]
    if arguments.only:
        plan = sorted(random.Random(arguments.seed).sample(plan, min(arguments.only, len(plan))), key=plan.index)
    runs, wrong = Counter(), []
    for number, (trial, problems) in enumerate(lived_through(plan, reference, arguments.processes), start=1):
        runs[trial.family] += 1
        if problems:
            wrong.append({"family": trial.family, "run": trial.name, "problems": problems})
            say("\n  ".join([f"{trial.family}: {trial.name}", *problems[:12]]))
        if number % 20 == 0:
            say(f"{number} of {len(plan)} runs, {len(wrong)} wrong, {time.monotonic() - began_s:.0f} s")
    tell = {
        "runs": sum(runs.values()),
        "wrong": wrong,
        "families": dict(runs),
        "seed": arguments.seed,
        "took_s": round(time.monotonic() - began_s, 1),
    }
    print(json.dumps(tell, indent=2) if arguments.json else as_text(tell))
    return 1 if wrong or reference.problems else 0


def real():
    """On the test cluster."""
    test = "tests/cluster/test_perturbed_on_scheduler.py"
    environment = {**os.environ, "EDL_PERTURB": "all"}
    return subprocess.run([sys.executable, "-m", "pytest", "-v", test], env=environment, check=False).returncode


def lived_through(plan, reference, processes):
    """(trial, problems) of each, in order; lives are independent, so they run beside one another."""
    context = get_context("fork")
    indices = range(len(plan))
    global judged  # noqa: PLW0603 - inherited by the forked processes: moments are functions, which do not travel

    def judged(index):
        return problems_of(plan[index], reference)

    with context.Pool(processes) as pool:
        for index, problems in zip(indices, pool.imap(judge, indices), strict=True):
            yield plan[index], problems


def judge(index):
    return judged(index)


def as_text(tell):
    wrong = Counter(one["family"] for one in tell["wrong"])
    lines = ["", f"{'family':24} {'runs':>6} {'wrong':>6}"]
    lines += [f"{family:24} {count:6} {wrong[family]:6}" for family, count in tell["families"].items()]
    lines.append(f"{'all':24} {tell['runs']:6} {len(tell['wrong']):6}   {tell['took_s']:g} s")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
