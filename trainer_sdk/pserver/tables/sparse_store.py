"""One server's rows of a sparse table, made when they are first trained, with copy on write for forks.

A row that was never trained has its initial value and takes no memory.  A fork remembers the number of rows at the cut
and keeps the old content of rows written since, besides those that it has trained itself.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from master.api.identities import TableSpec
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.pserver.tables.initialisers import initial_rows
from trainer_sdk.pserver.tables.layout import Array, Ids, buckets_of_rows, row_bytes
from trainer_sdk.pserver.tables.optimisers import UPDATE_RULES
from trainer_sdk.pserver.tables.row_index import DirtyRows, Places, RowIndex
from trainer_sdk.pserver.tables.row_store import NO_ROW, RowStore


class SparseStore:
    """Rows of one sparse table in this server's buckets."""

    def __init__(self, spec: TableSpec, bucket_count: int) -> None:
        self.spec = spec
        self._bucket_count = bucket_count
        self._live = RowStore(spec)
        self._index = RowIndex(bucket_count)
        self._found: dict[int, Places] = {}  # by bucket whose content was copied
        self._dirty = DirtyRows()
        self._fork: RowStore | None = None
        self._fork_count = 0  # rows up to this place were there at the cut
        self._forked = EMPTY  # the buckets of the fork

    @property
    def row_count(self) -> int:
        """Number of rows that have been trained."""
        return int(self._index.counts.sum())

    @property
    def row_counts(self) -> npt.NDArray[np.int64]:
        """Number of trained rows by bucket; read only."""
        return self._index.counts

    def open_fork(self, buckets: PositionSet) -> None:
        """From now on `fork_reader` reads the rows of these buckets as they are now."""
        self._live.wipe(self._index.reclaim())
        self._fork = RowStore(self.spec)
        self._fork_count = self._live.count
        self._forked = buckets

    def drop_fork(self) -> None:
        self._fork = None
        self._live.wipe(self._index.reclaim())

    def read(self, ids: Ids) -> Array:
        """The live rows of these ids, in this order, as (len(ids), width)."""
        places = self._live.places(ids)
        missing = places < 0
        if not missing.any():
            return self._live.arrays[0].take(places, axis=0)  # half the time of indexing
        out = initial_rows(self.spec, ids)
        out[~missing] = self._live.arrays[0][places[~missing]]
        return out

    def apply(self, ids: Ids, gradient: Array, *, to_fork: bool) -> None:
        """One optimiser step of these rows, and with `to_fork` of the fork's; gradients of repeated ids are summed.

        `gradient` is (len(ids), width), and is overwritten.
        """
        ids, gradient = _summed(ids, gradient)
        if self._fork is not None:
            self._save(ids, self._fork, with_new=to_fork)
            if to_fork:
                self._fork.step(self._fork.places(ids), gradient.copy())
        new = ids[self._live.places(ids) < 0]
        if len(new):
            self._add(new, {"values": initial_rows(self.spec, new)})
        places = self._live.places(ids)
        self._live.step(places, gradient)
        self._dirty.mark_written(places, self._index)

    def content(self, bucket: int) -> dict[str, Array]:
        """Copies of one bucket's live rows by id, as `ForkReader.read` gives them; empty when none was trained."""
        return self._content(self._by_id(bucket))

    def watch(self, bucket: int) -> None:
        """From now on `written` has the rows of this bucket that change."""
        self._dirty.watch(bucket, self._index)

    def end_watch(self, bucket: int) -> None:
        self._dirty.end(bucket)

    def end_watches(self) -> None:
        self._dirty.end_all()

    def written(self, bucket: int) -> dict[str, Array]:
        """Like `content`, for the rows that were written since `watch`."""
        return self._content(self._dirty.written(bucket, self._by_id(bucket)))

    def size_bytes(self, bucket: int) -> int:
        """Upper bound of the bytes of `written` if the bucket is watched, else of `content`."""
        count = int(self._index.counts[bucket])
        if self._dirty.is_watched(bucket):
            count = min(count, self._dirty.count(bucket))
        copies = len(UPDATE_RULES[self.spec.optimiser.kind].arrays)
        return count * copies * row_bytes(self.spec)

    def _by_id(self, bucket: int) -> Places:
        """Places of this bucket's rows, sorted by id.

        Found without the lock: remembered places may date from before they were taken again in another order.
        """
        found = self._found.get(bucket)
        if found is None or not self._index.is_exactly(bucket, found) or not _are_increasing(self._live.ids[found]):
            places = self._index.places_of(bucket)
            found = self._found[bucket] = places[np.argsort(self._live.ids[places])]
        return found

    def _content(self, places: Places) -> dict[str, Array]:
        return {"ids": self._live.ids[places], **self._live.read(places)} if len(places) else {}

    def populator(self, count: int) -> Callable[[], None]:
        """A function that makes memory ready for so many more rows; it may be called without the lock."""
        return self._live.populator(max(0, count - self._index.free_count))

    def install(self, ids: Ids, arrays: Mapping[str, Array]) -> None:
        """Adds rows of a bucket; rows that are here already get this content."""
        places = self._live.places(ids)
        known = places >= 0
        if known.any():
            self._live.write(places[known], {name: array[known] for name, array in arrays.items()})
            ids, arrays = ids[~known], {name: array[~known] for name, array in arrays.items()}
        if len(ids):
            self._add(ids, arrays)

    def remove(self, buckets: PositionSet) -> None:
        """Drops the live rows of these buckets; what an open fork has of them stays."""
        for bucket in buckets:
            places = self._places(bucket)
            if self._fork is not None and bucket in self._forked:
                self._save(self._live.ids[places], self._fork, with_new=False)
            self._live.remove(places)
            self._index.remove(places)
            self._dirty.end(bucket)
        if self._fork is None:
            self._live.wipe(self._index.reclaim())

    def _places(self, bucket: int) -> Places:
        """Places of this bucket's rows, as found when it was copied if they are still the same."""
        found = self._found.pop(bucket, None)
        return found if found is not None and self._index.is_exactly(bucket, found) else self._index.places_of(bucket)

    def _add(self, ids: Ids, arrays: Mapping[str, Array]) -> None:
        free = self._index.pop_free(len(ids)) if self._fork is None else self._index.pop_free(0)
        places = self._live.add(ids, arrays, free)
        self._index.put(places, buckets_of_rows(ids, self._bucket_count), len(self._live.ids))

    def fork_reader(self) -> ForkReader:
        """A reader of the complete fork, which changes no more (rule 21); live rows may."""
        assert self._fork is not None
        return ForkReader(self._live, self._fork, self._fork_count, self._bucket_count)

    def _save(self, ids: Ids, fork: RowStore, *, with_new: bool) -> None:
        """Copies rows that are about to change; with `with_new` the fork also gets rows that are new."""
        ids = ids[fork.places(ids) < 0]
        places = self._live.places(ids)
        old = (places >= 0) & (places < self._fork_count)
        if old.any():
            fork.add(ids[old], self._live.read(places[old]))
        if with_new and not old.all():
            new = ids[~old]
            fork.add(new, {"values": initial_rows(self.spec, new)})


class ForkReader:
    """Reads the rows of a complete fork, bucket by bucket."""

    def __init__(self, live: RowStore, fork: RowStore, count: int, bucket_count: int) -> None:
        self._live, self._fork, self._bucket_count = live, fork, bucket_count
        self._old = live.ids[:count]  # `ids` may be replaced by a longer array later; these stay as they are
        self._own = fork.ids[: fork.count].copy()
        self._ids = self._old
        self._edges = np.zeros(bucket_count + 1, dtype=np.intp)

    def arrange(self) -> None:
        """Sorts all ids by bucket and, so that equal forks make equal files, by id within a bucket."""
        old = self._old if self._old.min(initial=0) >= 0 else self._old[self._old != NO_ROW]
        ids = np.concatenate((old, np.setdiff1d(self._own, old, assume_unique=True)))
        buckets = buckets_of_rows(ids, self._bucket_count)
        order = np.argsort(ids)
        homes = buckets[order].astype(np.min_scalar_type(self._bucket_count))  # small numbers are sorted by radix
        order = order[np.argsort(homes, kind="stable")]
        self._ids = ids[order]
        self._edges = np.searchsorted(buckets[order], np.arange(self._bucket_count + 1))

    def read(self, bucket: int) -> dict[str, Array]:
        """Copies of ids, values, slots and step counts; empty when no row of this bucket was trained."""
        ids = self._ids[self._edges[bucket] : self._edges[bucket + 1]]
        if not len(ids):
            return {}
        in_fork = self._fork.places(ids)
        untouched = in_fork < 0
        out = self._live.read(self._live.places(ids))
        if not untouched.all():
            for name, array in self._fork.read(in_fork[~untouched]).items():
                out[name][~untouched] = array
        return {"ids": ids, **out}


def _summed(ids: Ids, gradient: Array) -> tuple[Ids, Array]:
    """Each id once, with the sum of its gradients."""
    if len(ids) < 2 or _are_increasing(ids):
        return ids, gradient
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    if first.all():
        return ids, gradient
    return ordered[first], np.add.reduceat(gradient[order], np.flatnonzero(first), axis=0)


def _are_increasing(ids: Ids) -> bool:
    return bool((ids[1:] > ids[:-1]).all())
