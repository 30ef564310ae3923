"""Targets of a run: the masters that were given a port, with the labels that the chart's PodMonitor would give them."""

from autoscaler.local_run.run_metrics import targets_of


def pod(name, role, port):
    labels = {"edl.dev/role": role, "edl.dev/job": "digits"}
    return {"metadata": {"name": name, "namespace": "team-a", "labels": labels, "annotations": {"edl.dev/port": port}}}


def test_masters_with_a_port_are_targets():
    """Web pods have ports too, and a master has none until its process is started."""
    pods = [pod("m-0", "master", "17000"), pod("m-1", "master", ""), pod("t-0", "trainer", ""), {"metadata": {}}]
    labels = {"namespace": "team-a", "pod": "m-0", "edl_dev_job": "digits"}
    assert targets_of(pods) == [{"targets": ["127.0.0.1:17000"], "labels": labels}]


def test_web_pods_are_no_targets():
    web = {"metadata": {"name": "web", "namespace": "a", "annotations": {"edl.dev/port": "17001"}}}
    assert targets_of([web]) == []
