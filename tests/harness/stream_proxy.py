"""A proxy between a browser and a page that does to streams what real ones do: it holds them back, or cuts them."""

import asyncio
import threading

READY_S = 60


class StreamProxy:
    """A proxy on a port of its own, run by a thread.  `passes`: bytes of a connection's answers once it has a stream.

    `is_cut`: the first stream ends there; else what comes after is held back.
    """

    def __init__(self, base, *, passes, is_cut):
        self._port = int(base.rpartition(":")[2])
        self._passes, self._is_cut = passes, is_cut
        self._cuts = 0
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    def begin(self):
        self._thread.start()
        assert self._ready.wait(READY_S)

    def end(self):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self):
        connections = set()

        def take(reader, writer):
            task = asyncio.create_task(self._connect(reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        self.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._end.wait()
        server.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()

    async def _connect(self, reader, writer):
        page_reader, page_writer = await asyncio.open_connection("127.0.0.1", self._port)
        has_stream = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as pumps:
                up = pumps.create_task(self._ask(reader, page_writer, has_stream))
                await self._answer(page_reader, writer, has_stream)
                up.cancel()
        except* OSError:
            pass
        finally:
            for one in (writer, page_writer):
                one.transport.abort()

    async def _ask(self, reader, page_writer, has_stream):
        while data := await reader.read(65_536):
            if b"GET /live" in data:
                has_stream.set()
            page_writer.write(data)
        page_writer.close()

    async def _answer(self, page_reader, writer, has_stream):
        passed = 0
        while data := await page_reader.read(65_536):
            if has_stream.is_set() and not (self._is_cut and self._cuts):
                data = data[: max(0, self._passes - passed)]
                passed += len(data)
                if self._is_cut and passed == self._passes:
                    self._cuts += 1
                    writer.write(data)
                    await writer.drain()
                    return
            writer.write(data)
            await writer.drain()
