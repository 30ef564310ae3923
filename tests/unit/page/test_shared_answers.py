"""Answers that many wait for are made once, of what is current, and few at a time."""

import asyncio

import pytest
from aiohttp import web

from autoscaler.page.answers.shared_answers import SharedAnswers
from tests.harness import virtual_time


class Counted:
    """Makes the number of the answer, in a second."""

    def __init__(self):
        self.count = 0

    async def __call__(self):
        self.count += 1
        number = self.count
        await asyncio.sleep(1.0)
        return number


def in_time(body, **limits):
    async def main():
        answers, make = SharedAnswers(**{"kept_s": 5.0, "most": 8, **limits}), Counted()
        try:
            await body(answers, make)
        finally:
            await answers.close()

    virtual_time.run(main())


def test_all_who_wait_get_one_answer():
    async def body(answers, make):
        assert await asyncio.gather(*(answers.get("a", version, make) for version in (1, 2, 2))) == [1, 1, 1]

    in_time(body)


def test_an_answer_ends_with_its_version_or_its_time():
    async def body(answers, make):
        assert await answers.get("a", 1, make) == 1
        assert await answers.get("a", 1, make) == 1
        assert await answers.get("a", 2, make) == 2
        await asyncio.sleep(6.0)
        assert await answers.get("a", 2, make) == 3

    in_time(body)


def test_who_goes_away_leaves_the_answer_to_the_others():
    async def body(answers, make):
        first = asyncio.create_task(answers.get("a", 1, make))
        second = asyncio.create_task(answers.get("a", 1, make))
        await asyncio.sleep(0.5)
        first.cancel()
        assert await second == 1

    in_time(body)


def test_a_failure_is_told_to_all_and_not_kept():
    async def body(answers, make):
        async def fail():
            raise web.HTTPNotFound(text="gone")

        found = await asyncio.gather(*(answers.get("a", 1, fail) for _ in range(2)), return_exceptions=True)
        assert [type(one) for one in found] == [web.HTTPNotFound] * 2
        assert await answers.get("a", 1, make) == 1

    in_time(body)


def test_few_different_answers_are_made_at_a_time():
    async def body(answers, make):
        first = asyncio.create_task(answers.get("a", 1, make))
        await asyncio.sleep(0.5)
        with pytest.raises(web.HTTPServiceUnavailable):
            await answers.get("b", 1, make)
        assert await first == 1
        assert await answers.get("b", 1, make) == 2

    in_time(body, most=1)
