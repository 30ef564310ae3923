"""Who owns what, as the store has it: read from etcd, not asked of the master."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from master.errors import StoreUnavailableError
from master.records import durable_keys, parse_durable
from master.store.etcd.config import EtcdConfig
from master.store.etcd.store import EtcdStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """`owners`: names and incarnations of those that own a bucket; `moving`: buckets with an intent."""

    owners: frozenset[tuple[str, str]]
    moving: int
    lineage: int

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.owners)


class Book:
    """Reads it.  Close it at the end."""

    def __init__(self, endpoints: Sequence[str], job: str) -> None:
        self._store = EtcdStore(EtcdConfig(endpoints=tuple(endpoints), read_budget_s=1.0), job)

    async def read(self) -> Truth | None:
        """None: nothing is declared yet, or etcd does not answer."""
        keys = self._store.keys
        try:
            durable = parse_durable(await self._store.read(durable_keys(keys)), keys, None)
        except StoreUnavailableError:
            return None
        if durable.route is None or durable.lineage is None:
            return None
        route = durable.route
        places = (route.servers[place] for place in set(route.owner))
        return Truth(
            owners=frozenset((place.name, place.incarnation) for place in places),
            moving=len(durable.intents),
            lineage=durable.lineage.number,
        )

    async def close(self) -> None:
        await self._store.close()
