"""Questions to the planner: few, whoever looks, one at a time, and never older than they say."""

import asyncio
import threading

import pytest
from aiohttp import web

from autoscaler.errors import TemporaryError
from autoscaler.page.content import planner_questions
from autoscaler.page.content.planner_questions import HELP_EVERY_S, KEPT_S, MOST_KEPT, MOST_WAITING, PlannerQuestions
from autoscaler.views.jobs.job_view import job_view
from autoscaler.views.planning.what_if_form import WhatIfChanges
from tests.harness.page_cluster import FixedSource, demo_documents, job, snapshot_of_job


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
async def questions_about():
    made = []

    def make(source, clock):
        made.append(PlannerQuestions(source, clock=clock))
        return made[-1]

    yield make
    for one in made:
        await one.close()


class SlowAnswers:
    """Answers that take until `go`, and how many of them ran at once at most."""

    def __init__(self):
        self.go, self.begun = threading.Event(), threading.Event()
        self.running = self.most = self.ended = 0
        self._lock = threading.Lock()

    def __call__(self, _inputs):
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.begun.set()
        assert self.go.wait(60)
        with self._lock:
            self.running -= 1
            self.ended += 1
        return "answer"


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_an_answer_is_kept_for_a_moment_and_no_longer(questions_about):
    source, clock = FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock()
    questions = questions_about(source, clock)
    digits = job_view(job("digits-b"))
    first = await questions.why(digits)
    assert first.answer is not None
    assert await questions.why(digits) is first
    clock.now_s += KEPT_S
    assert await questions.why(digits) is not first
    assert source.snapshots == 2


async def test_what_all_jobs_need_is_asked_one_job_at_a_time(questions_about):
    """The page of all jobs costs one question in five seconds, whatever happens on it."""
    source, clock = FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock()
    questions = questions_about(source, clock)
    jobs = [job_view(job(name)) for name in ("a", "b", "c")]
    known = []
    for _ in range(7):
        for _ in range(5):
            known = await questions.help_for(jobs)
        clock.now_s += HELP_EVERY_S
    assert set(known) == {"team/a", "team/b", "team/c"}
    assert source.snapshots == 7


async def test_a_source_that_cannot_answer_leaves_the_rest_of_the_page(questions_about):
    class Silent(FixedSource):
        async def snapshot(self):
            raise TemporaryError("the API server does not answer", retry_after_s=1.0)

    questions = questions_about(Silent(demo_documents()), Clock())
    assert (await questions.outlook()).jobs == {}
    assert (await questions.why(job_view(job("digits-b")))).problem == "the API server does not answer"
    assert (await questions.what_if(WhatIfChanges())).problem == "the API server does not answer"


async def test_a_planner_that_is_busy_leaves_the_rest_of_the_page(questions_about, monkeypatch):
    """What nobody asked for is left out, and the page is no error."""
    monkeypatch.setattr("autoscaler.page.content.planner_questions.MOST_WAITING", 0)
    questions = questions_about(FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock())
    assert (await questions.outlook()).jobs == {}
    assert "Too many questions wait" in (await questions.why(job_view(job("digits-b")))).problem


async def test_many_questions_leave_few_answers(questions_about):
    """Addresses that a viewer makes up do not fill the memory."""
    questions = questions_about(FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock())
    for number in range(3 * MOST_KEPT):
        await questions.why(job_view(job(f"made-up-{number}")))
    assert len(questions._answers) == MOST_KEPT


async def test_a_job_that_the_planner_does_not_have_is_said(questions_about):
    questions = questions_about(FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock())
    found = await questions.why(job_view(job("new")))
    assert found.answer is None
    assert "the planner does not know this job" in found.problem


async def test_a_question_whose_viewer_left_keeps_its_turn(questions_about):
    """The thread of a cancelled question runs on: the next question waits for it, however many were cancelled."""
    questions, slow = questions_about(FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock()), SlowAnswers()
    for number in range(5):
        left = asyncio.create_task(questions._ask(number, slow))
        await turns()
        assert await asyncio.to_thread(slow.begun.wait, 60)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
    last = asyncio.create_task(questions._ask("last", slow))
    await turns()
    slow.go.set()
    assert await last == "answer"
    assert (slow.most, slow.ended) == (1, 6)


async def test_more_questions_than_may_wait_are_refused(questions_about):
    """Also if nobody waits for them any more; an equal question needs no place."""
    questions, slow = questions_about(FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock()), SlowAnswers()
    asked = [asyncio.create_task(questions._ask(number, slow)) for number in range(MOST_WAITING)]
    await turns()
    asked[1].cancel()
    with pytest.raises(web.HTTPServiceUnavailable):
        await questions._ask("one more", slow)
    equal = asyncio.create_task(questions._ask(0, slow))
    slow.go.set()
    assert await equal == "answer"
    await asyncio.gather(*asked, return_exceptions=True)
    assert await questions._ask(1, slow) == "answer"
    assert slow.ended == MOST_WAITING


async def test_a_question_that_takes_too_long_is_given_up_and_its_answer_kept(questions_about, monkeypatch):
    """Its viewer is told so, and finds the answer where it is asked again."""
    monkeypatch.setattr(planner_questions, "WAIT_LIMIT_S", 0.01)
    questions = questions_about(FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock())
    slow = SlowAnswers()
    with pytest.raises(web.HTTPServiceUnavailable):
        await questions._ask("slow", slow)
    asked = questions._asked["slow"]
    slow.go.set()
    assert await asked == "answer"
    assert await questions._ask("slow", slow) == "answer"
    assert slow.ended == 1


async def test_what_cannot_be_read_in_time_is_no_answer(questions_about, monkeypatch):
    monkeypatch.setattr(planner_questions, "READ_LIMIT_S", 0.01)

    class NeverRead(FixedSource):
        async def snapshot(self):
            await asyncio.Event().wait()

    questions = questions_about(NeverRead(demo_documents()), Clock())
    found = await questions.what_if(WhatIfChanges(reclaims_idle=True))
    assert found.answer is None
    assert found.problem.startswith("the cluster could not be read within")


async def test_a_change_of_a_large_cluster_is_planned_within_its_time(questions_about, monkeypatch):
    """Where the time is over before the cluster has settled, the answer says so, and is one all the same."""
    monkeypatch.setattr(planner_questions, "ANSWER_LIMIT_S", 0.0)
    questions = questions_about(FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock())
    cut = await questions.what_if(WhatIfChanges(removed=("node-1",)))
    assert cut.answer["is_converged"] is False
    assert [one["name"] for one in cut.answer["jobs"]] == ["tj/team/digits-b"]
    monkeypatch.undo()
    whole = await questions_about(questions._source, Clock()).what_if(WhatIfChanges(removed=("node-1",)))
    assert whole.answer["is_converged"] is True


async def test_where_only_questions_are_answered_pages_ask_nothing():
    """Nor is a question whose answer was kept shown beside."""
    source = FixedSource(demo_documents(), snapshot=snapshot_of_job())
    questions = PlannerQuestions(source, plans_unasked=False)
    digits = job_view(job("digits-b"))
    assert (await questions.outlook()).jobs == {}
    assert (await questions.why(digits)).answer is None
    assert await questions.help_for([digits]) == {}
    assert source.snapshots == 0
    assert (await questions.what_if(WhatIfChanges(removed=("node-1",)))).answer is not None
    await questions.close()
