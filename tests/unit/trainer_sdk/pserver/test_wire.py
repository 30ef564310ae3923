"""Heads and bodies of the data path: what is encoded is decoded, and whatever else arrives is refused."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.api.identities import BucketId, Incarnation, Lineage, TableSpec, Version
from master.api.positions import PositionSet
from trainer_sdk.errors import WireError
from trainer_sdk.pserver.core.messages import CopyHead, Push, PushAnswer, PushTarget, PushVerdict, Ruling
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.wire.bodies import gradients_in, ids_in, padded
from trainer_sdk.pserver.wire.heads import (
    PullAnswer,
    PullHead,
    PullStatus,
    PushHead,
    Section,
    SectionKind,
    decode_pull,
    decode_pull_answer,
    decode_push,
    decode_push_answer,
    encode_pull,
    encode_pull_answer,
    encode_push,
    encode_push_answer,
)
from trainer_sdk.pserver.wire.peer_heads import (
    CopyStatus,
    decode_copy,
    decode_copy_answer,
    encode_copy,
    encode_copy_answer,
)
from trainer_sdk.transport.frames import FrameKind

LAYOUT = Layout.of((TableSpec(name="w", shape=(3,)), TableSpec(name="e", shape=(9, 3), kind="sparse")), 4)
ALL = PositionSet.span(0, 4)
SECTIONS = (Section(0, SectionKind.DENSE, 3), Section(1, SectionKind.SPARSE, 2))
PUSH = PushHead(
    push=Push(
        lineage=Lineage(7),
        positions=PositionSet.of(1, 2, 9),
        targets=(
            PushTarget(buckets=PositionSet.of(0, 1), version=Version(0)),
            PushTarget(buckets=PositionSet.of(3), version=Version(5)),
        ),
    ),
    layout=LAYOUT.digest,
    sections=SECTIONS,
)
PULL = PullHead(layout=LAYOUT.digest, buckets=ALL, sections=SECTIONS)
ANSWER = PushAnswer(
    lineage=Lineage(7),
    rulings=tuple(
        Ruling(buckets=PositionSet.of(n), verdict=verdict, positions=PositionSet.of(n))
        for n, verdict in enumerate(PushVerdict)
    ),
)
COPY = CopyHead(
    lineage=Lineage(7),
    bucket=BucketId(3),
    version=Version(2),
    target=Incarnation("abc"),
    is_final=True,
    applied=PositionSet.of(1, 2, 9),
    skipped=PositionSet.of(4),
    digest="0123abcd-40",
    base="of another",
)
PULLED = PullAnswer(lineage=Lineage(7), status=PullStatus.MOVED)
CASES = [
    (PUSH, encode_push, decode_push),
    (PULL, encode_pull, decode_pull),
    (ANSWER, encode_push_answer, decode_push_answer),
    (PULLED, encode_pull_answer, decode_pull_answer),
    (COPY, encode_copy, decode_copy),
    (CopyStatus.NEED_FULL, encode_copy_answer, decode_copy_answer),
]
DECODERS = [decode for _, _, decode in CASES]


@pytest.mark.parametrize(("value", "encode", "decode"), CASES)
def test_what_is_encoded_is_decoded(value, encode, decode):
    """Every field arrives, every verdict has its number."""
    assert decode(encode(value)) == value


@pytest.mark.parametrize(("value", "encode", "decode"), CASES)
def test_head_that_is_cut_short_or_too_long_is_refused(value, encode, decode):
    """No prefix of a head is a head."""
    data = encode(value)
    for wrong in (*(data[:length] for length in range(len(data))), data + b"\0"):
        with pytest.raises(WireError):
            decode(wrong)


@given(st.sampled_from(DECODERS), st.binary(max_size=200))
def test_garbage_is_refused_or_means_something(decode, data):
    """Nothing but a WireError comes of bytes that a stranger made up."""
    with contextlib.suppress(WireError):
        decode(data)


@given(st.sampled_from(CASES), st.data())
def test_altered_head_is_refused_or_means_something(case, draw):
    """Flipped bytes do not crash a decoder either."""
    value, encode, decode = case
    data = bytearray(encode(value))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    with contextlib.suppress(WireError):
        decode(bytes(data))


def test_kinds_of_frames_keep_their_numbers():
    """Processes of two versions of EDL talk while a job is upgraded: a number is never another kind."""
    assert {kind.name: int(kind) for kind in FrameKind} == {
        "CHALLENGE": 1, "HELLO": 2, "WELCOME": 3, "REFUSED": 4, "PUSH": 5, "PUSH_ANSWER": 6, "PULL": 7,
        "PULL_ANSWER": 8, "COPY": 9, "COPY_ANSWER": 10, "BACKUP_PUSH": 11,
        "GROUP_JOIN": 12, "GROUP_JOINED": 13, "GROUP_REDUCE": 14,
        "GROUP_GATHER": 15, "GROUP_STATE": 16, "GROUP_GOODBYE": 17,
    }  # fmt: skip


def test_gradients_are_views_of_the_body_they_came_in():
    """No copy between socket and tables: what is written to the view is in the body."""
    values = np.array([1, 2, 3], dtype=np.float32)
    ids, rows = np.array([4, 8]), np.arange(6, dtype=np.float32).reshape(2, 3)
    body = memoryview(bytearray(b"".join([*padded([values]), *padded([ids]), *padded([rows])])))
    dense, sparse = gradients_in(body, SECTIONS, LAYOUT)
    assert dense.values.tolist() == [1, 2, 3]
    assert (sparse.ids.tolist(), sparse.rows.tolist()) == ([4, 8], rows.tolist())
    none = gradients_in(
        memoryview(bytearray(16)), (Section(0, SectionKind.DENSE, 3), Section(1, SectionKind.SPARSE, 0)), LAYOUT
    )
    assert (none[1].ids.tolist(), none[1].rows.tolist()) == ([], [])
    dense.values[0] = 9
    assert np.frombuffer(body, np.float32, 1)[0] == 9


@pytest.mark.parametrize(
    ("sections", "size"),
    [
        (SECTIONS, 0),
        (SECTIONS, 16),
        (SECTIONS, 64),
        ((Section(0, SectionKind.SPARSE, 1),), 16),
        ((Section(1, SectionKind.DENSE, 1),), 8),
        ((Section(2, SectionKind.DENSE, 1),), 8),
        ((Section(0, SectionKind.DENSE, 2**62),), 16),
    ],
)
def test_body_that_is_not_what_its_head_announces_is_refused(sections, size):
    """Sizes agree to the byte, and tables are of the kind that is said."""
    body = memoryview(bytearray(size))
    with pytest.raises(WireError):
        gradients_in(body, sections, LAYOUT)
    with pytest.raises(WireError):
        ids_in(memoryview(bytearray(size + 8)), sections, LAYOUT)
