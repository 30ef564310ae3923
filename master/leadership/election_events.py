"""Events of an election (inputs of `election_state.handle`) and its effects (carried out by `election`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from master.store.store_port import Leadership


class LossReason(StrEnum):
    NOT_RENEWED = "the lease could not be renewed before the renew deadline"
    LEASE_LOST = "the store no longer knows the lease"
    GIVEN_UP = "this master stepped down"
    RESIGNED = "resigned"
    BROKEN = "the election itself failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignWon:
    leadership: Leadership
    sent_s: float  # before the campaign left


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignEnded:
    """Another master leads, or the store did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderVanished:
    """The leader key was deleted or has expired: campaign at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewSucceeded:
    leadership: Leadership
    sent_s: float  # before the renewal left


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewFailed:
    """The store did not answer; the lease may still be there."""

    leadership: Leadership
    sent_s: float  # before the renewal left


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost:
    leadership: Leadership
    reason: LossReason = LossReason.LEASE_LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class ResignRequested:
    """The process is about to end and campaigns no more."""


ElectionEvent: TypeAlias = (
    Ticked | CampaignWon | CampaignEnded | LeaderVanished | RenewSucceeded | RenewFailed | LeaseLost | ResignRequested
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """Answered by CampaignWon or CampaignEnded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew:
    """Answered by RenewSucceeded, RenewFailed or LeaseLost."""

    leadership: Leadership


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLeading:
    leadership: Leadership


@dataclass(frozen=True, slots=True, kw_only=True)
class StopLeading:
    """Act no more under this term, from now on."""

    leadership: Leadership
    reason: LossReason


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBack:
    """Revoke the lease, so that no standby waits for its expiry; if that fails it ends by itself."""

    leadership: Leadership


ElectionEffect: TypeAlias = Campaign | Renew | StartLeading | StopLeading | GiveBack
