"""What a run of pytest spent its time on: its slowest files and tests, and who used most CPU time, at its end.

`-p tests.slowest` loads it: `tests/side_by_side.py` does so for each part, and tells these lines again at the end.
A file's time is that of its tests with their fixtures; what several share counts for the test that asked first.  CPU
time is that of this process and of those that it has waited for, with theirs.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

MARK: Final = "slowest: "
"""Begins each line."""
COUNT: Final = 10
LEAST_S: Final = 1.0
COLLECTING: Final = "importing and collecting all tests"
CPU_S: Final = pytest.StashKey[Counter[str]]()


def slowest_lines(durations: Iterable[tuple[str, float]], *, count: int = COUNT) -> list[str]:
    """The slowest files, then the slowest tests, with their seconds: at most `count` of each, none below a second.

    `durations`: the node id of a test and what one of its phases (setup, call, teardown) took.
    """
    of_files: Counter[str] = Counter()
    of_tests: Counter[str] = Counter()
    for test, took_s in durations:
        of_tests[test] += took_s
        of_files[file_of(test)] += took_s
    return [*_lines(of_files, "s", count), *_lines(of_tests, "s", count)]


def busiest_lines(cpu_s: Counter[str], *, count: int = COUNT) -> list[str]:
    """Those that used most CPU time, of files and of what comes before the tests."""
    return _lines(cpu_s, "s CPU", count)


def file_of(test: str) -> str:
    return test.split("::", 1)[0]


def _lines(seconds: Counter[str], unit: str, count: int) -> list[str]:
    return [f"{MARK}{took:6.1f} {unit}  {name}" for name, took in seconds.most_common(count) if took >= LEAST_S]


def _used_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def pytest_collection_finish(session):
    session.config.stash[CPU_S] = Counter({COLLECTING: _used_s()})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    before_s = _used_s()
    try:
        return (yield)
    finally:
        item.config.stash[CPU_S][file_of(item.nodeid)] += _used_s() - before_s


def pytest_terminal_summary(terminalreporter, config):
    reports = (report for kind in terminalreporter.stats.values() for report in kind if hasattr(report, "duration"))
    lines = slowest_lines((report.nodeid, report.duration) for report in reports)
    for line in (*lines, *busiest_lines(config.stash.get(CPU_S, Counter()))):
        terminalreporter.write_line(line)
