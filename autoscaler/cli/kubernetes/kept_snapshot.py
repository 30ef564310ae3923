"""What a page's plans depend on, read from the API server now and then: a snapshot lists the whole cluster."""

from __future__ import annotations

import time
from typing import Final

from autoscaler.cli.exit_codes import CommandError
from autoscaler.cli.kubernetes.cluster_snapshot import read_cluster_snapshot
from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.errors import PermanentError
from autoscaler.snapshots import SnapshotContent

SNAPSHOT_KEPT_S: Final = 15.0
"""A page that stays open must not list the cluster all the time."""


class KeptSnapshot:
    """Reads what `edl snapshot save` does, and keeps it for a while.

    `policy`: namespace and name of the ConfigMap with the operator's policy; None: it is looked for.
    """

    def __init__(self, policy: tuple[str, str] | None = None) -> None:
        self._policy = policy
        self._found: SnapshotContent | None = None
        self._read_at_s = 0.0

    async def __call__(self, api: Api, title: str) -> SnapshotContent:
        """Return the snapshot.  Raises ClusterError."""
        if self._found is None or time.monotonic() - self._read_at_s >= SNAPSHOT_KEPT_S:
            try:
                found = await read_cluster_snapshot(api, title=title, now_s=time.time(), policy=self._policy)
            except CommandError as error:
                raise PermanentError(error.message) from None
            self._found, self._read_at_s = found.snapshot, time.monotonic()
        return self._found
