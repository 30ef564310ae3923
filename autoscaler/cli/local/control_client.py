"""Client of a run's control socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.clusters.local.run_files.control_wire import LONGEST_ANSWER_BYTES, WIRE_VERSION, RequestProblem, encode
from autoscaler.clusters.local.run_files.run_folder import RunFolder
from master.api.host.file_ownership import ForeignUserError
from master.api.host.unix_sockets import check_peer

_ANSWER_DEADLINE_S: Final = 15.0
_EXITS: Final[Mapping[str, Exit]] = {
    RequestProblem.NOT_FOUND: Exit.NOT_FOUND,
    RequestProblem.REFUSED: Exit.REFUSED,
    RequestProblem.USAGE: Exit.USAGE,
    RequestProblem.INTERNAL: Exit.FAILED,
}


class RunGoneError(CommandError):
    """The run ended before or during a request."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(
            Exit.NOT_FOUND, f"the run in {folder.root} is over; its events.jsonl, logs/ and checkpoints/ remain"
        )


def request(folder: RunFolder, verb: str, **fields: Any) -> Any:
    """The run's answer to one request.  Raises CommandError with the run's message and its exit code."""
    for answer in _exchange(folder, {"do": verb, **fields}, _ANSWER_DEADLINE_S):
        return answer["result"]
    raise RunGoneError(folder)


def stream(folder: RunFolder, verb: str, *, deadline_s: float | None = None, **fields: Any) -> Iterator[Any]:
    """Items of an answer until the run ends.  TimeoutError if one takes longer than `deadline_s`; CommandError."""
    for answer in _exchange(folder, {"do": verb, "watch": True, **fields}, deadline_s):
        yield answer["item"]


def _exchange(folder: RunFolder, request: Mapping[str, Any], deadline_s: float | None) -> Iterator[Mapping[str, Any]]:
    with _connect(folder) as wire, wire.makefile("rb") as lines:
        wire.sendall(encode({"v": WIRE_VERSION, **request}))
        wire.settimeout(deadline_s)
        while line := lines.readline(LONGEST_ANSWER_BYTES):
            answer = json.loads(line)
            if not answer["ok"]:
                raise CommandError(_EXITS.get(answer["error"], Exit.FAILED), answer["message"])
            yield answer


@contextmanager
def _connect(folder: RunFolder) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(_ANSWER_DEADLINE_S)
        try:
            wire.connect(str(folder.control_socket()))
            check_peer(wire)
        except OSError:
            raise RunGoneError(folder) from None
        except ForeignUserError as error:
            raise CommandError(Exit.REFUSED, f"{folder.root} is the run of another user: {error}") from None
        yield wire
