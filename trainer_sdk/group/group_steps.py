"""Steps of a script in its job's group: what a framework layer iterates over.

    while (share := steps.next_step()) is not None:
        gradient = gradients_of(steps.records(share.positions))
        try:
            steps.all_reduce(gradient)
        except StepAborted:
            continue                     # the same step comes again, maybe with another share
        if steps.end_step():
            apply(gradient / share.records)

Made by `Session.group_steps`; what a framework gives to its scripts stands on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Final

from master.api.group_shares import steps_per_epoch
from master.api.identities import DatasetSpec, ManifestId
from master.api.positions import PositionSet
from trainer_sdk.errors import UsageError
from trainer_sdk.group.member_runtime import MemberRuntime
from trainer_sdk.group.port import GroupFinish, HostArray, StepShare
from trainer_sdk.protocol.trainer_events import FinishReason
from trainer_sdk.record_order import RecordNumbers, RecordOrder
from trainer_sdk.reported_metrics import ReportedMetrics


class GroupSteps:
    """This trainer's steps.  All calls come from the script's thread, except `all_reduce` (see `MemberRuntime`)."""

    def __init__(
        self,
        spec: DatasetSpec,
        *,
        join: Callable[[], MemberRuntime],
        check_use: Callable[[], None],
        conclude: Callable[[GroupFinish], None],
    ) -> None:
        self.spec: Final = spec  # `batch_size` is the global batch
        self._join, self._check_use, self._conclude = join, check_use, conclude
        self._runtime: MemberRuntime | None = None
        self._order = RecordOrder(spec)
        self._share: StepShare | None = None
        self._metrics = ReportedMetrics()
        self._has_ended = self._is_job_done = self._wants_stop = False
        self._at_close: list[Callable[[], None]] = []

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def next_step(self) -> StepShare | None:
        """The next step, or the one before again after an abort; None once the loop is over.

        Calling it says that the step before was applied.  The first call joins the group.  At the end of the loop the
        session's callbacks have run.  Raises UsageError, MasterUnavailableError, CheckpointError.
        """
        self._check_use()
        if self._has_ended:
            return None
        if self._runtime is None:
            self._runtime = self._join()
        if self._wants_stop:
            self._runtime.stop()
        step = self._runtime.begin_step()
        if isinstance(step, GroupFinish):
            self._has_ended, self._is_job_done = True, step.reason is FinishReason.ENDED
            self._conclude(step)
            return None
        self._share = step
        return step

    def all_reduce(self, array: HostArray, *, dtype: str = "") -> None:
        """The array becomes the sum over all trainers.  Raises StepAborted; see `MemberRuntime.all_reduce`."""
        self._joined.all_reduce(array, dtype=dtype)

    def computed(self, *, is_known: bool = True) -> None:
        """Says that this trainer has its gradients; what it waits for from here on tells nothing of its speed.

        Not `is_known`: an accelerator may still be at them, and this step tells nothing of its speed.
        """
        self._joined.computed(is_known=is_known)

    @property
    def is_step_dropped(self) -> bool:
        """True once the group broke under the step in hand: it comes again, and computing on is in vain."""
        return self._joined.is_step_dropped

    def end_step(self, *, sample: str = "") -> bool:
        """True: the step is complete here; apply it before `next_step`.  False: it is dropped, and comes again.

        `sample`: position and digest of what this trainer has read of `StepShare.sample`.
        """
        return self._joined.end_step(sample=sample)

    def complete_step(self) -> bool:
        """As `end_step`, before the gradients are computed: for a step to which no other trainer contributes."""
        return self._joined.complete_step()

    def stop(self) -> None:
        """The job ends with the last step that is complete at the next `next_step`, which then returns None.

        Every trainer's job ends there, whoever calls it; the last checkpoint holds that step.  Raises UsageError before
        the first step.
        """
        self._check_use()
        if self._runtime is None:
            raise UsageError("stop() before the first step: nothing is trained yet, so there is nothing to end with")
        self._wants_stop = True

    def finish(self) -> None:
        """After `stop`: the end of the job, as `next_step` waits for it; without it nothing."""
        while self.is_stopping and self.next_step() is not None:
            pass

    def checkpoint(self) -> ManifestId:
        """Commits the replica as it is now, between two steps.  The first call joins the group.

        Raises CheckpointError when it could not be committed, MasterUnavailableError when no answer came.
        """
        self._check_use()
        if self._runtime is None:
            self._runtime = self._join()
        return self._runtime.checkpoint()

    def loading(self) -> AbstractContextManager[None]:
        """Within it the script waits for its data: the master sees no hang in that (rule 74)."""
        return self._joined.loading()

    def gather(self, data: bytes) -> list[bytes]:
        """What all trainers gave, by rank; between a complete step and `next_step`.  Raises StepAborted."""
        return self._joined.gather(data)

    def expected_share(self, step: int) -> StepShare | None:
        """Share that this trainer would have of a step if nobody came or went until then, for reading ahead."""
        return None if self._runtime is None else self._runtime.expected_share(step)

    def records(self, positions: PositionSet) -> RecordNumbers:
        """Numbers of the records at these positions of one epoch: int64, shape (len(positions),)."""
        return self._order.records(positions)

    def report(self, metrics: Mapping[str, float]) -> None:
        """Shows these with the job from the next report on.  Raises UsageError for a value that is no number."""
        self._metrics.add(metrics)
        if self._runtime is not None:
            self._runtime.report_metrics(self._metrics.values)

    def at_close(self, callback: Callable[[], None]) -> None:
        """Called once as the session closes, newest first: threads and processes of a framework's layer end there."""
        self._at_close.append(callback)

    def close(self) -> None:
        """Runs what `at_close` was given, all of it.  A second call does nothing."""
        callbacks, self._at_close = self._at_close, []
        with ExitStack() as steps:
            for callback in callbacks:
                steps.callback(callback)

    # ---- where this trainer stands ----------------------------------------------------------------------------------

    @property
    def runtime(self) -> MemberRuntime | None:
        """None before the first step."""
        return self._runtime

    @property
    def rank(self) -> int:
        """Rank in the step in hand."""
        return self._given.rank

    @property
    def size(self) -> int:
        """Number of trainers in the step in hand."""
        return self._given.size

    @property
    def is_leader(self) -> bool:
        """True for rank 0 of the step in hand; false before the first one."""
        return self._share is not None and self._share.rank == 0

    @property
    def step(self) -> int:
        """Steps that the model has done."""
        return 0 if self._runtime is None else self._runtime.step

    @property
    def epoch(self) -> int:
        """Epoch of the next step: the first is 0."""
        return self.step // steps_per_epoch(self.spec)

    @property
    def has_left(self) -> bool:
        """True once this trainer has left its group before the job's end: its model is not that of the group."""
        return self._has_ended and not self._is_job_done

    @property
    def is_stopping(self) -> bool:
        """True from `stop` until the loop is over."""
        return self._wants_stop and not self._has_ended

    @property
    def is_draining(self) -> bool:
        return self._runtime is not None and self._runtime.is_draining

    @property
    def _joined(self) -> MemberRuntime:
        if self._runtime is None:
            raise UsageError("no step yet: call next_step() first")
        return self._runtime

    @property
    def _given(self) -> StepShare:
        if self._share is None:
            raise UsageError("rank and world_size of a group are known from its first step on: read them in the loop")
        return self._share
