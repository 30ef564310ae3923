"""Stream of a trainer or parameter server to its job's master: reconnected while the process lives; also a clock.

One daemon thread runs an event loop with one bidirectional gRPC call.  Messages that are sent without a stream are
dropped on purpose: the protocol's state knows what to send again.  Not here: what the messages mean.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import grpc

from master.api.edl.master.v1 import master_pb2_grpc
from master.api.errors import MessageError
from master.api.messages.from_members import MemberMessage
from master.api.messages.to_members import MasterMessage
from master.api.wire.call_proof import MOST_CHALLENGES, Prover, UnprovenMasterError
from master.api.wire.calls import CONNECT
from master.api.wire.grpc_options import CLIENT_OPTIONS
from master.api.wire.hello import Hello, agreed_version
from master.api.wire.message_codec import decode_hello, decode_master_envelope, encode_member_envelope

MAX_WAITING: Final = 4096  # messages not written yet; acks are collected, so a healthy stream has a handful
BACKOFF_FIRST_S: Final = 0.05
BACKOFF_MOST_S: Final = 0.5  # gRPC itself reconnects at most twice a second; a standby is ready by then (ADR 0202)
DRAIN_LIMIT_S: Final = 2.0  # for the last messages to be written and the master to close
_PERMANENT_CODES: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_PROOF_S: Final = 10.0  # for the master to prove that it knows the job's secret
_OPTIONS: Final = (*CLIENT_OPTIONS, ("grpc.enable_http_proxy", 0))


class StreamListener(Protocol):
    """Receives what happens on the stream; called in the stream's thread."""

    def stream_opened(self) -> None: ...
    def stream_broken(self, reason: str) -> None: ...
    def refused(self, reason: str) -> None: ...  # no later attempt can succeed
    def received(self, messages: tuple[MasterMessage, ...]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterAddress:
    """Address of the master, and what proves that this process belongs to the job."""

    target: str  # host:port
    hello: Hello
    token: str = ""
    tls_dir: str = ""


class MasterStream:
    """Stream and clock of one process.  `post`, `after` and `send` may be called from any thread."""

    def __init__(self, listener: StreamListener) -> None:
        self._listener = listener
        self._jitter = random.Random()  # noqa: S311  no secret; Python's own generator is the script's, and seeded by it
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="edl-channel", daemon=True)
        self._waiting: asyncio.Queue[tuple[MemberMessage, ...]] | None = None  # of the open stream
        self._serving: asyncio.Task[None] | None = None
        self._call: Any = None
        self._is_closing = False
        self._thread.start()

    # ---- from any thread ----------------------------------------------------------------------------------------

    def connect(self, address: MasterAddress) -> None:
        """Keeps a stream to this master open from now on; failed attempts pause up to 0.5 s."""
        self.post(lambda: self._start(address))

    def post(self, action: Callable[[], object]) -> None:
        """Runs the action in the stream's thread, soon.  Safe in a signal handler."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(action)

    def after(self, delay_s: float, action: Callable[[], object]) -> None:
        """Runs the action in the stream's thread after this time."""
        self.post(lambda: self._loop.call_later(delay_s, action))

    def send(self, messages: tuple[MemberMessage, ...]) -> None:
        """Sends these in one envelope, after those sent before; dropped without an open stream."""
        self.post(lambda: self._enqueue(messages))

    def close(self, *, farewell_s: float = DRAIN_LIMIT_S) -> None:
        """Writes what was sent, if the master takes it within this time, and ends the thread."""
        if self._is_closing:
            return
        self._is_closing = True
        self.post(lambda: self._finish(farewell_s))
        self._thread.join(farewell_s + 3)

    # ---- in the channel's thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _start(self, address: MasterAddress) -> None:
        self._serving = self._loop.create_task(self._serve(address))
        self._serving.add_done_callback(self._report_bug)

    def _report_bug(self, served: asyncio.Task[None]) -> None:
        """Reports a bug in this thread: else the script would wait for a stream for ever."""
        if not served.cancelled() and (error := served.exception()) is not None:
            self._listener.refused(f"the stream to the master ended in {type(error).__name__}: {error}")

    def _enqueue(self, messages: tuple[MemberMessage, ...]) -> None:
        if self._waiting is None:
            return
        if self._waiting.qsize() >= MAX_WAITING:
            self._call.cancel()  # the master does not read; the next stream starts clean
            return
        self._waiting.put_nowait(messages)

    def _finish(self, farewell_s: float) -> None:
        self._finishing = self._loop.create_task(self._finish_stream(farewell_s))

    async def _finish_stream(self, farewell_s: float) -> None:
        if self._serving is not None:
            if self._waiting is not None:
                self._waiting.put_nowait(())
                await asyncio.wait({self._serving}, timeout=farewell_s)
            self._serving.cancel()
            await asyncio.wait({self._serving}, timeout=1.0)
        self._loop.stop()

    async def _serve(self, address: MasterAddress) -> None:
        pause_s = BACKOFF_FIRST_S
        prover = Prover(token=address.token, job=address.hello.job)
        async with _open(address) as channel:
            stub: Any = master_pb2_grpc.MasterStub(channel)
            while True:
                is_answered = False
                try:
                    is_answered = await self._run_stream(await _connect(stub, prover), address.hello)
                    reason = "the master closed the stream"
                except (UnprovenMasterError, TimeoutError) as error:  # another listens there, until the master does
                    reason = str(error) or f"no proof of the job's secret within {_PROOF_S:.0f} s"
                except grpc.aio.AioRpcError as error:
                    reason = f"{error.code().name.lower()}: {error.details()}"
                    if error.code() in _PERMANENT_CODES and not prover.has_met_master:
                        self._listener.refused(reason)
                        return
                except MessageError as error:
                    self._listener.refused(str(error))
                    return
                self._listener.stream_broken(reason)
                if self._is_closing:
                    return
                pause_s = BACKOFF_FIRST_S if is_answered else min(2 * pause_s, BACKOFF_MOST_S)
                await asyncio.sleep(pause_s * self._jitter.uniform(0.5, 1.0))

    async def _run_stream(self, call: Any, hello: Hello) -> bool:
        """One stream from its first message to its last; True if any came from the master."""
        self._waiting = asyncio.Queue()
        self._call = call
        writer = self._loop.create_task(self._write(call, hello, self._waiting))
        writer.add_done_callback(
            lambda ended: _ended_by_error(ended) and call.cancel()
        )  # nothing would be sent any more
        is_answered = False
        try:
            self._listener.stream_opened()
            async for envelope in call:
                if not is_answered:
                    agreed_version(hello, decode_hello(envelope))
                is_answered = True
                self._listener.received(decode_master_envelope(envelope))
        finally:
            self._waiting = None
            writer.cancel()
            call.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await writer
        return is_answered

    async def _write(self, call: Any, hello: Hello, waiting: asyncio.Queue[tuple[MemberMessage, ...]]) -> None:
        """Writes all waiting messages in one envelope; an empty entry ends the stream."""
        first: Hello | None = hello
        while self._waiting is waiting:
            messages = await waiting.get()
            is_last = not messages
            while not waiting.empty():
                more = waiting.get_nowait()
                is_last = is_last or not more
                messages += more
            if messages:
                await call.write(encode_member_envelope(messages, hello=first))
                first = None
            if is_last:
                break
        await call.done_writing()


def _ended_by_error(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is not None


async def _connect(stub: Any, prover: Prover) -> Any:
    """A stream on which the master has proved the secret, without messages so far.

    Raises AioRpcError, UnprovenMasterError, TimeoutError.
    """
    proving = prover.begin(CONNECT)
    call = stub.Connect(metadata=proving.metadata)
    if not proving.metadata:
        return call
    try:
        async with asyncio.timeout(_PROOF_S):
            initial = await call.initial_metadata()
            for _ in range(MOST_CHALLENGES):
                if initial or not prover.store_challenge(await call.trailing_metadata()):
                    break
                proving = prover.begin(CONNECT)
                call = stub.Connect(metadata=proving.metadata)
                initial = await call.initial_metadata()
            if not initial:
                await call.read()  # raises what it ended with
            proving.check(initial)
    except BaseException:
        call.cancel()
        raise
    return call


def _open(address: MasterAddress) -> Any:
    if not address.tls_dir:
        return grpc.aio.insecure_channel(address.target, options=_OPTIONS)
    folder = Path(address.tls_dir)
    read: Iterable[bytes] = ((folder / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
    return grpc.aio.secure_channel(address.target, grpc.ssl_channel_credentials(*read), options=_OPTIONS)
