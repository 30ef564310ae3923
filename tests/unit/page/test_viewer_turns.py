"""Turns of viewers: one who asks for many things at once waits, and nobody else does."""

import asyncio

from autoscaler.page.access.answer_limits import MOST_MADE_AT_ONCE, ViewerTurns


async def test_one_viewer_has_few_turns_at_a_time_and_the_others_have_theirs():
    turns, begun, end = ViewerTurns(), [], asyncio.Event()

    async def take(viewer):
        async with turns.turn(viewer):
            begun.append(viewer)
            await end.wait()

    tasks = [asyncio.create_task(take("eager")) for _ in range(3 * MOST_MADE_AT_ONCE)]
    tasks.append(asyncio.create_task(take("other")))
    await asyncio.sleep(0)
    assert sorted(begun) == ["eager"] * MOST_MADE_AT_ONCE + ["other"]
    tasks[-2].cancel()  # one that waits for its turn
    end.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert begun.count("eager") == 3 * MOST_MADE_AT_ONCE - 1


async def test_nothing_is_kept_of_who_has_gone():
    turns = ViewerTurns()
    for number in range(100):
        async with turns.turn(f"viewer-{number}"):
            pass
    assert not turns._turns
    assert not turns._taken
