"""Push replication: an owner sends each push to the bucket's backup before it applies it (rule 61).

The owner's thread that receives a push sends the same bytes on as they come, piece by piece and without the lock, and
waits for the backup's answer; the next trainer's push uses a connection of its own.  A failure is not answered to the
trainer: what a backup has not confirmed is NOT_YET for the trainer, which sends the same gradient again.  The owner
reports the silent backup to the master, which ends the wait by PROMOTE or ALONE (rule 62).  An owner never drops its
backup by itself.

A backup is silent while attempts fail (ADR 0318).  Without an attempt there is no silence: trainers may compute for
minutes, and two failures that far apart are two silences.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from master.api.identities import Incarnation, Lineage, MemberName
from master.api.messages.from_members import BackupSilent
from master.api.positions import PositionSet
from trainer_sdk.errors import AuthenticationError, TemporaryError, WireError
from trainer_sdk.pserver.core import pushes
from trainer_sdk.pserver.core.messages import BackupAnswer, BackupPush, Push, PushAnswer
from trainer_sdk.pserver.wire.heads import PushHead, decode_push_answer
from trainer_sdk.pserver.wire.peer_heads import encode_backup_push
from trainer_sdk.transport.cancellation import Cancellation
from trainer_sdk.transport.frames import Frame, FrameChannel, FrameKind, WireLimits
from trainer_sdk.transport.handshake import PeerRole
from trainer_sdk.transport.security import Security
from trainer_sdk.transport.server_connection import ConnectionSettings, ServerConnection

log = logging.getLogger(__name__)

IO_S: Final = 2.0
"""A backup that accepts no bytes for this long counts as silent and is reported to the master."""

SLOWEST_BYTES_PER_S: Final = 50e6
"""A busy backup takes and applies a large push at least this fast."""

MOST_MORE_S: Final = 6.0
"""Longest extra wait for a large push: its trainer waits 10 s for the owner."""

_FAILURES: Final = (OSError, TemporaryError, WireError, AuthenticationError)


class PushReplication:
    """Connections of one server to the backups of its buckets.  Thread-safe."""

    def __init__(self, name: MemberName, security: Security, notify_master: Callable[[BackupSilent], None]) -> None:
        self._security = security
        self._notify_master = notify_master
        limits = WireLimits(io_s=IO_S)
        self._settings = ConnectionSettings(
            name=name, role=PeerRole.SERVER, limits=limits, budget_s=0.0, connect_s=IO_S
        )
        self._cancellation = Cancellation()
        self._lock = threading.Lock()
        self._idle: dict[Incarnation, list[ServerConnection]] = {}
        self._silences: dict[Incarnation, BackupSilence] = {}

    def begin(
        self, head: PushHead, backup_pushes: Sequence[BackupPush], pushed: PositionSet, body_bytes: int
    ) -> ReplicatedPush:
        """Begins to send a push, whose body follows, to its backups."""
        return ReplicatedPush(self, head, backup_pushes, pushed, body_bytes)

    def retain(self, backups: Collection[Incarnation]) -> None:
        """Closes connections to servers that back nothing any more, and forgets their silence."""
        with self._lock:
            unused = [one for backup, idle in self._idle.items() if backup not in backups for one in idle]
            self._idle = {backup: idle for backup, idle in self._idle.items() if backup in backups}
            self._silences = {backup: silence for backup, silence in self._silences.items() if backup in backups}
        for connection in unused:
            connection.close()

    def close(self) -> None:
        """Breaks off pushes on their way; no other begins."""
        self._cancellation.cancel()
        with self._lock:
            idle = [connection for some in self._idle.values() for connection in some]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def connection(self, one: BackupPush) -> ServerConnection:
        """An unused connection, until it is given back or closed."""
        with self._lock:
            idle = self._idle.get(one.to.incarnation)
            connection = idle.pop() if idle else None
        if connection is None:
            context = self._security.client_context()
            connection = ServerConnection(
                one.to, self._security, self._settings, context, self._cancellation, is_outdated=lambda: True
            )
        return connection

    def release(self, connection: ServerConnection) -> None:
        """Returns a connection whose backup has answered all."""
        backup = connection.place.incarnation
        with self._lock:
            self._silences.pop(backup, None)
            self._idle.setdefault(backup, []).append(connection)

    def report_silence(self, backup: Incarnation, lineage: Lineage, begun_s: float) -> None:
        """Counts a failed attempt that began then; reported to the master at intervals."""
        now_s = time.monotonic()
        with self._lock:
            silence = after_failure(self._silences.get(backup), begun_s, now_s)
            self._silences[backup] = silence.reported() if silence.is_due else silence
        if silence.is_due:
            self._notify_master(BackupSilent(lineage=lineage, backup=backup, silent_s=now_s - silence.since_s))

    def close_idle(self, backup: Incarnation) -> None:
        """Closes the idle connections to this backup."""
        with self._lock:
            idle = self._idle.pop(backup, [])
        for connection in idle:
            connection.close()


class ReplicatedPush:
    """One push on its way to its backups: `send_piece` for each piece, then `collect_answers`; else `abandon`.

    Used by one thread.  Every backup is sent everything before any answer is read.  Backups that take or answer nothing
    are reported; the time that a trainer needs to send its push does not count as their silence.
    """

    def __init__(
        self,
        replication: PushReplication,
        head: PushHead,
        backup_pushes: Sequence[BackupPush],
        pushed: PositionSet,
        body_bytes: int,
    ) -> None:
        self._replication = replication
        self._lineage = head.push.lineage
        self._body_bytes = body_bytes
        self._sent = list[tuple[BackupPush, ServerConnection]]()  # backups that took every piece so far
        try:
            for one in backup_pushes:
                self._begin(one, PushHead(_addressed(head, one), head.layout, head.sections), pushed)
        except BaseException:
            self.abandon()
            raise

    def _begin(self, one: BackupPush, head: PushHead, pushed: PositionSet) -> None:
        begun_s = time.monotonic()
        connection = self._replication.connection(one)
        try:
            connection.channel(begun_s + IO_S).begin_frame(
                FrameKind.BACKUP_PUSH, encode_backup_push(head, pushed), self._body_bytes
            )
        except _FAILURES as error:
            self._fail(connection, error, begun_s)
        else:
            self._sent.append((one, connection))

    def send_piece(self, piece: memoryview) -> None:
        """Sends the next bytes of the body."""
        for one, connection in tuple(self._sent):
            begun_s = time.monotonic()
            try:
                connection.channel(0.0).send_piece(piece)
            except _FAILURES as error:
                self._sent.remove((one, connection))
                self._fail(connection, error, begun_s)

    def collect_answers(self) -> tuple[BackupAnswer, ...]:
        """The answers of the backups that took the whole push and answered."""
        begun_s = time.monotonic()
        until_s = begun_s + min(MOST_MORE_S, self._body_bytes / SLOWEST_BYTES_PER_S)
        answers = list[BackupAnswer]()
        for one, connection in self._sent:
            log.debug("%s", one)  # failpoint: logged before anything follows from it
            try:
                answers += pushes.parse_backup_answer(one, _answer(connection, until_s))
            except _FAILURES as error:
                self._fail(connection, error, begun_s)
            else:
                self._replication.release(connection)
        return tuple(answers)

    def abandon(self) -> None:
        """Closes the connections: the backups drop the incomplete push."""
        for _, connection in self._sent:
            connection.close()

    def _fail(self, connection: ServerConnection, error: Exception, begun_s: float) -> None:
        """Reports a failed attempt and closes all connections to that backup, whose process may be over."""
        log.info("pushes cannot be replicated to %s: %s", connection.place.name, error)
        connection.close()
        self._replication.close_idle(connection.place.incarnation)
        self._replication.report_silence(connection.place.incarnation, self._lineage, begun_s)


def _answer(connection: ServerConnection, until_s: float) -> PushAnswer:
    """The backup's answer.  Raises TimeoutError if none comes for `IO_S` and until then."""
    frame = _received(connection.channel(0.0), until_s)
    if frame.kind is not FrameKind.PUSH_ANSWER:
        raise WireError(f"refused: {frame.text}")
    return decode_push_answer(frame.head)


def _received(channel: FrameChannel, until_s: float) -> Frame:
    while True:
        try:
            return channel.receive()
        except TimeoutError:
            if time.monotonic() >= until_s:
                raise


def _addressed(head: PushHead, one: BackupPush) -> Push:
    return Push(lineage=head.push.lineage, positions=head.push.positions, targets=one.targets)


REPORT_SILENCE_EVERY_S: Final = 1.0
"""Least time between two reports of a backup's silence."""

LONGEST_PAUSE_S: Final = 2.0
"""Longest pause between two attempts of one silence: trainers send a NOT_YET push again at once."""


class BackupSilence(NamedTuple):
    """Silence of one backup, until it takes a push; times on the monotonic clock."""

    since_s: float
    failed_s: float  # the last time
    reported_s: float = -math.inf

    @property
    def is_due(self) -> bool:
        """True if the last failed attempt is to be reported to the master."""
        return self.failed_s - self.reported_s >= REPORT_SILENCE_EVERY_S

    def reported(self) -> BackupSilence:
        """The silence once it was reported to the master."""
        return self._replace(reported_s=self.failed_s)


def after_failure(before: BackupSilence | None, begun_s: float, now_s: float) -> BackupSilence:
    """The silence after a failed attempt that began at `begun_s`."""
    if before is None:
        return BackupSilence(begun_s, now_s)
    since_s = before.since_s if begun_s <= before.failed_s + LONGEST_PAUSE_S else begun_s
    return BackupSilence(since_s, max(now_s, before.failed_s), before.reported_s)
