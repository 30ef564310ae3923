"""Two resizes at once: the second replaces the first or goes on with it, and whoever asks is told which."""

from __future__ import annotations

import pytest

from autoscaler.cli.place_values import SizeChange, SizeRequest, format_size_changes
from autoscaler.clusters.resize_requests import ResizeState


@pytest.mark.parametrize(
    ("before", "count", "told"),
    [
        (ResizeState(desired=3, present=3), 2, ""),
        (ResizeState(desired=4, present=3), 2, "replaces the resize to 4: 3 of 4 present"),
        (
            ResizeState(desired=2, present=2, terminating=1),
            3,
            (
                "replaces the resize to 2: 2 of 2 present, 1 terminating; "
                "pods and buckets that are already moving finish first"
            ),
        ),
        (
            ResizeState(desired=3, present=3, moving_buckets=12),
            0,
            (
                "replaces the resize to 3: 3 of 3 present, 12 buckets moving; "
                "pods and buckets that are already moving finish first"
            ),
        ),
        (ResizeState(desired=3, present=1), 3, "the resize to 3 continues: 1 of 3 present"),
        (
            ResizeState(desired=1, present=1, terminating=2),
            1,
            "the resize to 1 continues: 1 of 1 present, 2 terminating",
        ),
        (
            ResizeState(desired=0, present=0, terminating=2, is_suspended=True),
            3,
            "the job is suspended: the size applies once it is resumed",
        ),
    ],
)
def test_the_second_resize_says_what_becomes_of_the_first(before, count, told):
    """Nothing where nothing is under way."""
    assert before.describe(count) == told


def test_each_role_that_was_set_has_its_line():
    """Deployments have no resize to replace; 0 is EDL's choice."""
    servers = SizeChange(request=SizeRequest(field="servers", count=1), before=3, note="replaces the resize to 4")
    trainers = SizeChange(request=SizeRequest(field="trainers", count=0), before=2)
    assert format_size_changes("tj/x", [trainers, servers], is_dry=True).splitlines() == [
        "tj/x: EDL decides the number of trainers (dry run)",
        "tj/x scaled to 1 server (3 now); replaces the resize to 4 (dry run)",
    ]
    web = SizeChange(request=SizeRequest(field="replicas", count=6), before=0)
    assert format_size_changes("deployment/web", [web], is_dry=False) == "deployment/web scaled to 6"
