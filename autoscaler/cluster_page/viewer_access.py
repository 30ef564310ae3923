"""Whose token this is, and what the API server lets that user list: its answers, kept for a while (ADR 0285).

The problem: a page of the whole cluster is shown to people who may see a part of it.  The API server alone knows who
may see what, and may be asked only so often: hundreds of viewers look at once, anybody can send tokens, and the server
may be away.  So

- a yes is kept for `YES_KEPT_S`, a no for longer: what is taken from somebody ends in time, what is given may take a
  moment;
- one question is asked once however many wait for its answer, within a budget and a deadline;
- a user has a budget of their own within that of all: in a cluster of many namespaces one viewer has a question for
  each, and whoever makes many tokens of one account keeps nobody else out;
- tokens of which nothing good is known have a budget, turns and a pause of their own: whoever sends made-up ones keeps
  nobody out who has been let in within `PROVEN_KEPT_S`;
- after a failure nothing is asked for a moment;
- what is not known is refused: `AccessUnknownError`, never a yes.

Tokens are kept as digests.  The questions and their answers are in `reviews`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final, Self, TypeVar, cast

from autoscaler.bounded_gather import gather_bounded
from autoscaler.cluster_page.review_cache import KeptAnswer, ReviewBudget, ReviewCache
from autoscaler.cluster_page.reviews import (
    ReadRight,
    TokenUser,
    access_review,
    parse_access_review,
    parse_token_review,
    token_review,
)
from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.kinds import ACCESS_REVIEWS, TOKEN_REVIEWS
from autoscaler.errors import ClusterError, TemporaryError

log = logging.getLogger(__name__)

V = TypeVar("V")

YES_KEPT_S: Final = 20.0
"""A token that was revoked, or a right that was taken, shows nothing more after that."""
NO_KEPT_S: Final = 300.0
"""A viewer of one namespace is refused in all others: with fewer seconds that would be most of all questions."""
BAD_TOKEN_KEPT_S: Final = 30.0
PROVEN_KEPT_S: Final = 3600.0
"""A token that was valid is asked for again with those who may look, apart from unknown ones."""
MOST_TOKENS: Final = 2_000
MOST_RIGHTS: Final = 50_000
REVIEWS_PER_S: Final = 200.0
REVIEW_BURST: Final = 2_000
"""Two hundred viewers who come at once, in a cluster of a few namespaces."""
UNKNOWN_TOKENS_PER_S: Final = 50.0
UNKNOWN_TOKEN_BURST: Final = 1_000
"""Of tokens alone: as many viewers may come for the first time at once."""
USER_REVIEWS_PER_S: Final = REVIEWS_PER_S / 4
USER_REVIEW_BURST: Final = REVIEW_BURST // 2
"""Of one user: enough for the first look at a cluster of 1,000 namespaces, and half of what all have."""
REVIEW_DEADLINE_S: Final = 5.0
PAUSE_AFTER_FAILURE_S: Final = 1.0
ASKED_AT_ONCE: Final = 8
MOST_ASKED: Final = 2_000


class AccessUnknownError(TemporaryError):
    """The API server did not say whether access is given: it is refused for now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLimits:
    """How long answers are kept, and how much may be asked."""

    yes_kept_s: float = YES_KEPT_S
    no_kept_s: float = NO_KEPT_S
    bad_token_kept_s: float = BAD_TOKEN_KEPT_S
    most_tokens: int = MOST_TOKENS
    most_rights: int = MOST_RIGHTS
    reviews_per_s: float = REVIEWS_PER_S
    review_burst: int = REVIEW_BURST
    user_reviews_per_s: float = USER_REVIEWS_PER_S
    user_review_burst: int = USER_REVIEW_BURST
    unknown_tokens_per_s: float = UNKNOWN_TOKENS_PER_S
    unknown_token_burst: int = UNKNOWN_TOKEN_BURST
    deadline_s: float = REVIEW_DEADLINE_S
    pause_after_failure_s: float = PAUSE_AFTER_FAILURE_S


class ViewerAccess:
    """Access of viewers.  A context: at its end no question is under way any more.

    `api` must not be fenced: a replica that stands by asks too.  `clock` runs evenly.
    """

    def __init__(
        self,
        api: Api,
        *,
        clock: Callable[[], float],
        audiences: tuple[str, ...] = (),
        limits: AccessLimits | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._audiences = audiences
        self._limits = limits or AccessLimits()
        self._tokens: ReviewCache[bytes, TokenUser] = ReviewCache(most=self._limits.most_tokens)
        self._bad_tokens: ReviewCache[bytes, None] = ReviewCache(most=self._limits.most_tokens)
        self._proven: ReviewCache[bytes, str] = ReviewCache(most=self._limits.most_tokens)  # names of their users
        self._rights: ReviewCache[tuple[TokenUser, ReadRight], bool] = ReviewCache(most=self._limits.most_rights)
        self._namespaces: ReviewCache[TokenUser, _FoundNamespaces] = ReviewCache(most=self._limits.most_tokens)
        self._questions = _Questions(
            clock, self._limits, per_s=self._limits.reviews_per_s, burst=self._limits.review_burst
        )
        self._unknown_tokens = _Questions(
            clock, self._limits, per_s=self._limits.unknown_tokens_per_s, burst=self._limits.unknown_token_burst
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._questions.close()
        await self._unknown_tokens.close()

    async def find_viewer(self, token: str) -> TokenUser | None:
        """Return the token's user; None for a token that is not valid (any more).  Raises AccessUnknownError."""
        digest = hashlib.sha256(token.encode()).digest()
        now_s = self._clock()
        if (kept := self._tokens.get(digest, now_s)) is not None:
            return kept.value
        if self._bad_tokens.get(digest, now_s) is not None:
            return None

        async def ask() -> TokenUser | None:
            asked_at_s = self._clock()
            answer = await self._api.create(TOKEN_REVIEWS, token_review(token, self._audiences))
            viewer = parse_token_review(answer, self._audiences)
            if viewer is None:
                self._bad_tokens.put(digest, None, until_s=asked_at_s + self._limits.bad_token_kept_s)
            else:
                self._tokens.put(digest, viewer, until_s=asked_at_s + self._limits.yes_kept_s)
                self._proven.put(digest, viewer.name, until_s=asked_at_s + PROVEN_KEPT_S)
            return viewer

        proven = self._proven.get(digest, now_s)
        if proven is None:
            return await self._unknown_tokens.ask(digest, ask)
        return await self._questions.ask(digest, ask, user=proven.value)

    async def is_allowed(self, viewer: TokenUser, right: ReadRight) -> bool:
        """True if the viewer has the right.  Raises AccessUnknownError."""
        return (await self._find(viewer, right)).value

    async def find_namespaces(
        self, viewer: TokenUser, rights: Sequence[ReadRight], among: Iterable[str]
    ) -> frozenset[str]:
        """Return those of the namespaces in which the viewer has all the rights.  Raises AccessUnknownError.

        It is kept for as long as every answer that it was made of: each open stream asks for it every few seconds.
        """
        wanted = _WantedNamespaces(rights=tuple(rights), among=frozenset(among))
        kept = self._namespaces.get(viewer, self._clock())
        if kept is not None and kept.value.wanted == wanted:
            return kept.value.found
        found, until_s = sorted(wanted.among), inf
        for right in rights:  # one after the other: most viewers have none of them in most namespaces
            everywhere = await self._find(viewer, right)
            until_s = min(until_s, everywhere.until_s)
            if everywhere.value:
                continue
            questions = [partial(self._find, viewer, replace(right, namespace=name)) for name in found]
            answers = await gather_bounded(questions, at_once=ASKED_AT_ONCE)
            until_s = min((until_s, *(answer.until_s for answer in answers)))
            found = [name for name, answer in zip(found, answers, strict=True) if answer.value]
        made = _FoundNamespaces(wanted=wanted, found=frozenset(found))
        self._namespaces.put(viewer, made, until_s=until_s)
        return made.found

    async def _find(self, viewer: TokenUser, right: ReadRight) -> KeptAnswer[bool]:
        key = (viewer, right)
        if (kept := self._rights.get(key, self._clock())) is not None:
            return kept

        async def ask() -> KeptAnswer[bool]:
            asked_at_s = self._clock()
            is_given = parse_access_review(await self._api.create(ACCESS_REVIEWS, access_review(viewer, right)))
            kept_s = self._limits.yes_kept_s if is_given else self._limits.no_kept_s
            answer = KeptAnswer(is_given, asked_at_s + kept_s)
            self._rights.put(key, is_given, until_s=answer.until_s)
            return answer

        return await self._questions.ask(key, ask, user=viewer.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WantedNamespaces:
    rights: tuple[ReadRight, ...]
    among: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundNamespaces:
    wanted: _WantedNamespaces
    found: frozenset[str]


class _Questions:
    """Questions under way: one of each kind at a time, within the budget of all and of its user, and the deadline."""

    def __init__(self, clock: Callable[[], float], limits: AccessLimits, *, per_s: float, burst: int) -> None:
        self._clock = clock
        self._limits = limits
        self._longest_wait_s = limits.deadline_s / 2
        self._budget = ReviewBudget(per_s=per_s, burst=burst, longest_wait_s=self._longest_wait_s)
        self._budgets: ReviewCache[str, ReviewBudget] = ReviewCache(most=limits.most_tokens)
        self._asked: dict[Hashable, asyncio.Task[object]] = {}
        self._turn = asyncio.Semaphore(ASKED_AT_ONCE)
        self._failed_at_s = float("-inf")
        self._reported = ""

    async def ask(self, key: Hashable, question: Callable[[], Awaitable[V]], *, user: str = "") -> V:
        """Return the answer, asked for on behalf of a user, or of nobody who is known.

        A viewer who goes away leaves the question to others who wait for it.
        """
        task = self._asked.get(key)
        if task is None:
            task = self._begin(key, question, user)
        return cast("V", await asyncio.shield(task))

    async def close(self) -> None:
        """Cancel what is under way."""
        tasks = tuple(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, key: Hashable, question: Callable[[], Awaitable[object]], user: str) -> asyncio.Task[object]:
        now_s = self._clock()
        if now_s < self._failed_at_s + self._limits.pause_after_failure_s:
            raise self._unknown("the API server could not be asked a moment ago")
        wait_s = None if len(self._asked) >= MOST_ASKED else self._take(user, now_s)
        if wait_s is None:
            raise self._unknown("too many viewers ask at once")
        task: asyncio.Task[object] = asyncio.create_task(self._answer(question, wait_s), name="review")
        self._asked[key] = task
        task.add_done_callback(lambda done: self._end(key, done))
        return task

    def _take(self, user: str, now_s: float) -> float | None:
        """Count a question and return how long it waits; None: it may not be asked, by its user or at all."""
        own_wait_s = self._budget_of(user, now_s).take(now_s) if user else 0.0
        wait_s = None if own_wait_s is None else self._budget.take(now_s)
        return None if own_wait_s is None or wait_s is None else max(own_wait_s, wait_s)

    def _budget_of(self, user: str, now_s: float) -> ReviewBudget:
        kept = self._budgets.get(user, now_s)
        if kept is not None:
            return kept.value
        made = ReviewBudget(
            per_s=self._limits.user_reviews_per_s,
            burst=self._limits.user_review_burst,
            longest_wait_s=self._longest_wait_s,
        )
        self._budgets.put(user, made, until_s=inf)
        return made

    def _end(self, key: Hashable, task: asyncio.Task[object]) -> None:
        del self._asked[key]
        if not task.cancelled():
            task.exception()  # it may be that nobody waits for it any more

    async def _answer(self, question: Callable[[], Awaitable[object]], wait_s: float) -> object:
        await asyncio.sleep(wait_s)
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                await self._turn.acquire()
        except TimeoutError as error:  # those before it are slow: no failure of this question
            raise self._unknown("too many viewers ask at once") from error
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                found = await question()
        except (ClusterError, TimeoutError) as error:
            self._failed_at_s = self._clock()
            self._report(str(error) or f"no answer within {self._limits.deadline_s:g} s")
            raise self._unknown("the API server could not be asked") from error
        finally:
            self._turn.release()
        self._reported = ""
        return found

    def _report(self, problem: str) -> None:
        if problem != self._reported:  # once: it fails for every viewer, each second
            self._reported = problem
            log.warning("viewers of the page are refused: %s", problem)

    def _unknown(self, message: str) -> AccessUnknownError:
        return AccessUnknownError(message, retry_after_s=self._limits.pause_after_failure_s)
