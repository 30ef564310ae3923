"""What the demo reads back from its run: both roles of each job, and when no picture of them can be had."""

import json

from experiments.demo.record import count_servers, parse_samples


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
