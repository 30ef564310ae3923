"""Signals between the processes around a master."""

from __future__ import annotations

import signal
from typing import Final

TAKE_OVER: Final = signal.SIGUSR1
"""Signal that tells a standby that the master before it is dead; blocked until the standby handles it (ADR 0202)."""
