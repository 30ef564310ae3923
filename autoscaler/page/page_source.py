"""Port: what the page reads of the place where it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autoscaler.snapshots import SnapshotContent
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.history.journal import JournalLine


class PageSource(Protocol):
    """The cluster behind a page.  `title`: of the run, or of the cluster.

    The page calls all of it in one event loop, and never concurrently with itself for one version.
    """

    @property
    def title(self) -> str:
        """Name of the run or of the cluster, for people."""

    @property
    def problem(self) -> str:
        """Why nothing, or not all, can be shown as it is now; empty where it can."""

    def documents(self) -> ClusterDocuments | None:
        """Return the objects as `edl get -o json` prints them now; None until everything has been listed once.

        Cheap: objects are shared and never changed.
        """

    def journal(self) -> Sequence[JournalLine]:
        """Return the decisions and events that are kept, the newest last; at most some thousands."""

    async def snapshot(self) -> SnapshotContent:
        """Return what a plan depends on, as `edl snapshot save` writes it.

        Raises:
            ClusterError: it cannot be read now; the page says so.
        """

    async def log_tail(self, namespace: str, pod: str, lines: int) -> Sequence[str]:
        """Return the last lines that the pod has written; none where its log cannot be read."""

    async def wait_for_change(self, version: int) -> int:
        """Wait until something differs from what it was at `version` (0: at no time) and return the present version.

        Returns at once if it differs already.  Versions rise.
        """
