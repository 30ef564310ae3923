"""Run folders whose paths are too long for sockets have these elsewhere: a place that goes when the tests are over."""

import tempfile

import pytest


@pytest.fixture(scope="session", autouse=True)
def _sockets_elsewhere():
    """Only a run removes its own; what a test made without one would stay in /tmp for ever."""
    with tempfile.TemporaryDirectory(prefix="edl-unit-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", folder)
        yield
