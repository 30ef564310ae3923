"""Room for whole tables: zeros until written, and memory given back page by page without touching what is beside it."""

import resource

import numpy as np
import pytest

from trainer_sdk.pserver.tables.lazy_array import LazyArray

FLOAT = np.dtype(np.float32)


@pytest.mark.parametrize("count", [1, 1000, 1 << 20])
@pytest.mark.parametrize("part", [(0.0, 1.0), (0.3, 0.31), (0.2, 0.9), (0.5, 0.5)])
def test_what_is_given_back_is_zeros_and_what_is_beside_it_stays(count, part):
    """Whole pages go to the system, the ends of the range are written over."""
    room = LazyArray(count, FLOAT)
    assert not room.array.any()
    room.array[:] = 1
    start, stop = (int(count * edge) for edge in part)
    room.release(start, stop)
    assert not room.array[start:stop].any()
    assert (room.array[:start] == 1).all()
    assert (room.array[stop:] == 1).all()
    room.array[start:stop] = 2
    assert room.array.sum(dtype=np.float64) == count + stop - start


def test_room_for_more_than_the_machine_has_takes_no_memory_until_written():
    """A table of a terabyte on sixty servers: each has address space for it and memory for its own blocks."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    room = LazyArray(1 << 38, FLOAT)
    room.array[1 << 37 : (1 << 37) + 1000] = 1
    assert room.array[1 << 37] == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.parametrize("fills_up", [False, True])
def test_making_memory_ready_changes_nothing_that_is_in_it(fills_up):
    room = LazyArray(3 << 20, np.dtype(np.float32), fills_up=fills_up)
    room.array[:1000] = 1
    room.populate(500, 3 << 20)
    room.populate(0, 0)
    assert (room.array[:1000] == 1).all()
    assert not room.array[1000:].any()
