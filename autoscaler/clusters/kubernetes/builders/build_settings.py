"""Settings of the cluster's owner that concern the objects of every job."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain import Reclaim


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """Address of etcd and the credentials of masters.  PEM and password as the master's Secret holds them.

    `is_separate`: each job has a user and a password of its own (ADR 0165); else all use `user` and `password`.
    """

    endpoints: str
    user: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    is_separate: bool = False

    def __repr__(self) -> str:
        return f"EtcdAccess(endpoints={self.endpoints!r}, user={self.user!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """Settings for building a job's objects.  Grace periods in seconds."""

    image: str
    """For masters, and for servers whose template names no image."""

    etcd: EtcdAccess
    reclaim: Reclaim = Reclaim.SCHEDULER

    elastic_servers: bool = False
    """True if a job's number of parameter servers may change while it trains; else it has its minimum (ADR 0156)."""

    moves_servers: bool = False
    """True if parameter servers may also move to nodes where they waste less (ADR 0118)."""

    surplus_grace_s: float = 10.0
    """Longest grace period of surplus pods, because web pods wait for it (`beside-the-scheduler.md`
    7)."""
