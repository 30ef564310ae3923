"""All parameters of one server: its buckets' share of every table, and at most one fork of them.

Marks and lineage are not here: the core names the buckets that get a gradient, and the shell changes model and core
state under one lock.  Not thread-safe by itself.  `dense_store` and `sparse_store` show why a cut costs no more than
the first write after it.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import NamedTuple, assert_never

from master.api.positions import PositionSet
from trainer_sdk.errors import TableError
from trainer_sdk.pserver.tables.dense_store import DenseStore
from trainer_sdk.pserver.tables.layout import Array, Ids, Layout, bucket_mask, buckets_of_rows
from trainer_sdk.pserver.tables.sparse_store import SparseStore


class DenseGradient(NamedTuple):
    """Gradient of a dense table: `values` is flat and covers the push's buckets; overwritten by `apply`."""

    table: int
    values: Array


class SparseGradient(NamedTuple):
    """Gradient of a sparse table: row `ids[i]` gets `rows[i]`; overwritten by `apply`."""

    table: int
    ids: Ids
    rows: Array


Gradient = DenseGradient | SparseGradient


class Portion(Enum):
    """Portion of a bucket's content that a copy carries."""

    ALL = auto()
    ROWS = auto()  # of sparse tables; sent ahead, while every push rewrites a dense table whole
    REST = auto()  # dense tables, and the rows that were written since `Model.watch`


class Model:
    """Parameters and slots of one server; freshly made, every number has its initial value."""

    def __init__(self, layout: Layout, buckets: PositionSet) -> None:
        self.layout, self.buckets = layout, buckets
        self.stores: tuple[DenseStore | SparseStore, ...] = tuple(
            SparseStore(spec, layout.bucket_count) if dense is None else DenseStore(spec, dense, buckets)
            for spec, dense in zip(layout.tables, layout.dense, strict=True)
        )
        self._sparse = tuple(store for store in self.stores if isinstance(store, SparseStore))

    def check(self, gradients: Sequence[Gradient], pushed: PositionSet) -> None:
        """Raises TableError when a gradient does not fit; afterwards `apply` cannot fail."""
        seen: set[int] = set()
        for gradient in gradients:
            if gradient.table in seen or not 0 <= gradient.table < len(self.stores):
                raise TableError(_path(gradient), "named twice or not declared", hint="One gradient for each table")
            seen.add(gradient.table)
            store = self.stores[gradient.table]
            match gradient, store:
                case DenseGradient(), DenseStore():
                    _check_dense(gradient, store, pushed)
                case SparseGradient(), SparseStore():
                    self._check_sparse(gradient, store, pushed)
                case _:
                    raise TableError(
                        _path(gradient), f"is a {store.spec.kind} table", hint="Push what it was declared to be"
                    )

    def apply(
        self, buckets: PositionSet, gradients: Sequence[Gradient], pushed: PositionSet, *, to_fork: bool = False
    ) -> None:
        """One optimiser step of these buckets, of those that were pushed, and if so asked of the open fork's.

        Gradients must have passed `check`.
        """
        for gradient in gradients:
            store = self.stores[gradient.table]
            match gradient, store:
                case DenseGradient(), DenseStore():
                    store.apply(buckets, gradient.values, pushed, to_fork=to_fork)
                case SparseGradient(), SparseStore():
                    ids, rows = self._rows_in(gradient, buckets, pushed)
                    if len(ids):
                        store.apply(ids, rows, to_fork=to_fork)
                case _:
                    raise TypeError(gradient, store)

    def open_fork(self, buckets: PositionSet) -> None:
        """From now on, until `drop_fork`, a `ForkedModel` reads these buckets as they are now."""
        for store in self.stores:
            store.open_fork(buckets)

    def drop_fork(self) -> None:
        for store in self.stores:
            store.drop_fork()

    def content(self, bucket: int, portion: Portion = Portion.ALL) -> Iterator[tuple[str, dict[str, Array]]]:
        """One live bucket, as `ForkedModel.read` gives it: copies of values, slots and step counts."""
        for store in self.stores:
            match store:
                case SparseStore():
                    if arrays := store.written(bucket) if portion is Portion.REST else store.content(bucket):
                        yield store.spec.name, arrays
                case DenseStore():
                    if portion is not Portion.ROWS:
                        for block in store.layout.blocks(PositionSet.of(bucket)):
                            yield store.spec.name, store.content(block)
                case _:
                    assert_never(store)

    def watch(self, bucket: int) -> None:
        """From now on rows that are written belong to `Portion.REST`."""
        for store in self._sparse:
            store.watch(bucket)

    def end_watch(self, bucket: int) -> None:
        for store in self._sparse:
            store.end_watch(bucket)

    def end_watches(self) -> None:
        """Ends all watches; pushes pay nothing for them any more."""
        for store in self._sparse:
            store.end_watches()

    def row_count(self, bucket: int) -> int:
        """Number of trained rows in this bucket, of all sparse tables."""
        return sum(int(store.row_counts[bucket]) for store in self._sparse)

    def rest_bytes(self, bucket: int) -> int:
        """Upper bound of the bytes in this bucket's REST, or in ALL of it if it is not watched."""
        return sum(store.size_bytes(bucket) for store in self.stores)

    def remove(self, buckets: PositionSet) -> None:
        """Drops these buckets; what an open fork has of them stays."""
        for store in self.stores:
            store.remove(buckets)
        self.buckets -= buckets

    def populators(self, bucket: int, row_counts: Mapping[str, int]) -> list[Callable[[], None]]:
        """Functions that make memory ready for this bucket and more rows by table; call them without the lock."""
        return [_populator(store, bucket, row_counts) for store in self.stores]

    def install(self, bucket: int, contents: Mapping[str, dict[str, Array]]) -> None:
        """Puts this content, by table name, into the bucket; tables that it lacks stay as they are.

        Raises ValueError, KeyError or IndexError when it does not fit (`bucket_codec.check_contents` explains).
        """
        self.buckets |= PositionSet.of(bucket)
        for store in self.stores:
            arrays = contents.get(store.spec.name)
            if not arrays:
                continue
            match store:
                case SparseStore():
                    store.install(arrays["ids"], {name: array for name, array in arrays.items() if name != "ids"})
                case DenseStore():
                    for block in store.layout.blocks(PositionSet.of(bucket)):
                        store.install(block, arrays)
                case _:
                    assert_never(store)

    def _rows_in(self, gradient: SparseGradient, buckets: PositionSet, pushed: PositionSet) -> tuple[Ids, Array]:
        if buckets == pushed:
            return gradient.ids, gradient.rows
        inside = bucket_mask(buckets, self.layout.bucket_count)[buckets_of_rows(gradient.ids, self.layout.bucket_count)]
        return gradient.ids[inside], gradient.rows[inside]

    def _check_sparse(self, gradient: SparseGradient, store: SparseStore, pushed: PositionSet) -> None:
        path = _path(gradient)
        check_ids(path, gradient.ids, store.spec.shape[0])
        row_buckets = buckets_of_rows(gradient.ids, self.layout.bucket_count)
        if not bucket_mask(pushed, self.layout.bucket_count)[row_buckets].all():
            raise TableError(f"{path}.ids", "rows of buckets that are not pushed", hint="Route rows by their bucket")


class ForkedModel:
    """Reads a complete fork bucket by bucket, while the live model is trained.

    Make it, and call `read`, under the lock that guards the model; release the lock between two calls.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.layout = model.layout
        self._rows = {i: store.fork_reader() for i, store in enumerate(model.stores) if isinstance(store, SparseStore)}

    def arrange(self) -> None:
        """Finds the rows of each bucket.  Call it once before `read`, without the lock, because it sorts all ids."""
        for reader in self._rows.values():
            reader.arrange()

    def read(self, bucket: int) -> Iterator[tuple[str, dict[str, Array]]]:
        """Name and arrays, as copies, of each table with content in this bucket."""
        one = PositionSet.of(bucket)
        for index, store in enumerate(self._model.stores):
            match store:
                case SparseStore():
                    if arrays := self._rows[index].read(bucket):
                        yield store.spec.name, arrays
                case DenseStore():
                    for block in store.layout.blocks(one):
                        yield store.spec.name, store.forked(block)
                case _:
                    assert_never(store)


def _populator(store: DenseStore | SparseStore, bucket: int, row_counts: Mapping[str, int]) -> Callable[[], None]:
    match store:
        case SparseStore():
            return store.populator(row_counts.get(store.spec.name, 0))
        case DenseStore():
            return partial(store.populate, bucket)
        case _:
            assert_never(store)


def check_ids(path: str, ids: Ids, row_count: int) -> None:
    """Raises TableError unless every id names a row."""
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= row_count):
        wrong = ids[(ids < 0) | (ids >= row_count)][0]
        raise TableError(f"{path}.ids", f"row {wrong} of {row_count:,} rows", hint="Row ids count from 0")


def _check_dense(gradient: DenseGradient, store: DenseStore, pushed: PositionSet) -> None:
    inside = store.layout.count(pushed)
    if len(gradient.values) != inside:
        raise TableError(
            _path(gradient), f"{len(gradient.values)} numbers for {inside}", hint="Push all elements of the buckets"
        )


def _path(gradient: Gradient) -> str:
    return f"push.tables[{gradient.table}]"
