"""Addresses in the network of the real nodes.  Pure."""

from __future__ import annotations

from typing import Final

BRIDGE: Final = "edl0"
CONTROL_PLANE: Final = "10.77.0.1"
NODE_PREFIX: Final = 24
POD_RANGE: Final = "10.88.0.0/16"
DNS_SERVICE: Final = "10.96.0.10"
MOST_NODES: Final = 9


def node_address(number: int) -> str:
    return f"10.77.0.{10 + number}"


def pod_range(number: int) -> str:
    """Addresses of the pods on one node."""
    return f"10.88.{number}.0/24"
