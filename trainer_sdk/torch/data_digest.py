"""Digests of what a data set gave, by which trainers compare what they have read of one record (rule 63)."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import torch


def digest_of(data: Any) -> str:
    """Equal for equal tensors, arrays, numbers and texts, in containers too; empty where other things are within."""
    digest = blake2b(digest_size=8)
    return digest.hexdigest() if _add(digest, data) else ""


def _add(digest: Any, data: Any) -> bool:
    """False for what cannot be compared."""
    match data:
        case torch.Tensor() if data.layout == torch.strided and not data.is_nested:
            whole = data.detach().cpu().resolve_conj().resolve_neg().contiguous()
            digest.update(f"{whole.dtype} {tuple(whole.shape)}".encode())
            digest.update(whole.view(-1).view(torch.uint8).numpy())
        case np.ndarray() if data.dtype.kind in "biufcSU":
            digest.update(f"{data.dtype} {data.shape}".encode())
            digest.update(np.ascontiguousarray(data).tobytes())
        case None | bool() | int() | float() | str() | bytes() | np.generic():
            digest.update(f"{type(data).__name__} {data!r}".encode())
        case Mapping():
            return all(_add(digest, str(key)) and _add(digest, held) for key, held in data.items())
        case tuple() | list():
            digest.update(f"{len(data)}".encode())
            return all(_add(digest, item) for item in data)
        case _:
            return False
    return True
