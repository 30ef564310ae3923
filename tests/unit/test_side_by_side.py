"""Several things at a time: in order, never too many, and each whatever becomes of the others."""

import asyncio
from functools import partial

import pytest

from autoscaler.bounded_gather import gather_bounded
from tests.harness import virtual_time
from tests.harness.virtual_time import now


class Works:
    """Takes note of what begins and ends; every work takes a second."""

    def __init__(self):
        self.begun, self.ended, self.most, self.under_way = [], [], 0, 0

    async def do(self, number):
        self.begun.append(number)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(1.0)
            if number % 4 == 1:
                raise ValueError(number)
        finally:
            self.under_way -= 1
            self.ended.append(number)
        return number * number

    def all(self, *numbers):
        return (partial(self.do, number) for number in numbers)


def test_a_few_at_a_time_and_answers_in_order():
    works = Works()

    async def main():
        return await gather_bounded(works.all(0, 2, 3, 4, 6), at_once=2), now()

    answers, took_s = virtual_time.run(main())
    assert answers == [0, 4, 9, 16, 36]
    assert (works.begun, works.most) == ([0, 2, 3, 4, 6], 2)
    assert took_s == pytest.approx(3.0, abs=0.01)


def test_the_first_error_is_told_when_all_have_been_tried():
    works = Works()
    with pytest.raises(ValueError, match=r"^1$"):
        virtual_time.run(gather_bounded(works.all(0, 1, 2, 5, 3), at_once=2))
    assert works.ended == [0, 1, 2, 5, 3]


def test_cancelled_it_begins_nothing_more():
    works = Works()

    async def main():
        doing = asyncio.create_task(gather_bounded(works.all(0, 2, 3), at_once=2))
        await asyncio.sleep(0.5)
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)

    virtual_time.run(main())
    assert works.begun == works.ended == [0, 2]
