"""How hard the properties look: the same cases in every run, or (`make test-deep`) others each time.

And tests that need torch or a browser, marked `torch` and `browser`: where it is not installed they are skipped, and
named at the end.
"""

import gc
import os
import shutil
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from tests.side_by_side import outside_parts

UNTIMED = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow,))  # the machine may be slow, or pause

settings.register_profile("ci", UNTIMED, max_examples=50, derandomize=True)  # the same cases in every run
settings.register_profile("random", UNTIMED, max_examples=200, print_blob=True)  # other ones in each run
settings.register_profile("deep", UNTIMED, max_examples=1_000, print_blob=True)
settings.load_profile(os.environ.get("EDL_HYPOTHESIS", "ci"))

TORCH_LEFT_OUT = "LEFT OUT: torch is not installed (make frameworks)"
BROWSER_LEFT_OUT = "LEFT OUT: chromium is not installed (apt-get install chromium)"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Such a test imports torch in its body, so it can be collected without."""
    check_marks(items)
    missing = {
        "torch": TORCH_LEFT_OUT if find_spec("torch") is None else "",
        "browser": BROWSER_LEFT_OUT if shutil.which("chromium") is None else "",
    }
    for mark, reason in missing.items():
        for item in items if reason else ():
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


def check_marks(items):
    """`make test` looks for the mark `cluster` in two folders alone.  Raises pytest.UsageError."""
    if lost := outside_parts(item.nodeid for item in items if item.get_closest_marker("cluster")):
        raise pytest.UsageError(f"marked `cluster` in a folder that tests/side_by_side.py does not name: {lost}")


def pytest_collection_finish():
    """What has been imported and collected stays to the end: the garbage collector need not look through it again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """One line for each of them: pytest's own summary has one for each file."""
    for report in terminalreporter.getreports("skipped"):
        for reason in (TORCH_LEFT_OUT, BROWSER_LEFT_OUT):
            if reason in str(report.longrepr):
                terminalreporter.write_line(f"{reason}: {report.nodeid}")
