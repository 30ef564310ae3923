"""What all jobs of a cluster have in common, chosen by its owner."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain import Reclaim


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """Where etcd is and what masters show it.  PEM and password as they are handed on by the master's secret.

    `is_separate`: each job has a user and a password of its own (0165); else all show `user` and `password`.
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
    """Grace in seconds."""

    image: str
    """For masters, and for servers whose template names no image."""

    etcd: EtcdAccess
    reclaim: Reclaim = Reclaim.SCHEDULER

    elastic_servers: bool = False
    """Whether parameter servers come and go while their job trains; else it keeps its minimum of them (0156)."""

    moves_servers: bool = False
    """Besides, whether they go to where they waste least once the web has changed (0118)."""

    surplus_grace_s: float = 10.0
    """Surplus gets at most this much of the user's grace: it is the web's waiting time (`beside-the-scheduler.md`
    7)."""
