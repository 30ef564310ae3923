"""Annotations of a pod that runs as a process of this machine; each is empty where there is nothing to tell."""

from __future__ import annotations

from typing import Final

PID: Final = "edl.dev/pid"
PORT: Final = "edl.dev/port"
"""Of a pod that serves: the port that it was given; of a master: that of its metrics."""

GPUS: Final = "edl.dev/gpus"
"""The numbers of its devices, in the driver's order where the driver was asked."""
