"""`python -m master.supervisor`: a master and its standby in one container (ADR 0203).

It starts a master, and a while later a standby that waits (`process.standby`).  When the master's process dies, and
only then, the supervisor signals the standby to take over and starts another one.  It imports only what runs programs,
and is independent of job and store.

It ends with its master's exit code when there is no standby, when the master was asked to end or names a setting to
change, and when masters die so fast that something is wrong: a kubelet then restarts it, with its own pauses.  Its
end ends both processes.  SIGTERM goes to the master; a process that is stopped (SIGSTOP) has not died.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import deque
from typing import Final

from master.api.host.signals import TAKE_OVER

COMMAND: Final = (sys.executable, "-P", "-m", "master")
STANDBY_AFTER_S: Final = 3.0  # its interpreter starts when the master's own is done
NEXT_AFTER_S: Final = 0.3  # once one has taken over: members reconnect first, and another death may be near (ADR 0183)
LONGEST_WAIT_S: Final = 60.0
STOPS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
FINAL_CODES: Final = frozenset({0, 2})  # `master.__main__`: asked to end, and what another start cannot mend
MOST_DEATHS: Final = 5
DEATHS_WITHIN_S: Final = 60.0
SET_PDEATHSIG: Final = 1


class Supervisor:
    """The two processes.  The signals that it handles are blocked and waited for."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._master = self._start(is_standby=False)
        self._standby: subprocess.Popen[bytes] | None = None
        self._standby_due_s = time.monotonic() + STANDBY_AFTER_S
        self._deaths_s: deque[float] = deque(maxlen=MOST_DEATHS)
        self._is_stopping = False

    def run(self) -> int:
        """Keeps a master at work; the exit code of the last one."""
        while True:
            self._wait()
            if self._standby is not None and self._standby.poll() is not None:
                self._standby, self._standby_due_s = None, time.monotonic() + STANDBY_AFTER_S
            code = self._master.poll()
            if code is not None and not self._hand_over(code):
                return self._end(code)
            if self._standby is None and not self._is_stopping and time.monotonic() >= self._standby_due_s:
                self._standby = self._start(is_standby=True)

    def _wait(self) -> None:
        """Returns when a child has ended or one is to be started; a signal to stop goes to the master."""
        is_due = self._standby is None and not self._is_stopping
        wait_s = max(0.05, self._standby_due_s - time.monotonic()) if is_due else LONGEST_WAIT_S
        stop = signal.sigtimedwait({signal.SIGCHLD, *STOPS}, wait_s)
        if stop is not None and stop.si_signo in STOPS:
            self._is_stopping = True
            self._master.send_signal(stop.si_signo)

    def _hand_over(self, code: int) -> bool:
        """True if the standby takes over from the master that has died."""
        now_s = time.monotonic()
        self._deaths_s.append(now_s)
        is_loop = len(self._deaths_s) == MOST_DEATHS and now_s - self._deaths_s[0] < DEATHS_WITHIN_S
        if self._is_stopping or code in FINAL_CODES or self._standby is None or is_loop:
            return False
        print(f"master.supervisor: the master ended with {code}; the standby takes over", file=sys.stderr)  # noqa: T201
        self._standby.send_signal(TAKE_OVER)
        self._master, self._standby, self._standby_due_s = self._standby, None, now_s + NEXT_AFTER_S
        return True

    def _end(self, code: int) -> int:
        if self._standby is not None:
            self._standby.kill()
            self._standby.wait()
        return code if code >= 0 else 128 - code  # as shells tell of a signal

    def _start(self, *, is_standby: bool) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "EDL_STANDBY": "1" if is_standby else "0"}
        return subprocess.Popen(COMMAND, env=environment, preexec_fn=self._prepare)  # noqa: PLW1509 - one thread

    def _prepare(self) -> None:
        """In the child: it dies with this process, and an early order to take over is kept pending."""
        self._libc.prctl(SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, {TAKE_OVER})


def main() -> int:
    """Runs until there is no master any more."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *STOPS})
    return Supervisor().run()


if __name__ == "__main__":
    sys.exit(main())
