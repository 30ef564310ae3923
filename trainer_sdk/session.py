"""Session of a script with its job, from `edl.open()` to the end of the `with` block.

    with edl.open() as session:
        data = session.dataset("digits", size=1437, epochs=30, batch_size=32, seed=7)
        model = session.tables({"w": edl.dense((64, 10))}, optimiser=edl.sgd(0.1))
        for batch in data:
            weights = model.pull()
            model.push(gradients_of(weights, batch.indices))
            batch.done(loss=...)

The session connects to the master at the first batch, pull or rank; everything is declared by then.  It belongs to the
process and the thread that opened it.  Not here: the loop (`dataset`, `leased_batches`, `group.group_steps`), the model
(`tables`, `own_model`), the master and the threads (`job_connection`).
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from master.api.identities import DatasetSpec, OptimiserSpec
from master.api.messages.from_members import Declare
from trainer_sdk.dataset import BatchSource, Data
from trainer_sdk.environment import Environment, parse_environment
from trainer_sdk.errors import CheckpointError, GracePeriodExpired, UsageError
from trainer_sdk.job_connection import JobConnection
from trainer_sdk.leased_batches import LeasedBatches
from trainer_sdk.protocol.trainer_events import Finish, FinishReason
from trainer_sdk.runtime.drain_signal import DrainSignal
from trainer_sdk.runtime.driver import TrainerDriver
from trainer_sdk.runtime.session_owner import SessionOwner
from trainer_sdk.specs import TableDeclaration, dataset_spec, sgd, table_specs

if TYPE_CHECKING:
    from trainer_sdk.group.group_steps import GroupSteps
    from trainer_sdk.group.member_runtime import MemberRuntime
    from trainer_sdk.group.port import GroupFinish, ReplicaState
    from trainer_sdk.own_model import Arrays, OwnModel, RestoreHook, SaveHook
    from trainer_sdk.tables import Tables

MASTER_BUDGET_S: Final = 120.0
SERVER_BUDGET_S: Final = 120.0
TRACEBACK_LINES: Final = 20  # of a script that raised, as its author sees them in the job's status
FinalHook = Callable[["Arrays"], object]


class Session:
    """A script's session.  Made by `open`.  Every method may raise UsageError, which says what to write instead."""

    def __init__(self, environment: Environment, *, master_budget_s: float, server_budget_s: float) -> None:
        self.environment: Final = environment
        self._budget_s = master_budget_s
        self._server_budget_s = server_budget_s
        job = (environment.master, environment.job) if environment.master else None
        self._owner = SessionOwner(environment.name, job)
        self._connection = JobConnection(environment, budget_s=master_budget_s)
        self._data: Data | None = None
        self._tables: Tables | None = None
        self._own: OwnModel | None = None
        self._replica: ReplicaState | None = None
        self._group: GroupSteps | None = None
        self._final: FinalHook | None = None
        self._on_drain: list[Callable[[], object]] = []
        self._ending: FinishReason | None = None
        self._signal = DrainSignal(self._connection.drain)
        self._signal.install()
        atexit.register(self._left_open)

    # ---- declaring --------------------------------------------------------------------------------------------------

    def dataset(self, name: str, *, size: int, epochs: int, batch_size: int, seed: int = 0) -> Data:
        """Declares the loop over `size` records, `epochs` times, in an order keyed by `seed`; all trainers share it.

        Iterate over the result, in the process that opened the session; worker processes get record numbers.  A job
        has one data set, and its size, epochs and seed never change.  With neither `tables` nor `own_model` EDL shares
        out the records and keeps no model: what trainers have learned is the script's to save.  With `own_model`
        `batch_size` is that of a step over all trainers, and does not change either.
        """
        self._check_declaring("dataset()")
        if self._data is not None or self._group is not None:
            spec = self._group.spec if self._group is not None else self._declared().spec
            raise UsageError(f"dataset() a second time: this job trains {spec.name!r}")
        spec = dataset_spec(name, size=size, epochs=epochs, batch_size=batch_size, seed=seed)
        self._data = Data(spec, start=self._open_source, check_use=self._owner.check)
        self._make_own_steps()
        return self._data

    def tables(self, tables: Mapping[str, TableDeclaration], *, optimiser: OptimiserSpec | None = None) -> Tables:
        """Declares the model on the job's parameter servers; `optimiser` is for tables that name none."""
        self._check_declaring("tables()")
        self._check_first_model()
        specs = table_specs(tables, sgd(0.01) if optimiser is None else optimiser)
        from trainer_sdk.pserver.client.pserver_client import PserverClient  # noqa: PLC0415  plain sharding needs none
        from trainer_sdk.pserver.tables.layout import check_tables  # noqa: PLC0415
        from trainer_sdk.tables import Tables  # noqa: PLC0415
        from trainer_sdk.transport.security import Security  # noqa: PLC0415

        check_tables(specs)

        def client(is_outdated: Callable[[], bool]) -> PserverClient:
            joined = self._connection.environment
            security = Security(token=joined.token.encode(), tls_folder=joined.tls_folder)
            return PserverClient(security, is_outdated=is_outdated)

        self._tables = Tables(
            specs,
            client=client,
            start=self._start,
            check_use=self._owner.check,
            data=self._declared,
            budget_s=self._server_budget_s,
        )
        return self._tables

    def own_model(self, *, save: SaveHook, restore: RestoreHook) -> None:
        """Declares that the script keeps its model: `save()` returns its arrays, `restore(arrays)` puts them back.

        Model and data position are then committed together, every EDL_CHECKPOINT_EVERY_S, at the end, and at
        `checkpoint()`.  `restore` runs before the first batch, with None if there is no checkpoint, and again where
        this trainer takes the model of another one.  The job is a group (spec.group); on several trainers the loop sums
        what it adds to the model, by `Batch.all_reduce`.
        """
        self._check_declaring("own_model()")
        self._check_first_model()
        from trainer_sdk.own_model import OwnModel  # noqa: PLC0415  scripts with tables need none

        self._replica = self._own = OwnModel(save, restore)
        self._make_own_steps()

    def replicate(self, replica: ReplicaState) -> None:
        """Declares that every trainer of this job holds this replica: the job is a group (promise M10)."""
        self._check_declaring("replicate()")
        self._check_first_model()
        self._replica = replica

    @property
    def replica(self) -> ReplicaState | None:
        """What `replicate` or `own_model` declared; None before."""
        return self._replica

    def group_steps(
        self, name: str, *, size: int, epochs: int, global_batch: int | None = None, seed: int = 0
    ) -> GroupSteps:
        """Declares the steps of a group over `size` records, `epochs` times, in an order keyed by `seed`.

        Each step trains the next `global_batch` records of the order, whoever is there; without a number it is the
        job's own (spec.group.globalBatch).  After `replicate`.
        """
        self._check_declaring("group_steps()")
        if self._replica is None:
            raise UsageError("group_steps() without a model: call replicate() first")
        if self._group is not None or self._data is not None:
            raise UsageError(
                "a second data set: a job trains one, which loader() or dataset() declares once; test sets go to "
                "loader.evaluate()"
            )
        from trainer_sdk.group.joining import global_batch_of  # noqa: PLC0415

        records = global_batch_of(global_batch, self.environment)
        spec = dataset_spec(name, size=size, epochs=epochs, batch_size=records, seed=seed)
        self._group = self._new_steps(spec)
        return self._group

    def on_final(self, hook: FinalHook) -> None:
        """Runs `hook(arrays)` on one trainer after the end, with the final dense tables, or a group's replica.

        The hook runs again if that trainer, or the master, dies before its run is recorded, so it must be idempotent.
        """
        self._check_declaring("on_final()")
        if not callable(hook):
            raise UsageError(
                f"on_final: {hook!r:.80} cannot be called; give a function of the arrays, which saves them"
            )
        self._final = hook

    def on_drain(self, callback: Callable[[], object]) -> None:
        """Runs `callback` once when this trainer has to leave, after its last batch and before its loop ends."""
        self._owner.check()
        if not callable(callback):
            raise UsageError(f"on_drain: {callback!r:.80} cannot be called; give a function without parameters")
        self._on_drain.append(callback)

    # ---- while training ---------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This trainer's rank among the trainers, as of now, for logging; it changes when others come and go.

        In a group it is that of the step in hand.  Not for forming process groups: a change reaches each trainer at
        another batch, so two trainers may hold different worlds at one time, wait for each other in different groups,
        or both be rank 0.  Nor is anything said of a newcomer's parameters: it would join with its own, and the
        replicas would differ from then on.
        """
        return self._group.rank if self._group is not None else self._placed().place.rank

    @property
    def world_size(self) -> int:
        """Number of trainers, as of now, for logging; not for forming process groups, see `rank`."""
        return self._group.size if self._group is not None else self._placed().place.world_size

    @property
    def is_leader(self) -> bool:
        """True for one trainer of a group in each step: who writes logs, say.  False before the first step."""
        return self._steps_of_group.is_leader

    @property
    def step(self) -> int:
        """Steps that the group's model has done: the axis of its curves, which a resize does not bend."""
        return self._steps_of_group.step

    @property
    def epoch(self) -> int:
        """Epoch of the group's next step; the first is 0."""
        return self._steps_of_group.epoch

    @property
    def is_draining(self) -> bool:
        """True once this trainer has to leave; its loop then ends after the batch in hand."""
        return self._connection.is_draining

    @property
    def has_ended(self) -> bool:
        """True once the whole job is trained and committed; false if only this trainer had to leave."""
        return self._ending is FinishReason.ENDED

    def report(self, metrics: Mapping[str, float]) -> None:
        """Shows these metrics with the job from the next report on, by name.

        A name whose value is not finite is left out until it is, and standard error says so once.  Raises UsageError
        for a value that is no number.
        """
        self._owner.check()
        if self._group is not None:
            self._group.report(metrics)
        else:
            self._declared().metrics.add(metrics)

    def checkpoint(self) -> str:
        """Commits the script's own model with the positions it has trained; returns the manifest's id.

        One of several trainers calls it: `if session.is_leader`.  Raises UsageError inside an unfinished batch (is it
        in the model or not?), CheckpointError when it could not be committed: training may continue.
        """
        self._owner.check()
        if self._own is None:
            raise UsageError(
                "checkpoint() is for own_model(); what replicate() was given, and tables, are committed by themselves"
            )
        current = self._declared().current
        if current is not None and not current.is_done:
            raise UsageError("checkpoint() within a batch: call batch.done() first, so that model and position agree")
        group = self._steps_of_group
        if current is not None and not group.is_leader:
            raise UsageError("checkpoint() by several trainers: let one of them call it, `if session.is_leader`")
        return group.checkpoint()

    # ---- ending -----------------------------------------------------------------------------------------------------

    def close(self, reason: str = "done") -> None:
        """Acks confirmed work, returns the rest, ends children and threads.  A second call does nothing."""
        if self._owner.is_closed or not self._owner.is_this_process:
            return
        self._owner.check()
        self._close(reason)

    def _close(self, reason: str) -> None:
        """Runs every step, also if Ctrl-C interrupts one: no child and no handler outlives the session."""
        self._owner.close()
        atexit.unregister(self._left_open)
        with ExitStack() as steps:
            steps.callback(self._signal.restore)
            steps.callback(self._connection.close)
            if self._tables is not None:
                steps.callback(self._tables.close)
            if self._group is not None:
                steps.callback(self._group.close)
            steps.callback(self._connection.leave, reason)  # first: it ends a collective in which others are awaited

    def __enter__(self) -> Self:
        self._owner.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_mine = self._owner.is_this_process and not self._owner.is_closed
        try:
            if isinstance(error, GracePeriodExpired) and is_mine:
                self._run_drain_callbacks()
            elif isinstance(error, CheckpointError) and not error.is_damage:
                pass  # its storage gives no answer, which says nothing of the script: the next process asks again
            elif isinstance(error, Exception) and (member := self._connection.member) is not None and is_mine:
                lines = "".join(traceback.format_exception(error)).splitlines()[-TRACEBACK_LINES:]
                text = "\n".join(lines).encode(errors="backslashreplace").decode()  # a file's name may be no UTF-8
                member.script_failed(text, is_misuse=isinstance(error, UsageError))
            elif kind is None and is_mine and self._group is not None:
                self._group.finish()  # a loop that was left after stop() is over, and not this trainer alone
        finally:
            self.close("ended" if self.has_ended else "drained" if self.is_draining else "left the session")

    def _left_open(self) -> None:
        if self._owner.is_this_process and not self._owner.is_closed:
            sys.stderr.write("edl: the script ended without close(): write `with edl.open() as session:`\n")
            self._close("the script ended without close()")

    # ---- what the loop calls ----------------------------------------------------------------------------------------

    def _conclude(self, finish: Finish | GroupFinish) -> None:
        """Called as the loop ends: callbacks, or the final hook (rule 96)."""
        self._ending = finish.reason
        if self.has_ended:
            self._owner.note_end(is_group=self._group is not None)
        member = self._connection.member
        if finish.reason is FinishReason.DRAINED:
            self._run_drain_callbacks()
        elif finish.final_saver and member is not None:
            if self._final is not None:
                self._final(self._final_arrays())
            member.final_hook_done()

    def _final_arrays(self) -> Arrays:
        if self._replica is not None:
            return self._replica.capture().arrays
        return self._tables.pull() if self._tables is not None else {}

    def _run_drain_callbacks(self) -> None:
        callbacks, self._on_drain = self._on_drain, []
        for callback in callbacks:
            callback()

    # ---- starting ---------------------------------------------------------------------------------------------------

    def _make_own_steps(self) -> None:
        """A script that keeps its model trains the steps of a group; `dataset` and `own_model` come in either order."""
        if self._own is not None and self._data is not None:
            self._group = self._new_steps(self._data.spec)

    def _new_steps(self, spec: DatasetSpec) -> GroupSteps:
        from trainer_sdk.group.group_steps import GroupSteps  # noqa: PLC0415  scripts with tables need none

        return GroupSteps(spec, join=self._join_group, check_use=self._owner.check, conclude=self._conclude)

    def _open_source(self) -> BatchSource:
        """Source of the batches of `dataset`; called with the first one."""
        data = self._declared()
        if self._own is not None and self._group is not None:
            from trainer_sdk.own_model import StepBatches  # noqa: PLC0415  scripts with tables need none

            return StepBatches(self._group, self._own)
        return LeasedBatches(
            self._start(),
            epoch_size=data.spec.size,
            metrics=data.metrics,
            conclude=self._conclude,
            budget_s=self._budget_s,
        )

    def _start(self) -> TrainerDriver:
        """The connected driver; nothing can be declared from then on."""
        tables = self._tables.specs if self._tables is not None else ()
        spec = Declare(dataset=self._declared().spec, tables=tables)
        return self._connection.start(spec, has_final_hook=self._final is not None)

    def _join_group(self) -> MemberRuntime:
        assert self._group is not None
        assert self._replica is not None
        return self._connection.join(self._replica, self._group.spec, has_final_hook=self._final is not None)

    @property
    def _steps_of_group(self) -> GroupSteps:
        self._owner.check()
        if self._group is None:
            raise UsageError("step, epoch and is_leader are for groups, whose trainers make each step together")
        return self._group

    def _placed(self) -> TrainerDriver:
        self._owner.check()
        driver = self._start()
        driver.wait_until_joined(budget_s=self._budget_s)
        return driver

    def _declared(self) -> Data:
        if self._data is None:
            raise UsageError("no data set yet: call session.dataset(...) first, or loader(session, ...) in PyTorch")
        return self._data

    def _check_declaring(self, what: str) -> None:
        self._owner.check()
        if self._connection.member is not None:
            raise UsageError(f"{what} after the first batch, pull or rank: declare everything before")

    def _check_first_model(self) -> None:
        if self._tables is not None or self._replica is not None:
            raise UsageError(
                "a second model: a job has one, declared once by tables(), own_model() or replicate(); give all "
                "modules and optimizers to one replicate(session, ...)"
            )


def open_session(
    variables: Mapping[str, str] | None = None,
    *,
    master_budget_s: float = MASTER_BUDGET_S,
    server_budget_s: float = SERVER_BUDGET_S,
) -> Session:
    """Open a session with these variables instead of the process's environment."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # its main module is run again, up to here
        raise UsageError(
            "edl.open() in a worker process, which runs the script's top level first: put what the script does under "
            'if __name__ == "__main__":'
        )
    environment = parse_environment(os.environ if variables is None else variables)
    return Session(environment, master_budget_s=master_budget_s, server_budget_s=server_budget_s)
