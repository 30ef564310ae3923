"""Runs the decisions of `master.leadership` against a store, so that a master sees one reign after another.

    async with Election(store, holder="10.0.0.7:7164", timing=timing) as election:
        reign = await election.won()
        ... serve, asking reign.may_act() right before each grant ...
        reason = await reign.ended()

Not here: when to campaign, renew and stop (`master.leadership`), and what a reign does (`master.runtime`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from types import TracebackType
from typing import Final, Self, assert_never

from master.errors import LeaseLostError, MasterError, StoreAccessError, StoreUnavailableError
from master.leadership import (
    Campaign,
    CampaignEnded,
    CampaignWon,
    Effect,
    Event,
    GiveBack,
    LeadershipTiming,
    LeaderVanished,
    LeaseLost,
    LossReason,
    Renew,
    RenewFailed,
    RenewSucceeded,
    ResignRequested,
    Role,
    StartLeading,
    State,
    Step,
    StopLeading,
    Ticked,
    handle,
)
from master.store.port import Changed, Leadership, Store

log: Final = logging.getLogger(__name__)

MAX_PENDING_EVENTS: Final = 64  # one campaign, one renewal, some changes of the leader key


class Reign:
    """One term of this process."""

    def __init__(self, leadership: Leadership, may_act: Callable[[Leadership], bool]) -> None:
        self.leadership = leadership
        self._may_act = may_act
        self._ended: asyncio.Future[LossReason] = asyncio.get_running_loop().create_future()

    def may_act(self) -> bool:
        """Whether this term may still grant and answer: False from the renew deadline on, even right after a pause."""
        return not self._ended.done() and self._may_act(self.leadership)

    async def ended(self) -> LossReason:
        """Waits until the term is over, and says why."""
        return await asyncio.shield(self._ended)

    def end(self, reason: LossReason) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)


class Election:
    """This process as a candidate, from entering the context until leaving it, which gives the leadership back."""

    def __init__(
        self,
        store: Store,
        *,
        holder: str,
        timing: LeadershipTiming,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._holder = holder
        self._clock_s = clock_s
        self._step = Step(state=State(timing=timing))
        self._events: asyncio.Queue[Event] = asyncio.Queue(MAX_PENDING_EVENTS)
        self._reign: Reign | None = None
        self._changed = asyncio.Event()  # set, and replaced, at each change of the reign
        self._calls: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._watch_leader())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.resign()

    async def resign(self) -> None:
        """The reign is over and its lease given back, so that a standby need not wait; no campaign follows."""
        await self._cancel(self._tasks)
        for effect in self._handle(ResignRequested()):
            if isinstance(effect, GiveBack):
                await self._give_back(effect.leadership)
        await self._cancel(self._calls)

    async def won(self) -> Reign:
        """Waits until this process leads, however long; the store may be away meanwhile.

        Raises StoreAccessError when the store refuses this process for good.
        """
        while self._reign is None or not self._reign.may_act():
            changed = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.wait([changed, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            for task in self._tasks:
                if task.done():
                    task.result()
        return self._reign

    def step_down(self, reign: Reign, reason: LossReason) -> None:
        """Ends the reign at once, because a transaction was fenced or the master gives up; a new campaign follows."""
        self._perform(self._handle(LeaseLost(leadership=reign.leadership, reason=reason)))

    # ---- the loop ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        self._perform(self._handle(Ticked()))
        while True:
            self._perform(self._handle(await self._next_event()))

    async def _next_event(self) -> Event:
        wake_s = self._step.wake_s
        try:
            async with asyncio.timeout(None if wake_s is None else max(0.0, wake_s - self._clock_s())):
                return await self._events.get()
        except TimeoutError:
            return Ticked()

    def _handle(self, event: Event) -> tuple[Effect, ...]:
        self._step = handle(self._step.state, event, self._clock_s())
        for effect in self._step.effects:
            match effect:
                case StartLeading():
                    self._reign = Reign(effect.leadership, self._may_act)
                    log.info("term %d leads: %s", effect.leadership.term, self._holder)
                case StopLeading():
                    if self._reign is not None:
                        self._reign.end(effect.reason)
                    log.warning("term %d ends: %s", effect.leadership.term, effect.reason)
                case Campaign() | Renew() | GiveBack():
                    continue
                case _:
                    assert_never(effect)
            self._changed.set()
            self._changed = asyncio.Event()
        return self._step.effects

    def _may_act(self, leadership: Leadership) -> bool:
        leading = self._step.state.leading
        return leading is not None and leading.leadership == leadership and self._step.state.may_act(self._clock_s())

    # ---- effects ----------------------------------------------------------------------------------------------------

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        """Calls run beside the loop, so that no slow store delays the renew deadline."""
        for effect in effects:
            match effect:
                case Campaign():
                    self._start(self._campaign())
                case Renew():
                    self._start(self._renew(effect.leadership))
                case GiveBack():
                    self._start(self._give_back(effect.leadership))
                case StartLeading() | StopLeading():
                    continue
                case _:
                    assert_never(effect)

    def _start(self, call: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _campaign(self) -> None:
        sent_s = self._clock_s()
        try:
            ttl_s = self._step.state.timing.lease_ttl_s
            leadership = await self._store.try_lead(holder=self._holder, ttl_s=ttl_s)
        except MasterError as error:
            log.warning("campaign failed: %s", error)
            leadership = None
        await self._events.put(
            CampaignWon(leadership=leadership, sent_s=sent_s) if leadership is not None else CampaignEnded()
        )

    async def _renew(self, leadership: Leadership) -> None:
        sent_s = self._clock_s()
        event: Event
        try:
            await self._store.renew(leadership)
            event = RenewSucceeded(leadership=leadership, sent_s=sent_s)
        except LeaseLostError:
            event = LeaseLost(leadership=leadership)
        except MasterError as error:
            log.warning("term %d: renewal failed: %s", leadership.term, error)
            event = RenewFailed(leadership=leadership)
        await self._events.put(event)

    async def _give_back(self, leadership: Leadership) -> None:
        try:
            await self._store.resign(leadership)
        except MasterError as error:
            log.info("term %d: its lease is left to expire: %s", leadership.term, error)

    async def _watch_leader(self) -> None:
        """A standby campaigns as soon as the leader key is gone, not at its next try."""
        key = self._store.keys.leader
        while True:
            try:
                start = (await self._store.read((key,))).revision
                async with aclosing(self._store.watch(key, after=start)) as changes:
                    async for change in changes:
                        if isinstance(change, Changed) and change.entry is None and self._state.role is Role.FOLLOWER:
                            await self._events.put(LeaderVanished())
            except StoreUnavailableError as error:
                await asyncio.sleep(error.retry_after_s)
            except StoreAccessError:
                log.exception("the store refuses this master")
                raise

    @property
    def _state(self) -> State:
        return self._step.state

    @staticmethod
    async def _cancel(tasks: list[asyncio.Task[None]] | set[asyncio.Task[None]]) -> None:
        running = list(tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
