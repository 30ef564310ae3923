"""Over TLS frames are cut into whole records: the bytes stay the same."""

from hypothesis import given
from hypothesis import strategies as st

from trainer_sdk.transport.frames import _RECORD_BYTES, _records


@given(st.lists(st.sampled_from([1, 20, 100, _RECORD_BYTES - 1, _RECORD_BYTES, _RECORD_BYTES + 1, 70_000]), max_size=6))
def test_records_are_the_same_bytes_in_whole_records(sizes):
    """Order and bytes are kept; all writes but the last are whole records."""
    whole = b"".join(bytes([65 + number]) * size for number, size in enumerate(sizes))
    pieces, at = [], 0
    for size in sizes:
        pieces.append(memoryview(whole)[at : at + size])
        at += size
    written = [bytes(piece) for piece in _records(pieces)]
    assert b"".join(written) == whole
    assert all(len(piece) % _RECORD_BYTES == 0 for piece in written[:-1])
    assert all(written)
