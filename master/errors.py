"""Errors of the master, in one tree: what the caller does next follows from the branch.

MasterError
├── TemporaryError            try again after `retry_after_s`
│   └── StoreUnavailableError     etcd did not answer within the budget
├── PermanentError            trying again is pointless: the message says what to change
│   ├── InvalidSettingError       a setting, named by its path
│   ├── StoreAccessError          etcd refused user, password or certificate
│   ├── ValueTooLargeError        a value or a transaction that etcd should not carry
│   └── PortInUseError            another process listens there
├── FencedError               you are stale: drop what you hold, register or campaign again
│   ├── LeaseLostError            the lease behind the leadership is gone
│   └── TermEndedError            one term of this process is over, the process continues
│       └── HeadDamagedError          the next one resumes from a checkpoint before head
└── InvariantViolationError   a bug: crash, and say what was seen
"""

from __future__ import annotations


class MasterError(Exception):
    """Everything that this package raises on purpose."""


class TemporaryError(MasterError):
    """Nothing is wrong with the request; ask again after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreUnavailableError(TemporaryError):
    """The store did not answer within the budget.  Of a write it is never raised: its outcome is Unknown then."""


class PermanentError(MasterError):
    """The same request fails again."""


class InvalidSettingError(PermanentError):
    """A setting is refused before anything starts."""

    def __init__(self, path: str, problem: str, *, hint: str) -> None:
        super().__init__(f"{path}: {problem}. {hint}")
        self.path = path


class StoreAccessError(PermanentError):
    """etcd refused the user, the password, the certificate or the permission."""


class ValueTooLargeError(PermanentError):
    """A write is larger than the store is meant for (M6)."""

    def __init__(self, what: str, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{what}: {size_bytes:,} bytes, more than the {limit_bytes:,} that one value in the store may have. "
            "Put the bulk into a file and store its name and digest."
        )


class PortInUseError(PermanentError):
    """An address that a master was to listen on is taken."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} is in use. Stop what listens there, or choose another port.")
        self.address = address


class FencedError(MasterError):
    """Another master acts in your place: drop what you hold."""


class LeaseLostError(FencedError):
    """The store no longer knows the lease, so the leader key is gone or going."""


class TermEndedError(FencedError):
    """This term is over; the message says why."""


class HeadDamagedError(TermEndedError):
    """The files of head cannot be loaded, and the job is configured to fall back (M11)."""


class InvariantViolationError(MasterError):
    """An invariant is violated.

    The process ends, because continuing could corrupt the model and a restart costs a second.
    """
