"""One program as a process: it dies with the process that started it, and its log is kept."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.etcd_members import DIE_WITH_PARENT
from tests.harness.errors import StartError

READY_POLL_S: Final = 0.05
ASK_BUDGET_S: Final = 10.0
LOG_LINES: Final = 12


class Program:
    """Started by the constructor, from the main thread: on Linux it dies with the thread that started it."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        self._command = command
        self._folder = folder
        self._environment = environment
        self._process = self._begin()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -N: it was killed by signal N."""
        return self._process.poll()

    def wait_ready(self, url: str, context: ssl.SSLContext | None, budget_s: float) -> None:
        """`url` answers 200.  Raises StartError with the end of its log."""
        deadline_s = time.monotonic() + budget_s
        while (problem := _try_ask(url, context)) is not None:
            if not self.is_running:
                raise StartError(f"{self.name} has ended with code {self._process.returncode}.\n{self.log_tail()}")
            if time.monotonic() > deadline_s:
                raise StartError(f"{self.name} is not ready after {budget_s} s ({problem}).\n{self.log_tail()}")
            time.sleep(READY_POLL_S)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process still runs."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process, running or stopped, and wait for its end."""
        self._process.kill()
        self._process.wait()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, budget_s: float) -> int:
        """Its exit code, once it has ended.  Raises TimeoutExpired."""
        return self._process.wait(budget_s)

    def restart(self) -> None:
        """Run the same command again after its end, with the same log."""
        self._process = self._begin()

    def stop(self, budget_s: float) -> None:
        """Send SIGTERM, and SIGKILL if it does not end within the budget; wait for the end."""
        self.send(signal.SIGTERM)
        try:
            self._process.wait(timeout=budget_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def log_tail(self) -> str:
        return "\n".join([f"The end of {self.log_file}:", *self.last_lines()])

    def last_lines(self) -> list[str]:
        """The last lines of its log."""
        return self.log_file.read_text(errors="replace").splitlines()[-LOG_LINES:]

    def _begin(self) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid()), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,  # an interrupt at the terminal is ours to handle: it must not end etcd first
            )


def _try_ask(url: str, context: ssl.SSLContext | None) -> str | None:
    """None when it is ready, else why not."""
    try:
        with urllib.request.urlopen(url, context=context, timeout=ASK_BUDGET_S):
            return None
    except urllib.error.HTTPError as error:
        error.close()
        return f"{url}: {error.code}"
    except OSError as error:
        return f"{url}: {error}"
