"""The placement of buckets as etcd has it: what the master is checked against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from master.api.identities import ServerPlace
from master.durable.transactions import durable_keys, parse_durable
from master.errors import StoreUnavailableError
from master.job.domain.durable_records import UNNAMED_ORIGIN
from master.job.placement.owner_placement import NO_SERVER
from master.store.etcd.etcd_config import EtcdConfig
from master.store.etcd.etcd_store import EtcdStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlacement:
    """Owners, backups and intents of all buckets.

    `owners` and `holders` are (name, incarnation) of servers that own a bucket, or hold any copy.  `moving` counts
    buckets with an intent.  `pairs` are (owner, backup) by name; `single_copies` counts buckets with one copy, whose
    owners are `sole`.
    """

    owners: frozenset[tuple[str, str]]
    holders: frozenset[tuple[str, str]]
    moving: int
    lineage: int
    pairs: frozenset[tuple[str, str]]
    single_copies: int
    sole: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.owners)


class EtcdOracle:
    """Reads the placement from etcd.  Close it at the end."""

    def __init__(self, endpoints: Sequence[str], job: str) -> None:
        self._store = EtcdStore(EtcdConfig(endpoints=tuple(endpoints), read_budget_s=1.0), job)

    async def read(self) -> StoredPlacement | None:
        """The placement, or None if nothing is declared yet or etcd does not answer."""
        keys = self._store.keys
        try:
            durable = parse_durable(await self._store.read(durable_keys(keys)), keys, None, UNNAMED_ORIGIN)
        except StoreUnavailableError:
            return None
        if durable.route is None or durable.lineage is None:
            return None
        route = durable.route
        backups = durable.backups.backup if durable.backups else (NO_SERVER,) * len(route.owner)
        copies = [
            (_key(route.servers[owner]), _key(route.servers[holder]) if holder != NO_SERVER else None)
            for owner, holder in zip(route.owner, backups, strict=True)
        ]
        owners = frozenset(owner for owner, _ in copies)
        return StoredPlacement(
            owners=owners,
            holders=owners | {backup for _, backup in copies if backup},
            moving=len(durable.intents),
            lineage=durable.lineage.number,
            pairs=frozenset((owner[0], backup[0]) for owner, backup in copies if backup),
            single_copies=sum(backup is None for _, backup in copies),
            sole=frozenset(owner[0] for owner, backup in copies if backup is None),
        )

    async def close(self) -> None:
        await self._store.close()


def _key(place: ServerPlace) -> tuple[str, str]:
    return place.name, place.incarnation
