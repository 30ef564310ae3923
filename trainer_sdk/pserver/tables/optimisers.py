"""SGD, momentum, Adagrad and Adam on flat NumPy arrays, in place.

A rule gets parameters, its slots and a gradient of one length, and the number of steps of these parameters.  It
overwrites the gradient: on the server that is the buffer in which the push arrived.  `dense_store` and `sparse_store`
hold the arrays, and those of a fork.  Pure.

To add an optimiser: its step and its line in `UPDATE_RULES` here, from which forks, moves and files follow; its kind
and fields in `master.api.identities` and `master.proto`; a factory in `trainer_sdk.specs` (CONTRIBUTING.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from master.api.identities import OptimiserSpec
from trainer_sdk.pserver.tables.layout import Array

_CHUNK: Final = 1 << 15  # elements at a time: gradient, parameters, slots and temporaries stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRule:
    """One optimiser: the names of its slots, which are arrays like the parameters, and its step."""

    slots: tuple[str, ...]
    is_counted: bool  # the step depends on the number of steps before it
    step: Callable[[OptimiserSpec, Array, Sequence[Array], Array, Array | int], None]

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the arrays that are kept for a table: its values, then the slots."""
        return ("values", *self.slots)


def update(spec: OptimiserSpec, values: Array, slots: Sequence[Array], gradient: Array, steps: Array | int = 0) -> None:
    """Applies one gradient in place; `gradient` is overwritten.

    `steps` includes this step (from 1): one number for all, or one for each row of two-dimensional `values`.  Rules
    that are not counted ignore it.
    """
    step = UPDATE_RULES[spec.kind].step
    if values.ndim > 1 or len(values) <= _CHUNK:
        step(spec, values, slots, gradient, steps)
        return
    for low in range(0, len(values), _CHUNK):
        part = slice(low, low + _CHUNK)
        step(spec, values[part], [slot[part] for slot in slots], gradient[part], steps)


def _sgd(spec: OptimiserSpec, values: Array, _slots: Sequence[Array], gradient: Array, _steps: Array | int) -> None:
    gradient *= values.dtype.type(spec.learning_rate)
    values -= gradient


def _momentum(spec: OptimiserSpec, values: Array, slots: Sequence[Array], gradient: Array, _steps: Array | int) -> None:
    """Polyak's heavy ball: velocity = momentum * velocity + gradient; values -= learning_rate * velocity."""
    (velocity,) = slots
    velocity *= spec.momentum
    velocity += gradient
    np.multiply(velocity, spec.learning_rate, out=gradient)
    values -= gradient


def _adagrad(spec: OptimiserSpec, values: Array, slots: Sequence[Array], gradient: Array, _steps: Array | int) -> None:
    """Duchi, Hazan and Singer 2011: values -= learning_rate * gradient / (sqrt(sum of squares) + epsilon)."""
    (squares,) = slots
    squares += gradient * gradient
    scale = np.sqrt(squares)
    scale += spec.epsilon
    gradient *= spec.learning_rate
    gradient /= scale
    values -= gradient


def _adam(spec: OptimiserSpec, values: Array, slots: Sequence[Array], gradient: Array, steps: Array | int) -> None:
    """Kingma and Ba 2015, algorithm 1: both moments bias-corrected by the number of steps of these parameters."""
    mean, square = slots
    count = np.asarray(steps, dtype=np.float64)
    if count.ndim:
        count = count[:, None]
    correction = np.asarray(1 - spec.beta2**count, dtype=values.dtype)
    rate = np.asarray(spec.learning_rate / (1 - spec.beta1**count), dtype=values.dtype)
    mean *= spec.beta1
    mean += (1 - spec.beta1) * gradient
    gradient *= gradient
    gradient *= 1 - spec.beta2
    square *= spec.beta2
    square += gradient
    np.divide(square, correction, out=gradient)
    np.sqrt(gradient, out=gradient)
    gradient += spec.epsilon
    np.divide(mean, gradient, out=gradient)
    gradient *= rate
    values -= gradient


UPDATE_RULES: Final[Mapping[Literal["sgd", "momentum", "adagrad", "adam"], UpdateRule]] = {
    "sgd": UpdateRule(slots=(), is_counted=False, step=_sgd),
    "momentum": UpdateRule(slots=("velocity",), is_counted=False, step=_momentum),
    "adagrad": UpdateRule(slots=("squares",), is_counted=False, step=_adagrad),
    "adam": UpdateRule(slots=("mean", "square"), is_counted=True, step=_adam),
}
