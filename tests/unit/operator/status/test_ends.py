"""How a pod of a job ended, told from the pod alone; and which nodes a job avoids after that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.kubernetes.objects.node_affinity import MOST_AVOIDED
from autoscaler.operator.job.node_blocklist import AVOID_S, FAILURES, WINDOW_S, Trouble, avoided, blame
from autoscaler.operator.job.pod_termination import By, end_of
from tests.unit.clusters.kubernetes.objects import condition, raw_pod


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
    assert end_of(raw_pod(node="n1")) is None


@pytest.mark.parametrize(
    ("raw", "by"),
    [
        (disrupted("PreemptionByScheduler"), By.SCHEDULER),
        (disrupted("EvictionByEvictionAPI"), By.DRAIN),
        (disrupted("DeletionByTaintManager"), By.DRAIN),
        (disrupted("TerminationByKubelet"), By.NODE),
        (ended(1, meta=LEAVING), By.USER),
        (ended(reason="Evicted", message="low on memory"), By.NODE),
        (ended(reason="OutOfcpu"), By.NODE),
        (ended(1), By.ITSELF),
        (ended(0, phase="Succeeded"), By.ITSELF),
    ],
)
def test_who_wanted_it_is_read_from_the_pod(raw, by):
    end = end_of(raw)
    assert end.by is by
    assert end.is_failure is (by is By.ITSELF)


def test_what_edl_told_to_leave_is_put_down_to_edl():
    raw = ended(1, meta=LEAVING)
    assert end_of(raw, {raw["metadata"]["uid"]}).by is By.EDL


def test_a_leaving_pod_that_still_runs_has_not_ended():
    end = end_of(raw_pod(node="n1", meta=LEAVING))
    assert (end.by, end.has_ended) == (By.USER, False)


@pytest.mark.parametrize(
    ("raw", "code", "words"),
    [
        (ended(3), 3, "exited with code 3"),
        (ended(137), 137, "was killed by SIGKILL"),
        (ended(0, phase="Succeeded"), 0, "exited with code 0"),
        (ended(0, 7), 7, "its container c1 exited with code 7"),
        (ended(9, terminated={"message": "no such file"}), 9, "left the message: no such file"),
        (ended(reason="Evicted", message="low on memory"), None, "Evicted (low on memory)"),
        (raw_pod(node="n1", status={"phase": "Failed"}), None, "does not say how"),
    ],
)
def test_the_story_names_what_happened(raw, code, words):
    end = end_of(raw)
    assert end.code == code
    assert words in end.story


def test_a_pod_out_of_memory_says_so():
    raw = ended(137, terminated={"reason": "OOMKilled"})
    assert "OOMKilled: it asked for more memory than its limit" in end_of(raw).story


def test_three_failures_on_a_node_in_a_while_make_it_avoided():
    trouble = Trouble()
    for second in range(FAILURES - 1):
        trouble = blame(trouble, "n1", float(second))
    assert avoided(trouble, 10.0) == frozenset()
    trouble = blame(blame(trouble, "n2", 3.0), "n1", 4.0)
    assert avoided(trouble, 10.0) == {"n1"}
    assert avoided(trouble, 4.0 + AVOID_S) == frozenset()


@given(st.lists(st.tuples(st.sampled_from([f"n{i}" for i in range(50)]), st.floats(0, 2 * WINDOW_S)), max_size=200))
def test_what_is_remembered_is_bounded_and_true(failures):
    trouble, now_s, times = Trouble(), 0.0, {}
    for node, pause_s in failures:
        now_s += pause_s
        trouble = blame(trouble, node, now_s)
        times.setdefault(node, []).append(now_s)
    assert len(trouble.failed_at_s) <= MOST_AVOIDED
    for node in avoided(trouble, now_s):
        last = times[node][-FAILURES:]
        assert len(last) == FAILURES
        assert last[-1] - last[0] <= WINDOW_S
