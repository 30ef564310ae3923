"""Access of viewers: what the API server says counts, for a while; what it does not say is refused."""

import asyncio

import pytest

from autoscaler.cluster_page.reviews import ReadRight
from autoscaler.cluster_page.viewer_access import (
    BAD_TOKEN_KEPT_S,
    NO_KEPT_S,
    PAUSE_AFTER_FAILURE_S,
    REVIEW_DEADLINE_S,
    YES_KEPT_S,
    AccessLimits,
    AccessUnknownError,
    ViewerAccess,
)
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import ACCESS_REVIEWS, NODES, PODS, TOKEN_REVIEWS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from tests.harness import virtual_time
from tests.harness.memory_users import MemoryUsers
from tests.harness.virtual_time import now

AWAY = UnavailableError("create tokenreviews: connection refused", may_have_happened=False)
ALL_JOBS = ReadRight(kind=TRAINING_JOBS)
JOBS_OF_A = ReadRight(kind=TRAINING_JOBS, namespace="a")


class Stage:
    """An API server with the user `ann`, who may list jobs in the namespace `a`."""

    def __init__(self, **limits):
        server = MemoryServer(now=now)
        self.users = MemoryUsers(server)
        self.users.tokens["ann's"] = "ann"
        self.users.give("ann", "trainingjobs", "a")
        self.api = MemoryApi(server)
        self.access = ViewerAccess(self.api, clock=now, limits=AccessLimits(**limits))

    def asked(self, kind):
        return self.users.asked[kind]


def on_a_stage(body, **limits):
    """Run `body(stage)` in virtual time."""

    async def main():
        stage = Stage(**limits)
        async with stage.access:
            await body(stage)

    virtual_time.run(main())


async def refusal(answer):
    with pytest.raises(AccessUnknownError) as refused:
        await answer
    return str(refused.value)


def test_token_is_asked_for_once_until_its_answer_is_old():
    async def body(stage):
        for _ in range(3):
            assert (await stage.access.find_viewer("ann's")).name == "ann"
        assert stage.asked(TOKEN_REVIEWS) == 1
        await asyncio.sleep(YES_KEPT_S)
        await stage.access.find_viewer("ann's")
        assert stage.asked(TOKEN_REVIEWS) == 2

    on_a_stage(body)


def test_revoked_token_ends_within_the_time_that_a_yes_is_kept():
    async def body(stage):
        assert await stage.access.find_viewer("ann's") is not None
        del stage.users.tokens["ann's"]
        await asyncio.sleep(YES_KEPT_S)
        assert await stage.access.find_viewer("ann's") is None

    on_a_stage(body)


def test_right_that_is_taken_ends_within_the_time_that_a_yes_is_kept():
    async def body(stage):
        ann = await stage.access.find_viewer("ann's")
        assert await stage.access.is_allowed(ann, JOBS_OF_A)
        stage.users.rights.clear()
        await asyncio.sleep(YES_KEPT_S)
        assert not await stage.access.is_allowed(ann, JOBS_OF_A)

    on_a_stage(body)


def test_bad_token_is_kept_too():
    async def body(stage):
        for _ in range(5):
            assert await stage.access.find_viewer("nobody's") is None
        assert stage.asked(TOKEN_REVIEWS) == 1
        stage.users.tokens["nobody's"] = "bob"
        await asyncio.sleep(BAD_TOKEN_KEPT_S)
        assert (await stage.access.find_viewer("nobody's")).name == "bob"

    on_a_stage(body)


def test_refused_right_is_kept_longer_than_a_given_one():
    async def body(stage):
        ann = await stage.access.find_viewer("ann's")
        elsewhere = ReadRight(kind=TRAINING_JOBS, namespace="b")
        assert not await stage.access.is_allowed(ann, elsewhere)
        await asyncio.sleep(NO_KEPT_S - 1)
        assert not await stage.access.is_allowed(ann, elsewhere)
        assert stage.asked(ACCESS_REVIEWS) == 1
        stage.users.give("ann", "trainingjobs", "b")
        await asyncio.sleep(1)
        assert await stage.access.is_allowed(ann, elsewhere)

    on_a_stage(body)


def test_namespaces_are_those_that_may_be_listed():
    async def body(stage):
        ann = await stage.access.find_viewer("ann's")
        assert await stage.access.find_namespaces(ann, [ALL_JOBS], ["b", "a", "c"]) == {"a"}
        assert await stage.access.find_namespaces(ann, [ALL_JOBS, ReadRight(kind=PODS)], ["a"]) == frozenset()
        assert await stage.access.find_namespaces(ann, [ALL_JOBS], []) == frozenset()

    on_a_stage(body)


def test_right_everywhere_needs_one_question():
    async def body(stage):
        stage.users.give("ann", "trainingjobs")
        ann = await stage.access.find_viewer("ann's")
        names = {f"n{number}" for number in range(100)}
        assert await stage.access.find_namespaces(ann, [ALL_JOBS], names) == names
        assert stage.asked(ACCESS_REVIEWS) == 1
        assert not await stage.access.is_allowed(ann, ReadRight(kind=NODES))

    on_a_stage(body)


def test_viewers_who_come_at_once_share_one_question():
    async def body(stage):
        found = await asyncio.gather(*(stage.access.find_viewer("ann's") for _ in range(200)))
        assert {one.name for one in found} == {"ann"}
        assert stage.asked(TOKEN_REVIEWS) == 1

    on_a_stage(body)


def test_viewer_who_goes_away_does_not_take_the_answer_from_others():
    async def body(stage):
        first = asyncio.create_task(stage.access.find_viewer("ann's"))
        second = asyncio.create_task(stage.access.find_viewer("ann's"))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).name == "ann"

    on_a_stage(body)


def test_server_that_is_away_means_refusal_and_a_moment_without_questions():
    """What is known goes on until it is old; the rest is refused, and the server is asked once a pause."""

    async def body(stage):
        ann = await stage.access.find_viewer("ann's")
        assert await stage.access.is_allowed(ann, JOBS_OF_A)
        stage.users.problem = AWAY
        asked = stage.asked(TOKEN_REVIEWS)
        for _ in range(50):
            assert "could not be asked" in await refusal(stage.access.find_viewer("bob's"))
        assert stage.asked(TOKEN_REVIEWS) == asked + 1
        assert await stage.access.is_allowed(ann, JOBS_OF_A)
        await asyncio.sleep(YES_KEPT_S)
        await refusal(stage.access.find_viewer("ann's"))
        await refusal(stage.access.is_allowed(ann, JOBS_OF_A))
        stage.users.problem = None
        await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
        assert (await stage.access.find_viewer("ann's")).name == "ann"

    on_a_stage(body)


def test_operator_without_the_right_to_ask_refuses_everybody():
    async def body(stage):
        stage.users.problem = ForbiddenError("create tokenreviews: User edl cannot create", RefusedBy.RBAC)
        await refusal(stage.access.find_viewer("ann's"))

    on_a_stage(body)


def test_server_that_hangs_is_waited_for_until_the_deadline():
    async def body(stage):
        stage.api.create = lambda *_: asyncio.Event().wait()
        began_s = now()
        await refusal(stage.access.find_viewer("ann's"))
        assert now() - began_s == pytest.approx(REVIEW_DEADLINE_S)

    on_a_stage(body)


def test_flood_of_tokens_is_asked_for_within_the_budget():
    """Whoever sends made-up tokens has the server asked at the agreed rate, and fills no memory."""

    async def body(stage):
        flood = [stage.access.find_viewer(f"token-{number}") for number in range(1_000)]
        answers = await asyncio.gather(*flood, return_exceptions=True)
        refused = sum(isinstance(answer, AccessUnknownError) for answer in answers)
        assert stage.asked(TOKEN_REVIEWS) + refused == 1_000
        assert stage.asked(TOKEN_REVIEWS) <= 100 + 10 * REVIEW_DEADLINE_S
        assert len(stage.access._bad_tokens) <= 50

    on_a_stage(body, unknown_tokens_per_s=10.0, unknown_token_burst=100, most_tokens=50)


def test_viewer_who_is_known_gets_in_during_a_flood_of_made_up_tokens():
    """Also when their own answer is old, and while the questions about made-up tokens fill every turn."""

    async def body(stage):
        answer, hung = stage.api.create, asyncio.Event()

        async def create(kind, review):
            if review["spec"].get("token", "").startswith("made-up"):
                await hung.wait()
            return await answer(kind, review)

        assert (await stage.access.find_viewer("ann's")).name == "ann"
        await asyncio.sleep(YES_KEPT_S)
        stage.api.create = create
        flood = [asyncio.create_task(stage.access.find_viewer(f"made-up-{number}")) for number in range(5_000)]
        await asyncio.sleep(0.1)
        ann = await stage.access.find_viewer("ann's")
        assert await stage.access.is_allowed(ann, JOBS_OF_A)
        await asyncio.sleep(REVIEW_DEADLINE_S)  # now questions of the flood have failed
        assert not await stage.access.is_allowed(ann, ALL_JOBS)
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)

    on_a_stage(body)


def test_wait_for_a_turn_is_no_failure_of_the_server():
    """It would stop all questions for a moment."""

    async def body(stage):
        slow = REVIEW_DEADLINE_S - 1
        answer = stage.api.create

        async def create(kind, review):
            await asyncio.sleep(slow)
            return await answer(kind, review)

        stage.api.create = create
        asked = [asyncio.create_task(stage.access.find_viewer(f"token-{number}")) for number in range(40)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        told = {str(one) for one in answers if isinstance(one, AccessUnknownError)}
        assert told == {"too many viewers ask at once"}
        assert (await stage.access.find_viewer("ann's")).name == "ann"  # without a pause

    on_a_stage(body)


def test_token_for_another_audience_is_nobodys():
    async def body(stage):
        stage.access = ViewerAccess(stage.api, clock=now, audiences=("edl-page",))
        assert await stage.access.find_viewer("ann's") is None

    on_a_stage(body)


async def new_token(stage, number):
    """Another token of ann's account, as newer API servers tell of it."""
    stage.users.tokens[f"ann's {number}"] = "ann"
    stage.users.extra[f"ann's {number}"] = {"authentication.kubernetes.io/credential-id": [f"JTI={number}"]}
    return await stage.access.find_viewer(f"ann's {number}")


def test_new_tokens_of_one_account_ask_nothing_again():
    """Newer API servers tell an id of each token."""

    async def body(stage):
        for number in range(3):
            assert await stage.access.is_allowed(await new_token(stage, number), JOBS_OF_A)
        assert stage.asked(ACCESS_REVIEWS) == 1

    on_a_stage(body)


def test_user_with_a_question_for_each_of_many_namespaces_keeps_no_other_waiting():
    """Nor with many tokens: what is too much for one user is refused to that user."""

    async def body(stage):
        stage.users.tokens["bob's"] = "bob"
        ann, bob = await stage.access.find_viewer("ann's"), await stage.access.find_viewer("bob's")
        for _ in range(5):
            names = {f"n{number}" for number in range(1_000)}
            assert "too many" in await refusal(stage.access.find_namespaces(ann, [ALL_JOBS], names))
        assert not await stage.access.is_allowed(bob, JOBS_OF_A)
        for number in range(100):
            await new_token(stage, number)
        await asyncio.sleep(YES_KEPT_S)
        again = [stage.access.find_viewer(f"ann's {number}") for number in range(100)]
        answers = await asyncio.gather(*again, return_exceptions=True)
        assert any(isinstance(one, AccessUnknownError) for one in answers)
        assert (await stage.access.find_viewer("bob's")).name == "bob"

    on_a_stage(body, user_reviews_per_s=1.0, user_review_burst=50)


def test_namespaces_are_kept_for_as_long_as_what_they_were_made_of():
    """Each open stream asks for them every few seconds; a right that is taken still ends in time."""

    async def body(stage):
        ann, names = await stage.access.find_viewer("ann's"), [f"n{number}" for number in range(100)]
        assert await stage.access.find_namespaces(ann, [ALL_JOBS], ["a", *names]) == {"a"}
        looked, get = [], stage.access._rights.get
        stage.access._rights.get = lambda *given: looked.append(1) or get(*given)
        assert await stage.access.find_namespaces(ann, [ALL_JOBS], ["a", *names]) == {"a"}
        assert not looked
        assert await stage.access.find_namespaces(ann, [ALL_JOBS], names) == frozenset()
        assert await stage.access.find_namespaces(ann, [ALL_JOBS], ["a", *names]) == {"a"}
        stage.users.rights.clear()
        await asyncio.sleep(YES_KEPT_S)
        assert await stage.access.find_namespaces(ann, [ALL_JOBS], ["a", *names]) == frozenset()

    on_a_stage(body)
