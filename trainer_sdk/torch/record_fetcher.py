"""Micro-batches read by a DataLoader's workers, ahead of the loop, in the order that the group will ask for them.

Which records come next depends on who is in the group, so what is read ahead is a guess; it is right until somebody
comes or goes.  A step that comes again does not read again what it had, unless the script has changed it in place.
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
        self._held: dict[Keys, tuple[Any, tuple[int, ...]]] = {}  # of the step: data, and the versions of its tensors

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
            data, versions = self._held[keys]
            if _versions(data) == versions:
                return data
        data = self._source.__getitems__(keys) if self._is_direct else self._read_ahead(keys, ahead)
        given = _versions(data)
        if given is not None:
            self._held[keys] = data, given
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
    """Numbers that change when a tensor within is changed in place; None where that cannot be told of all data."""
    match data:
        case torch.Tensor():
            return (data._version,)  # noqa: SLF001  torch documents it for this use alone
        case None | bool() | int() | float() | str() | bytes():
            return ()
        case Mapping():
            return _versions_of(data.values())
        case tuple() | list():
            return _versions_of(data)
        case _:
            return None


def _versions_of(items: Iterable[Any]) -> tuple[int, ...] | None:
    versions: tuple[int, ...] = ()
    for item in items:
        if (of_item := _versions(item)) is None:
            return None
        versions += of_item
    return versions
