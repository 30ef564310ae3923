"""Figures of a job's training as metrics: a figure that is not known has no series, and a job that is gone has none."""

import pytest

from autoscaler.domain import JobName
from autoscaler.jobs.progress import JobProgress
from autoscaler.jobs.restart_policy import SILENCE_LIMIT_S
from autoscaler.jobs.throughput_watch import ThroughputWatch
from autoscaler.operator.job_gauges import TRAINING, TrainingFigures, training_figures
from autoscaler.operator.metrics import Metrics
from autoscaler.throughput.curve import CurveShape, FittedCurve
from master.api.master_status import JobPhase

JOB = JobName("team-a/digits")
SHAPE = CurveShape(work=0.01, serial=0.1, exchange=0.02)
PROGRESS = JobProgress(
    phase=JobPhase.TRAINING, total=200, done=50, training=4, servers=1, samples_per_s=120.0, waiting_share=0.25
)


def watch(*sizes):
    return ThroughputWatch(curve=FittedCurve(expected=SHAPE, favourable=SHAPE, sizes=sizes))


def series(metrics):
    """Values by metric of all series of jobs that are drawn from `TRAINING`."""
    lines = (line.rsplit(" ", 1) for line in metrics.render().decode().splitlines() if "{" in line)
    told = ((name.partition("{")[0], float(value)) for name, value in lines)
    return {name: value for name, value in told if name in TRAINING}


def test_figures_are_those_of_the_masters_last_answer():
    """Efficiency is throughput a trainer, in parts of one trainer's, by the fitted curve."""
    told = training_figures(PROGRESS, watch(1, 4), is_active=True, silent_s=0.0)
    efficiency = SHAPE.samples_per_s(4) / (4 * SHAPE.samples_per_s(1))
    assert told == TrainingFigures(
        samples_per_s=120.0, efficiency=pytest.approx(efficiency), progress=0.25, waiting=0.25, resize_pause_s=None
    )
    assert 0 < efficiency < 1


@pytest.mark.parametrize(
    ("progress", "throughput", "is_active", "known"),
    [
        (None, watch(1, 4), True, set()),
        (PROGRESS, watch(1, 4), False, {"progress"}),
        (PROGRESS, watch(4), True, {"samples_per_s", "progress", "waiting"}),
        (PROGRESS, ThroughputWatch(), True, {"samples_per_s", "progress", "waiting"}),
        (JobProgress(phase=JobPhase.TRAINING), watch(1, 4), True, {"samples_per_s", "waiting"}),
        (JobProgress(phase=JobPhase.TRAINING, resize_pause_s=2.0), watch(1, 4), True,
         {"samples_per_s", "waiting", "resize_pause_s"}),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_told(progress, throughput, is_active, known):
    """A suspended job has no throughput, and one size makes no curve."""
    told = training_figures(progress, throughput, is_active=is_active, silent_s=0.0)
    assert {name for name in TrainingFigures.__slots__ if getattr(told, name) is not None} == known


@pytest.mark.parametrize(("silent_s", "is_known"), [(SILENCE_LIMIT_S - 0.1, True), (SILENCE_LIMIT_S, False)])
def test_of_a_master_that_has_fallen_silent_only_how_far_it_was_is_told(silent_s, is_known):
    """Its throughput would stand still for as long as nobody knows it."""
    told = training_figures(PROGRESS, watch(1, 4), is_active=True, silent_s=silent_s)
    assert told.progress == 0.25
    assert (told != TrainingFigures(progress=0.25)) is is_known


def test_a_figure_that_ends_leaves_no_series():
    metrics = Metrics()
    metrics.set_training(JOB, training_figures(PROGRESS, watch(1, 4), is_active=True, silent_s=0.0))
    assert set(series(metrics)) == set(TRAINING) - {"edl_job_resize_pause_seconds"}
    assert series(metrics)["edl_job_samples_per_second"] == 120.0
    metrics.set_training(JOB, training_figures(PROGRESS, watch(1, 4), is_active=False, silent_s=0.0))
    assert series(metrics) == {"edl_job_progress_ratio": 0.25}
    metrics.set_training(JOB, TrainingFigures(samples_per_s=1, efficiency=2, progress=3, waiting=4, resize_pause_s=5))
    assert list(series(metrics).values()) == [1, 2, 3, 4, 5]
    metrics.forget_job(JOB)
    assert series(metrics) == {}
