"""Failures counted in layers against failures counted one by one (M4)."""

from hypothesis import given
from hypothesis import strategies as st

from master.api.positions import PositionSet
from master.job.domain.durable_records import Instant
from master.job.state.trainer_failures import FailureCounts, FailureNote, clear_positions, count_failure
from tests.unit.master.job.driver import key

AXIS = range(8)
some = st.frozensets(st.sampled_from(AXIS), max_size=5)
processes = st.integers(0, 5)
events = st.lists(
    st.one_of(
        st.tuples(st.just("failed"), processes, some, st.booleans(), st.booleans()),
        st.tuples(st.just("acquitted"), some),
    ),
    max_size=12,
)


def those(positions):
    return PositionSet.of(*sorted(positions))


@given(events)
def test_a_position_is_held_against_by_as_many_processes_as_failed_with_it(story):
    """And by none once it was completed; one that proves nothing makes it doubted, and each process counts once."""
    failures = FailureCounts()
    against, doubted, counted, in_a_row = dict.fromkeys(AXIS, 0), set(), [], 0
    for event in story:
        if event[0] == "failed":
            _, process, positions, has_raised, is_evidence = event
            note = FailureNote(member=key("t", process), at=Instant(0), positions=those(positions), message="")
            failures = count_failure(failures, note, has_raised=has_raised, is_evidence=is_evidence)
            if process in counted:
                continue
            counted.append(process)
            in_a_row += has_raised
            if is_evidence:
                against |= {one: against[one] + 1 for one in positions}
            else:
                doubted |= positions
        else:
            failures = clear_positions(failures, those(event[1]))
            if any(against.values()) or doubted or in_a_row:
                in_a_row = 0
            against |= dict.fromkeys(event[1], 0)
            doubted -= event[1]
        at_least = {limit: those(one for one in AXIS if against[one] >= limit) for limit in (1, 2, 3)}
        assert failures.suspects == at_least[1] | those(doubted)
        assert [failures.to_quarantine(limit) for limit in (1, 2, 3)] == list(at_least.values())
        assert [failures.prime(limit) for limit in (1, 2, 3)] == [at_least[1], at_least[1], at_least[2]]
        assert failures.is_clear == (not any(against.values()) and not doubted and not in_a_row)
        assert failures.in_a_row == in_a_row
        assert [note.member for note in failures.notes] == [key("t", process) for process in counted]
