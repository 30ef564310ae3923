"""What trainers push goes to the backup first: the same bytes, once more, on connections between servers (rule 61).

An owner's thread that has received a push sends it on as it came, without the lock, and waits for the answer; the next
trainer's push goes on beside it, on a connection of its own.  Whatever fails here is said to nobody: what a backup has
not confirmed is NOT_YET for the trainer, which sends the same gradient again, and the master, which is told that the
backup is silent, ends the wait by PROMOTE or ALONE (rule 62).  An owner never goes on without its backup by itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from master.api.identities import Incarnation, Lineage, MemberName
from master.api.messages import BackupSilent
from master.api.positions import PositionSet
from trainer_sdk.errors import AuthenticationError, TemporaryError, WireError
from trainer_sdk.pserver import bucket
from trainer_sdk.pserver.connection import ClientSettings, Connection
from trainer_sdk.pserver.handshake import Role
from trainer_sdk.pserver.messages import BackupSaid, PassOn, Push, PushAnswer
from trainer_sdk.pserver.patience import Patience
from trainer_sdk.pserver.security import Security
from trainer_sdk.pserver.silence import Silence, failed
from trainer_sdk.pserver.wire import Channel, Frame, Kind, WireLimits
from trainer_sdk.pserver.wire_copies import encode_pass
from trainer_sdk.pserver.wire_messages import PushHead, decode_push_answer

log = logging.getLogger(__name__)

IO_S: Final = 2.0
"""A backup that takes nothing for so long has stopped: the master is told; trainers ask for its table meanwhile."""

SLOWEST_BYTES_PER_S: Final = 50e6
"""Of a large push, taken and applied by a backup at work, with what others push meanwhile."""

MOST_MORE_S: Final = 6.0
"""A large push is waited for so much longer at most: its trainer waits 10 s for the owner."""

_MAX_TEXT: Final = 4096


class Relays:
    """Connections of one server to the backups of what it owns.  Thread-safe."""

    def __init__(self, name: MemberName, security: Security, tell: Callable[[BackupSilent], None]) -> None:
        self._security = security
        self._tell = tell
        limits = WireLimits(io_s=IO_S)
        self._settings = ClientSettings(name=name, role=Role.SERVER, limits=limits, budget_s=0.0, connect_s=IO_S)
        self._patience = Patience()
        self._lock = threading.Lock()
        self._idle: dict[Incarnation, list[Connection]] = {}
        self._silent: dict[Incarnation, Silence] = {}

    def pass_on(
        self, head: PushHead, passes: Sequence[PassOn], pushed: PositionSet, body: memoryview
    ) -> tuple[BackupSaid, ...]:
        """What the backups have said; nothing of one that did not answer.  All are asked before any answer is read."""
        begun_s = time.monotonic()
        asked = [(one, connection) for one in passes if (connection := self._try_send(one, head, pushed, body))]
        asked_s, said = time.monotonic(), list[BackupSaid]()
        silent = {one.to.incarnation for one in passes}
        for one, connection in asked:
            if answer := self._try_receive(connection, asked_s + min(MOST_MORE_S, body.nbytes / SLOWEST_BYTES_PER_S)):
                said += bucket.said_of(one, answer)
                silent.discard(one.to.incarnation)
                with self._lock:
                    self._silent.pop(one.to.incarnation, None)
                    self._idle.setdefault(one.to.incarnation, []).append(connection)
        for backup in silent:
            self._tell_silent(backup, head.push.lineage, begun_s)
        return tuple(said)

    def keep(self, backups: Collection[Incarnation]) -> None:
        """Nothing is passed on to any other: its connections are closed, and its silence is over."""
        with self._lock:
            gone = [one for backup, idle in self._idle.items() if backup not in backups for one in idle]
            self._idle = {backup: idle for backup, idle in self._idle.items() if backup in backups}
            self._silent = {backup: silence for backup, silence in self._silent.items() if backup in backups}
        for connection in gone:
            connection.close()

    def close(self) -> None:
        """Nothing is passed on any more; what was under way is broken off."""
        self._patience.end()
        with self._lock:
            idle = [connection for some in self._idle.values() for connection in some]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def _try_send(self, one: PassOn, head: PushHead, pushed: PositionSet, body: memoryview) -> Connection | None:
        with self._lock:
            idle = self._idle.get(one.to.incarnation)
            connection = idle.pop() if idle else None
        if connection is None:
            context = self._security.client_context()
            connection = Connection(
                one.to, self._security, self._settings, context, self._patience, is_outdated=lambda: True
            )
        passed = PushHead(_addressed(head, one), head.layout, head.sections)
        try:
            connection.channel(time.monotonic() + IO_S).send(Kind.PASS, encode_pass(passed, pushed), [body])
            log.debug("%s", one)
        except (OSError, TemporaryError, WireError, AuthenticationError) as error:
            self._give_up(connection, error)
            return None
        return connection

    def _try_receive(self, connection: Connection, until_s: float) -> PushAnswer | None:
        """None: it has said nothing for `IO_S`, nor until then."""
        try:
            frame = _received(connection.channel(0.0), until_s)
            if frame.kind is not Kind.PUSH_ANSWER:
                raise WireError(f"refused: {frame.head[:_MAX_TEXT].decode(errors='replace')}")  # noqa: TRY301
            return decode_push_answer(frame.head)
        except (OSError, TemporaryError, WireError) as error:
            self._give_up(connection, error)
            return None

    def _tell_silent(self, backup: Incarnation, lineage: Lineage, begun_s: float) -> None:
        now_s = time.monotonic()
        with self._lock:
            silence = failed(self._silent.get(backup), begun_s, now_s)
            self._silent[backup] = silence.told() if silence.is_due else silence
        if silence.is_due:
            self._tell(BackupSilent(lineage=lineage, backup=backup, silent_s=now_s - silence.since_s))

    def _give_up(self, connection: Connection, error: Exception) -> None:
        """That process may be over: its other connections are worth no more."""
        log.info("nothing can be passed on to %s: %s", connection.place.name, error)
        with self._lock:
            idle = self._idle.pop(connection.place.incarnation, [])
        for one in (connection, *idle):
            one.close()


def _received(channel: Channel, until_s: float) -> Frame:
    while True:
        try:
            return channel.receive()
        except TimeoutError:
            if time.monotonic() >= until_s:
                raise


def _addressed(head: PushHead, one: PassOn) -> Push:
    return Push(lineage=head.push.lineage, positions=head.push.positions, targets=one.targets, token=head.push.token)
