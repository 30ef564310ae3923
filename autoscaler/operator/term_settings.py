"""Settings of a leader's term (`leader_term`), and the intervals of what no event calls for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings
from autoscaler.clusters.kubernetes.kubernetes_cluster import SETTLE_EVERY_S
from autoscaler.domain import Policy
from autoscaler.operator.controllers.progress_poller import LONGEST_PAUSE_S, POLL_EVERY_S, TICK_S
from autoscaler.operator.controllers.status_writer import PROGRESS_EVERY_S
from autoscaler.operator.notices.notice_settings import NoticeSettings
from autoscaler.operator.store.work_queue import SETTLE_S

SYNC_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TermIntervals:
    """Intervals at which a term does what no event calls for: the defaults are those of a large cluster."""

    poll_every_s: float = POLL_EVERY_S
    """Question to a master that answers; `poll_tick_s`: how exactly that is kept."""
    poll_tick_s: float = TICK_S
    longest_poll_pause_s: float = LONGEST_PAUSE_S
    """Question to a master that has long been silent, or does not exist yet."""
    settle_every_s: float = SETTLE_EVERY_S
    """Look at starting gangs, in a row of changes."""
    status_settle_s: float = SETTLE_S
    """Changes of a job that come together within that are one write of its status."""
    progress_every_s: float = PROGRESS_EVERY_S
    """Write of a status where only the job's progress has moved."""
    sync_poll_s: float = SYNC_POLL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class TermSettings:
    """Settings of a term.  `identity`: who reports events; `namespaces` empty: all.

    `socket_of`: see `MasterClient`; None where masters have addresses of their own.
    `blocks_failing_nodes`: see `job.node_blocklist`; False where all nodes are the same machine.
    `reads_gpu_reports`: agents write NodeGpus, which are defined.
    `notices`: where and when people are told of what befalls jobs; None: nowhere.
    """

    identity: str
    policy: Policy
    build: BuildSettings
    namespaces: tuple[str, ...] = ()
    socket_of: Callable[[str], str] | None = None
    intervals: TermIntervals = TermIntervals()
    blocks_failing_nodes: bool = True
    reads_gpu_reports: bool = False
    notices: NoticeSettings | None = None
