"""A trainer that is really slower gets fewer records of each step, and every record still counts once (ADR 0296)."""

import json

import pytest

from tests.harness.waiting import wait_for_async
from tests.programs.group_paced import BATCH

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("shares", ["Measured", "Equal"])
async def test_next_generation_gives_a_slow_trainer_less_where_the_job_asks_for_it(group, shares):
    """The second of two computes six times as slowly; a third one comes, and the record takes the speeds along."""

    def told(ordinal):
        file = group.folder / f"paced-{ordinal}.json"
        return json.loads(file.read_text()) if file.exists() else {"step": 0, "generation": 0}

    async with group("group_paced.py", EDL_SHARES=shares) as members:
        (group.folder / "slow-1").write_text("5")
        members.add(2)
        before = await members.wait_trained(2)
        await wait_for_async("measured steps", lambda: told(1)["step"] >= before.group_step + 10)
        members.add()
        after = await members.wait_trained(3, above=before.generation)
        await wait_for_async("its steps", lambda: min(told(n)["step"] for n in range(3)) > after.group_step)
        of = [told(ordinal) for ordinal in range(3)]
        if shares == "Measured":
            assert of[1]["share"] < 0.6 * BATCH / 3 < 1.2 * BATCH / 3 < of[0]["share"]
        else:
            assert all(abs(one["share"] - BATCH / 3) < 2 for one in of)
        for one in of:  # a step is an epoch
            assert one["counts"] == [one["step"]] * BATCH
