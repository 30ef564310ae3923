"""Any order of events and faults: equal ids are equal bits, every record once, the head only goes on, and an end."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from master.api.group_shares import total_steps
from tests.unit.trainer_sdk.group.group_world import DATASET, World

STEPS = 4000


def run(world: World, rng: random.Random, faults: list[str]) -> None:
    """Random moves until every living member has ended, faults at random times in between."""
    trace = []
    when = sorted(rng.sample(range(150), len(faults)))
    for turn in range(STEPS):
        if when and turn >= when[0]:
            when.pop(0)
            trace.append(plant(world, rng, faults.pop(0)))
        moves = [*world.moves(), *world.master_moves()]
        alive = set(world.state) - world.dead
        if alive <= world.gone and world.ended:
            assert world.head.state.step == total_steps(DATASET)
            return
        assert moves, (
            f"stuck (L): {[(i, s.phase, s.number, s.left) for i, s in world.state.items()]} after {trace[-40:]}"
        )
        name, act = rng.choice(moves)
        trace.append(name)
        act()
    raise AssertionError(f"no end after {STEPS} moves; the last ones: {trace[-60:]}")


def plant(world: World, rng: random.Random, fault: str) -> str:
    there = [i for i in world.state if i not in world.dead | world.gone]
    i = rng.choice(there) if there else -1
    if fault == "join" and world.waiting and not world.ended:
        world.join()
    elif fault == "kill" and len([j for j in there if j not in world.draining]) > 1 and i not in world.draining:
        world.kill(i)
    elif fault == "cut" and there:
        world.cut(i)
    elif fault == "drain" and len([j for j in there if j not in world.draining]) > 1 and i not in world.draining:
        world.drain(i)
    return f"{fault} {i}"


@settings(max_examples=60, deadline=None)
@given(
    start=st.integers(1, 4),
    faults=st.lists(st.sampled_from(["join", "kill", "cut", "drain"]), max_size=5),
    compares=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_any_order_of_faults_and_messages_ends_exactly_once(start, faults, compares, seed):
    """I1, I2, I3, L of the model, on the member's real core; with replicas that have digests, and without."""
    run(World(start, later=faults.count("join"), compares=compares), random.Random(seed), list(faults))


@settings(max_examples=30, deadline=None)
@given(start=st.integers(1, 3), compares=st.booleans(), seed=st.integers(0, 2**32))
def test_planned_joins_disturb_nobody(start, compares, seed):
    """Without a fault nobody leaves but by the agreed switch (I5): the master has nothing to break."""
    world = World(start, later=2, compares=compares)
    run(world, random.Random(seed), ["join", "join"])
    assert not world.broken
    assert len(world.head_bits) == total_steps(DATASET)
