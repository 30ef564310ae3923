"""A captured replica as a stream: whole, or refused by name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainer_sdk.errors import UsageError, WireError
from trainer_sdk.group.captured_state import PIECE_BYTES, StateReceiver, stream_pieces
from trainer_sdk.group.port import CapturedState

STATE = CapturedState(
    arrays={"w": np.arange(6, dtype=np.float32).reshape(2, 3), "half": np.ones(4, np.uint16), "none": np.zeros((0, 3))},
    meta='{"lr": 0.1}',
    dtypes={"half": "bfloat16"},
)


def receive(pieces) -> CapturedState:
    receiver = StateReceiver()
    for piece in pieces:
        receiver.place(piece.nbytes)[:] = piece.cast("B")
    return receiver.finish()


def assert_same(one: CapturedState, other: CapturedState) -> None:
    assert (one.meta, dict(one.dtypes), list(one.arrays)) == (other.meta, dict(other.dtypes), list(other.arrays))
    for name, array in one.arrays.items():
        assert array.dtype == other.arrays[name].dtype
        np.testing.assert_array_equal(array, other.arrays[name])


@given(
    arrays=st.dictionaries(
        st.text(min_size=1, max_size=5),
        hnp.arrays(
            dtype=st.sampled_from(["<f4", "<f8", "<f2", "<i8", "<u2", "?"]),
            shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        max_size=4,
    )
)
def test_stream_gives_back_what_was_captured(arrays):
    """Any names, shapes and dtypes, empty arrays and none included (rule 71)."""
    state = CapturedState(arrays=arrays)
    assert_same(receive(stream_pieces(state)), state)


def test_large_arrays_come_in_pieces():
    """So that both sides sum one up while another is under way; an array may end within a piece."""
    state = CapturedState(arrays={"w": np.arange(PIECE_BYTES + 3, dtype=np.uint16), "b": np.ones(5)})
    pieces = list(stream_pieces(state))
    assert [len(piece) for piece in pieces[1:]] == [PIECE_BYTES, PIECE_BYTES, 6, 40, 8]
    assert_same(receive(iter(pieces)), state)


@pytest.mark.parametrize("piece", range(1, 5))
def test_altered_piece_is_refused(piece):
    """Whichever it is, the checksum itself included."""
    state = CapturedState(arrays={"w": np.arange(PIECE_BYTES + 3, dtype=np.uint8), "b": np.ones(5)})
    pieces = [bytearray(piece) for piece in stream_pieces(state)]
    pieces[piece][-1] ^= 1
    with pytest.raises(WireError, match="not those that were sent"):
        receive(map(memoryview, pieces))


def test_altered_byte_is_refused():
    """The checksum is compared before the replica is touched (rule 71)."""
    pieces = [bytearray(piece) for piece in stream_pieces(STATE)]
    pieces[1][3] ^= 1
    with pytest.raises(WireError, match="not those that were sent"):
        receive(map(memoryview, pieces))


def test_half_a_state_is_refused():
    """Half received is nothing (rule 66)."""
    pieces = list(stream_pieces(STATE))
    with pytest.raises(WireError, match="did not come"):
        receive(pieces[:-1])
    with pytest.raises(WireError, match="does not announce"):
        receive([*pieces[:-1], memoryview(b"more")])
    with pytest.raises(WireError, match="after the end"):
        receive([*pieces, memoryview(b"more")])


@pytest.mark.parametrize(
    "header",
    [
        b"garbage",
        b"[]",
        b'{"arrays": [["a", "|O", [1]]], "meta": "", "dtypes": {}}',
        b'{"arrays": [["a", "<f8", [4611686018427387904]]], "meta": "", "dtypes": {}}',
        b'{"arrays": [["a", "<f8", [-1]]], "meta": "", "dtypes": {}}',
    ],
)
def test_absurd_header_is_refused_before_memory_is_taken(header):
    """Objects and sizes that no replica has (no pickle)."""
    with pytest.raises(WireError):
        receive([memoryview(header), memoryview(b"x")])


def test_objects_are_refused_at_the_source():
    """What capture() gave is named."""
    with pytest.raises(UsageError, match="'names'"):
        list(stream_pieces(CapturedState(arrays={"names": np.array(["a", None], dtype=object)})))
