"""Allowed sizes of a job's trainers: steps from the minimum, powers of two, or a list (A1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain import NOTHING, Shape, TrainerSpec
from autoscaler.errors import InvalidSpecError


def spec(low, high, **fields):
    return TrainerSpec(shape=Shape(requests=NOTHING), min_replicas=low, max_replicas=high, **fields)


def listed(*sizes, **fields):
    return spec(sizes[0], sizes[-1], sizes=sizes, **fields)


specs = st.one_of(
    st.builds(
        lambda low, more, step: spec(low, low + more, step=step),
        st.integers(1, 9),
        st.integers(0, 40),
        st.integers(1, 9),
    ),
    st.builds(
        lambda power, more: spec(2**power, 2**power + more, powers_of_two=True), st.integers(0, 5), st.integers(0, 99)
    ),
    st.sets(st.integers(1, 40), min_size=1).map(sorted).map(lambda found: listed(*found)),
)


@given(specs)
def test_growing_step_by_step_visits_every_allowed_size_once(trainer):
    """`next_size` from 0 is the list of allowed sizes."""
    sizes, size = [], trainer.next_size(0)
    while size is not None:
        sizes.append(size)
        size = trainer.next_size(size)
    assert sizes == [size for size in range(trainer.max_replicas + 1) if trainer.is_allowed(size)]
    assert sizes[0] == trainer.min_replicas
    assert sizes[-1] == trainer.ceiling


@given(specs, st.integers(0, 200))
def test_largest_allowed_is_the_nearest_size_below(trainer, size):
    """Never below the minimum, never above the maximum."""
    found = trainer.largest_allowed(size)
    below = [one for one in range(trainer.min_replicas, size + 1) if trainer.is_allowed(one)]
    assert found == (below[-1] if below else trainer.min_replicas)


def test_sizes_of_whole_nodes_are_multiples():
    """What `perNode` promises, for steps and for powers of two."""
    assert [size for size in range(40) if spec(4, 15, per_node=4, step=4).is_allowed(size)] == [4, 8, 12]
    doubling = spec(4, 33, per_node=4, powers_of_two=True)
    assert [size for size in range(40) if doubling.is_allowed(size)] == [4, 8, 16, 32]


def test_powers_of_two():
    assert [size for size in range(40) if spec(2, 33, powers_of_two=True).is_allowed(size)] == [2, 4, 8, 16, 32]
    assert spec(2, 33, powers_of_two=True).sizes_text == "the powers of two from 2 to 33"


def test_listed_sizes():
    trainer = listed(1, 2, 5, 8)
    assert [size for size in range(20) if trainer.is_allowed(size)] == [1, 2, 5, 8]
    assert [trainer.next_size(size) for size in (0, 1, 3, 5, 8, 9)] == [1, 2, 5, 8, None, None]
    assert (trainer.sizes_text, listed(4).sizes_text) == ("1, 2, 5 or 8", "4")
    assert listed(1, 2, 5, 8, pinned_replicas=5).ceiling == 5


def test_sizes_by_single_trainers_are_all_from_minimum_to_maximum():
    assert listed(2, 3, 4).is_by_single_trainers
    assert not listed(2, 4).is_by_single_trainers
    assert spec(2, 4).is_by_single_trainers
    assert not spec(2, 4, step=2).is_by_single_trainers
    assert not spec(2, 4, powers_of_two=True).is_by_single_trainers


@pytest.mark.parametrize(
    ("low", "fields", "path"),
    [
        (3, {"powers_of_two": True}, "spec.trainer.minReplicas"),
        (2, {"powers_of_two": True, "step": 2}, "spec.trainer.step"),
        (2, {"powers_of_two": True, "pinned_replicas": 6}, "spec.trainer.replicas"),
        (2, {"per_node": 4, "step": 4}, "spec.trainer.minReplicas"),
        (4, {"per_node": 4}, "spec.trainer.step"),
        (4, {"per_node": 0}, "spec.trainer.perNode"),
        (2, {"step": 3, "pinned_replicas": 6}, "spec.trainer.replicas"),
        (2, {"sizes": (2, 4, 3, 16)}, "spec.trainer.sizes"),
        (2, {"sizes": (2, 4, 4, 16)}, "spec.trainer.sizes"),
        (2, {"sizes": (4, 16)}, "spec.trainer.sizes"),
        (2, {"sizes": (2, 4)}, "spec.trainer.sizes"),
        (2, {"sizes": (2, 5, 16), "per_node": 2}, "spec.trainer.sizes"),
        (2, {"sizes": (2, 16), "powers_of_two": True}, "spec.trainer.sizes"),
        (2, {"sizes": (2, 16), "step": 2}, "spec.trainer.step"),
        (2, {"sizes": (2, 8, 16), "pinned_replicas": 4}, "spec.trainer.replicas"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused_with_their_field(low, fields, path):
    with pytest.raises(InvalidSpecError) as caught:
        spec(low, 16, **fields)
    assert caught.value.path == path
