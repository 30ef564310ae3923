"""Parameter server: pushes and pulls of trainers, orders of the master, transfers with other servers.

Connections call `push` and `pull` from their own threads, the control stream calls `control`.  A push that meets a hold
waits here, no longer than the hold may last.  Other servers use `transfer`; state and lock are in `shell`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, assert_never

from master.api.identities import Incarnation, Lineage, MemberName
from master.api.messages.to_members import Activate, Forget, Freeze, Restore
from master.api.positions import PositionSet
from trainer_sdk.errors import WireError
from trainer_sdk.pserver.core import pushes
from trainer_sdk.pserver.core.messages import BackupAnswer, BackupPush, PushAnswer, PushVerdict
from trainer_sdk.pserver.core.server_events import LoadModel, SendCopy, ServerEvent, WriteFork
from trainer_sdk.pserver.core.server_state import ServerLimits, joined
from trainer_sdk.pserver.shell import BackgroundJob, DeadlineThread, ServerContext, Shell
from trainer_sdk.pserver.tables.dense_store import DenseStore
from trainer_sdk.pserver.tables.model import DenseGradient, Gradient, SparseGradient, check_ids
from trainer_sdk.pserver.tables.sparse_store import SparseStore
from trainer_sdk.pserver.transfer.bucket_transfer import BucketTransfer
from trainer_sdk.pserver.transfer.io_jobs import IoJobs
from trainer_sdk.pserver.transfer.push_replication import PushReplication
from trainer_sdk.pserver.wire.bodies import BufferPool, gradients_in, ids_in, padded
from trainer_sdk.pserver.wire.heads import PullAnswer, PullHead, PullStatus, PushHead, Section

log = logging.getLogger(__name__)


Receive = Callable[[memoryview, int], int]
"""Fills a view with the next bytes of a body, at least so many, and returns their number."""

PIECE_BYTES: Final = 128 * 1024
"""Least size of the pieces in which a push goes to a backup: small beside a link's buffer, worth a system call."""


class _ToReplicate(NamedTuple):
    """A push that goes to backups first.

    `gradients` were checked against the tables, which stay the same while the push's lineage is this server's.
    """

    backup_pushes: tuple[BackupPush, ...]
    gradients: list[Gradient]


class _Replicated(NamedTuple):
    """A push with the answers of its backups."""

    gradients: list[Gradient]
    backup_answers: tuple[BackupAnswer, ...]


class ParameterServer:
    """One parameter server.  Thread-safe."""

    def __init__(
        self, *, name: MemberName, incarnation: Incarnation, context: ServerContext, limits: ServerLimits | None = None
    ) -> None:
        self._shell = Shell(
            incarnation=incarnation, context=context, limits=limits or ServerLimits(), begin=self._begin
        )
        self._io_jobs = IoJobs(name, self._shell)
        self.transfer = BucketTransfer(name, self._shell)
        self._replication = PushReplication(name, context.security, context.notify_master)
        self._deadlines = DeadlineThread(self._shell)
        self.longest_hold_s = 0.0

    @property
    def incarnation(self) -> Incarnation:
        return self._shell.state.incarnation

    @property
    def lineage(self) -> Lineage:
        return self._shell.state.lineage

    @property
    def has_buckets(self) -> bool:
        """True if the job would lose parameters with this process.

        A bucket that was handed over to this server may be its own by the routing table already.
        """
        state = self._shell.state
        is_handed_over = any(staged.is_final for staged in state.moves.staged)
        has_only_copies = any(not group.is_backup and group.backup is None for group in state.groups)
        return has_only_copies or bool(state.kept) or is_handed_over or state.restoring is not None

    @property
    def has_copies(self) -> bool:
        """True if any bucket is here, also one that other servers have: they may be about to end too."""
        return self.has_buckets or bool(self._shell.state.groups)

    def close(self) -> None:
        """Answers waiting pushes, breaks off copies on their way, and ends the deadline thread."""
        self.transfer.close()
        self._replication.close()
        self._shell.close()
        self._deadlines.join()

    def control(self, event: ServerEvent) -> None:
        """Handles a message of the master."""
        if isinstance(event, Freeze):
            self.transfer.freeze(event)
        else:
            self._shell.control(event)
        if isinstance(event, Activate | Forget | Restore):
            self.transfer.end_watches()
            self._replication.retain({group.backup.incarnation for group in self._shell.state.groups if group.backup})

    def _begin(self, effect: BackgroundJob) -> None:
        match effect:
            case SendCopy():
                self.transfer.send(effect)
            case LoadModel():
                self.transfer.forget_all()
                self._io_jobs.load(effect)
            case WriteFork():
                self._io_jobs.write(effect)
            case _:
                assert_never(effect)

    # ---- trainers ---------------------------------------------------------------------------------------------------

    def push(self, head: PushHead, body: memoryview, receive: Receive) -> PushAnswer:
        """Evaluates, applies and marks a push as one outcome; WireError or TableError comes before anything changes.

        `receive` fills `body`, in pieces if the push is large and has a backup, to which each piece goes as it comes.
        """
        pushed = joined(*[target.buckets for target in head.push.targets])
        evaluated = self._evaluate_and_apply(head, body, pushed, self._receive(head, body, pushed, receive))
        if isinstance(evaluated, PushAnswer):
            return evaluated
        replicated = self._replication.begin(head, evaluated.backup_pushes, pushed, body.nbytes)
        replicated.send_piece(body)
        answer = self._evaluate_and_apply(
            head, body, pushed, _Replicated(evaluated.gradients, replicated.collect_answers())
        )
        assert isinstance(answer, PushAnswer), "backups that have answered are not asked again"
        return answer

    def _receive(self, head: PushHead, body: memoryview, pushed: PositionSet, receive: Receive) -> _Replicated | None:
        """Receives the body; returns the backups' answers if it went to them as it came."""
        backup_pushes = self._backup_pushes(head) if body.nbytes > PIECE_BYTES else ()
        if not backup_pushes:
            receive(body, body.nbytes)
            return None
        replicated = self._replication.begin(head, backup_pushes, pushed, body.nbytes)
        try:
            at = 0
            while at < body.nbytes:
                stop = at + receive(body[at:], PIECE_BYTES)
                replicated.send_piece(body[at:stop])
                at = stop
            with self._shell.lock:
                gradients = self._parse_gradients(head, body, pushed) if self._is_of_this_model(head) else None
        except BaseException:
            replicated.abandon()
            raise
        if gradients is None:  # the lineage changed meanwhile: the push is evaluated by its head
            replicated.abandon()
            return None
        return _Replicated(gradients, replicated.collect_answers())

    def _backup_pushes(self, head: PushHead) -> tuple[BackupPush, ...]:
        """The backups that this push goes to first, by its head; none if it will be refused."""
        shell = self._shell
        with shell.lock:
            has_backups = any(group.backup for group in shell.state.groups)  # else one evaluation will do
            is_early = has_backups and self._is_of_this_model(head)
            return pushes.handle_push(shell.state, head.push, None).backup_pushes if is_early else ()

    def _is_of_this_model(self, head: PushHead) -> bool:
        model = self._shell.model
        return model is not None and model.layout.digest == head.layout

    def push_as_backup(self, head: PushHead, pushed: PositionSet, body: memoryview) -> PushAnswer:
        """Takes an owner's push to this backup: some of the buckets that a trainer `pushed` (61).  Raises as `push`."""
        shell = self._shell
        with shell.lock:
            outcome = pushes.handle_backup_push(shell.state, head.push)
            if outcome.effects:
                self._commit_push(outcome, self._parse_gradients(head, body, pushed), pushed)
                log.debug("%s", head.push)  # failpoint: logged before anything follows from it
            return outcome.answer

    def _evaluate_and_apply(
        self, head: PushHead, body: memoryview, pushed: PositionSet, answered: _Replicated | None = None
    ) -> PushAnswer | _ToReplicate:
        """The answer, once its effects are applied; or the push as it goes to backups first, with nothing changed."""
        begun_s = time.monotonic()
        shell = self._shell
        with shell.lock:
            until_s = begun_s + 2 * shell.state.limits.hold_s
            while True:
                outcome = pushes.handle_push(shell.state, head.push, answered.backup_answers if answered else None)
                if outcome.backup_pushes:
                    return _ToReplicate(outcome.backup_pushes, self._parse_gradients(head, body, pushed))
                if outcome.effects:
                    self._commit_push(
                        outcome, answered.gradients if answered else self._parse_gradients(head, body, pushed), pushed
                    )
                    return outcome.answer
                is_held = any(ruling.verdict is PushVerdict.HELD for ruling in outcome.answer.rulings)
                left_s = until_s - time.monotonic()
                if not is_held or left_s <= 0 or shell.is_closed:
                    return outcome.answer
                shell.changed.wait(left_s)
                self.longest_hold_s = max(self.longest_hold_s, time.monotonic() - begun_s)

    def _parse_gradients(self, head: PushHead, body: memoryview, pushed: PositionSet) -> list[Gradient]:
        model = self._shell.model_of(head.layout)
        gradients = gradients_in(body, head.sections, model.layout)
        model.check(gradients, pushed)
        return gradients

    def _commit_push(self, outcome: pushes.PushOutcome, gradients: list[Gradient], pushed: PositionSet) -> None:
        self._shell.apply_push(outcome, gradients, pushed)
        self._count_load(gradients, pushed)

    def pull(self, head: PullHead, body: memoryview, pool: BufferPool) -> tuple[PullAnswer, list[memoryview]]:
        """The answer and its body, copied under the lock: of one lineage, and no bucket torn.

        Raises WireError or TableError.
        """
        shell = self._shell
        with shell.lock:
            state = shell.state
            if not state.is_ready:
                return PullAnswer(lineage=state.lineage, status=PullStatus.NOT_READY), []
            if not state.has(head.buckets):
                return PullAnswer(lineage=state.lineage, status=PullStatus.MOVED), []
            model = shell.model_of(head.layout)
            ids = ids_in(body, head.sections, model.layout)
            pieces: list[memoryview] = []
            for number, section in enumerate(head.sections):
                store = model.stores[section.table]
                match store:
                    case DenseStore():
                        pieces += _copied(store, section, head.buckets, pool, number)
                        shell.load_meter.count_dense(section.table, head.buckets)
                    case SparseStore():
                        check_ids(f"pull.tables.{store.spec.name}", ids[number], store.spec.shape[0])
                        pieces += padded([store.read(ids[number])])
                        shell.load_meter.count_rows(section.table, ids[number])
                    case _:
                        assert_never(store)
            return PullAnswer(lineage=state.lineage, status=PullStatus.OK), pieces

    def _count_load(self, gradients: Sequence[Gradient], pushed: PositionSet) -> None:
        for gradient in gradients:
            match gradient:
                case DenseGradient():
                    self._shell.load_meter.count_dense(gradient.table, pushed)
                case SparseGradient():
                    self._shell.load_meter.count_rows(gradient.table, gradient.ids)
                case _:
                    assert_never(gradient)


def _copied(
    store: DenseStore, section: Section, buckets: PositionSet, pool: BufferPool, slot: int
) -> Iterator[memoryview]:
    size = store.layout.count(buckets)
    if section.length != size:
        raise WireError(f"tables.{store.spec.name}: {section.length} elements requested where the buckets have {size}")
    out = pool.array(slot, store.dtype, size)
    at = 0
    for values in store.read(buckets):
        out[at : at + len(values)] = values
        at += len(values)
    return padded((out,))
