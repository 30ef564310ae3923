"""Handwritten digits on elastic parameter servers: a multilayer perceptron in NumPy, trained by any number of trainers.

    python examples/digits_pserver.py                           alone
    edl run examples/digits.yaml                                elastic, on the local cluster
    kubectl apply -f examples/kubernetes/digits.yaml            elastic, on Kubernetes

What EDL asks of a training script stands under the two comments `edl:` in `train`; the rest is the model, as it would
be without.  Trainers may come, go and be killed: every digit is in the model exactly once per epoch all the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import trainer_sdk as edl

DIGITS = Path(__file__).with_name("digits.npz")

# ---- the model: nothing of EDL here ---------------------------------------------------------------------------------


class MLP:
    """One hidden layer of rectified linear units, softmax and cross-entropy; float32 throughout."""

    def __init__(self, inputs: int = 64, hidden: int = 1024, classes: int = 10) -> None:
        self.shapes = {"w1": (inputs, hidden), "b1": (hidden,), "w2": (hidden, classes), "b2": (classes,)}
        self.deviations = {"w1": float(np.sqrt(2 / inputs)), "w2": float(np.sqrt(1 / hidden))}  # He et al., 2015

    def initial(self, seed: int = 0) -> dict[str, np.ndarray]:
        """First weights for a run without parameter servers; these make their own from the same distribution."""
        random = np.random.default_rng(seed)
        return {
            name: (random.standard_normal(shape) * self.deviations.get(name, 0.0)).astype(np.float32)
            for name, shape in self.shapes.items()
        }

    def loss_and_gradients(
        self, weights: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray
    ) -> tuple[float, dict[str, np.ndarray]]:
        """Mean cross-entropy of the batch, and its gradient by every weight."""
        hidden = np.maximum(x @ weights["w1"] + weights["b1"], 0)
        scores = hidden @ weights["w2"] + weights["b2"]
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(y))
        loss = float(-np.log(chances[rows, y] + 1e-12).mean())
        chances[rows, y] -= 1
        chances /= len(y)
        back = (chances @ weights["w2"].T) * (hidden > 0)
        return loss, {"w1": x.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ chances, "b2": chances.sum(axis=0)}

    def predict(self, weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
        hidden = np.maximum(x @ weights["w1"] + weights["b1"], 0)
        return (hidden @ weights["w2"] + weights["b2"]).argmax(axis=1)

    def accuracy(self, weights: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
        return float((self.predict(weights, x) == y).mean())


# ---- training -------------------------------------------------------------------------------------------------------


def train(options: argparse.Namespace) -> None:
    x, y, x_test, y_test = load(options.data)
    model = MLP(hidden=options.hidden)

    # edl: open the session, name the data, put the weights on the parameter servers.
    with edl.open() as session:
        data = session.dataset(
            "digits", size=len(x), epochs=options.epochs, batch_size=options.batch_size, seed=options.seed
        )
        specs = {
            name: edl.dense(shape, init=edl.normal(model.deviations.get(name, 0.0), seed=options.seed + number))
            for number, (name, shape) in enumerate(model.shapes.items())
        }
        if options.ledger:  # one counter per digit: a "gradient" of 1 with this learning rate adds 1
            specs["ledger"] = edl.dense((len(x),), dtype="int64", optimiser=edl.sgd(-1.0))
        tables = session.tables(specs, optimiser=edl.sgd(options.learning_rate))
        session.on_final(lambda weights: finish(model, weights, x_test, y_test, options.out))

        # edl: loop over the batches that fall to this trainer; pull, push, done.
        for batch in data:
            weights = tables.pull(*model.shapes)
            loss, gradients = model.loss_and_gradients(weights, x[batch.indices], y[batch.indices])
            if options.ledger:
                gradients["ledger"] = np.bincount(batch.indices, minlength=len(x))
            tables.push(gradients)
            batch.done(loss=loss)


def finish(
    model: MLP, weights: dict[str, np.ndarray], x_test: np.ndarray, y_test: np.ndarray, out: Path | None
) -> None:
    """Runs once, on one trainer, with the final weights."""
    print(f"test accuracy {model.accuracy(weights, x_test, y_test):.4f}", flush=True)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        np.savez(out / "model.npz", **weights)


def load(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """1,437 digits to train on and 360 to test, pixels from 0 to 1.  As bytes they go to 16."""
    with np.load(path) as archive:
        x, y, x_test, y_test = (archive[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    most = 16 if x.dtype == np.uint8 else 1
    return (
        (x / most).astype(np.float32),
        y.astype(np.int64),
        (x_test / most).astype(np.float32),
        y_test.astype(np.int64),
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=DIGITS, help="a file as digits.npz, which stands beside this script"
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--ledger", action="store_true", help="count in the model how often each digit was trained")
    parser.add_argument("--out", type=Path, help="folder for model.npz")
    return parser.parse_args()


if __name__ == "__main__":
    train(parse())
