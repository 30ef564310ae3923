"""How long a backup has been silent (`push_replication`): what nobody tried, nobody failed in."""

from trainer_sdk.pserver.transfer.push_replication import after_failure


def after(*attempts):
    """What stands after attempts that each failed; (begun, over) of each."""
    silence = None
    for begun_s, over_s in attempts:
        silence = after_failure(silence, begun_s, over_s)
    return silence


def test_silence_lasts_from_the_first_failure_of_a_row_on():
    """Trainers send again at once, so attempts that fail follow each other closely."""
    assert after((1.0, 3.0)).since_s == 1.0
    assert after((1.0, 3.0), (3.1, 5.1), (6.0, 8.0)).since_s == 1.0


def test_a_long_pause_is_no_silence():
    """Nothing was tried for ten seconds: the owner must not be left by a backup that failed it twice in passing."""
    assert after((1.0, 1.1), (12.0, 12.1)).since_s == 12.0


def test_two_trainers_attempts_may_end_in_any_order():
    """The one that began first may fail last."""
    both = after((1.0, 1.2), (0.5, 2.5), (1.3, 2.0))
    assert (both.since_s, both.failed_s) == (1.0, 2.5)


def test_the_master_is_told_once_a_second_whatever_fails_meanwhile():
    """Failures come by the thousand where a connection is refused."""
    first = after((0.0, 0.1))
    assert first.is_due
    told = first.reported()
    assert not after_failure(told, 0.2, 0.3).is_due
    assert after_failure(told, 0.2, 1.1).is_due
    assert after_failure(told, 0.2, 1.1).since_s == 0.0
