"""What a stranger reads of a small job: whom it made room for, and when it grows."""

from dataclasses import replace

import pytest

from autoscaler.domain import Bottleneck
from autoscaler.views.jobs.growth_words import growth_words
from autoscaler.views.jobs.job_view import job_views
from autoscaler.views.pages.job_page_view import Outlook
from tests.harness.page_cluster import demo_documents, job, resize


@pytest.mark.parametrize("bottleneck", Bottleneck)
def test_every_bottleneck_says_when_the_job_grows(bottleneck):
    assert growth_words(bottleneck.value).startswith("It ")


def test_a_bottleneck_of_another_version_says_nothing():
    assert growth_words("Unheard") == ""
    assert Outlook(bottleneck="NodeFit", message="", target=1, wait_s=None).growth == growth_words("NodeFit")


@pytest.mark.parametrize(
    ("resizes", "target", "sizes"),
    [
        ([resize(5, 1)], 1, (5, 1)),
        ([resize(5, 1)], 3, None),  # it grows again
        ([resize(1, 5)], 5, None),
        ([resize(1, 2), resize(5, 1)], 2, None),
        ([resize(3, 1) | {"role": "server"}, resize(5, 1)], 1, (5, 1)),
        ([resize(3, 1) | {"role": "server"}], 1, None),
        ([], 1, None),
    ],
)
def test_the_last_shrink_is_told_while_the_job_is_small(resizes, target, sizes):
    documents = replace(demo_documents(), jobs=(job("j", ready=target, resizes=resizes),))
    (found,) = job_views(documents)
    last = found.last_shrink
    assert (None if last is None else (last.size_before, last.size_after)) == sizes
