"""What time alone brings: holds and forks that expire, and the report of what buckets weigh.  One thread."""

from __future__ import annotations

import math
import threading
import time

from trainer_sdk.pserver import bucket
from trainer_sdk.pserver.shell import Shell
from trainer_sdk.pserver.weighing import Tally


class Deadlines:
    """Watched until the shell is closed."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Once the shell is closed: nothing happens any more."""
        self._thread.join()

    def _watch(self) -> None:
        shell = self._shell
        try:
            while not shell.is_closed:
                tally = self._wait_for_tally()
                if tally is not None:
                    shell.outside.tell(tally.report())
        except BaseException as error:
            shell.outside.fatal(error)
            raise

    def _wait_for_tally(self) -> Tally | None:
        """What a report that is due is made of, without the lock; deadlines are kept meanwhile.  None: look again."""
        shell = self._shell
        with shell.lock:
            report_s = shell.weighing.due_s if shell.state.is_ready else math.inf
            at_s, event = bucket.deadline(shell.state) or (math.inf, None)
            now_s = time.monotonic()
            if event is not None and now_s >= at_s:
                shell.handle(event)
            elif now_s >= report_s:
                return shell.weighing.take(shell.state.lineage, shell.state.buckets, now_s)
            elif not shell.is_closed:
                left_s = min(at_s, report_s) - now_s
                shell.changed.wait(left_s if left_s < math.inf else None)
            return None
