"""The election of one master: runs the decisions of `election_state` against a store, one term after another.

    async with Election(store, holder="10.0.0.7:7164", timing=timing) as election:
        term = await election.won()
        ... serve, asking term.may_act() right before each grant, and term.confirm() when it says no ...

Not here: when to campaign, renew and stop (`election_state`), and what a term does (`master.term`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from types import TracebackType
from typing import Final, Self, assert_never

from master.api.host.clock import uptime_s
from master.errors import FencedError, LeaseLostError, MasterError, StoreUnavailableError, TermEndedError
from master.leadership.election_events import (
    Campaign,
    CampaignEnded,
    CampaignWon,
    ElectionEffect,
    ElectionEvent,
    GiveBack,
    LeaderVanished,
    LeaseLost,
    LossReason,
    Renew,
    RenewFailed,
    RenewSucceeded,
    ResignRequested,
    StartLeading,
    StopLeading,
    Ticked,
)
from master.leadership.election_state import ElectionRole, ElectionState, ElectionStep, LeadershipTiming, handle
from master.store.store_port import Changed, Leadership, StateStore

log: Final = logging.getLogger(__name__)

MAX_PENDING_EVENTS: Final = 64  # one campaign, one renewal, some changes of the leader key


class HeldTerm:
    """One term of this process while it leads."""

    def __init__(self, leadership: Leadership, may_act: Callable[[Leadership], bool]) -> None:
        self.leadership = leadership
        self.store_problem = ""  # why the last renewal was not answered; empty once one is
        self._may_act = may_act
        self._end: LossReason | None = None
        self._news = asyncio.Event()

    def may_act(self) -> bool:
        """True if this term may still grant and answer: checked right before each, for a pause may just have ended."""
        return self._end is None and self._may_act(self.leadership)

    async def confirm(self) -> None:
        """Waits until this term may act again.  Raises TermEndedError when it never may."""
        while not self.may_act():
            if self._end is not None:
                raise TermEndedError(self._end)
            self._news.clear()
            await self._news.wait()

    async def ended(self) -> LossReason:
        """Waits until the term is over; the reason."""
        while self._end is None:
            self._news.clear()
            await self._news.wait()
        return self._end

    def end(self, reason: LossReason) -> None:
        if self._end is None:
            self._end = reason
            self._news.set()

    def notify(self) -> None:
        """Wakes the tasks that wait on this term."""
        self._news.set()


class Election:
    """This process as a candidate, inside the context; leaving it gives the leadership back.

    `is_alone`: the job has no other master, so a silent store ends no term (`election_state`).
    """

    def __init__(
        self,
        store: StateStore,
        *,
        holder: str,
        timing: LeadershipTiming,
        is_alone: bool = False,
        clock_s: Callable[[], float] = uptime_s,
    ) -> None:
        self._store = store
        self._holder = holder
        self._clock_s = clock_s
        self._step = ElectionStep(state=ElectionState(timing=timing, is_alone=is_alone))
        self._events: asyncio.Queue[ElectionEvent] = asyncio.Queue(MAX_PENDING_EVENTS)
        self._held_term: HeldTerm | None = None
        self._changed = asyncio.Event()  # set, and replaced, with each event
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        self._start(self._run())
        self._start(self._watch_leader())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.resign()

    async def resign(self) -> None:
        """Ends the term and gives its lease back, so that a standby need not wait; no campaign follows."""
        running = tuple(self._tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for effect in self._handle(ResignRequested()):
            if isinstance(effect, GiveBack):
                await self._give_back(effect.leadership)

    async def won(self) -> HeldTerm:
        """Waits until this process leads, without a limit.  Raises PermanentError when the store refuses for good."""
        while self._held_term is None or not self._held_term.may_act():
            if self._failure is not None:
                raise self._failure
            await self._changed.wait()
        return self._held_term

    def step_down(self, held_term: HeldTerm, reason: LossReason) -> None:
        """Ends the term at once: a transaction was fenced, or the master gives up.  A new campaign follows."""
        self._perform(self._handle(LeaseLost(leadership=held_term.leadership, reason=reason)))

    # ---- the loop ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        self._perform(self._handle(Ticked()))
        while True:
            self._perform(self._handle(await self._next_event()))

    async def _next_event(self) -> ElectionEvent:
        wake_s = self._step.wake_s
        try:
            async with asyncio.timeout(None if wake_s is None else max(0.0, wake_s - self._clock_s())):
                return await self._events.get()
        except TimeoutError:
            return Ticked()

    def _handle(self, event: ElectionEvent) -> tuple[ElectionEffect, ...]:
        self._step = handle(self._step.state, event, self._clock_s())
        for effect in self._step.effects:
            match effect:
                case StartLeading():
                    self._held_term = HeldTerm(effect.leadership, self._may_act)
                    log.info("term %d leads: %s", effect.leadership.term, self._holder)
                case StopLeading():
                    if self._held_term is not None:
                        self._held_term.end(effect.reason)
                    log.warning("term %d ends: %s", effect.leadership.term, effect.reason)
                case Campaign() | Renew() | GiveBack():
                    continue
                case _:
                    assert_never(effect)
        self._notify()
        return self._step.effects

    def _notify(self) -> None:
        """Wakes the tasks that wait for the election."""
        if self._held_term is not None:
            self._held_term.notify()
        self._changed.set()
        self._changed = asyncio.Event()

    def _may_act(self, leadership: Leadership) -> bool:
        leading = self._step.state.leading
        return leading is not None and leading.leadership == leadership and self._step.state.may_act(self._clock_s())

    # ---- effects ----------------------------------------------------------------------------------------------------

    def _perform(self, effects: tuple[ElectionEffect, ...]) -> None:
        """Starts the effects beside the loop, so that no slow store delays the renew deadline."""
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

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        """An effect that fails ends the term, and `won` raises it: otherwise it would go unnoticed."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._failure = self._failure or error
        if self._held_term is not None:
            self._held_term.end(LossReason.BROKEN)
        self._notify()

    async def _campaign(self) -> None:
        sent_s = self._clock_s()
        try:
            ttl_s = self._step.state.timing.lease_ttl_s
            leadership = await self._store.try_lead(holder=self._holder, ttl_s=ttl_s)
        except (StoreUnavailableError, FencedError) as error:
            log.warning("campaign failed: %s", error)
            leadership = None
        await self._events.put(
            CampaignWon(leadership=leadership, sent_s=sent_s) if leadership is not None else CampaignEnded()
        )

    async def _renew(self, leadership: Leadership) -> None:
        sent_s = self._clock_s()
        event: ElectionEvent
        try:
            await self._store.renew(leadership)
            self._set_store_problem(leadership, "")
            event = RenewSucceeded(leadership=leadership, sent_s=sent_s)
        except LeaseLostError:
            event = LeaseLost(leadership=leadership)
        except StoreUnavailableError as error:
            following = "continuing without commits, as the only master" if self._state.is_alone else "trying again"
            log.warning("term %d: renewal failed, %s: %s", leadership.term, following, error)
            self._set_store_problem(leadership, str(error))
            event = RenewFailed(leadership=leadership, sent_s=sent_s)
        await self._events.put(event)

    def _set_store_problem(self, leadership: Leadership, problem: str) -> None:
        if self._held_term is not None and self._held_term.leadership == leadership:
            self._held_term.store_problem = problem

    async def _give_back(self, leadership: Leadership) -> None:
        try:
            await self._store.resign(leadership)
        except MasterError as error:
            log.info("term %d: its lease is left to expire: %s", leadership.term, error)

    async def _watch_leader(self) -> None:
        """Campaigns as soon as the leader key is gone, not at the next try."""
        key = self._store.keys.leader
        while True:
            try:
                start = (await self._store.read((key,))).revision
                async with aclosing(self._store.watch(key, after=start)) as changes:
                    async for change in changes:
                        if (
                            isinstance(change, Changed)
                            and change.entry is None
                            and self._state.role is ElectionRole.FOLLOWER
                        ):
                            await self._events.put(LeaderVanished())
            except StoreUnavailableError as error:
                await asyncio.sleep(error.retry_after_s)

    @property
    def _state(self) -> ElectionState:
        return self._step.state
