"""A script's own timer, or Ctrl-C in a notebook, breaks a pull or push off in the middle, and the script goes on."""

import signal
import time

import numpy as np
import pytest

from master.api.identities import OptimiserSpec, TableSpec
from tests.integration.trainer_sdk.pserver.in_process_servers import Job, span

WIDE = (TableSpec(name="w", shape=(2_000_000,), dtype="int64", optimiser=OptimiserSpec(learning_rate=-1.0)),)
ENOUGH, MOST_ROUNDS = 20, 200


class TooSlowError(Exception):
    """What scripts raise from SIGALRM."""


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path, 2, tables=WIDE)
    job.restore()
    yield job
    job.close()


@pytest.fixture
def alarm():
    """Raises TooSlowError so many seconds from now, wherever the script is."""

    def ring(*_):
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda after_s: signal.setitimer(signal.ITIMER_REAL, after_s)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_what_was_broken_off_and_done_again_counts_once(job, alarm):
    """Half a frame must not be completed by the next one, nor an old answer be taken for a new one (rule 6, M1)."""
    gradient = {"w": np.ones(2_000_000, dtype=np.int64)}
    usual_s, interrupted, step = 1.0, 0, 0
    while interrupted < ENOUGH:
        step += 1
        assert step < MOST_ROUNDS, f"only {interrupted} of {step} were broken off"
        began_s = time.monotonic()
        try:
            alarm(max(1e-4, usual_s * (step % 16) / 16))
            job.client.pull()
            job.client.push(job.lineage, span(step, step + 1), gradient)
            alarm(0)
            usual_s = time.monotonic() - began_s
        except TooSlowError:
            interrupted += 1
        job.client.push(job.lineage, span(step, step + 1), gradient)
        values = job.client.pull().tables["w"]
        assert (values.min(), values.max()) == (step, step)
