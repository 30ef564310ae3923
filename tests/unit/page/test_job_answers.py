"""Answers on jobs' pages: nobody waits for them, one is made at a time, and they take a small share of the time."""

import asyncio

import pytest

from autoscaler.errors import TemporaryError
from autoscaler.page.content import job_answers
from autoscaler.page.content.job_answers import FORGOTTEN_S, KEPT_S, MOST_KEPT, SHARE, JobAnswers
from autoscaler.page.content.planner_questions import PlannerQuestions
from autoscaler.views.jobs.job_view import job_view
from tests.harness.page_cluster import FixedSource, demo_documents, job, snapshot_of_job

DIGITS, OTHER = job_view(job("digits-b")), job_view(job("other"))


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


class SlowSource(FixedSource):
    """A cluster whose reading takes `reads_s` of the clock, and until `go`."""

    def __init__(self, clock):
        super().__init__(demo_documents(), snapshot=snapshot_of_job())
        self.clock, self.go, self.reads_s, self.problem = clock, asyncio.Event(), 0.0, None
        self.go.set()

    async def snapshot(self):
        await self.go.wait()
        self.clock.now_s += self.reads_s
        if self.problem is not None:
            raise self.problem
        return await super().snapshot()


@pytest.fixture
async def bench(monkeypatch):
    monkeypatch.setattr(job_answers, "PATIENCE_S", 60.0)
    clock = Clock()
    source = SlowSource(clock)
    questions = PlannerQuestions(source, plans_unasked=False, clock=clock)
    yield source, clock, questions, (answers := JobAnswers(questions, clock=clock))
    await answers.close()
    await questions.close()


async def test_an_answer_is_kept_shown_while_a_newer_one_is_made_and_forgotten(bench, monkeypatch):
    source, clock, _, answers = bench
    first = await answers.why(DIGITS)
    assert first.answer is not None
    clock.now_s += KEPT_S / 2
    assert await answers.why(DIGITS) is first
    clock.now_s += KEPT_S / 2
    source.go.clear()
    monkeypatch.setattr(job_answers, "PATIENCE_S", 0.0)
    assert await answers.why(DIGITS) is first
    clock.now_s += FORGOTTEN_S
    assert (await answers.why(DIGITS)).is_pending


async def test_nobody_waits_for_a_slow_answer(bench, monkeypatch):
    """The first look is told that it is being asked, a later one gets it; nobody else begins a second one."""
    source, _, questions, answers = bench
    monkeypatch.setattr(job_answers, "PATIENCE_S", 0.0)
    source.go.clear()
    assert (await answers.why(DIGITS)).is_pending
    assert (await answers.why(OTHER)).is_pending
    assert len(questions._asked) == 1
    source.go.set()
    await answers._task
    assert (await answers.why(DIGITS)).answer is not None


async def test_answers_take_a_small_share_of_the_time(bench):
    """After one that took ten seconds none is begun for forty; then it is the turn of who waits longest."""
    source, clock, _, answers = bench
    source.reads_s = 10.0
    await answers.why(DIGITS)
    rest_s = 10.0 * (1 / SHARE - 1)
    clock.now_s += rest_s - 1
    assert (await answers.why(OTHER)).is_pending
    clock.now_s += 1
    await answers.why(DIGITS)
    assert not (await answers.why(OTHER)).is_pending


async def test_people_who_ask_go_first(bench):
    """While the planner has a question of a form, none of a page is begun."""
    source, _, questions, answers = bench
    source.go.clear()
    asked = asyncio.create_task(questions.inputs())
    await asyncio.sleep(0)
    assert (await answers.why(DIGITS)).is_pending
    source.go.set()
    await asked
    await asyncio.sleep(0)
    assert (await answers.why(DIGITS)).answer is not None


async def test_a_cluster_that_cannot_be_read_is_told_and_not_asked_at_once_again(bench):
    source, _, _, answers = bench
    source.problem = TemporaryError("the API server does not answer", retry_after_s=1.0)
    found = await answers.why(DIGITS)
    assert (found.answer, found.problem) == (None, "the API server does not answer")
    source.problem = None
    assert (await answers.why(DIGITS)).problem


async def test_many_jobs_leave_few_answers(bench):
    _, _, _, answers = bench
    for number in range(MOST_KEPT + 10):
        await answers.why(job_view(job(f"made-up-{number}")))
    assert len(answers._kept) == MOST_KEPT
    assert len(answers._wanted) <= MOST_KEPT
