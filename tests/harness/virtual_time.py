"""An event loop whose clock jumps to the next timer as soon as nothing else is to do: hours pass in milliseconds.

`run(main())` runs a coroutine to its end on such a loop.  A loop that waits for nothing that could ever come fails at
once, in place of hanging.
"""

import asyncio
import selectors

TURN_S = 1e-9  # length of a turn of the loop: else a wait below the clock's resolution would never end


class StuckError(AssertionError):
    """Everything waits, and no timer is set."""


class _Instant(selectors.SelectSelector):
    def __init__(self):
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout=None):
        if timeout is None:
            raise StuckError
        self.now_s += max(timeout, TURN_S)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._instant = _Instant()
        super().__init__(self._instant)

    def time(self):
        return self._instant.now_s


def run(main):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def now():
    """Seconds on the running loop's clock."""
    return asyncio.get_running_loop().time()
