"""Points of a job's throughput from its master's reports: settled, without standstills, few (ADR 0267)."""

from dataclasses import replace

import pytest

from autoscaler.jobs.progress import JobProgress
from autoscaler.jobs.throughput_watch import (
    SETTLED_S,
    SHORTEST_S,
    ThroughputWatch,
    observe_throughput,
    points_in_status,
    points_of,
)
from master.api.master_status import JobPhase

POLL_S = 2.0


class Story:
    """A job that is polled every two seconds."""

    def __init__(self):
        self.watch, self.now_s, self.done, self.fits = ThroughputWatch(), 1_000.0, 0.0, 0
        self.progress = JobProgress(phase=JobPhase.TRAINING, training=4, term=1)

    def run(self, seconds, rate, *, setting="", **fields):
        """Let the job train so many samples a second for so long."""
        self.progress = replace(self.progress, **fields)
        for _ in range(round(seconds / POLL_S)):
            self.now_s += POLL_S
            self.done += rate * POLL_S
            before = self.watch.curve
            report = replace(self.progress, done=int(self.done))
            self.watch = observe_throughput(
                self.watch, report, setting=setting, now_s=self.now_s, unix_s=self.now_s + 1e9
            )
            self.fits += self.watch.curve is not before
        return self

    @property
    def points(self):
        return {(one.trainers, one.servers): one.samples_per_s for one in self.watch.log.points}


def test_size_is_measured_once_it_has_settled():
    """What new trainers do first does not count."""
    story = Story().run(SETTLED_S, 5.0)
    assert story.points == {}
    story.run(SHORTEST_S + 6.0, 100.0)
    assert story.points == {(4, 0): pytest.approx(100.0, rel=0.01)}


def test_each_size_is_a_point_and_two_make_a_curve():
    story = Story().run(60.0, 100.0)
    assert not story.watch.curve.is_known
    story.run(60.0, 180.0, training=8)
    assert story.points == {(4, 0): pytest.approx(100.0, rel=0.01), (8, 0): pytest.approx(180.0, rel=0.01)}
    assert story.watch.curve.is_known
    assert story.watch.curve.expected.samples_per_s(8) == pytest.approx(180.0, rel=0.05)


def test_standstill_is_no_part_of_the_throughput():
    """An evaluation of two minutes each minute."""
    story = Story()
    for _ in range(3):
        story.run(60.0, 100.0).run(120.0, 0.0)
    assert story.points == {(4, 0): pytest.approx(100.0, rel=0.02)}


def test_slow_batches_are_no_standstill():
    """One advance of 700 samples every fourteen seconds: 50 a second."""
    story = Story()
    for number in range(160):
        story.run(POLL_S, 350.0 if number % 7 == 0 else 0.0)
    assert story.points == {(4, 0): pytest.approx(50.0, rel=0.02)}


@pytest.mark.parametrize("fields", [{"term": 2}, {"lineage": 1}, {"servers": 3}, {"moving": 1}])
def test_what_changes_the_job_ends_the_measurement(fields):
    """A part of it never joins what comes after."""
    story = Story().run(60.0, 100.0)
    story.run(SETTLED_S, 700.0, **fields)
    assert story.points == {(4, 0): pytest.approx(100.0, rel=0.01)}


def test_rollback_ends_the_measurement():
    story = Story().run(60.0, 100.0)
    story.done -= 3_000
    story.run(60.0, 100.0)
    assert story.points == {(4, 0): pytest.approx(100.0, rel=0.01)}


@pytest.mark.parametrize("phase", [JobPhase.RESTORING, JobPhase.SAVING, JobPhase.STARTING])
def test_only_training_counts(phase):
    assert Story().run(100.0, 100.0, phase=phase).points == {}


def test_other_setting_has_a_curve_of_its_own():
    story = Story().run(60.0, 100.0, setting="A100").run(60.0, 180.0, setting="A100", training=8)
    story.run(60.0, 400.0, setting="H100")
    assert story.watch.curve.sizes == (8,)
    assert len(story.watch.log.points) == 3
    story.run(60.0, 90.0, setting="A100", training=4)
    assert story.watch.curve.sizes == (4, 8)


def test_long_measurement_costs_few_fits():
    """A day at one size: one more with each half as long again, up to an hour's weight."""
    story = Story().run(24 * 3_600.0, 100.0)
    assert story.fits <= 22


def test_points_survive_in_the_status():
    story = Story().run(60.0, 100.0).run(60.0, 180.0, training=8)
    raw = points_of(story.watch.log)
    restored = points_in_status(raw)
    assert restored.log == story.watch.log
    later = observe_throughput(restored, story.progress, setting="", now_s=5.0, unix_s=story.now_s + 1e9)
    assert later.curve == story.watch.curve


@pytest.mark.parametrize(
    "broken",
    [
        {"trainers": "4"},
        {"trainers": -1},
        {"samplesPerSecond": 0},
        {"setting": 3},
        {"seconds": None},
        {"trainers": True},
    ],
)
def test_broken_point_of_a_status_is_left_out(broken):
    good = points_of(Story().run(60.0, 100.0).watch.log)
    restored = points_in_status([{**good[0], "trainers": 9, **broken}, *good])
    assert points_of(restored.log) == good
