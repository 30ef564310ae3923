"""`edl validate --on kubernetes`: what a cluster would say of a file, with the line, and without a cluster."""

import sys

import pytest
import yaml

from autoscaler.cli.arguments.place_selection import PLUGIN
from autoscaler.cli.exit_codes import Exit
from autoscaler.cli.main import run_command
from tests.cluster.hostile_manifests import CASES, Judge, by_judge
from tests.cluster.trainingjobs import GONE, make_job

POD = "spec.trainer.template.spec"


@pytest.fixture
def validate(tmp_path, monkeypatch, capsys):
    """(exit code, what was said) of `edl validate`; `name` is the command's own."""

    def said(*contents, name="edl", options=("--on", "kubernetes")):
        files = []
        for number, content in enumerate(contents):
            files.append(tmp_path / f"{number}.yaml")
            files[-1].write_text(yaml.safe_dump(content), encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["edl", "validate", *options, *map(str, files)])
        code = run_command(name)
        told = capsys.readouterr()
        return code, told.out + told.err

    return said


def test_a_job_for_a_cluster_is_valid_there_alone(validate):
    """Its image brings its command: `edl run` has no use for it."""
    assert validate(make_job()) == (Exit.OK, "tj/digits is valid\n")
    assert validate(make_job(), name=PLUGIN, options=())[0] == Exit.OK
    assert validate(make_job(), options=())[0] == Exit.REFUSED
    assert validate(make_job(), name=PLUGIN, options=("--on", "local"))[0] == Exit.REFUSED


def test_that_no_model_is_kept_is_said_of_a_valid_job(validate):
    """Several trainers without servers and without a group only share out records."""
    code, said = validate(make_job(**{"spec.parameterServer": GONE}))
    assert code == Exit.OK
    assert said.startswith("tj/digits is valid\nnotice: TrainingJob digits: up to 8 trainers")
    assert "no model is kept; add group or parameterServer, or" in said
    group = make_job(**{"spec.parameterServer": GONE, "spec.group": {"globalBatch": 256}})
    assert validate(group) == (Exit.OK, "tj/digits is valid\n")
    assert validate(make_job(**{"spec.group": {}}))[0] == Exit.REFUSED


def test_all_that_is_wrong_in_templates_is_said_at_once_with_its_line(validate):
    edits = {f"{POD}.nodeSelectr": {"zone": "a"}, f"{POD}.enviroment": [], "spec.weight": 0}
    code, said = validate(make_job(**edits))
    assert code == Exit.REFUSED
    assert f"{POD}.nodeSelectr: unknown field; did you mean nodeSelector?" in said
    assert f"{POD}.enviroment: unknown field" in said  # far from every name: only an API server could know it
    assert "spec.weight: 0" in said
    assert all(line.partition(".yaml:")[2][:1].isdecimal() for line in said.splitlines())


def test_what_is_no_job_is_left_to_kubectl(validate):
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    code, said = validate(service, make_job())
    assert code == Exit.OK
    assert "Service web is not checked" in said


@pytest.mark.parametrize("judge", [Judge.API_SERVER, Judge.OPERATOR])
def test_whatever_a_cluster_refuses_is_refused(validate, judge):
    """Hostile manifests, before anything is sent."""
    for name in by_judge(judge):
        assert validate(make_job(**CASES[name].edits))[0] == Exit.REFUSED, name


def test_what_a_cluster_takes_is_valid(validate):
    """But for what this version's Kubernetes has no field for."""
    for name in by_judge(Judge.NOBODY):
        expected = Exit.REFUSED if name == "a field of a later Kubernetes" else Exit.OK
        code, said = validate(make_job(**CASES[name].edits))
        assert code == expected, (name, said)
