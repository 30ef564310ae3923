"""The curve of a job in the terminal: its points, the fit, the present size, and where growth stops (ADR 0267)."""

import pytest

from autoscaler.cli.output.throughput_plot import bars_of, throughput_lines
from autoscaler.views.jobs.throughput import throughput_of

POINTS = [
    {"trainers": 4, "servers": 0, "samplesPerSecond": 66.8, "setting": ""},
    {"trainers": 8, "servers": 0, "samplesPerSecond": 115.6, "setting": ""},
    {"trainers": 2, "servers": 0, "samplesPerSecond": 900.0, "setting": "other hardware"},
]
CURVE = {"work": 0.0512, "serial": 0.05, "exchange": 0.0, "overlap": 1.0}


def job(points=POINTS, curve=CURVE, **report):
    return {
        "spec": {"trainer": {"minReplicas": 1, "maxReplicas": 16, "efficiency": 0.7}},
        "status": {"trainers": {"ready": 8}, "throughput": {"setting": "", "points": points, "curve": curve, **report}},
    }


def test_plot_shows_points_fit_and_present_size():
    lines = throughput_lines(job(worthwhile=5))
    assert len(lines) == 11
    picture = "\n".join(lines[:8])
    assert (picture.count("●"), picture.count("◆")) == (1, 1)
    assert picture.count("·") == 14
    columns = [line.partition("|")[2] for line in lines[:8]]
    assert [line.index("◆") for line in columns if "◆" in line] == [7]
    assert [line.index("●") for line in columns if "●" in line] == [3]
    assert lines[-2].strip() == "1             16 trainers"
    assert lines[-1] == (
        "samples/s: ● measured, ◆ at the present 8, · fitted; growth stops at 5: more would add less than 0.7 of a "
        "trainer each"
    )


def test_curve_of_an_older_operator_has_trainers_of_one_speed():
    assert throughput_of(job()) == throughput_of(job(curve={**CURVE, "even": 4.0, "rest": 1.0}))
    rates = dict(throughput_of(job(curve={**CURVE, "even": 4.0, "rest": 0.5})).fitted)
    assert rates[4] == dict(throughput_of(job()).fitted)[4]
    assert rates[6] == dict(throughput_of(job()).fitted)[5]


def test_faster_sizes_stand_higher():
    rows = [line.partition("|")[2] for line in throughput_lines(job())[:8]]
    heights = [next(at for at, row in enumerate(rows) if row[column : column + 1].strip()) for column in range(16)]
    assert heights == sorted(heights, reverse=True)


@pytest.mark.parametrize(
    "broken",
    [
        job(points=POINTS[:1]),
        job(curve={}),
        job(curve={**CURVE, "work": "fast"}),
        job(curve={**CURVE, "overlap": 99}),
        job(curve={**CURVE, "even": 4.0, "rest": "slow"}),
        job(points=[{**POINTS[0], "samplesPerSecond": True}, {**POINTS[1], "trainers": -1}]),
        {"status": {}},
    ],
)
def test_what_is_no_curve_is_not_drawn(broken):
    assert throughput_lines(broken) == []


def test_thousands_of_trainers_fit_into_a_terminal():
    lines = throughput_lines(
        {
            "spec": {"trainer": {"maxReplicas": 10_000}},
            "status": {
                "trainers": {"ready": 5_000},
                "throughput": {
                    "points": [{"trainers": n, "samplesPerSecond": 9.0} for n in (5, 5_000)],
                    "curve": CURVE,
                },
            },
        }
    )
    assert max(map(len, lines[:-1])) < 80


def test_bars_in_one_line():
    assert bars_of([(8, 115.6), (4, 66.8)]) == "4 ▅  8 █"
    assert bars_of([(4, 66.8)]) == ""
