"""The pytest plugin of the measuring run: names the running test to child processes, keeps what each test took."""

import json
import os
from pathlib import Path

import pytest

_took_s = {}
_wrong = set()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    os.environ["REACHING_TEST"] = item.nodeid


def pytest_runtest_logreport(report):
    _took_s[report.nodeid] = _took_s.get(report.nodeid, 0.0) + report.duration
    if report.outcome != "passed":
        _wrong.add(report.nodeid)


def pytest_sessionfinish():
    tests = {name: round(took_s, 4) for name, took_s in _took_s.items() if name not in _wrong}
    (Path(os.environ["REACH_FOLDER"]) / "took.json").write_text(json.dumps(tests), encoding="utf-8")
