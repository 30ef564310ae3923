"""The page served by a thread with an event loop of its own, for browsers that are driven from the test's thread."""

import asyncio
import threading

from autoscaler.page.page_server import serve_locally

READY_S = 60


class ServedPage:
    """A page over a source, served by a thread.  `change` puts other documents in place."""

    def __init__(self, source, **place):
        self.source = source
        self._place = place  # of `serve_locally`
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._end = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    def begin(self):
        self._thread.start()
        assert self._ready.wait(READY_S)

    def end(self):
        """At most once with effect."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()
            self._loop.close()

    @property
    def base(self):
        return self.address.partition("/?")[0]

    def change(self, documents, lines=None):
        self._loop.call_soon_threadsafe(self.source.change, documents, lines)

    async def _serve(self):
        self._end = asyncio.Event()
        async with serve_locally(self.source, **self._place) as self.address:
            self._ready.set()
            await self._end.wait()
