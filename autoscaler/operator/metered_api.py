"""API decorator that counts requests for `metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.decorators import ApiDecorator
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.errors import ClusterError

Count: TypeAlias = Callable[[str, str, str], None]


class MeteredApi(ApiDecorator):
    """`Api` decorator for metrics: calls `count(verb, kind, outcome)` as each call ends, or as a stream begins."""

    def __init__(self, inner: Api, count: Count) -> None:
        super().__init__(inner)
        self._count = count

    def around_read(self, verb: str, kind: Kind) -> AbstractContextManager[None]:
        """See `ApiDecorator.around_read`."""
        return self._counted(verb, kind)

    def around_write(self, verb: str, kind: Kind) -> AbstractContextManager[None]:
        """See `ApiDecorator.around_write`."""
        return self._counted(verb, kind)

    def before_stream(self, verb: str, kind: Kind) -> None:
        """See `ApiDecorator.before_stream`."""
        self._count(verb, kind.plural, "begun")

    @contextmanager
    def _counted(self, verb: str, kind: Kind) -> Iterator[None]:
        try:
            yield
        except ClusterError as error:
            self._count(verb, kind.plural, type(error).__name__)
            raise
        self._count(verb, kind.plural, "ok")
