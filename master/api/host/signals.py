"""Signals between the processes around a master."""

from __future__ import annotations

import signal
from typing import Final

TAKE_OVER: Final = signal.SIGUSR1
"""To what stands by, from whoever has seen the master before it die; blocked until it is listened for (ADR 0202)."""
