"""The demo's jobs: what it runs with and without torch, and whether web and jobs fit into its nodes."""

from pathlib import Path

import pytest

from autoscaler.manifests import parse_files
from experiments.demo.__main__ import NODE_CPU_MILLI
from experiments.demo.baseline import Training
from experiments.demo.demo_jobs import (
    choose_epochs,
    choose_jobs,
    count_nodes,
    estimate_epochs,
    highest_web,
    write_manifests,
)

TRAINING = Training(data=Path("digits.npz"))


def parsed(folder, jobs):
    """The manifests of these jobs, as a run reads them."""
    path = folder / "manifests.yaml"
    path.write_text(write_manifests(jobs, choose_epochs(jobs, 20, load_s=50), TRAINING, folder))
    return parse_files([path])


def test_without_torch_both_jobs_have_servers(tmp_path):
    """The third job is added to the other two, and takes the place of none."""
    specs = list(parsed(tmp_path, choose_jobs(has_torch=False)).jobs)
    assert [(spec.group is None, spec.server is not None) for spec in specs] == [(True, True)] * 2


def test_with_torch_the_third_job_is_a_group(tmp_path):
    """Its trainers hold the model, so it has no servers."""
    *others, group = (job for job in parsed(tmp_path, choose_jobs(has_torch=True)).jobs)
    assert [spec.group is None for spec in others] == [True, True]
    assert group.group is not None
    assert group.server is None


def test_a_group_is_as_long_as_the_load_and_other_jobs_as_the_machine_is_fast():
    """A group's step has a fixed length; no job is over at once."""
    jobs = choose_jobs(has_torch=True)
    assert choose_epochs(jobs, 100, load_s=40) == {"digits-a": 150, "digits-b": 100, "digits-torch": 12}
    assert min(choose_epochs(jobs, 0.1, load_s=1).values()) == 1


def test_a_group_shortens_the_other_jobs():
    """Three share the cores that two had, and no job becomes longer than the web load needs."""
    two, three = (
        estimate_epochs(choose_jobs(has_torch=has_torch), alone_epochs_per_s=40, load_s=50)
        for has_torch in (False, True)
    )
    assert two == pytest.approx(300)
    assert three == pytest.approx(100)


@pytest.mark.parametrize("has_torch", [False, True])
def test_at_the_peak_of_the_web_jobs_keep_their_minimum_and_want_more(tmp_path, has_torch):
    """Otherwise the web would push jobs out, or nothing would have to shrink."""
    jobs = choose_jobs(has_torch=has_torch)
    specs = list(parsed(tmp_path, jobs).jobs)
    room = count_nodes(jobs) * NODE_CPU_MILLI - 1000 * highest_web(jobs)

    def asked(trainers, servers):
        return sum(
            1000 * trainers(spec.trainer) + 250 + (500 * servers(spec.server) if spec.server is not None else 0)
            for spec in specs
        )

    least = asked(lambda trainer: trainer.replicas.minimum, lambda server: server.replicas.minimum)
    most = asked(lambda trainer: trainer.replicas.maximum, lambda server: server.replicas.maximum)
    assert least <= room < most
