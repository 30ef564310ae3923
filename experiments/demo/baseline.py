"""Baseline of the demo's accuracy: the same model, data and number of epochs in one process alone.

    python -m experiments.demo.baseline DATA HIDDEN BATCH_SIZE LEARNING_RATE SEED EPOCHS...    prints test accuracies

It runs in a process of its own while the jobs' last pods leave, with the model of `examples/digits_pserver.py`.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

EXAMPLES: Final = Path(__file__).parent.parent.parent / "examples"
SCRIPT: Final = EXAMPLES / "digits_pserver.py"
CALIBRATION_S: Final = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What both the jobs and the baseline train."""

    data: Path
    hidden: int = 2048
    batch_size: int = 32
    learning_rate: float = 0.05
    seed: int = 7


def measure_epochs_per_s(training: Training) -> float:
    """How fast this machine trains alone, from a fraction of a second of it."""
    steps = _steps(training)
    next(steps)
    begun, count = time.perf_counter(), 0
    while (seconds := time.perf_counter() - begun) < CALIBRATION_S:
        next(steps)
        count += 1
    with np.load(training.data) as arrays:
        batches = -(-len(arrays["y_train"]) // training.batch_size)
    return count / seconds / batches


def start_alone(training: Training, *epochs: int) -> subprocess.Popen[str]:
    """A process that trains alone and prints its test accuracy after each of these numbers of epochs, a line each."""
    words = (training.hidden, training.batch_size, training.learning_rate, training.seed, *epochs)
    command = [sys.executable, "-m", "experiments.demo.baseline", str(training.data), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def measure_accuracy(weights: dict[str, np.ndarray[Any, Any]], training: Training) -> float:
    """Share of the test digits that these weights classify correctly."""
    with np.load(training.data) as arrays:
        model = load_example(SCRIPT).MLP(hidden=training.hidden)
        return float(model.accuracy(weights, arrays["x_test"], arrays["y_test"]))


def _steps(training: Training) -> Any:
    """Yields the weights after each step, in an endless shuffled order."""
    with np.load(training.data) as arrays:
        x, y = arrays["x_train"], arrays["y_train"]
    model = load_example(SCRIPT).MLP(hidden=training.hidden)
    weights = model.initial(training.seed)
    shuffle = np.random.default_rng(training.seed)
    while True:
        order = shuffle.permutation(len(x))
        for start in range(0, len(x), training.batch_size):
            rows = order[start : start + training.batch_size]
            _, gradients = model.loss_and_gradients(weights, x[rows], y[rows])
            for name, gradient in gradients.items():
                weights[name] -= np.float32(training.learning_rate) * gradient
            yield weights


def load_example(path: Path) -> ModuleType:
    """An example's script, imported as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    data, hidden, batch_size, learning_rate, seed, *epochs = sys.argv[1:]
    training = Training(
        data=Path(data),
        hidden=int(hidden),
        batch_size=int(batch_size),
        learning_rate=float(learning_rate),
        seed=int(seed),
    )
    with np.load(training.data) as arrays:
        batches = -(-len(arrays["y_train"]) // training.batch_size)
    steps = _steps(training)
    weights, taken = next(steps), 1
    for count in map(int, epochs):
        while taken < count * batches:
            weights = next(steps)
            taken += 1
        print(measure_accuracy(weights, training))


if __name__ == "__main__":
    main()
