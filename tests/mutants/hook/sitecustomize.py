"""Measures the child processes of a measured test: found on PYTHONPATH before any other module of this name."""

import contextlib
import os

if os.environ.get("COVERAGE_PROCESS_START"):
    with contextlib.suppress(ImportError):
        import coverage

        coverage.process_startup()
