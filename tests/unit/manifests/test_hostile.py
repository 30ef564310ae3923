"""Hostile manifests against the product's own parsers: what a cluster refuses is told first (A11)."""

import copy
import json

import pytest

from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job
from autoscaler.errors import InvalidSpecError
from autoscaler.manifests import InvalidManifestError, parse_files
from tests.cluster.hostile_manifests import CASES, Judge, by_judge
from tests.cluster.test_crd_refusals import BAD
from tests.cluster.trainingjobs import make_job

REFUSED = [*by_judge(Judge.API_SERVER), *by_judge(Judge.OPERATOR)]
FIRST_OF_SEVERAL = {
    "copies, and no servers": "spec.parameterServer.minReplicas",
    "a count of servers, and no servers": "spec.parameterServer.minReplicas",
}
"""Where the API server names more fields than one."""


def as_stored(job):
    job = copy.deepcopy(job)
    job["metadata"] |= {
        "namespace": "default",
        "uid": "u",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return job


def is_named(field, path):
    """Whether the path is the field's, of what holds it, or of what stands in it."""
    plain = path.replace("[0].", ".0.").replace("[0]", ".0")
    wanted = field.replace("[0].", ".0.").replace("[0]", ".0").rstrip(".")
    return wanted in plain or plain.startswith(wanted) or wanted.startswith(plain)


def test_the_table_is_as_long_as_it_has_to_be():
    """Beside those that older tests refuse; all names differ."""
    assert len(CASES) >= 110
    assert len(CASES) + len(BAD) >= 200
    assert not CASES.keys() & BAD.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_the_operators_parser_refuses_it_by_its_field(name):
    """What the API server takes is InvalidSpec; what it refuses a definition older than EDL may have let pass."""
    case = CASES[name]
    with pytest.raises(InvalidSpecError) as caught:
        parse_job(as_stored(make_job(**case.edits)))
    assert is_named(case.field, caught.value.path), str(caught.value)
    assert len(str(caught.value)) < 1_000
    assert "\0" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_edl_validate_refuses_it_by_its_field(name, tmp_path):
    """With all else that is wrong, and nothing is sent."""
    case = CASES[name]
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(make_job(**case.edits)), encoding="utf-8")
    with pytest.raises(InvalidManifestError) as caught:
        parse_files([file])
    if "\0" not in json.dumps(case.edits) and "u001b" not in json.dumps(case.edits):
        assert any(is_named(case.field, refusal.path) for refusal in caught.value.errors), str(caught.value)


@pytest.mark.parametrize("name", by_judge(Judge.NOBODY))
def test_what_harms_nobody_is_read(name):
    """Strictness is no end in itself."""
    parse_job(as_stored(make_job(**CASES[name].edits)))


@pytest.mark.parametrize("name", BAD)
def test_what_the_definition_refuses_the_operator_refuses_too(name):
    edits, path, _ = BAD[name]
    with pytest.raises(InvalidSpecError) as caught:
        parse_job(as_stored(make_job(**edits)))
    assert is_named(FIRST_OF_SEVERAL.get(name, path), caught.value.path), str(caught.value)


def test_a_job_that_has_started_is_not_judged_by_newer_rules():
    """Its template stands until it is suspended: an operator that learns a rule loses no running job by it."""
    job = as_stored(make_job(**CASES["nodeSelectr"].edits))
    parse_job(job | {"status": {"startTime": "2026-01-01T00:00:00Z"}})
