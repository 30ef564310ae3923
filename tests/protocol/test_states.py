"""The real cores, through every interleaving of small jobs: I1 to I9, and END within reach (M1, M3, M4).

At least 100,000 states in all; `make check-protocol` explores twenty times as many.
"""

from __future__ import annotations

import pytest

from tests.protocol.configs import CONFIGS
from tests.protocol.explore import Limits, Report, Verdict
from tests.protocol.haste import explore_job

STATES_PER_CONFIG = 1_500
STATES_IN_ALL = 100_000

_reports: dict[str, Report] = {}


@pytest.mark.timeout(2400)  # seconds each on a machine that is idle
@pytest.mark.parametrize("name", CONFIGS)
def test_no_step_breaks_an_invariant_and_end_stays_within_reach(name):
    """I1 to I9 after every step, and no state from which END cannot be reached without faults."""
    report = _reports[name] = explore_job(CONFIGS[name], Limits(states=STATES_PER_CONFIG, seconds=1800))
    assert report.verdict in (Verdict.OK, Verdict.CUT_OFF), f"{name}: {report}"


def test_enough_states_were_explored():
    """Of all configurations together."""
    if len(_reports) < len(CONFIGS):
        pytest.skip("not all configurations were run")
    assert sum(report.states for report in _reports.values()) >= STATES_IN_ALL
