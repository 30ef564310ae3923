"""Search in decisions and events."""

from autoscaler.views.documents import EVERYTHING, Rights
from autoscaler.views.history.journal import MOST_SHOWN, journal_of, search_journal
from tests.harness.page_cluster import demo_lines, line


def test_every_word_must_be_in_the_line_in_any_case():
    found = search_journal(demo_lines(), EVERYTHING, query="DIGITS-B 2 web")
    assert [one.reason for one in found.lines] == ["Shrunk"]
    assert (found.found, found.kept) == (1, 4)


def test_the_newest_lines_come_first_and_are_bounded():
    lines = [line("tj/x", "Grown", str(number)) for number in range(5_000)]
    found = search_journal(lines, EVERYTHING)
    assert len(found.lines) == MOST_SHOWN
    assert found.lines[0].message == "4999"
    assert found.found == 5_000


def test_lines_of_namespaces_that_may_not_be_read_are_not_counted():
    lines = [
        line("tj/mine", "Grown"),
        line("tj/theirs", "Grown", namespace="others"),
        line("node/n", "x", namespace=""),
    ]
    rights = Rights(namespaces=frozenset({"team"}), can_read_nodes=False, can_plan=False)
    found = search_journal(lines, rights)
    assert [one.object for one in found.lines] == ["tj/mine"]
    assert found.kept == 1


def test_lines_of_a_job_are_those_of_its_pods_too():
    lines = [
        line("tj/a", "Grown"),
        line("pod/a-trainer-1", "Ready"),
        line("pod/ab-trainer-1", "Ready"),
        line("pod/a-b-trainer-1", "Ready"),
        line("pod/a-trainer-b-server-1", "Ready"),
        line("pod/a-master-b-trainer-1", "Ready"),
        line("pod/a-master-0", "Ready"),
        line("pod/a-master-5d9f7c6b8-x2x4z", "Ready"),
        line("tj/b", "x"),
    ]
    assert [one.object for one in journal_of(lines, "team", "a", most=9)] == [
        "pod/a-master-5d9f7c6b8-x2x4z",
        "pod/a-master-0",
        "pod/a-trainer-1",
        "tj/a",
    ]
