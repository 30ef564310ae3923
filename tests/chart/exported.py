"""Every metric that EDL exports, by the name of its series, and every metric that the chart records."""

from __future__ import annotations

from typing import Final

from tools.metrics_reference import FILES, families, recorded

__all__ = ["FILES", "exported", "recorded"]

_EXPORTED: Final = frozenset(name for found in families().values() for one in found for name in one.series)


def exported() -> frozenset[str]:
    """Return the names of series, counters with their suffix, histograms by each of their series."""
    return _EXPORTED
