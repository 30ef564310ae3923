"""Nested states of PyTorch as named host arrays and JSON, and back, without pickle.

A `state_dict()` holds tensors in dicts, lists and tuples, whose keys may be numbers, beside plain values.  Tensors
become NumPy arrays by the path at which they stand; the rest becomes JSON in which all that JSON cannot tell apart
is tagged: {"tuple": [...]}, {"dict": [[key, value], ...]}.  What is neither is refused by its path, since a pickle
would run code of whoever wrote it.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import torch

from trainer_sdk.errors import UsageError
from trainer_sdk.group.port import HostArray

# dtypes that NumPy lacks, each with the integers that carry its bits
_CARRIERS: Final = {
    name: carrier
    for name, carrier in {
        "bfloat16": (torch.uint16, np.uint16),
        "float8_e4m3fn": (torch.uint8, np.uint8),
        "float8_e5m2": (torch.uint8, np.uint8),
    }.items()
    if hasattr(torch, name)
}


class StateEncoder:
    """Collects the arrays of one capture.  The states must live until the last `encode`: addresses tell them apart."""

    def __init__(self) -> None:
        self.arrays: dict[str, HostArray] = {}
        self.dtypes: dict[str, str] = {}
        self._names: dict[tuple[Any, ...], str] = {}  # of tensors that were met, by address, dtype and shape

    def encode(self, value: object, path: str) -> Any:
        """The value as JSON can hold it; its tensors are copied.  Raises UsageError naming the path."""
        match value:
            case None | bool() | str():
                return value
            case int() if type(value) is int:
                return value
            case float() if type(value) is float:
                return value if math.isfinite(value) else {"float": repr(value)}
            case bytes():
                return {"bytes": base64.b64encode(value).decode()}
            case torch.Tensor():
                return {"tensor": self._add_tensor(value, path)}
            case np.ndarray() | np.generic():
                return {"array": self._add_array(np.array(value, order="C"), path)}
            case _:
                return self._encode_container(value, path)

    def _encode_container(self, value: object, path: str) -> Any:
        match value:
            case Counter():
                return {"counter": self._pairs(value, path)}
            case Mapping():
                return {"dict": self._pairs(value, path)}
            case tuple() if type(value) is tuple:
                return {"tuple": self._items(value, path)}
            case list():
                return self._items(value, path)
            case set() | frozenset():
                return {"set": self._items(sorted(value), path)}
            case _:
                raise UsageError(
                    f"{path}: {type(value).__name__} cannot travel between trainers; keep numbers, strings, tensors, "
                    "and lists, tuples and dicts of these in a state_dict()"
                )

    def _pairs(self, value: Mapping[Any, Any], path: str) -> list[Any]:
        return [[self.encode(key, path), self.encode(held, f"{path}.{key}")] for key, held in value.items()]

    def _items(self, values: Iterable[object], path: str) -> list[Any]:
        return [self.encode(value, f"{path}.{number}") for number, value in enumerate(values)]

    def _add_tensor(self, tensor: Any, path: str) -> str:
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise UsageError(f"{path}: has no shape yet; run the model once on a batch before it is replicated")
        if tensor.layout != torch.strided:
            raise UsageError(f"{path}: is {tensor.layout}; only dense tensors travel between trainers")
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device)
        if tensor.numel() and key in self._names:
            return self._names[key]  # tied weights once
        name = str(tensor.dtype).removeprefix("torch.")
        held = tensor.detach().clone(memory_format=torch.contiguous_format).cpu()
        if name in _CARRIERS:
            held = held.view(_CARRIERS[name][0])
            self.dtypes[path] = name
        self._names[key] = self._add_array(held.numpy(), path)
        return path

    def _add_array(self, array: HostArray, path: str) -> str:
        if array.dtype.hasobject or path in self.arrays:
            problem = "holds Python objects" if array.dtype.hasobject else "is the path of two arrays"
            raise UsageError(f"{path}: {problem}; give each array numbers and a name of its own")
        self.arrays[path] = array
        return path


class StateDecoder:
    """Makes states of arrays and JSON; each tensor is a copy.  Raises UsageError on what no encoder writes."""

    def __init__(self, arrays: Mapping[str, HostArray], dtypes: Mapping[str, str]) -> None:
        self._arrays = arrays
        self._dtypes = dtypes

    def decode(self, value: Any) -> Any:
        match value:
            case None | bool() | int() | float() | str():
                return value
            case {"float": str(text)} if text in ("nan", "inf", "-inf"):
                return float(text)
            case {"bytes": str(text)}:
                return base64.b64decode(text)
            case {"tensor": str(name)} if name in self._arrays:
                return self.tensor(name)
            case {"array": str(name)} if name in self._arrays:
                return self._arrays[name].copy()
            case _:
                return self._decode_container(value)

    def _decode_container(self, value: Any) -> Any:
        match value:
            case list():
                return [self.decode(held) for held in value]
            case {"tuple": list(items)}:
                return tuple(self.decode(held) for held in items)
            case {"set": list(items)}:
                return {self.decode(held) for held in items}
            case {"counter": list(pairs)}:
                return Counter({self.decode(key): self.decode(held) for key, held in pairs})
            case {"dict": list(pairs)}:
                return {self.decode(key): self.decode(held) for key, held in pairs}
            case _:
                raise UsageError(f"state: {value!r:.80} is nothing that this release saves")

    def tensor(self, name: str) -> Any:
        """The tensor of this name, in host memory of its own."""
        array = np.array(self._arrays[name], order="C")
        if name not in self._dtypes:
            return torch.from_numpy(array)
        dtype = self._dtypes[name]
        if dtype not in _CARRIERS or array.dtype != _CARRIERS[dtype][1]:
            raise UsageError(f"{name}: {array.dtype} does not carry {dtype!r}; run the same release on all trainers")
        return torch.from_numpy(array).view(getattr(torch, dtype))
