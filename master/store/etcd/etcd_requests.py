"""The port's values as etcd's messages, and back.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, assert_never

from master.api.identities import Term
from master.store.etcd.stubs import rpc
from master.store.job_keys import Key
from master.store.store_port import (
    Absent,
    Changed,
    Comparison,
    Delete,
    Entry,
    Leadership,
    Put,
    Revision,
    StoreSnapshot,
    StoreWrite,
    Transaction,
    UnchangedSince,
    ValueIs,
)

ABSENT = 0  # create revision of a key that does not exist


def campaign_request(key: Key, holder: str, lease: int) -> Any:
    """The leader key with our lease, if it is free."""
    put = rpc.PutRequest(key=key.encode(), value=holder.encode(), lease=lease)
    return rpc.TxnRequest(compare=[_created_at(key, ABSENT)], success=[rpc.RequestOp(request_put=put)])


def read_request(keys: Iterable[Key]) -> Any:
    return rpc.TxnRequest(success=[_range(key) for key in keys])


def commit_request(leader_key: Key, transaction: Transaction) -> Any:
    """The transaction; on failure it reads the leader key first, then the transaction's keys by name."""
    return rpc.TxnRequest(
        compare=[_created_at(leader_key, transaction.term), *(_compare(part) for part in transaction.require)],
        success=[_write(write) for write in transaction.writes],
        failure=[_range(leader_key), *(_range(key) for key in sorted(transaction.keys))],
    )


def parse_ranges(response: Any) -> list[Any]:
    """The key-values that a transaction of reads found."""
    return [kv for op in response.responses for kv in op.response_range.kvs]


def parse_snapshot(response: Any, kvs: Iterable[Any]) -> StoreSnapshot:
    entries = {Key(kv.key.decode()): _entry(kv) for kv in kvs}
    return StoreSnapshot(revision=Revision(response.header.revision), entries=MappingProxyType(entries))


def parse_leadership(kv: Any) -> Leadership:
    return Leadership(term=Term(kv.create_revision), lease=kv.lease, holder=kv.value.decode())


def parse_change(event: Any) -> Changed:
    return Changed(
        key=Key(event.kv.key.decode()),
        entry=None if event.type == event.DELETE else _entry(event.kv),
        revision=Revision(event.kv.mod_revision),
    )


def prefix_end(prefix: Key) -> bytes:
    """The first key after all that begin with `prefix`; the prefix ends in an ASCII character."""
    raw = prefix.encode()
    return raw[:-1] + bytes([raw[-1] + 1])


def _entry(kv: Any) -> Entry:
    return Entry(value=kv.value, mod_revision=Revision(kv.mod_revision))


def _range(key: Key) -> Any:
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key.encode()))


def _write(write: StoreWrite) -> Any:
    match write:
        case Put(key, value):
            return rpc.RequestOp(request_put=rpc.PutRequest(key=key.encode(), value=value))
        case Delete(key):
            return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key.encode()))
        case _:
            assert_never(write)


def _compare(comparison: Comparison) -> Any:
    match comparison:
        case ValueIs(key, value):
            return rpc.Compare(key=key.encode(), target=rpc.Compare.VALUE, result=rpc.Compare.EQUAL, value=value)
        case Absent(key):
            return _created_at(key, ABSENT)
        case UnchangedSince(key, revision):
            return rpc.Compare(
                key=key.encode(), target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=revision
            )
        case _:
            assert_never(comparison)


def _created_at(key: Key, revision: int) -> Any:
    return rpc.Compare(key=key.encode(), target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=revision)
