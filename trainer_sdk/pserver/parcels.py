"""A bucket's content to and from the bytes in which it travels to another server.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainer_sdk.errors import CheckpointError, WireError
from trainer_sdk.pserver.bucket_bytes import decode_bucket, encode_bucket
from trainer_sdk.pserver.contents import Contents, check_contents
from trainer_sdk.pserver.layout import Array, Layout
from trainer_sdk.pserver.messages import CopyHead, SendCopy
from trainer_sdk.pserver.wire_copies import copy_digest


class Parcel(NamedTuple):
    """A bucket as it travels."""

    head: CopyHead
    body: Sequence[memoryview]


def packed(
    order: SendCopy, contents: Sequence[tuple[str, Mapping[str, Array]]], layout: Layout, base: str = ""
) -> Parcel:
    """The whole content, or what is to be laid over that with the digest `base`; arrays are not copied."""
    body = encode_bucket(contents, layout.bucket_count)
    return Parcel(order.head(copy_digest(body, base), base), body)


def contents_in(head: CopyHead, body: memoryview, layout: Layout) -> Contents:
    """The content, as views of `body`.  Raises WireError or TableError unless it is what the head says, and fits."""
    what = f"copy of bucket {head.bucket}"
    if not 0 <= head.bucket < layout.bucket_count:
        raise WireError(f"{what}: there are {layout.bucket_count} buckets")
    if copy_digest([body], head.base) != head.digest:
        raise WireError(f"{what}: it does not have its digest, it was altered on the way")
    try:
        contents = decode_bucket(what, body, layout.bucket_count)
    except CheckpointError as error:
        raise WireError(str(error)) from error
    check_contents(layout, head.bucket, contents, has_dense=head.is_final)
    return contents
