"""An `Api` that counts what it is asked, by verb, kind and outcome; it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.decorators import AroundApi
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.errors import ClusterError

Count: TypeAlias = Callable[[str, str, str], None]


class MeteredApi(AroundApi):
    """`port.Api`.  `count(verb, kind, outcome)` is called at the end of each call; of streams at their beginning."""

    def __init__(self, inner: Api, count: Count) -> None:
        super().__init__(inner)
        self._count = count

    def reading(self, verb: str, kind: Kind) -> AbstractContextManager[None]:
        """See `AroundApi.reading`."""
        return self._counted(verb, kind)

    def writing(self, verb: str, kind: Kind) -> AbstractContextManager[None]:
        """See `AroundApi.writing`."""
        return self._counted(verb, kind)

    def streaming(self, verb: str, kind: Kind) -> None:
        """See `AroundApi.streaming`."""
        self._count(verb, kind.plural, "begun")

    @contextmanager
    def _counted(self, verb: str, kind: Kind) -> Iterator[None]:
        try:
            yield
        except ClusterError as error:
            self._count(verb, kind.plural, type(error).__name__)
            raise
        self._count(verb, kind.plural, "ok")
