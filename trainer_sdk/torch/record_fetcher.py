"""Micro-batches read by a DataLoader's workers, ahead of the loop, in the order that the group will ask for them.

Which records come next depends on who is in the group, so what is read ahead is a guess; it is right until somebody
comes or goes.  A step that comes again does not read again what it had: it gets the same tensors in containers of their
own, unless the script has changed a tensor in place, as far as torch counts that (not by `.data` or `.numpy()`).
Without workers and pinned memory they are read when they are asked for, without a DataLoader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import torch

from trainer_sdk.torch.record_source import RecordKey, RecordSource
from trainer_sdk.torch.record_stream import StreamSource

Keys = tuple[RecordKey, ...]  # of a micro-batch


class RecordFetcher:
    """The loaded micro-batches of one trainer.  `start` before the process has threads, for workers are forked."""

    def __init__(self, source: RecordSource | StreamSource, options: Mapping[str, Any]) -> None:
        """`options`: those of a DataLoader."""
        self._asked = _AskedKeys()
        has_workers = options.get("num_workers", 0) > 0
        self._source: Final = source
        own: dict[str, Any] = {"batch_sampler": self._asked, "collate_fn": _as_read, "persistent_workers": has_workers}
        self._loader = torch.utils.data.DataLoader(source, **{**options, **own})
        self._has_workers: Final = has_workers
        self._is_direct: Final = not has_workers and not options.get("pin_memory", False)
        self.is_stream: Final = isinstance(source, StreamSource)
        self._iterator: Iterator[Any] = iter(())
        self._step = -1
        self._held: dict[Keys, tuple[Any, tuple[int, ...]]] = {}  # of the step: a copy, and its tensors' versions

    def start(self) -> None:
        """Starts the worker processes, if any; a second call does nothing."""
        if self._has_workers and self._loader._iterator is None:  # noqa: SLF001  no other way to tell
            self._asked.begin(())
            for _ in self._loader:
                pass

    def read(self, step: int, keys: Keys, ahead: Callable[[], Iterable[Keys]]) -> Any:
        """The micro-batch of a step; `ahead` gives those expected after it.  Raises what reading a record raises."""
        if step != self._step:
            self._step, self._held = step, {}
        if keys in self._held:
            kept, versions = self._held[keys]
            if _versions(kept) == versions:
                return _copied(kept)
        data = self._source.__getitems__(keys) if self._is_direct else self._read_ahead(keys, ahead)
        if (given := _versions(data)) is not None:
            self._held[keys] = _copied(data), given
        return data

    def _read_ahead(self, keys: Keys, ahead: Callable[[], Iterable[Keys]]) -> Any:
        if self._asked.waiting[:1] != [keys]:
            self._asked.begin(chain((keys,), ahead()))
            self._iterator = iter(self._loader)
        try:
            data = next(self._iterator)
        except BaseException:
            self._asked.begin(())
            raise
        self._asked.taken()
        return data

    def close(self) -> None:
        """Ends the worker processes.  A second call does nothing."""
        self._held.clear()
        self._iterator = iter(())
        if (iterator := getattr(self._loader, "_iterator", None)) is not None:
            iterator._shutdown_workers()  # noqa: SLF001  they would stay until the loader is collected
            self._loader._iterator = None  # noqa: SLF001


class _AskedKeys:
    """A batch sampler that tells what a DataLoader has asked for and not given yet."""

    def __init__(self) -> None:
        self._coming: Iterator[Keys] = iter(())
        self._waiting: deque[Keys] = deque()

    @property
    def waiting(self) -> list[Keys]:
        return list(self._waiting)

    def begin(self, coming: Iterable[Keys]) -> None:
        self._coming = iter(coming)
        self._waiting.clear()

    def taken(self) -> None:
        self._waiting.popleft()

    def __iter__(self) -> Iterator[list[RecordKey]]:
        for keys in self._coming:
            self._waiting.append(keys)
            yield list(keys)


def _as_read(batch: Any) -> Any:
    """`collate_fn` of the DataLoader: what it reads are micro-batches."""
    return batch


def _versions(data: Any) -> tuple[int, ...] | None:
    """Numbers that change when a tensor within is changed in place; None for what cannot be given a second time."""
    kind = type(data)
    if kind is torch.Tensor:
        return None if data.requires_grad else (data._version,)  # noqa: SLF001  torch documents it for this use alone
    if data is None or kind in (bool, int, float, str, bytes):
        return ()
    if kind not in (dict, list, tuple):
        return None
    versions: tuple[int, ...] = ()
    for item in data.values() if kind is dict else data:
        if (of_item := _versions(item)) is None:
            return None
        versions += of_item
    return versions


def _copied(data: Any) -> Any:
    """Containers of their own around the same memory: the script may put other things into those that it was given.

    Tensors are the same memory with the same version, and attributes of their own, as `requires_grad`.
    """
    match data:
        case torch.Tensor():
            return data.detach()
        case dict():
            return {key: _copied(held) for key, held in data.items()}
        case list():
            return [_copied(held) for held in data]
        case tuple():
            return tuple(_copied(held) for held in data)
        case _:
            return data
