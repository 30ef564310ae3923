"""What a run of pytest spent its time on: its slowest files and tests, printed at its end.

`-p tests.slowest` loads it: `tests/side_by_side.py` does so for each part, and tells these lines again at the end.
A file's time is that of its tests with their fixtures; what several share counts for the test that asked first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

MARK: Final = "slowest: "
"""Begins each line."""
COUNT: Final = 10
LEAST_S: Final = 1.0


def slowest_lines(durations: Iterable[tuple[str, float]], *, count: int = COUNT) -> list[str]:
    """The slowest files, then the slowest tests, with their seconds: at most `count` of each, none below a second.

    `durations`: the node id of a test and what one of its phases (setup, call, teardown) took.
    """
    of_files: Counter[str] = Counter()
    of_tests: Counter[str] = Counter()
    for test, took_s in durations:
        of_tests[test] += took_s
        of_files[test.split("::", 1)[0]] += took_s
    return [
        f"{MARK}{took_s:6.1f} s  {name}"
        for kind in (of_files, of_tests)
        for name, took_s in kind.most_common(count)
        if took_s >= LEAST_S
    ]


def pytest_terminal_summary(terminalreporter):
    reports = (report for kind in terminalreporter.stats.values() for report in kind if hasattr(report, "duration"))
    for line in slowest_lines((report.nodeid, report.duration) for report in reports):
        terminalreporter.write_line(line)
