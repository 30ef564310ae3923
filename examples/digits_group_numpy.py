"""Handwritten digits in a group: each trainer holds a NumPy model, and all sum their gradients in each step.

    python examples/digits_group_numpy.py                            alone
    edl launch --trainers 1:4 examples/digits_group_numpy.py         in a group that grows and shrinks, on this machine

What EDL asks of a training script stands under the comments `edl:`; the model is that of `digits_pserver.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np
from digits_pserver import DIGITS, MLP, load

import trainer_sdk as edl


class Training:
    """The whole state of the training: weights and momentum."""

    def __init__(self, model: MLP) -> None:
        self.model = model
        self.arrays: dict[str, np.ndarray] = {}

    # edl: all that the next step depends on, as arrays by name.
    def save(self) -> Mapping[str, np.ndarray]:
        return self.arrays

    # edl: put it back; None: there is no checkpoint, begin.
    def restore(self, arrays: Mapping[str, np.ndarray] | None) -> None:
        if arrays is None:
            weights = self.model.initial()
            arrays = weights | {f"{name}.momentum": np.zeros_like(weight) for name, weight in weights.items()}
        self.arrays = {name: array.copy() for name, array in arrays.items()}

    @property
    def weights(self) -> dict[str, np.ndarray]:
        return {name: self.arrays[name] for name in self.model.shapes}

    def update(self, gradients: Mapping[str, np.ndarray], rate: float) -> None:
        for name, gradient in gradients.items():
            momentum = self.arrays[f"{name}.momentum"]
            momentum *= 0.9
            momentum += gradient
            self.arrays[name] -= rate * momentum


def train(options: argparse.Namespace) -> None:
    x, y, x_test, y_test = load(DIGITS)
    training = Training(MLP(hidden=options.hidden))
    with edl.open() as session:
        session.own_model(save=training.save, restore=training.restore)
        session.on_final(
            lambda _: print(f"test accuracy {training.model.accuracy(training.weights, x_test, y_test):.4f}")
        )
        for batch in session.dataset("digits", size=len(x), epochs=options.epochs, batch_size=64, seed=7):
            loss, gradients = training.model.loss_and_gradients(training.weights, x[batch.indices], y[batch.indices])
            # edl: sum over all trainers what the batch's records add up to; False: the same step comes again.
            sums = {name: gradient * len(batch) for name, gradient in gradients.items()}
            if batch.all_reduce(*sums.values()):
                training.update({name: total / batch.step_size for name, total in sums.items()}, options.rate)
                batch.done(loss=loss)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rate", type=float, default=0.02)
    return parser.parse_args()


if __name__ == "__main__":
    train(parse())
