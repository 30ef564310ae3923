"""What is staged lies in memory that is used again, and never while somebody may still read it."""

import resource

import numpy as np

from master.api.identities import BucketId
from trainer_sdk.pserver.tables.staging_area import StagingArea, new_buffer

SIZE = 1 << 20
ONE, TWO = BucketId(1), BucketId(2)


def put(staging, bucket, value, *, is_difference=False):
    body = staging.take_spare(SIZE) or new_buffer(SIZE)
    body[:] = bytes([value]) * SIZE
    rows = np.frombuffer(body, dtype=np.uint8)
    staging.put(bucket, {"e": {"ids": rows}}, body, is_difference=is_difference)
    return body.obj


def seen(contents):
    return contents["e"]["ids"][0]


def test_layers_come_from_below_and_their_memory_is_used_again():
    staging = StagingArea()
    memory = {id(put(staging, ONE, 1)), id(put(staging, ONE, 2, is_difference=True))}
    assert list(staging.row_counts()) == [("e", SIZE)] * 2
    assert [seen(contents) for contents in staging.pop_layers(ONE)] == [1, 2]
    assert {id(put(staging, ONE, 3)), id(put(staging, TWO, 4))} == memory
    assert [seen(contents) for contents in staging.pop_layers(ONE)] == [3]


def test_memory_of_a_copy_does_for_a_slightly_larger_one_and_small_ones_have_no_slack():
    """Buckets of a model differ by a few rows; small memory is had for nothing."""
    staging = StagingArea()
    memory = put(staging, ONE, 1)
    staging.drop(ONE)
    larger = staging.take_spare(SIZE + SIZE // 16)
    assert larger.obj is memory
    assert len(new_buffer(100).obj) == len(new_buffer(100)) == 100


def test_what_is_staged_anew_takes_the_place_of_what_was():
    staging = StagingArea()
    put(staging, ONE, 1)
    put(staging, ONE, 2)
    put(staging, TWO, 3)
    assert [seen(contents) for contents in staging.pop_layers(ONE)] == [2]
    staging.drop(TWO)
    staging.drop(TWO)
    assert list(staging.row_counts()) == []


def test_fresh_memory_is_not_touched_before_something_is_received_into_it():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    body = new_buffer(1 << 30)
    body[:4096] = bytes(4096)
    assert len(body) == 1 << 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
