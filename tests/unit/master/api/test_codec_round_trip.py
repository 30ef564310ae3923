"""The wire form loses nothing and takes nothing that is not whole."""

from dataclasses import dataclass
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.api.edl.master.v1 import master_pb2
from master.api.errors import MessageError
from master.api.identities import Incarnation, LeaseToken, Lineage, Term
from master.api.messages.from_members import Ack, Acquire, MemberMessage
from master.api.messages.to_members import MasterMessage
from master.api.positions import PositionSet
from master.api.shape import ByName, Fixed, Many, Optional, Positions, Record, Scalar, Shape, Word, record_of
from master.api.wire import message_codec
from master.api.wire.hello import Hello, agreed_version
from master.api.wire.message_codec import (
    decode_hello,
    decode_master_envelope,
    decode_member_envelope,
    encode_master_envelope,
    encode_member_envelope,
)

RANGES = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)), max_size=4)
SCALARS = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    str: st.text(max_size=20),
}


def values(shape: Shape) -> st.SearchStrategy:
    match shape:
        case Scalar():
            return st.text(min_size=1, max_size=20) if shape.is_identity else SCALARS[shape.type]
        case Word():
            return st.sampled_from(shape.values)
        case Positions():
            return RANGES.map(PositionSet.from_ranges)
        case Optional():
            return st.none() | values(shape.inner)
        case Many():
            return st.lists(values(shape.inner), max_size=3).map(tuple)
        case Fixed():
            return st.tuples(*map(values, shape.inners))
        case ByName():
            return st.dictionaries(st.text(max_size=5), values(shape.inner), max_size=3)
        case Record():
            return st.builds(shape.type, **{name: values(part) for name, part in shape.fields})


MEMBER = st.lists(st.one_of([values(record_of(cls)) for cls in get_args(MemberMessage)]), max_size=5)
MASTER = st.lists(st.one_of([values(record_of(cls)) for cls in get_args(MasterMessage)]), max_size=5)

TOKEN = LeaseToken(term=Term(7), lineage=Lineage(1), incarnation=Incarnation("a1"), number=3)
ACK = Ack(token=TOKEN, positions=PositionSet.span(0, 64))


@given(MEMBER)
def test_what_a_member_says_arrives_unchanged(said):
    """Every member message, with any values, in any order, survives the wire."""
    wire = encode_member_envelope(said).SerializeToString()
    assert list(decode_member_envelope(master_pb2.MemberEnvelope.FromString(wire))) == said


@given(MASTER)
def test_what_the_master_says_arrives_unchanged(said):
    """Every master message, with any values, in any order, survives the wire."""
    wire = encode_master_envelope(said).SerializeToString()
    assert list(decode_master_envelope(master_pb2.MasterEnvelope.FromString(wire))) == said


@pytest.mark.parametrize("cls", get_args(MemberMessage) + get_args(MasterMessage), ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_each_message_survives_alone(cls, data):
    """No message hides behind the luck of the draw above."""
    message = data.draw(values(record_of(cls)))
    if cls in get_args(MemberMessage):
        assert decode_member_envelope(encode_member_envelope([message])) == (message,)
    if cls in get_args(MasterMessage):
        assert decode_master_envelope(encode_master_envelope([message])) == (message,)


def altered(change) -> master_pb2.MemberEnvelope:
    envelope = encode_member_envelope([Acquire(request=1), ACK])
    change(envelope.messages[1])
    return envelope


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda m: m.ClearField("ack"), "messages[1].body"),
        (lambda m: m.ack.ClearField("token"), "messages[1].ack.token"),
        (lambda m: m.ack.token.ClearField("incarnation"), "messages[1].ack.token.incarnation"),
        (lambda m: setattr(m.ack, "positions", b"P1" + bytes(16)), "messages[1].ack.positions"),
        (lambda m: setattr(m.ack, "positions", b"P2"), "messages[1].ack.positions"),
        (lambda m: setattr(m.cut_refused, "reason", 99), "messages[1].cut_refused.cut"),
        (lambda m: m.held.marks.add(applied=b"x") and m.held.cut.SetInParent(), "messages[1].held.marks[0].applied"),
    ],
)
def test_a_broken_message_is_refused_by_the_field_name(change, field):
    """Nothing is guessed: the error names the part, and the whole envelope is refused."""
    with pytest.raises(MessageError) as caught:
        decode_member_envelope(altered(change))
    assert caught.value.field == field


def test_an_unknown_word_is_refused():
    """A refusal reason of a newer version is no reason this version may act on."""
    envelope = master_pb2.MemberEnvelope()
    body = envelope.messages.add().cut_refused
    body.cut.SetInParent()
    body.reason = 99
    with pytest.raises(MessageError, match=r"cut_refused.reason: is number 99, which is none of: not-ready"):
        decode_member_envelope(envelope)


def test_fields_of_a_newer_writer_are_ignored():
    """Within a wire version fields may be added (the skew rule)."""
    newer = encode_member_envelope([ACK]).SerializeToString() + bytes([0xFA, 0x06, 0x01, 0x61])  # field 111
    assert decode_member_envelope(master_pb2.MemberEnvelope.FromString(newer)) == (ACK,)


def test_hello_travels_in_the_first_envelope_and_is_missed():
    """A stream that does not say its version is refused."""
    hello = Hello(job="digits", newest=4, oldest=3, software="edl 9")
    assert decode_hello(encode_member_envelope([], hello=hello)) == hello
    with pytest.raises(MessageError, match="hello: is missing"):
        decode_hello(encode_member_envelope([]))


@pytest.mark.parametrize(
    ("mine", "theirs", "agreed"), [((2, 1), (1, 1), 1), ((2, 1), (3, 2), 2), ((3, 2), (1, 1), None)]
)
def test_versions_one_apart_talk_and_others_do_not(mine, theirs, agreed):
    """Skew rule: ranges must overlap; the highest common version is spoken."""
    a, b = (Hello(job="j", newest=newest, oldest=oldest) for newest, oldest in (mine, theirs))
    if agreed:
        assert agreed_version(a, b) == agreed_version(b, a) == agreed
    else:
        with pytest.raises(MessageError, match="upgrade the older one"):
            agreed_version(a, b)


def test_another_job_is_refused():
    """A member with the wrong address is told so, not trained with."""
    with pytest.raises(MessageError, match="'b' called the master of 'a'"):
        agreed_version(Hello(job="a"), Hello(job="b"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    lineage: int


def test_a_word_without_an_enum_value_is_named():
    """A new optimiser whose enum value was forgotten: the error has its name and the way."""
    field = master_pb2.OptimiserSpec.DESCRIPTOR.fields_by_name["kind"]
    with pytest.raises(TypeError, match=r"OptimiserSpec\.kind has no enum value OPTIMISER_KIND_ADAM_W: .*make stubs"):
        message_codec._of_word(Word(values=("sgd", "momentum", "adagrad", "adam", "adam-w")), field)


def test_a_message_without_a_field_of_the_oneof_is_named():
    """A new message whose field was forgotten."""
    with pytest.raises(TypeError, match=r"MasterMessage has no field unknown for Unknown: .*make stubs"):
        message_codec._Sum(MasterMessage | Unknown, master_pb2.MasterMessage)
