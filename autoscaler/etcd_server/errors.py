"""Errors of the etcd server that EDL finds, builds and starts, in one tree.

EtcdServerError
├── UnusableEtcdError         no server of a version without known data loss
├── EtcdBuildError            it could not be built
├── EtcdStartError            a member did not become ready, or died
└── EtcdPortInUseError        another process listens at a member's address
"""

from __future__ import annotations

from autoscaler.errors import PermanentError


class EtcdServerError(PermanentError):
    """Root of this tree; the message says what to do."""


class UnusableEtcdError(EtcdServerError):
    """No etcd server of a version that keeps what it has acknowledged."""


class EtcdBuildError(EtcdServerError):
    """The pinned etcd could not be built on this machine."""


class EtcdStartError(EtcdServerError):
    """An etcd member did not become ready, or died."""


class EtcdPortInUseError(EtcdServerError):
    """An address that an etcd member was to listen on is taken."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} is in use. Stop what listens there, or choose another port.")
        self.address = address
