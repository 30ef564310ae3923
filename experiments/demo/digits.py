"""The 1,797 handwritten digits that come with scikit-learn, exported once to a file that trainers map in milliseconds.

Four trainers that import scikit-learn for themselves take four seconds each; reading an .npz takes none.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

SPLIT_SEED: Final = 1797
TEST_FRACTION: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitsFile:
    """Where the exported digits are, and how many there are to train and to test on."""

    path: Path
    train_count: int
    test_count: int


def export_digits(folder: Path) -> DigitsFile:
    """Write `folder`/digits.npz unless it is there: x in [0, 1] float32 (n, 64), y int64; stratified, seed fixed.

    After the call the file is complete: it is written beside and renamed.
    """
    path = folder / "digits.npz"
    if not path.exists():
        # The child keeps scikit-learn (1.3 s, 80 MB) out of this process, which lives as long as the demo.
        import subprocess  # noqa: PLC0415 - only on the first run

        subprocess.run([sys.executable, "-m", "experiments.demo.digits", str(path)], check=True, timeout=120)
    with np.load(path) as arrays:
        return DigitsFile(path=path, train_count=len(arrays["y_train"]), test_count=len(arrays["y_test"]))


def _export(path: Path) -> None:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - 1.3 s, wanted in this process only
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    images, labels = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        (images / 16.0).astype(np.float32),
        labels.astype(np.int64),
        test_size=TEST_FRACTION,
        stratify=labels,
        random_state=SPLIT_SEED,
    )
    partial = path.with_suffix(f".{os.getpid()}.npz")
    np.savez(partial, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    partial.replace(path)


if __name__ == "__main__":
    _export(Path(sys.argv[1]))
