"""A short campaign inside `make test`; the long one is `make chaos`."""

import time

import pytest

from tests.chaos.campaign import Campaign
from tests.chaos.chaos_run import ChaosJobShape, start_chaos_run

FAULTS = 12
SEED = 20
NO_NEW_FAULTS_AFTER_S = 200.0  # on a slow machine; others are through with them in one


@pytest.mark.chaos
@pytest.mark.timeout(900)
async def test_a_dozen_faults_lose_and_repeat_nothing(tmp_path):
    """Trainers, servers, masters and etcd members killed, paused and drained: every checkpoint is exact (M1 to M9)."""
    lines = []
    async with start_chaos_run(tmp_path, say=lines.append) as chaos_run:
        until_s = time.monotonic() + NO_NEW_FAULTS_AFTER_S
        campaign = Campaign(chaos_run, ChaosJobShape(epochs=15), faults=FAULTS, until_s=until_s, seed=SEED)
        report = await campaign.run()
    assert report.problems == [], "\n".join(lines)
    assert len(report.recoveries) >= FAULTS // 2, "\n".join(lines)
    assert report.heads > 0
