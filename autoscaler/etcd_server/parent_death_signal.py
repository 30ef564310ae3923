"""Runs a command that dies with its parent process: `python -I -S parent_death_signal.py PARENT_PID COMMAND...`

Linux sends SIGKILL when the parent's thread ends, however it ends; elsewhere the command just runs.  The kernel keeps
the setting over exec, so the process id is the command's own.  A file by itself, for it runs without the package.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the setting
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606  # no shell


if __name__ == "__main__":
    main()
