"""Errors of trainers and parameter servers, as one tree: the branch decides what the caller does next.

EdlError
├── TemporaryError                try again after `retry_after_s`; the work done so far is safe
│   ├── MasterUnavailableError        the job's master did not answer within the budget
│   ├── ServerUnavailableError        a parameter server did not answer within the budget
│   └── NotReadyError                 a parameter server holds no model yet
├── PermanentError                trying again is pointless: the message says what to change
│   ├── ChildEndedError               alone: the master or server that the script started has ended
│   ├── UsageError                    the script uses the SDK in a way that cannot work
│   ├── JobFailedError                a launched job has failed or was stopped, and has no result
│   ├── TableError                    a table, or an array given for it, is not as declared
│   ├── WireError                     the peer sent something that is no message of this protocol
│   │   ├── FrameTooLargeError            a message larger than its bound
│   │   └── VersionSkewError              the peer speaks another version
│   ├── AuthenticationError           the peer does not prove that it belongs to this job
│   └── CheckpointError               a checkpoint file is missing, cut short or altered
├── FencedError                   this process is stale: drop leases and gradients, register again (rule 14)
│   └── StaleLineageError             the model was rolled back; gradients of the older one are worthless
├── StepAborted                   the group broke in the middle of a step, which comes again (rule 73)
├── CollectiveAborted             a group's operation was aborted: leave the group, connect that of the next generation
│   └── CollectiveStalled             no byte moved for longer than any member of a sound group is waited for
└── InvariantViolationError       a bug: crash, and say what was seen

GracePeriodExpired and TrainerLeft are outside the tree: they are no errors, but end a process that has to leave.
"""

from __future__ import annotations

from master.api.errors import StorageAlteredError, StorageError, StorageMissingError


class EdlError(Exception):
    """Everything that this package raises on purpose."""


class TemporaryError(EdlError):
    """Nothing is wrong with the request; try again after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class MasterUnavailableError(TemporaryError):
    """The master did not answer within the budget; it may be restarting."""


class ServerUnavailableError(TemporaryError):
    """A parameter server did not answer within the budget.  The same push may be sent again: marks decide (rule 6)."""


class NotReadyError(TemporaryError):
    """A parameter server is restoring its model."""


class PermanentError(EdlError):
    """The same request fails again."""


class ChildEndedError(PermanentError):
    """The master or parameter server of a standalone script has ended; the message has the end of its log."""


class UsageError(PermanentError):
    """The script uses the SDK in a way that cannot work; the message says what to write instead."""


class JobFailedError(PermanentError):
    """A job of `launch` has failed, or was stopped: it has no result.  The message has the reason."""


class TableError(PermanentError):
    """A table's declaration, or an array given for it, is wrong.  `field` is its path (tables.embedding.shape)."""

    def __init__(self, field: str, problem: str, *, hint: str) -> None:
        super().__init__(f"{field}: {problem}. {hint}")
        self.field = field


class WireError(PermanentError):
    """The peer sent something that is no message of this protocol; the connection is closed."""


class FrameTooLargeError(WireError):
    """A message larger than its bound is refused before a byte of it is kept."""

    def __init__(self, what: str, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{what}: {size_bytes:,} bytes, more than the {limit_bytes:,} that one message may have")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class VersionSkewError(WireError):
    """The peer speaks another version: run the same EDL release on both sides."""


class AuthenticationError(PermanentError):
    """The peer does not prove that it belongs to this job: look at EDL_TOKEN_FILE and EDL_TLS_DIR on both sides."""


class CheckpointError(PermanentError):
    """A checkpoint file is missing, cut short or altered.  `file` is its name in the job's folder."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(f"checkpoint file {file}: {problem}")
        self.file = file

    @property
    def is_damage(self) -> bool:
        """False where the storage could not be asked (it is the cause of this): the file may be whole."""
        cause = self.__cause__
        return not isinstance(cause, StorageError) or isinstance(cause, StorageMissingError | StorageAlteredError)


class FencedError(EdlError):
    """This process is stale: drop leases and gradients, register again, keep the process (rule 14)."""


class StaleLineageError(FencedError):
    """The model was rolled back: what was computed on the older one is worthless."""


class StepAborted(EdlError):  # noqa: N818  an ordinary end of a step, not a fault
    """The group broke in the middle of this step: nothing of it is applied, and `begin_step` gives it again."""


class CollectiveAborted(EdlError):  # noqa: N818 - what happened to the group; often on purpose, and no fault
    """`abort` was called, a member is lost or a deadline has passed: the group is unusable (rule 73).

    An array that was being reduced holds anything; state that was being received is nothing (rules 68, 71).
    """


class CollectiveStalled(CollectiveAborted):
    """No byte moved in an operation for the group's `idle_s`, and nobody aborted it.  `ranks`: who was waited for."""

    def __init__(self, ranks: tuple[int, ...], *, idle_s: float) -> None:
        super().__init__(f"no byte moved for {idle_s:g} s: waited for {', '.join(f'rank {rank}' for rank in ranks)}")
        self.ranks, self.idle_s = ranks, idle_s


class InvariantViolationError(EdlError):
    """An invariant does not hold.  The process ends: continuing could corrupt the model, a restart costs a second."""


class GracePeriodExpired(SystemExit):
    """The trainer's grace period ended while a call still waited (M7).

    Unconfirmed positions have been returned to the job.  Uncaught it ends the process with exit code 0; an `except
    Exception` around a step does not catch it.
    """

    def __init__(self) -> None:
        super().__init__(0)


class TrainerLeft(SystemExit):
    """This trainer has left its group before the end: what a loop does after its epochs is not for it any more.

    Uncaught it ends the process with exit code 0, as a trainer that had to leave is to end; `with` blocks and `finally`
    run.
    """

    def __init__(self) -> None:
        super().__init__(0)
