"""Digests of tensors, as fast as their memory is read, on the device that holds them (rule 65).

Eight bytes at a time are taken as whole numbers: columns of a table with `COLUMNS` of them a row are summed, and the
sums are multiplied by odd weights and added up, modulo 2**64.  Whole numbers have one sum in whatever order they are
added, so equal bits have equal digests on every device.  It finds accidents, and does not withstand malice.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import torch

COLUMNS: Final = 1024
_WORD: Final = 8  # bytes


def digest_tensors(tensors: Mapping[str, Any]) -> dict[str, int]:
    """64 bits of each tensor: equal for equal bits.  The devices are waited for once each, not once for each tensor."""
    sums = {name: _digest(tensor.detach()) for name, tensor in tensors.items()}
    by_device: dict[Any, list[str]] = {}
    for name, one in sums.items():
        by_device.setdefault(one.device, []).append(name)
    found: dict[str, int] = {}
    for names in by_device.values():
        found.update(zip(names, torch.stack([sums[name] for name in names]).tolist(), strict=True))
    return {name: found[name] for name in tensors}


def _digest(tensor: Any) -> Any:
    """A whole number, in a tensor on the same device."""
    words = _words(tensor)
    weights = _weights(tensor.device)
    whole = len(words) // COLUMNS * COLUMNS
    rest = words[whole:]
    digest = (rest * weights[: len(rest)]).sum()
    if whole:
        digest = digest * 3 + (words[:whole].view(-1, COLUMNS).sum(0) * weights).sum()
    return digest


def _words(tensor: Any) -> Any:
    """The bits as whole numbers of eight bytes, without a copy where they lie so; the last one is filled with zeros."""
    if torch.is_complex(tensor):
        tensor = torch.view_as_real(tensor.resolve_conj())
    octets = tensor.contiguous().view(-1).view(torch.uint8)
    filling = -len(octets) % _WORD
    if filling or octets.storage_offset() % _WORD or octets.data_ptr() % _WORD:
        octets = torch.cat([octets, octets.new_zeros(filling)])
    return octets.view(torch.int64)


@lru_cache(maxsize=8)
def _weights(device: Any) -> Any:
    generator = torch.Generator().manual_seed(65)
    return (torch.randint(-(2**62), 2**62, (COLUMNS,), generator=generator) * 2 + 1).to(device)
