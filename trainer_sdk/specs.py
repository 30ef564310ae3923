"""Declarations of a script's data set and tables: sizes, initial values, optimisers on the servers.

    session.tables({"w1": edl.dense((64, 1024), init=edl.normal(0.05)), "b1": edl.dense(1024)}, optimiser=edl.sgd(0.1))

Servers make initial values from the initialiser, the same everywhere, so no initial value is sent.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, SupportsIndex, cast, get_args

from master.api.identities import DatasetSpec, Initialiser, OptimiserSpec, TableKind, TableSpec
from master.api.positions import MAX_POSITION
from trainer_sdk.errors import TableError, UsageError

DType = Literal["float32", "float64", "int64"]
MAX_SEED: Final = 2**63 - 1  # of a message's int64


def dataset_spec(name: str, *, size: int, epochs: int, batch_size: int, seed: int) -> DatasetSpec:
    """The declaration of a data set.  Raises UsageError naming the argument."""
    if not _is_name(name):
        raise UsageError(f"dataset.name: {name!r} is not a name: give a text that identifies this data set")
    spec = DatasetSpec(
        name=name,
        size=whole_number("dataset.size", size),
        epochs=whole_number("dataset.epochs", epochs),
        batch_size=whole_number("dataset.batch_size", batch_size),
        seed=whole_number("dataset.seed", seed, least=-MAX_SEED),
    )
    if spec.size * spec.epochs > MAX_POSITION:
        raise UsageError(f"dataset.size: {spec.size:,} x {spec.epochs:,} epochs is more than 2**62 positions")
    return spec


def whole_number(path: str, value: object, *, least: int = 1) -> int:
    """The value as an int; NumPy integers are accepted.  Raises UsageError naming the argument at `path`."""
    try:
        number = operator.index(cast(SupportsIndex, value))
    except TypeError:
        number = least - 1
    if not least <= number <= MAX_SEED or isinstance(value, bool):
        raise UsageError(f"{path}: {value!r} is not an integer" + (" from 1 up" if least == 1 else " of 64 bits"))
    return number


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def table_specs(tables: Mapping[str, TableDeclaration], optimiser: OptimiserSpec) -> tuple[TableSpec, ...]:
    """The tables' declarations for the master.  Raises TableError naming the field, UsageError without a table."""
    if not tables:
        raise UsageError("tables() without a table: leave the call out if the job has no model on parameter servers")
    for name, table in tables.items():
        if not isinstance(table, TableDeclaration):
            raise TableError(
                f"tables.{name}", f"{table!r} is not a table", hint="Write edl.dense(shape) or edl.sparse()"
            )
    specs = tuple(table.named(name, optimiser) for name, table in tables.items())
    for spec in specs:
        _check_parts(spec)
    return specs


def _check_parts(spec: TableSpec) -> None:
    """Raises TableError for a field of the wrong type; `layout.check_tables` checks the rest."""
    path = f"tables.{spec.name}"
    if not _is_name(spec.name):
        raise TableError(path, f"{spec.name!r} is not a name", hint="Give each table a text as its key")
    if spec.dtype not in get_args(DType):
        raise TableError(f"{path}.dtype", f"{spec.dtype!r}", hint=f"Use one of {', '.join(get_args(DType))}")
    if not isinstance(spec.initialiser, Initialiser):
        raise TableError(
            f"{path}.init", f"{spec.initialiser!r} is not an initialiser", hint="Write edl.normal(0.05), for example"
        )
    if not isinstance(spec.optimiser, OptimiserSpec):
        raise TableError(
            f"{path}.optimiser", f"{spec.optimiser!r} is not an optimiser", hint="Write edl.sgd(0.1), for example"
        )
    if not math.isfinite(spec.optimiser.learning_rate):
        raise TableError(f"{path}.optimiser", f"learning rate {spec.optimiser.learning_rate}", hint="Give a number")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDeclaration:
    """Declaration of a table without its name; made by `dense` and `sparse`."""

    spec: TableSpec
    has_own_optimiser: bool

    def named(self, name: str, optimiser: OptimiserSpec) -> TableSpec:
        """The declaration for the master."""
        return replace(self.spec, name=name, optimiser=self.spec.optimiser if self.has_own_optimiser else optimiser)


def dense(
    shape: int | tuple[int, ...],
    *,
    init: Initialiser | None = None,
    optimiser: OptimiserSpec | None = None,
    dtype: DType = "float32",
) -> TableDeclaration:
    """Declares a tensor, pulled and pushed whole.  Without `init` it begins as zeros."""
    return _table("dense", shape, init, optimiser, dtype)


def sparse(
    rows: int,
    width: int | tuple[int, ...] = 1,
    *,
    init: Initialiser | None = None,
    optimiser: OptimiserSpec | None = None,
    dtype: DType = "float32",
) -> TableDeclaration:
    """Declares `rows` rows of shape `width`, pulled and pushed by row number: an embedding, for example."""
    return _table("sparse", (rows, *_extents(width)), init, optimiser, dtype)


def _extents(shape: SupportsIndex | tuple[SupportsIndex, ...]) -> tuple[int, ...]:
    extents = shape if isinstance(shape, tuple | list) else (shape,)
    return tuple(whole_number("shape", extent) for extent in extents)


def _table(
    kind: TableKind,
    shape: int | tuple[int, ...],
    init: Initialiser | None,
    optimiser: OptimiserSpec | None,
    dtype: DType,
) -> TableDeclaration:
    spec = TableSpec(
        name="",
        shape=_extents(shape),
        kind=kind,
        dtype=dtype,
        initialiser=Initialiser() if init is None else init,
        optimiser=OptimiserSpec() if optimiser is None else optimiser,
    )
    return TableDeclaration(spec=spec, has_own_optimiser=optimiser is not None)


def zeros() -> Initialiser:
    """Initialiser of zeros, the default of every table."""
    return Initialiser()


def constant(value: float) -> Initialiser:
    """Initialiser that fills a table with one value."""
    return Initialiser(kind="constant", scale=value)


def normal(deviation: float, *, seed: int = 0) -> Initialiser:
    """Initialiser of normally distributed values around 0 with this standard deviation; `seed` repeats them."""
    return Initialiser(kind="normal", scale=deviation, seed=seed)


def uniform(half_width: float, *, seed: int = 0) -> Initialiser:
    """Initialiser of values distributed uniformly in [-half_width, half_width); `seed` repeats them."""
    return Initialiser(kind="uniform", scale=half_width, seed=seed)


def sgd(learning_rate: float) -> OptimiserSpec:
    """Stochastic gradient descent: `values -= learning_rate * gradient`."""
    return OptimiserSpec(kind="sgd", learning_rate=learning_rate)


def momentum(learning_rate: float, *, momentum: float = 0.9) -> OptimiserSpec:
    """Polyak's heavy ball: `velocity = momentum * velocity + gradient; values -= learning_rate * velocity`."""
    return OptimiserSpec(kind="momentum", learning_rate=learning_rate, momentum=momentum)


def adagrad(learning_rate: float, *, epsilon: float = 1e-8) -> OptimiserSpec:
    """Adagrad (Duchi, Hazan and Singer 2011): divides each step by the root of summed squares."""
    return OptimiserSpec(kind="adagrad", learning_rate=learning_rate, epsilon=epsilon)


def adam(learning_rate: float, *, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> OptimiserSpec:
    """Adam (Kingma and Ba 2015, algorithm 1), bias-corrected by the number of steps of these parameters."""
    return OptimiserSpec(kind="adam", learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon)
