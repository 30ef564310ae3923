"""A group on GPUs is killed, joined and exact: run by `python -m tests.gpu`, LEFT OUT by other runs."""

import json
import os
from pathlib import Path

import pytest

from master.api.group_shares import total_steps
from tests.harness.group_members import GroupMembers
from tests.harness.master_process import MasterProcess, running, wait_for_leader
from tests.programs.group_counter import LONG

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(600),
    pytest.mark.skipif("EDL_GPU_GROUP" not in os.environ, reason="LEFT OUT: run by `python -m tests.gpu`"),
]


@pytest.fixture
async def members(tmp_path):
    (tmp_path / "sockets").mkdir(mode=0o700)
    async with running(MasterProcess(tmp_path, EDL_GROUP="1", EDL_CHECKPOINT_EVERY_S="1")) as (master,):
        await wait_for_leader(master)
        arrays = ("model.counts", "model.network.0.weight")
        made = GroupMembers(tmp_path, master, "torch_gpu.py", arrays, dataset=LONG)
        try:
            yield made
        finally:
            made.end()


async def test_compiled_network_in_mixed_precision_survives_a_kill_and_a_join(members):
    """Weights, scale, schedule and statistics are the same bits at both, and each record counts exactly (M10)."""
    members.add(2)
    before = await members.wait_trained(2)
    members.processes[0].kill()
    alone = await members.wait_trained(1, above=before.generation)
    members.add()
    joined = await members.wait_trained(2, above=alone.generation)
    (members.folder / "hurry").touch()
    await members.wait_for("half of the steps", lambda now: now.group_step >= total_steps(LONG) // 2)
    results = await members.check_exact(1, 2)
    for result in results:
        assert result["buffers"] == results[0]["buffers"]
        assert result["scale"] == 256.0
        assert result["advanced"] == total_steps(LONG)
    figures = {
        "devices": [result["device"] for result in results],
        "pause_after_kill_s": alone.resize_pause_s,
        "pause_after_join_s": joined.resize_pause_s,
        "samples_per_s": [one.samples_per_s for one in joined.members],
        "steps": total_steps(LONG),
    }
    write_figures(figures)


def write_figures(figures):
    """For `python -m tests.gpu`, which waits for them."""
    Path(os.environ["EDL_GPU_GROUP"]).write_text(json.dumps(figures))
