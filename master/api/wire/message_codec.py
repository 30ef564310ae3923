"""Protobuf codec of `api.messages`, strict: what cannot be taken is refused by name.

One converter a dataclass is made at import from its shape and its protobuf descriptor (same names, field by field);
where the two differ the import fails.  A MessageError names the field that is refused: a message that this version
does not know, an absent part, an empty identity, an unknown word, altered position sets.  Absent scalars read as
zero, as protobuf has it; fields that a newer writer added are ignored, by the skew rule (`hello`).

Not here: framing, streams, order (`process.grpc_server`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, cast, get_args

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from master.api import messages
from master.api.edl.master.v1 import master_pb2
from master.api.errors import MessageError
from master.api.messages.from_members import MemberMessage
from master.api.messages.to_members import MasterMessage
from master.api.positions import PositionsError, PositionSet
from master.api.shape import ByName, Fixed, Many, OneOf, Optional, Positions, Record, Scalar, Shape, Word, record_of
from master.api.wire.hello import Hello

_ADVICE: Final = "change master.proto, then `make stubs`"

_Convert: TypeAlias = Callable[[Any], Any]
_Pair: TypeAlias = tuple[_Convert | None, _Convert | None]
"""Encode and decode; None where the value is the same in both forms.  A message is encoded as a dict of its fields:
protobuf makes the whole tree of them in one call, where a message put into another one is copied at each level."""


def encode_member_envelope(
    messages: Iterable[MemberMessage], *, hello: Hello | None = None
) -> master_pb2.MemberEnvelope:
    """The envelope of a member's messages, in order."""
    return master_pb2.MemberEnvelope(
        hello=encode_hello(hello), messages=[_MEMBER.encode(message) for message in messages]
    )


def decode_member_envelope(envelope: master_pb2.MemberEnvelope) -> tuple[MemberMessage, ...]:
    """The messages of a member.  Raises MessageError, and nothing of the envelope may be used."""
    return cast(tuple[MemberMessage, ...], _MEMBER.decode_all(envelope.messages))


def encode_master_envelope(
    messages: Iterable[MasterMessage], *, hello: Hello | None = None
) -> master_pb2.MasterEnvelope:
    """The envelope of the master's messages, in order."""
    return master_pb2.MasterEnvelope(
        hello=encode_hello(hello), messages=[_MASTER.encode(message) for message in messages]
    )


def decode_master_envelope(envelope: master_pb2.MasterEnvelope) -> tuple[MasterMessage, ...]:
    """The messages of the master.  Raises MessageError, and nothing of the envelope may be used."""
    return cast(tuple[MasterMessage, ...], _MASTER.decode_all(envelope.messages))


def decode_hello(
    carrier: master_pb2.MemberEnvelope
    | master_pb2.MasterEnvelope
    | master_pb2.StatusRequest
    | master_pb2.StatusReply
    | master_pb2.SetServersRequest
    | master_pb2.SetServersReply,
) -> Hello:
    """The Hello in the first envelope of a stream.  Raises MessageError when there is none."""
    if not carrier.HasField("hello"):
        raise MessageError("hello", "is missing: the first envelope of a stream lists the wire versions of its side")
    hello = carrier.hello
    return Hello(job=hello.job, newest=hello.newest, oldest=hello.oldest, software=hello.software)


def encode_hello(hello: Hello | None) -> master_pb2.Hello | None:
    """Wire form of a Hello; None stays None."""
    if hello is None:
        return None
    return master_pb2.Hello(newest=hello.newest, oldest=hello.oldest, job=hello.job, software=hello.software)


# ---- one converter per shape ----------------------------------------------------------------------------------------


def _of_value(shape: Shape, field: FieldDescriptor) -> _Pair:
    """Converters for one value of a field (one element of a repeated one)."""
    match shape:
        case Scalar():
            return None, _filled if shape.is_identity else None
        case Positions():
            return PositionSet.encode, _positions
        case Word():
            return _of_word(shape, field)
        case Record():
            return _of_record(shape, cast(Descriptor, field.message_type))
        case Fixed():
            return _of_fixed(shape, cast(Descriptor, field.message_type))
        case Optional() | Many() | ByName() | OneOf():
            raise TypeError(f"{field.full_name}: {shape} cannot be inside another one")


def _of_field(shape: Shape, field: FieldDescriptor) -> _Pair:
    match shape:
        case Optional():
            encode, decode = _of_value(shape.inner, field)
            return (lambda value: None if value is None else encode(value)) if encode else None, decode
        case Many():
            return _of_many(_of_value(shape.inner, field))
        case ByName():
            return dict, dict  # of scalars
        case _:
            return _of_value(shape, field)


def _of_many(inner: _Pair) -> _Pair:
    encode, decode = inner

    def decode_each(values: Iterable[Any]) -> tuple[Any, ...]:
        out: list[Any] = []
        try:
            for value in values:
                out.append(decode(value) if decode else value)  # noqa: PERF401  the length names the bad element
        except MessageError as error:
            raise error.within(f"[{len(out)}]") from error
        return tuple(out)

    return (lambda values: [encode(value) for value in values]) if encode else None, decode_each if decode else tuple


def _of_word(shape: Word, field: FieldDescriptor) -> _Pair:
    members = cast(EnumDescriptor, field.enum_type).values
    numbers = {value.name: value.number for value in members}
    prefix = members[0].name.removesuffix("UNSPECIFIED")
    names = {word: prefix + word.upper().replace("-", "_") for word in shape.values}
    if missing := sorted(set(names.values()) - set(numbers)):
        raise TypeError(f"{field.full_name} has no enum value {', '.join(missing)}: {_ADVICE}")
    encoded = {word: numbers.pop(name) for word, name in names.items()}
    if len(numbers) > 1:
        raise TypeError(f"{field.full_name}: {sorted(numbers)} stand for no word of {shape.values}")
    decoded = {number: word for word, number in encoded.items()}

    def decode(number: int) -> str:
        try:
            return decoded[number]
        except KeyError:
            known = ", ".join(encoded)
            raise MessageError("", f"is number {number}, which is none of: {known}") from None

    return encoded.__getitem__, decode


def _of_record(shape: Record, descriptor: Descriptor) -> _Pair:
    names = {name for name, _ in shape.fields}
    if names != set(descriptor.fields_by_name):
        different = names ^ set(descriptor.fields_by_name)
        raise TypeError(f"{descriptor.full_name} and {shape.type.__name__} differ in {sorted(different)}: {_ADVICE}")
    plan = []
    for name, part in shape.fields:
        field = descriptor.fields_by_name[name]
        is_required = field.message_type is not None and not isinstance(part, Optional | Many | ByName)
        plan.append((name, isinstance(part, Optional), is_required, *_of_field(part, field)))
    cls, parts = shape.type, [(name, convert) for name, _, _, convert, _ in plan]

    def encode(value: Any) -> dict[str, Any]:
        return {name: convert(getattr(value, name)) if convert else getattr(value, name) for name, convert in parts}

    def decode(message: Any) -> Any:
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, is_optional, is_required, _, convert in plan:
                if (is_optional or is_required) and not message.HasField(name):
                    if is_required:
                        raise MessageError("", "is missing")  # noqa: TRY301  one place adds the field's name
                    values[name] = None
                else:
                    value = getattr(message, name)
                    values[name] = convert(value) if convert else value
        except MessageError as error:
            raise error.within(name) from error
        return cls(**values)

    return encode, decode


def _of_fixed(shape: Fixed, descriptor: Descriptor) -> _Pair:
    """A tuple is a message whose fields stand in the tuple's order."""
    names = [field.name for field in descriptor.fields]
    if len(names) != len(shape.inners):
        raise TypeError(f"{descriptor.full_name} has {len(names)} fields for {len(shape.inners)} places")
    return (
        lambda value: dict(zip(names, value, strict=True)),
        lambda message: tuple(getattr(message, name) for name in names),
    )


def _filled(value: str) -> str:
    if not value:
        raise MessageError("", "is empty")
    return value


def _positions(data: bytes) -> PositionSet:
    try:
        return PositionSet.decode(data)
    except PositionsError as error:
        raise MessageError("", str(error)) from error


class _Sum:
    """A oneof: the name of the message is the name of its class."""

    def __init__(self, union: Any, carrier: type[Message]) -> None:
        self._encoders: dict[type, tuple[str, _Convert]] = {}
        self._decoders: dict[str, _Convert] = {}
        fields = {field.name: cast(FieldDescriptor, field) for field in carrier.DESCRIPTOR.fields}
        for cls in get_args(union):
            name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
            if name not in fields:
                raise TypeError(f"{carrier.DESCRIPTOR.full_name} has no field {name} for {cls.__name__}: {_ADVICE}")
            encode, decode = _of_record(record_of(cls), cast(Descriptor, fields.pop(name).message_type))
            self._encoders[cls] = (name, cast(_Convert, encode))
            self._decoders[name] = cast(_Convert, decode)
        if fields:
            raise TypeError(
                f"{sorted(fields)} of {carrier.DESCRIPTOR.full_name} have no message in {messages.__name__}"
            )

    def encode(self, value: Any) -> Any:
        name, encode = self._encoders[type(value)]
        return {name: encode(value)}

    def decode_all(self, carriers: Iterable[Any]) -> tuple[Any, ...]:
        out: list[Any] = []
        name: str | None = None
        try:
            for carrier in carriers:
                name = carrier.WhichOneof("body")
                if name is None:
                    raise MessageError("", "is a message that this version does not know: upgrade the older side")  # noqa: TRY301
                out.append(self._decoders[name](getattr(carrier, name)))
        except MessageError as error:
            raise error.within(name or "body").within(f"messages[{len(out)}]") from error
        return tuple(out)


_MEMBER: Final = _Sum(MemberMessage, master_pb2.MemberMessage)
_MASTER: Final = _Sum(MasterMessage, master_pb2.MasterMessage)
