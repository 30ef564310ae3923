"""What is staged lies in memory that is used again, and never while somebody may still read it."""

import numpy as np

from master.api.identities import BucketId
from trainer_sdk.pserver.staging import Staging

SIZE = 1 << 20
ONE, TWO = BucketId(1), BucketId(2)


def put(staging, bucket, value, *, is_difference=False):
    body = staging.body(SIZE)
    body[:] = bytes([value]) * SIZE
    rows = np.frombuffer(body, dtype=np.uint8)
    staging.put(bucket, {"e": {"ids": rows}}, body, is_difference=is_difference)
    return body.obj


def seen(contents):
    return contents["e"]["ids"][0]


def test_layers_come_from_below_and_their_memory_is_used_again():
    staging = Staging()
    memory = {id(put(staging, ONE, 1)), id(put(staging, ONE, 2, is_difference=True))}
    assert list(staging.row_counts()) == [("e", SIZE)] * 2
    assert [seen(contents) for contents in staging.take(ONE)] == [1, 2]
    assert {id(put(staging, ONE, 3)), id(put(staging, TWO, 4))} == memory
    assert [seen(contents) for contents in staging.take(ONE)] == [3]


def test_what_is_staged_anew_takes_the_place_of_what_was():
    staging = Staging()
    put(staging, ONE, 1)
    put(staging, ONE, 2)
    put(staging, TWO, 3)
    assert [seen(contents) for contents in staging.take(ONE)] == [2]
    staging.drop(TWO)
    staging.drop(TWO)
    assert list(staging.row_counts()) == []
