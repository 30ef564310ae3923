"""Random numbers of a group's training, as a function of seed and position (rule 66).

They depend neither on who trains a record nor on what was trained before, so augmentation and dropout come out alike
whoever has come or gone.  The generators are those that scripts use without naming one: torch's, NumPy's, Python's.
"""

from __future__ import annotations

import random
from functools import cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import torch

READING: Final = b"read"  # of a record, with its augmentation
TRAINING: Final = b"train"  # of a micro-batch, with its dropout
UPDATE: Final = b"update"  # of a step, with an optimizer's noise or stochastic rounding


def seed_generators(seed: int, position: int, purpose: bytes) -> None:
    """All generators begin anew, as (seed, position, purpose) says."""
    value = seed_torch(seed, position, purpose)
    np.random.seed(value & 0xFFFFFFFF)  # noqa: NPY002  the one that scripts use unnamed
    random.seed(value)


def seed_torch(seed: int, position: int, purpose: bytes) -> int:
    """Torch's generators begin anew; the number of 64 bits that they are seeded with."""
    digest = blake2b(b"%s %d %d" % (purpose, seed, position), digest_size=8).digest()
    value = int.from_bytes(digest, "little")
    torch.default_generator.manual_seed(value)  # torch.manual_seed takes 200 times as long, for devices not in use
    _seed_accelerator(value)
    return value


def numpy_and_python_states() -> tuple[Any, ...]:
    """Equal before and after a call exactly if it drew from neither generator."""
    of_numpy: Any = np.random.get_state()  # noqa: NPY002  as above
    kind, key, *rest = of_numpy
    return kind, bytes(key), *rest, random.getstate()


def is_accelerator_in_use() -> bool:
    """True once the script has used one in this process; never in a worker that was forked."""
    kind = _accelerator()
    return kind is not None and bool(torch.get_device_module(kind).is_initialized())


def _seed_accelerator(value: int) -> None:
    """The generators of its devices; not before the script has used it, and never in a worker that was forked."""
    if is_accelerator_in_use():
        torch.get_device_module(_accelerator()).manual_seed_all(value)


@cache
def _accelerator() -> Any:
    """The kind of accelerator that this torch was built for, if any; asking does not touch a device."""
    return torch.accelerator.current_accelerator()
