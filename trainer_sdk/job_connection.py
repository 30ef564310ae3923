"""Connection of a session with its job: from the first batch, pull or rank to the end of the session.

A script that runs alone gets a master of its own first.  A trainer of parameter servers then has a `TrainerDriver`, a
member of a group a `MemberRuntime`, and the lock of its checkpoint folder.  Not here: what the script declares and sees
(`session`).
"""

from __future__ import annotations

import math
import uuid
from time import monotonic
from typing import TYPE_CHECKING, Final

from master.api.checkpoints.folder_lock import FolderLock, hold_as_writer
from master.api.checkpoints.storage import open_storage
from master.api.identities import DatasetSpec, Incarnation, MemberName
from master.api.messages.from_members import Declare
from master.api.wire.hello import Hello
from trainer_sdk.environment import Environment
from trainer_sdk.master_stream import DRAIN_LIMIT_S, MasterAddress
from trainer_sdk.protocol.trainer_events import SpecDeclared
from trainer_sdk.protocol.trainer_state import TrainerState
from trainer_sdk.runtime.driver import TrainerDriver
from trainer_sdk.runtime.standalone import Standalone

if TYPE_CHECKING:
    from trainer_sdk.group.member_runtime import MemberRuntime
    from trainer_sdk.group.port import ReplicaState


class JobConnection:
    """This process's place in its job.  A start that fails, or that Ctrl-C breaks off, leaves nothing behind."""

    def __init__(self, environment: Environment, *, budget_s: float) -> None:
        self._given: Final = environment
        self.environment = environment  # once connected with the address of a master of our own, if any
        self.standalone: Standalone | None = None
        self._budget_s: Final = budget_s
        self._drain_deadline_s = math.inf  # drain deadline (monotonic), once this trainer has to leave
        self._driver: TrainerDriver | None = None
        self._is_started = False
        self._runtime: MemberRuntime | None = None
        self._folder_lock: FolderLock | None = None

    @property
    def member(self) -> TrainerDriver | MemberRuntime | None:
        """None before the first batch, pull or rank."""
        return self._runtime if self._runtime is not None else self._driver

    def start(self, spec: Declare, *, has_final_hook: bool) -> TrainerDriver:
        """The driver of a trainer that leases its batches; the first call connects it."""
        if self._driver is None or not self._is_started:
            try:
                self._connect(spec, has_final_hook=has_final_hook)
            except BaseException:  # Ctrl-C in a notebook too: the next use starts again
                self._undo()
                raise
            self._is_started = True
        assert self._driver is not None
        return self._driver

    def join(self, replica: ReplicaState, dataset: DatasetSpec, *, has_final_hook: bool) -> MemberRuntime:
        """The runtime of a group's member, which registers by itself from now on.  Called once."""
        try:
            self._runtime = runtime = self._join(replica, dataset, has_final_hook=has_final_hook)
        except BaseException:
            self._undo()
            raise
        self._drain_late()
        return runtime

    def _connect(self, spec: Declare, *, has_final_hook: bool) -> None:
        self.environment.check_files()
        if not self.environment.master:
            self.standalone = Standalone(self.environment)
            self.environment = self.standalone.start(has_tables=bool(spec.tables))
        environment = self.environment
        state = TrainerState(
            name=MemberName(environment.name),
            ordinal=environment.ordinal,
            incarnation=Incarnation(uuid.uuid4().hex[:12]),
            has_final_hook=has_final_hook,
        )
        self._driver = TrainerDriver(state, check_alive=self._check_alive)
        self._driver.handle(SpecDeclared(spec=spec))
        self._drain_late()
        hello = Hello(job=environment.job, software="edl trainer")
        self._driver.stream.connect(
            MasterAddress(target=environment.master, hello=hello, token=environment.token, tls_dir=environment.tls_dir)
        )

    def _join(self, replica: ReplicaState, dataset: DatasetSpec, *, has_final_hook: bool) -> MemberRuntime:
        from trainer_sdk.group.joining import join_group  # noqa: PLC0415  scripts with tables need none

        self.environment.check_files()
        if not self.environment.master:
            self.standalone = Standalone(self.environment)
            self.environment = self.standalone.start(is_group=True)
        if self.environment.checkpoint_uri:
            self._folder_lock = hold_as_writer(open_storage(self.environment.checkpoint_uri))
        return join_group(
            self.environment,
            replica,
            dataset,
            has_final_hook=has_final_hook,
            budget_s=self._budget_s,
            check_alive=self._check_alive,
        )

    def _undo(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.stream.close(farewell_s=0.0)
        self.close()
        self.environment = self._given

    def _check_alive(self) -> None:
        if self.standalone is not None:
            self.standalone.check()

    # ---- leaving ----------------------------------------------------------------------------------------------------

    @property
    def is_draining(self) -> bool:
        """True once this trainer has to leave, as SIGTERM or its master has said."""
        is_told = self._drain_deadline_s < math.inf
        return is_told or (self.member is not None and self.member.is_draining)

    def drain(self) -> None:
        """Drains from now on.  Safe between two byte codes of the script: it takes no lock."""
        self._drain_deadline_s = min(self._drain_deadline_s, monotonic() + self.environment.drain_s)
        self._drain_late()

    def _drain_late(self) -> None:
        if self.member is not None and self._drain_deadline_s < math.inf:
            self.member.drain(deadline_s=self._drain_deadline_s - monotonic(), reason="SIGTERM")

    def leave(self, reason: str) -> None:
        """Acks confirmed work, returns the rest, and says goodbye to the master.

        The last messages have, when leaving, half of the grace period after the drain deadline.
        """
        reserve_s = self.environment.grace_s - self.environment.drain_s
        if self.member is not None:
            self.member.leave(reason, farewell_s=reserve_s / 2 if self.is_draining else DRAIN_LIMIT_S)

    def close(self) -> None:
        """No child runs afterwards, and another run may write into the checkpoint folder."""
        standalone, self.standalone = self.standalone, None
        lock, self._folder_lock = self._folder_lock, None
        try:
            if standalone is not None:
                standalone.stop()
        finally:
            if lock is not None:
                lock.release()
