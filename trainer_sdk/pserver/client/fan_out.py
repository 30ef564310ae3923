"""Requests to all servers at once and their answers, over connections that may break at any moment.

Requests go out to all servers before any answer is read, so the servers work at the same time; one thread and blocking
sockets will do, because the trainer only waits.  A broken connection is opened again within the budget and the *same*
requests are sent again: a bucket that has applied a push answers REPEAT (rule 6).

A script's signal handler may raise between any two lines (a timer, Ctrl-C in a notebook), and the script may continue.
The next request must not complete half a frame, nor take an old answer for its own, so a connection with unread answers
is closed before its next use.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainer_sdk.errors import ServerUnavailableError, WireError
from trainer_sdk.transport.frames import Frame, FrameChannel, FrameKind
from trainer_sdk.transport.server_connection import ServerConnection

_ANSWERS: Final = frozenset({FrameKind.PUSH_ANSWER, FrameKind.PULL_ANSWER})


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One frame to one server, and the memory for the body of its answer."""

    kind: FrameKind
    head: bytes
    body: Sequence[memoryview]
    into: Sequence[memoryview] = ()


ServerRequests = tuple[ServerRequest, ...]
"""Requests to one server, sent back to back; empty if nothing is asked of it."""


def exchange(
    connections: Sequence[ServerConnection], requests: Sequence[ServerRequests], deadline_s: float
) -> list[list[Frame]]:
    """The answers to each server's requests, in order; `deadline_s` is on the monotonic clock.

    An answer may lack the expected body, from a server without a model for example.  Raises ServerUnavailableError at
    the deadline, and WireError when a server refuses.
    """
    answers: list[list[Frame]] = [[] for _ in requests]
    waiting = {index for index, some in enumerate(requests) if some}
    while waiting:
        pending = [index for index in sorted(waiting) if _try_send(connections[index], requests[index], deadline_s)]
        for index in pending:
            if (found := _try_receive(connections[index], requests[index])) is not None:
                answers[index] = found
                waiting.discard(index)
        if waiting and time.monotonic() >= deadline_s:
            names = ", ".join(connections[index].place.name for index in sorted(waiting))
            raise ServerUnavailableError(f"no answer in time from {names}")
    return answers


def _try_send(connection: ServerConnection, requests: ServerRequests, deadline_s: float) -> bool:
    """Sends the requests; False if the connection broke.  Raises ServerUnavailableError if none can be opened."""
    if connection.has_unread_answers:
        connection.close()
    channel = connection.channel(deadline_s)
    connection.has_unread_answers = True
    try:
        for request in requests:
            channel.send(request.kind, request.head, request.body, more=request is not requests[-1])
    except OSError:
        connection.close()
        return False
    return True


def _try_receive(connection: ServerConnection, requests: ServerRequests) -> list[Frame] | None:
    """The answers; None if the connection broke.  Raises WireError when the server refuses or answers wrongly."""
    channel = connection.channel(0.0)
    try:
        answers = [_answer(channel, request, connection.place.name) for request in requests]
    except OSError:
        connection.close()
        return None
    except WireError:
        connection.close()
        raise
    connection.has_unread_answers = False
    return answers


def _answer(channel: FrameChannel, request: ServerRequest, server: str) -> Frame:
    frame = channel.receive()
    if frame.kind not in _ANSWERS:
        raise WireError(f"{server} refuses: {frame.text}")
    if frame.body_bytes:
        expected = sum(piece.nbytes for piece in request.into)
        if frame.body_bytes != expected:
            raise WireError(f"{server} answers with {frame.body_bytes} bytes where {expected} were asked for")
        channel.receive_into(request.into)
    return frame
