"""Rows of the benchmarks of exactness and goodput, from what the processes wrote down."""

from __future__ import annotations

import numpy as np
import pytest

from bench.groups.bench_exactness import StepDone, rows_of
from bench.groups.bench_goodput import completed, goodput_of


def done(*sizes: int) -> list[StepDone]:
    return [StepDone(0, number, size, float(number)) for number, size in enumerate(sizes, start=1)]


def test_lost_and_repeated_records_are_counted_by_epoch():
    """A record that is never trained in an epoch is lost there, also where another epoch repeats it."""
    counts = np.array([[1, 0, 3, 1], [1, 2, 1, 1]])
    lost, repeated, longest = rows_of("a system", counts, done(2, 2, 3, 3, 2), "resized", goal="<= 0")
    assert (lost.value, lost.met) == (1, False)
    assert (repeated.value, repeated.met) == (3, False)
    assert "processes 2, 3, 2; by epoch 2, 1" in repeated.note
    assert longest.value == pytest.approx(1.0)


def test_an_exact_job_keeps_the_goal():
    """Every record once in every epoch."""
    rows = rows_of("a system", np.ones((3, 4), dtype=int), done(2, 3), "resized", goal="<= 0")
    assert [row.met for row in rows] == [True, True, None]


def test_goodput_lays_the_cost_of_a_fault_on_its_interval():
    """A window that is shorter than the interval between faults counts the seconds that a fault has cost."""
    assert goodput_of(10.0, 9.8, 30.0) == pytest.approx(0.98)
    assert goodput_of(10.0, 9.0, 6.0) == pytest.approx(1 - 0.6 / 30)


def test_steps_that_were_redone_count_once(tmp_path):
    """The first member to complete a step counts; a line that was cut short does not."""
    (tmp_path / "diaries").mkdir()
    (tmp_path / "diaries" / "0").write_text("1.0 1 2\n2.0 2 2\n3.5 3 2\n")
    (tmp_path / "diaries" / "1").write_text("1.1 1 2\n1.9 2 2\n3.0 3 2\n4.0 4")
    assert completed(tmp_path, 0.0, 10.0) == [1.0, 1.9, 3.0]
    assert completed(tmp_path, 1.5, 3.0) == [1.9]
