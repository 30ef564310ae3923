"""What an event leads to.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_sdk.pserver.messages import Effect
from trainer_sdk.pserver.state import ServerState


@dataclass(frozen=True, slots=True)
class Step:
    """The state from now on, and what the shell does, in this order."""

    state: ServerState
    effects: tuple[Effect, ...] = ()
