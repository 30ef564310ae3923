"""Scenarios are data: what is wrong in one is refused with the path of the field."""

import pytest
import yaml

from experiments.errors import RefusedInputError
from experiments.scenarios.loading import FOLDER, find_scenario, list_scenarios, read_scenario
from experiments.scenarios.node_mixes import CORES, NODES, read_mixes


@pytest.fixture
def changed(tmp_path):
    """Write case 2 of 2017 with one change."""

    def write(change):
        document = yaml.safe_load((FOLDER / "edl2017-case2.yaml").read_text(encoding="utf-8"))
        change(document)
        file = tmp_path / "edl2017-case2.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        return file

    return write


def refused_path(file):
    with pytest.raises(RefusedInputError) as refused:
        read_scenario(file)
    return refused.value.path, refused.value.problem


def test_case_2_is_that_of_2017():
    """Six jobs of 41 CPUs beside their trainers; the web falls to 100 and comes back."""
    scenario = find_scenario("edl2017-case2")
    (job,) = scenario.jobs
    assert job.count == 6
    assert job.servers.count * job.servers.cpu + job.master.cpu == 41_000
    assert (job.trainer.cpu, job.trainer.memory, job.trainer.min, job.trainer.max) == (5_000, 8 * 2**30, 2, 60)
    assert [step.replicas for step in scenario.web[0].steps] == [300, 200, 100, 200, 300, 400]
    assert [step.at_s for step in scenario.web[0].steps] == [85, 175, 265, 355, 445, 535]


def test_every_scenario_in_the_folder_is_read():
    """None of what `list` names would be refused by `run`."""
    names = {scenario.name for scenario in list_scenarios()}
    assert names == {file.stem for file in FOLDER.glob("*.yaml")}


@pytest.mark.parametrize(
    ("change", "path", "problem"),
    [
        (lambda d: d.update(untill_s=3), "untill_s", "is not known"),
        (lambda d: d["web"][0]["steps"][2].update(at_s=-1), "web[0].steps[2].at_s", "greater than or equal to 0"),
        (lambda d: d["web"][0]["steps"][2].update(at_s=float("nan")), "web[0].steps[2].at_s", "finite"),
        (lambda d: d["jobs"][0]["trainer"].pop("cpu"), "jobs[0].trainer.cpu", "is missing"),
        (lambda d: d["jobs"][0]["trainer"].update(cpu=0), "jobs[0].trainer", "requests neither cpu nor gpu"),
        (lambda d: d["jobs"][0]["trainer"].update(cpu="-1"), "jobs[0].trainer.cpu", "below zero"),
        (lambda d: d["jobs"][0]["trainer"].update(memory="8 bytes"), "jobs[0].trainer.memory", "no quantity"),
        (lambda d: d["jobs"][0].update(count=1.5), "jobs[0].count", "integer"),
        (lambda d: d.update(arms=["theirs"]), "arms[0]", "static"),
        (lambda d: d.update(measured_until_s=9_000), "", "after until_s"),
        (
            lambda d: d.update(clocks={"static": {"jobs_at_s": [1]}}),
            "",
            "clocks.static.jobs_at_s: 1 instants for 6 jobs",
        ),
        (lambda d: d.update(name="another"), "name", "is another"),
        (lambda d: d["jobs"][0]["trainer"].update(min=61), "jobs[0].trainer", "min: 61 is above max: 60"),
        (lambda d: d["jobs"][0]["trainer"].update(step=2, powers_of_two=True), "jobs[0].trainer", "cannot be combined"),
        (lambda d: d["web"][0]["steps"].reverse(), "web[0].steps", "445 s comes after 535 s"),
        (lambda d: d.update(node_events=[{"at_s": 9, "restore": True}, {"at_s": 5, "lose": 1}]), "node_events", "5 s"),
        (lambda d: d["jobs"].append(d["jobs"][0]), "jobs", "mnist is a duplicate"),
        (lambda d: d["web"].append(d["web"][0]), "web", "nginx is a duplicate"),
        (lambda d: d["variants"].append(d["variants"][0]), "variants", "drain-10s is a duplicate"),
        (lambda d: d.update(arms=["static", "static"]), "arms", "static is a duplicate"),
        (lambda d: d.update(arms=[]), "arms", "at least 1"),
        (lambda d: d.update(jobs=[]), "jobs", "at least 1"),
        (lambda d: d.update(nodes=[{"count": 1, "cpu": 0, "memory": "1Gi"}]), "nodes[0].cpu", "greater than"),
    ],
)
def test_a_wrong_scenario_is_refused_with_the_path_of_the_field(changed, change, path, problem):
    """Unknown fields, negative times, jobs without requests."""
    found, said = refused_path(changed(change))
    assert found == path
    assert problem in said


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("jobs: [", "cannot be read"),
        ("[" * 100_000, "nested too deeply"),
        ("title: a\ntitle: b\n", "title is a duplicate key"),
        ("jobs: [{name: a, name: b}]\n", "name is a duplicate key"),
        ("[]", "holds no scenario"),
        ("", "holds no scenario"),
    ],
)
def test_what_is_no_yaml_is_refused_in_one_line(tmp_path, text, problem):
    """The file is named; of two fields of one name neither is taken for what was meant."""
    file = tmp_path / "x.yaml"
    file.write_text(text)
    path, said = refused_path(file)
    assert path == ""
    assert problem in said
    assert "\n" not in said


def test_a_slip_in_a_name_is_told_before_what_it_leaves_missing(tmp_path):
    """`untill_s` explains why `until_s` is missing, not the other way round."""
    file = tmp_path / "x.yaml"
    file.write_text("name: x\nuntill_s: 3\n")
    assert refused_path(file)[0] == "untill_s"


def test_an_unknown_experiment_names_those_that_exist():
    """A slip of the hand is answered with the list."""
    with pytest.raises(RefusedInputError, match="edl2017-case1"):
        find_scenario("edl2017-case3")


def test_at_least_five_mixes_have_the_published_sums():
    """133 nodes and 2,348 cores each, all of different shape."""
    mixes = read_mixes()
    assert len({mix.counts for mix in mixes}) >= 5
    for mix in mixes:
        assert (len(mix.nodes()), sum(mix.cores())) == (NODES, CORES)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"mixes": []}', "mixes"),
        ('{"mixes": [{"nodes": []}]}', "mixes[0].name"),
        ('{"mixes": [{"name": "m", "nodes": [[133, 17]]}]}', "mixes[0].nodes"),
        ('{"mixes": [{"name": "m", "nodes": [[133, "17"]]}]}', "mixes[0].nodes"),
    ],
)
def test_a_mix_with_other_sums_is_refused(tmp_path, text, path):
    """What was published is not bent."""
    file = tmp_path / "mixes.json"
    file.write_text(text)
    with pytest.raises(RefusedInputError) as refused:
        read_mixes(file)
    assert refused.value.path == path
