"""How a pod of a job ended, told from the pod alone; and which nodes a job avoids after that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.kubernetes.objects.node_affinity import MOST_AVOIDED
from autoscaler.operator.job.node_blocklist import (
    AVOID_S,
    FAILURES,
    WINDOW_S,
    NodeBlocklist,
    add_failure,
    blocked_nodes,
)
from autoscaler.operator.job.pod_termination import TerminationCause, termination_of
from tests.unit.clusters.kubernetes.raw_objects import condition, raw_pod


def ended(*codes, phase="Failed", reason="", message="", meta=None, conditions=(), terminated=None):
    statuses = [
        {
            "name": f"c{n}",
            "state": {"terminated": {"exitCode": code, "finishedAt": f"2026-01-02T03:04:0{n}Z"} | (terminated or {})},
        }
        for n, code in enumerate(codes)
    ]
    told = {"phase": phase, "containerStatuses": statuses, "conditions": list(conditions)}
    return raw_pod(node="n1", status=told | ({"reason": reason, "message": message} if reason else {}), meta=meta)


def disrupted(reason):
    return ended(143, conditions=[condition("DisruptionTarget", "True", reason=reason)])


LEAVING = {"deletionTimestamp": "2026-01-02T03:05:00Z"}


def test_a_pod_that_stays_has_no_end():
    assert termination_of(raw_pod(node="n1")) is None


@pytest.mark.parametrize(
    ("raw", "by"),
    [
        (disrupted("PreemptionByScheduler"), TerminationCause.SCHEDULER),
        (disrupted("EvictionByEvictionAPI"), TerminationCause.DRAIN),
        (disrupted("DeletionByTaintManager"), TerminationCause.DRAIN),
        (disrupted("TerminationByKubelet"), TerminationCause.NODE),
        (ended(1, meta=LEAVING), TerminationCause.USER),
        (ended(reason="Evicted", message="low on memory"), TerminationCause.NODE),
        (ended(reason="OutOfcpu"), TerminationCause.NODE),
        (ended(1), TerminationCause.OWN_EXIT),
        (ended(0, phase="Succeeded"), TerminationCause.OWN_EXIT),
    ],
)
def test_who_wanted_it_is_read_from_the_pod(raw, by):
    end = termination_of(raw)
    assert end.cause is by
    assert end.is_failure is (by is TerminationCause.OWN_EXIT)


def test_what_edl_told_to_leave_is_put_down_to_edl():
    raw = ended(1, meta=LEAVING)
    assert termination_of(raw, {raw["metadata"]["uid"]}).cause is TerminationCause.EDL


def test_a_leaving_pod_that_still_runs_has_not_ended():
    end = termination_of(raw_pod(node="n1", meta=LEAVING))
    assert (end.cause, end.has_ended) == (TerminationCause.USER, False)


@pytest.mark.parametrize(
    ("raw", "code", "words"),
    [
        (ended(3), 3, "exited with code 3"),
        (ended(137), 137, "was killed by SIGKILL"),
        (ended(0, phase="Succeeded"), 0, "exited with code 0"),
        (ended(0, 7), 7, "its container c1 exited with code 7"),
        (ended(9, terminated={"message": "no such file"}), 9, "termination message: no such file"),
        (ended(reason="Evicted", message="low on memory"), None, "Evicted (low on memory)"),
        (raw_pod(node="n1", status={"phase": "Failed"}), None, "without an exit code"),
    ],
)
def test_the_story_names_what_happened(raw, code, words):
    end = termination_of(raw)
    assert end.code == code
    assert words in end.exit_description


def test_a_pod_out_of_memory_says_so():
    raw = ended(137, terminated={"reason": "OOMKilled"})
    assert "OOMKilled: it asked for more memory than its limit" in termination_of(raw).exit_description


def test_three_failures_on_a_node_in_a_while_make_it_avoided():
    trouble = NodeBlocklist()
    for second in range(FAILURES - 1):
        trouble = add_failure(trouble, "n1", float(second))
    assert blocked_nodes(trouble, 10.0) == frozenset()
    trouble = add_failure(add_failure(trouble, "n2", 3.0), "n1", 4.0)
    assert blocked_nodes(trouble, 10.0) == {"n1"}
    assert blocked_nodes(trouble, 4.0 + AVOID_S) == frozenset()


@given(st.lists(st.tuples(st.sampled_from([f"n{i}" for i in range(50)]), st.floats(0, 2 * WINDOW_S)), max_size=200))
def test_what_is_remembered_is_bounded_and_true(failures):
    trouble, now_s, times = NodeBlocklist(), 0.0, {}
    for node, pause_s in failures:
        now_s += pause_s
        trouble = add_failure(trouble, node, now_s)
        times.setdefault(node, []).append(now_s)
    assert len(trouble.failed_at_s) <= MOST_AVOIDED
    for node in blocked_nodes(trouble, now_s):
        last = times[node][-FAILURES:]
        assert len(last) == FAILURES
        assert last[-1] - last[0] <= WINDOW_S
