"""The rate that a trainer reports: leases are as long as it says, so it must not flatter (M2)."""

import pytest

from trainer_sdk.leased_batches import rate_since


def test_batch_that_outlasts_many_reports_is_measured_whole():
    """A trainer with batches of 60 s keeps its leases: reports every second between them say nothing."""
    last, rates = (0.0, 0), []
    for second in range(1, 121):
        last, rate = rate_since(last, (float(second), second // 60 * 32))
        rates.append(rate)
    assert [rate for rate in rates if rate] == pytest.approx([32 / 60, 32 / 60])


def test_many_batches_between_two_reports_are_averaged():
    """Samples over seconds."""
    assert rate_since((10.0, 100), (12.0, 500)) == ((12.0, 500), 200.0)
