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
from functools import cache
from typing import Any, Final

import numpy as np
import torch

from trainer_sdk.errors import UsageError
from trainer_sdk.group.port import ArrayShape, HostArray, Rows

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
    """Collects the tensors and arrays of one capture; `copied` copies one of them, or some of its rows."""

    def __init__(self) -> None:
        self.shapes: dict[str, ArrayShape] = {}
        self.dtypes: dict[str, str] = {}
        self._held: dict[str, Any] = {}  # tensors and arrays themselves, so that their addresses tell them apart
        self._names: dict[tuple[Any, ...], str] = {}  # of tensors that were met, by address, dtype and shape

    def encode(self, value: object, path: str) -> Any:
        """The value as JSON can hold it; its tensors are kept as they are.  Raises UsageError naming the path."""
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
                array = np.asarray(value)
                return {"array": self._add(array, array.dtype, path)}
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
                return {"set": self._items(_in_order(value, path), path)}
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
        if name in _CARRIERS:
            self.dtypes[path] = name
        self._names[key] = self._add(tensor.detach(), _numpy_dtype(tensor.dtype), path)
        return path

    def _add(self, held: Any, dtype: np.dtype[Any], path: str) -> str:
        if dtype.hasobject or path in self._held:
            problem = "holds Python objects" if dtype.hasobject else "is the path of two arrays"
            raise UsageError(f"{path}: {problem}; give each array numbers and a name of its own")
        self._held[path] = held
        self.shapes[path] = ArrayShape(dtype=dtype.str, shape=tuple(held.shape))
        return path

    def copied(self, path: str, rows: Rows | None = None) -> HostArray:
        """A copy of what stands at this path in host memory, or of these rows of it."""
        held = self._held[path]
        if rows is not None and self.shapes[path].shape:
            held = held[rows.begin : rows.end]
        if isinstance(held, np.ndarray):
            return np.array(held, order="C")
        copy = held.to("cpu", copy=True, memory_format=torch.contiguous_format)
        carrier = _CARRIERS.get(str(held.dtype).removeprefix("torch."))
        array: HostArray = (copy.view(carrier[0]) if carrier else copy).numpy()
        return array


def _in_order(values: Iterable[Any], path: str) -> list[Any]:
    """The same at every rank."""
    try:
        return sorted(values)
    except TypeError as error:
        raise UsageError(
            f"{path}: is a set whose values have no order ({error}), so it would not be the same at all trainers; keep "
            "a list there, or values of one kind"
        ) from error


@cache
def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Dtype of the array that a tensor becomes."""
    name = str(dtype).removeprefix("torch.")
    return np.dtype(_CARRIERS[name][1]) if name in _CARRIERS else torch.empty(0, dtype=dtype).numpy().dtype


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
