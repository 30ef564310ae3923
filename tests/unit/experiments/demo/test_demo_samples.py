"""What the demo reads back from its run: both roles of each job, and what its table says of a job at its end."""

import json
from dataclasses import replace

from experiments.demo.demo_samples import count_servers, parse_samples
from experiments.demo.outcome import SUMMARY_HEAD, JobOutcome, summary_lines, summary_rows


def line(at_s, *, trainers, servers, target):
    job = {"trainers": trainers, "target": trainers, "min": 1, "max": 6, "servers": servers, "servers_target": target}
    node = {"capacity_millicores": 4000, "web": 1000, "trainers": 0, "servers": 0, "masters": 0}
    return json.dumps({"t_s": at_s, "nodes": {"node-1": node}, "jobs": {"digits-a": job}, "workloads": {}})


def test_servers_are_read_with_what_they_shall_be():
    """The fewest and the most while the job trained; its start and its end, when it has none, do not count."""
    lines = [
        line(0, trainers=0, servers=0, target=0),
        line(1, trainers=1, servers=1, target=1),
        line(2, trainers=5, servers=3, target=3),
        line(3, trainers=4, servers=3, target=2),
        line(4, trainers=0, servers=2, target=0),
    ]
    samples = parse_samples(lines, workload="web")
    assert [(s.jobs["digits-a"].servers, s.jobs["digits-a"].servers_target) for s in samples[3:]] == [(3, 2), (2, 0)]
    assert count_servers(samples, "digits-a") == (1, 3)
    assert count_servers(samples, "digits-b") == (0, 0)


WHOLE = JobOutcome(
    name="digits-a",
    is_complete=True,
    message="",
    split=1_437,
    epochs=10,
    trained=14_370,
    lost=0,
    repeated=0,
    missing=0,
    quarantined=0,
    servers=(1, 3),
    reworked=32,
    lineage=2,
    accuracy=0.975,
    baseline=0.98,
)


def test_a_job_at_its_end_is_counted_by_its_model():
    """Exactly once each, and the accuracy beside one process alone."""
    (row,) = summary_rows([WHOLE])
    assert row[1:] == ("1,437 x 10 = 14,370", "14,370", "0", "0", "32", "1 to 3", "97.5 %", "98.0 %", "ok")


def test_a_job_that_the_end_of_the_run_stopped_is_unfinished():
    """A busy machine came to a quarter of it, and was told that nothing was in the checkpoint, and unsound."""
    stopped = replace(WHOLE, is_complete=False, trained=0, missing=10_000, accuracy=None)
    (row,) = summary_rows([stopped])
    assert (row[2:5], row[-1]) == (("4,370", "-", "-"), "unfinished")
    assert not stopped.is_sound


def test_a_job_at_its_end_with_a_lost_sample_is_not_sound():
    """Or with a message of its own."""
    assert summary_rows([replace(WHOLE, lost=1)])[0][-1] == "NOT SOUND"
    assert replace(WHOLE, is_complete=False, message="the checkpoint has no manifest").verdict.startswith("the check")


def test_a_group_has_no_servers_to_count():
    """The table says "none": "0 to 0" would read as if servers had been lost."""
    (row,) = summary_rows([replace(WHOLE, servers=(0, 0))])
    assert row[6] == "none"


def test_the_audit_fits_the_terminal():
    """A table where it fits, else a paragraph for each job; nothing is cut, and no line runs over."""
    jobs = [WHOLE, replace(WHOLE, name="digits-torch", epochs=1_000, servers=(0, 0))]
    table = summary_lines(jobs, width=None)
    assert len(table) == 3
    widest = max(map(len, table))
    assert summary_lines(jobs, width=widest) == table
    narrow = summary_lines(jobs, width=widest - 1)
    assert max(map(len, narrow)) <= 60
    for row in summary_rows(jobs):
        assert f"{row[0]}: {row[-1]}" in narrow
        for head, cell in zip(SUMMARY_HEAD[1:-1], row[1:-1], strict=True):
            assert f"  {head:<18} {cell}" in narrow
