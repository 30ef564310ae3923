"""What any member may be told in place of an answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """You are stale: drop leases and gradients, register again, keep the process (rule 14)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What was asked is wrong and will stay wrong: `field` names it, `message` says what to do."""

    field: str
    message: str
