"""An API server whose cache lags behind etcd: Sieve's stale view, and time travel for a client that reconnects.

Its cache has stopped at some version.  Listings and watches come from there; bookmarks and ends of watches are those
of a healthy server, so that no client can notice.  Writes and reads of one object go through to etcd, as on a real one.
"""

from autoscaler.clusters.kubernetes.api.errors import UnavailableError
from autoscaler.clusters.kubernetes.cache.object_cache import key_of


class LaggingServer:
    """Proxy of a `MemoryServer`.  `stop(behind)` holds its cache back, `catch_up` releases it."""

    def __init__(self, server):
        self._server = server
        self._ceiling = None
        self.history = LaggingHistory(self, server.history)

    def __getattr__(self, name):
        return getattr(self._server, name)

    @property
    def version(self):
        """Version that it shows."""
        newest = self._server.history.version
        return newest if self._ceiling is None else min(self._ceiling, newest)

    def stop(self, behind):
        """Show nothing newer than the state `behind` changes ago."""
        changes = self._server.history.kept_changes()[-behind:] if behind else ()
        self._ceiling = changes[0].version - 1 if changes else self._server.history.version

    def catch_up(self):
        self._ceiling = None
        self._server.history._wake()

    def all(self, kind):
        """The objects of a kind at that version."""
        if self._ceiling is None:
            return self._server.all(kind)
        items = {key_of(item): item for item in self._server.all(kind)}
        for change in reversed(self._server.history.kept_changes()):
            if change.version <= self._ceiling:
                break
            if change.kind == kind:
                items.pop(key_of(change.after or change.before), None)
                if change.before is not None:
                    items[key_of(change.before)] = change.before
        return [items[key] for key in sorted(items)]


class LaggingHistory:
    """The changes up to where its server has come."""

    def __init__(self, server, history):
        self._server = server
        self._history = history

    def __getattr__(self, name):
        return getattr(self._history, name)

    @property
    def version(self):
        return self._server.version

    def since(self, version):
        if version > self.version:
            message = f"too large resource version: {version}, current: {self.version}"
            raise UnavailableError(message, may_have_happened=False)
        return [change for change in self._history.since(version) if change.version <= self.version]
