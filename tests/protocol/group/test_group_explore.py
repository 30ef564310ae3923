"""The cores of a group's master and trainers together: no state breaks an invariant, and END stays in reach (M10).

Also where the store is lost (M8).
"""

from __future__ import annotations

import pytest

from tests.protocol.explore import Limits, Verdict, explore
from tests.protocol.group.breaks.left_out import forget
from tests.protocol.group.configs import CONFIGS
from tests.protocol.group.model import GroupModel

EXHAUSTED = ("alone", "take-over-alone")
STATES = 8_000


@pytest.fixture(autouse=True)
def _without_memory():
    """What one exploration remembers helps no other."""
    yield
    forget()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_is_wrong_with_a_small_group(name):
    """Explored to the end, or as far as a test may go; `make check-protocol` goes further."""
    report = explore(GroupModel(CONFIGS[name]), Limits(states=STATES, seconds=900))
    allowed = (Verdict.OK,) if name in EXHAUSTED else (Verdict.OK, Verdict.CUT_OFF)
    assert report.verdict in allowed, f"{name}: {report}"
    assert report.states > 100
