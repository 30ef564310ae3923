"""The verdict on a run: its problems, and how its end differs from that of the run without faults."""

from tests.perturb.trial_run import Trial, run_trial

REFERENCE = Trial(family="none", name="nothing goes wrong")


def problems_of(trial, reference):
    """Problems of this run; empty: none."""
    try:
        lived = run_trial(trial)
    except Exception as error:  # noqa: BLE001 - any is a finding
        return [f"{type(error).__name__}: {error}"]
    missing = [f"missing at the end: {line}" for line in sorted(set(reference.end) - set(lived.end))]
    unexpected = [f"not expected at the end: {line}" for line in sorted(set(lived.end) - set(reference.end))]
    return [*lived.problems, *missing, *unexpected]
