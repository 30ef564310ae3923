"""Questions to the planner: few, whoever looks, and never older than they say."""

from autoscaler.errors import TemporaryError
from autoscaler.page.planner_questions import HELP_EVERY_S, KEPT_S, MOST_KEPT, PlannerQuestions
from autoscaler.views.job_view import job_view
from autoscaler.views.what_if_form import WhatIfChanges
from tests.harness.page_cluster import FixedSource, demo_documents, job, snapshot_of_job


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def questions_about(source, clock):
    return PlannerQuestions(source, clock=clock)


async def test_an_answer_is_kept_for_a_moment_and_no_longer():
    source, clock = FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock()
    questions = questions_about(source, clock)
    digits = job_view(job("digits-b"))
    first = await questions.why(digits)
    assert first.answer is not None
    assert await questions.why(digits) is first
    clock.now_s += KEPT_S
    assert await questions.why(digits) is not first
    assert source.snapshots == 2


async def test_what_all_jobs_need_is_asked_one_job_at_a_time():
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


async def test_a_source_that_cannot_answer_leaves_the_rest_of_the_page():
    class Silent(FixedSource):
        async def snapshot(self):
            raise TemporaryError("the API server does not answer", retry_after_s=1.0)

    questions = questions_about(Silent(demo_documents()), Clock())
    assert (await questions.outlook()).jobs == {}
    assert (await questions.why(job_view(job("digits-b")))).problem == "the API server does not answer"
    assert (await questions.what_if(WhatIfChanges())).problem == "the API server does not answer"


async def test_many_questions_leave_few_answers():
    """Addresses that a viewer makes up do not fill the memory."""
    questions = questions_about(FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock())
    for number in range(3 * MOST_KEPT):
        await questions.why(job_view(job(f"made-up-{number}")))
    assert len(questions._answers) == MOST_KEPT


async def test_a_job_that_the_planner_does_not_have_is_said():
    questions = questions_about(FixedSource(demo_documents(), snapshot=snapshot_of_job()), Clock())
    found = await questions.why(job_view(job("new")))
    assert found.answer is None
    assert "the planner does not know this job" in found.problem
