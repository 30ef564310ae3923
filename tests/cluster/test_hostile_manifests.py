"""Hostile manifests against the API server's own validation: refused by the field, or taken (A11)."""

import pytest
from kubernetes import client

from tests.cluster.hostile_manifests import CASES, Judge, by_judge
from tests.cluster.test_crd_refusals import definition, refusal_of  # noqa: F401 - a fixture
from tests.cluster.trainingjobs import GROUP, make_job


@pytest.fixture
def jobs(definition, api):  # noqa: F811 - the fixture
    return client.CustomObjectsApi(api)


def plain(path):
    return path.replace("[", ".").replace("]", "").rstrip(".")


@pytest.mark.parametrize("name", by_judge(Judge.API_SERVER))
def test_the_api_server_refuses_it_by_its_field(jobs, name):
    case = CASES[name]
    said = refusal_of(jobs.create_namespaced_custom_object, **GROUP, namespace="default", body=make_job(**case.edits))
    named = [field for field in map(plain, said) if plain(case.field) in field or plain(case.field).startswith(field)]
    assert named, said


@pytest.mark.parametrize("name", [*by_judge(Judge.OPERATOR), *by_judge(Judge.NOBODY)])
def test_the_api_server_takes_it(jobs, name):
    """So that it is the operator's to tell (test_hostile_live.py)."""
    body = make_job(**CASES[name].edits)
    jobs.create_namespaced_custom_object(**GROUP, namespace="default", body=body, dry_run="All")
