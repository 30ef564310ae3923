"""What a script says about its tables: their shape, how they begin, which optimiser the servers run.

    session.tables({"w1": edl.dense((64, 1024), init=edl.normal(0.05)), "b1": edl.dense(1024)}, optimiser=edl.sgd(0.1))

A table begins from its initialiser on the servers, block by block and the same everywhere, so no first value travels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from master.api.identities import Initialiser, OptimiserSpec, TableSpec

DType = Literal["float32", "float64", "int64"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table before it has its name; made by `dense` and `sparse`."""

    spec: TableSpec
    has_own_optimiser: bool

    def named(self, name: str, optimiser: OptimiserSpec) -> TableSpec:
        """The declaration that goes to the master."""
        return replace(self.spec, name=name, optimiser=self.spec.optimiser if self.has_own_optimiser else optimiser)


def dense(
    shape: int | tuple[int, ...],
    *,
    init: Initialiser | None = None,
    optimiser: OptimiserSpec | None = None,
    dtype: DType = "float32",
) -> Table:
    """A tensor, pulled and pushed whole.  Without `init` it begins as zeros."""
    return _table("dense", shape, init, optimiser, dtype)


def sparse(
    rows: int,
    width: int | tuple[int, ...] = 1,
    *,
    init: Initialiser | None = None,
    optimiser: OptimiserSpec | None = None,
    dtype: DType = "float32",
) -> Table:
    """`rows` rows of shape `width`, pulled and pushed by row number: an embedding, say."""
    inner = (width,) if isinstance(width, int) else width
    return _table("sparse", (rows, *inner), init, optimiser, dtype)


def _table(
    kind: Literal["dense", "sparse"],
    shape: int | tuple[int, ...],
    init: Initialiser | None,
    optimiser: OptimiserSpec | None,
    dtype: DType,
) -> Table:
    spec = TableSpec(
        name="",
        shape=(shape,) if isinstance(shape, int) else tuple(shape),
        kind=kind,
        dtype=dtype,
        initialiser=init or Initialiser(),
        optimiser=optimiser or OptimiserSpec(),
    )
    return Table(spec=spec, has_own_optimiser=optimiser is not None)


def zeros() -> Initialiser:
    return Initialiser()


def constant(value: float) -> Initialiser:
    return Initialiser(kind="constant", scale=value)


def normal(deviation: float, *, seed: int = 0) -> Initialiser:
    """Normal around 0 with this standard deviation."""
    return Initialiser(kind="normal", scale=deviation, seed=seed)


def uniform(half_width: float, *, seed: int = 0) -> Initialiser:
    """Uniform in [-half_width, half_width)."""
    return Initialiser(kind="uniform", scale=half_width, seed=seed)


def sgd(learning_rate: float) -> OptimiserSpec:
    return OptimiserSpec(kind="sgd", learning_rate=learning_rate)


def momentum(learning_rate: float, *, momentum: float = 0.9) -> OptimiserSpec:
    return OptimiserSpec(kind="momentum", learning_rate=learning_rate, momentum=momentum)


def adagrad(learning_rate: float, *, epsilon: float = 1e-8) -> OptimiserSpec:
    return OptimiserSpec(kind="adagrad", learning_rate=learning_rate, epsilon=epsilon)


def adam(
    learning_rate: float, *, momentum: float = 0.9, second_decay: float = 0.999, epsilon: float = 1e-8
) -> OptimiserSpec:
    return OptimiserSpec(
        kind="adam", learning_rate=learning_rate, momentum=momentum, second_decay=second_decay, epsilon=epsilon
    )
