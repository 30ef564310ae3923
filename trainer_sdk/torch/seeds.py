"""Random numbers of a group's training, as a function of seed and position (rule 66).

They depend neither on who trains a record nor on what was trained before, so augmentation and dropout come out alike
whoever has come or gone.  The generators are those that scripts use without naming one: torch's, NumPy's, Python's.
"""

from __future__ import annotations

import random
from ctypes import string_at
from functools import cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import torch

READING: Final = b"read"  # of a record, with its augmentation
TRAINING: Final = b"train"  # of a micro-batch, with its dropout
UPDATE: Final = b"update"  # of a step, with an optimizer's noise or stochastic rounding
_MT19937_BYTES: Final = 4 * (624 + 1)  # the state of NumPy's generator in memory: its words, and the place in them


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
    """Equal before and after a call if it drew from neither generator, and only then.

    But for one normal number that NumPy may have at hand from a draw before: to ask for that takes a hundred times as
    long as all the rest, in each micro-batch.
    """
    bits: Any = np.random.mtrand.get_bit_generator()
    if type(bits) is np.random.MT19937:
        return string_at(bits.ctypes.state_address, _MT19937_BYTES), random.getstate()
    of_numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002  as above
    return repr(of_numpy), random.getstate()


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
