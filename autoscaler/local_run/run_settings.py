"""Settings of a run, and its policies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoscaler.domain import Policy
from autoscaler.manifests.api_types import VirtualNode

LOCAL_POLICY: Final = Policy(burst_window_s=0.0, server_moves_per_minute=0, server_moves_percent_per_minute=0)
"""Policy of a run.  One command submits all its jobs before the first plan, so no further submissions are waited for.
Servers stay on their nodes."""

MOVING_SERVERS_POLICY: Final = Policy(burst_window_s=0.0)
"""The same policy with servers that move to where they waste least (ADR 0118)."""


GPU_WINDOW_S: Final = 300.0
LEAST_GPU_WINDOW_S: Final = 5.0
"""Between two samples of `gpu_watch`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsAddress:
    """Address at which a run listens for Prometheus; port 0: any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings of a run.  `devices`: GPU numbers of each machine, in order; `parent`: where the run folder is made.

    `cuda_ids`: CUDA's names of GPUs by their number; one without is named by its number.
    """

    name: str
    machines: tuple[VirtualNode, ...]
    devices: tuple[tuple[int, ...], ...]
    cuda_ids: Mapping[int, str] = field(default_factory=dict)
    parent: Path = Path("runs")
    working_dir: Path = field(default_factory=Path.cwd)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    policy: Policy = LOCAL_POLICY
    with_etcd: bool = True
    allows_shared_folders: bool = False  # for checkpoints: every user of this machine may write to them (ADR 0170)
    etcd: str = ""  # endpoints of one that runs already, for `with_etcd=False`
    gpu_window_s: float = 0.0  # how long a GPU must not compute to count as held or free; 0: GPUs are not watched
    metrics: MetricsAddress | None = None  # where Prometheus reads metrics; None: nowhere
    described: Mapping[str, Any] = field(default_factory=dict)  # more for run.json: the command line, say

    @property
    def moves_servers(self) -> bool:
        """True if the policy lets parameter servers move."""
        return self.policy.server_moves_per_minute > 0
