"""A short campaign on groups inside `make test`; the long one is `make chaos-group`."""

import time

import pytest

from tests.chaos.chaos_run import start_etcd_members
from tests.chaos.group.group_campaign import GroupCampaign

RESIZES, FAULTS = 14, 8
SEED = 4
NO_NEW_FAULTS_AFTER_S = 120.0  # on a slow machine; others are through with them in half a minute


@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_resizes_and_faults_count_every_record_once_and_replicas_stay_alike(tmp_path):
    """Joins, drains, SIGKILL, SIGSTOP, severed connections, master and etcd: every checkpoint is exact (M1, M10)."""
    lines = []
    async with start_etcd_members(tmp_path, 1, lines.append) as etcd:
        campaign = GroupCampaign(
            tmp_path,
            etcd,
            resizes=RESIZES,
            faults=FAULTS,
            until_s=time.monotonic() + NO_NEW_FAULTS_AFTER_S,
            seed=SEED,
            say=lines.append,
        )
        report = await campaign.run()
    assert report.problems == [], "\n".join(lines)
    assert report.resizes >= RESIZES // 2, "\n".join(lines)
    assert report.faults.total() >= FAULTS // 2, "\n".join(lines)
    assert report.heads > 0
