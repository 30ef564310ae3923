"""A definition of TrainingJob that is older than the operator: said, nothing made, nothing written for ever."""

import logging
from types import SimpleNamespace

import pytest
import yaml

from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy
from autoscaler.clusters.kubernetes.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi
from autoscaler.operator.controllers.definition_check import (
    CURRENT,
    NEEDED,
    REVISION,
    DefinitionCheck,
    missing_of,
    problem_of,
)
from tests.cluster.trainingjobs import DEFINITION
from tests.unit.operator.term import Term


def definition_of(revision):
    return {"metadata": {"name": "trainingjobs.edl.dev", "annotations": {REVISION: revision}}}


def test_the_definition_of_the_chart_is_new_enough():
    definition = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))
    assert problem_of(definition) == ""
    assert definition["metadata"]["annotations"][REVISION] == str(CURRENT), "both are raised together"
    assert missing_of(definition) == ""


@pytest.mark.parametrize("revision", ["0", "", "-1", "new", "²", None])
def test_an_older_one_is_told_with_what_to_do(revision):
    said = problem_of({"metadata": {"annotations": revision and {REVISION: revision}}})
    assert "older than this operator" in said
    assert "charts/edl/files/trainingjobs.yaml" in said


def test_a_newer_one_serves():
    assert problem_of(definition_of(str(NEEDED + 7))) == ""


async def test_no_pod_is_made_and_the_job_says_why_until_it_is_mended():
    term = Term()
    await term.api.create(CUSTOM_RESOURCE_DEFINITIONS, definition_of("0"))
    await term.leading.definition.check()
    await term.step(5)
    assert term.server.all(PODS) == []
    assert term.told("Admitted")[:2] == ("False", "OldDefinition")
    assert "revision 0" in term.leading.problem

    mended = {"metadata": {"annotations": {REVISION: str(NEEDED)}}}
    await term.api.patch(CUSTOM_RESOURCE_DEFINITIONS, "trainingjobs.edl.dev", mended)
    await term.leading.definition.check()
    await term.step(5)
    assert term.server.all(PODS)
    assert term.leading.problem == ""


async def test_a_definition_without_optional_fields_is_told_of_once(caplog):
    """The server dropped what it did not know, of jobs and of their status, and nobody was told."""
    term = Term()
    await term.api.create(CUSTOM_RESOURCE_DEFINITIONS, definition_of(str(CURRENT - 1)))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await term.leading.definition.check()
    told = [record.message for record in caplog.records if "optional fields" in record.message]
    assert len(told) == 1
    assert f"has revision {CURRENT - 1}, and this operator's is {CURRENT}" in told[0]
    assert term.leading.store.definition_problem == ""
    await term.step(5)
    assert term.server.all(PODS), "it works on"


@pytest.mark.parametrize("revision", [str(NEEDED - 1), str(CURRENT), str(CURRENT + 7), "new"])
def test_other_definitions_lack_no_optional_field_alone(revision):
    assert missing_of(definition_of(revision)) == ""


async def test_without_an_answer_what_was_known_stands():
    class Refusing:
        async def get(self, kind, name):
            raise ForbiddenError("no", RefusedBy.RBAC)

    store = SimpleNamespace(definition_problem="it is old")
    assert not await DefinitionCheck(Refusing(), store).check()
    assert store.definition_problem == "it is old"


class Pruning(MemoryApi):
    """A server that does not know a field of the status."""

    writes = 0

    async def apply(self, kind, body, *, subresource=None, is_forced=True):
        if kind == TRAINING_JOBS:
            self.writes += 1
            body = body | {"status": {name: value for name, value in body["status"].items() if name != "trainers"}}
        return await super().apply(kind, body, subresource=subresource, is_forced=is_forced)


async def test_a_field_that_the_server_drops_is_not_written_for_ever():
    pruning = []

    def around(bench):
        pruning.append(Pruning(bench.server))
        return pruning[0]

    term = Term(around=around)
    await term.step(20)
    assert "trainers" not in term.status()
    before = pruning[0].writes
    await term.step(20)
    assert pruning[0].writes == before
