"""Every number of a job's document, found in the models themselves: what cannot be one is refused by its field."""

import copy
from itertools import pairwise
from math import inf, nan
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job
from autoscaler.errors import InvalidSpecError
from autoscaler.manifests import InvalidManifestError, parse_files
from autoscaler.manifests.document_schema import KINDS, TrainingJobModel
from tests.cluster.trainingjobs import make_job

HUGE = 10**400
BAD = {
    "NaN": nan,
    "infinite": inf,
    "minus infinite": -inf,
    "negative": -1,
    "huge": 1e300,
    "of 400 digits": HUGE,
    "true": True,
    "a word": "three",
    "a list": [3],
}
SIGNED = {"value"}  # of a PriorityClass
QUANTITIES = {"cpu", "memory", "gpu", "pods", "nvidia.com/gpu"}


def kinds_of(annotation):
    """The plain types of an annotation, and the models in it."""
    if get_origin(annotation) is Annotated:
        return kinds_of(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType, tuple}:
        return {kind for one in get_args(annotation) for kind in kinds_of(one)}
    return {annotation}


def numbers_of(model, path=()):
    """Paths of the numbers in a model, by the names in a document; 0 stands for the first of a list."""
    for name, field in model.model_fields.items():
        annotation = field.annotation
        is_list = get_origin(annotation) is tuple or any(get_origin(one) is tuple for one in get_args(annotation))
        here = (*path, field.alias or name, *((0,) if is_list else ()))
        for kind in kinds_of(annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from numbers_of(kind, here)
            elif kind in {int, float}:
                yield here, kind


def with_value(content, path, value):
    """The document with this value there, and all that holds it."""
    content = copy.deepcopy(content)
    holder = content
    for step, following in pairwise(path):
        if isinstance(holder, list):
            if not holder:
                holder.append({})
        elif not holder.get(step):
            holder[step] = [] if following == 0 else {}
        holder = holder[step]
    if isinstance(holder, list):
        holder[:] = [value]
    else:
        holder[path[-1]] = value
    return content


def minimal(kind):
    if kind == "TrainingJob":
        job = make_job()
        job["spec"].setdefault("parameterServer", {"minReplicas": 1, "template": job["spec"]["trainer"]["template"]})
        return job
    template = {"spec": {"containers": [{"name": "c", "command": ["true"]}]}}
    return {
        "Deployment": {"apiVersion": "apps/v1", "kind": kind, "spec": {"template": template}},
        "PriorityClass": {"apiVersion": "scheduling.k8s.io/v1", "kind": kind, "value": 1},
        "LocalCluster": {
            "apiVersion": "edl.dev/v1alpha1",
            "kind": kind,
            "spec": {"nodes": [{"name": "n", "cpu": 1, "memory": "1Gi"}]},
        },
    }[kind] | {"metadata": {"name": "one"}}


def dotted(path):
    return ".".join(map(str, path)).replace(".0.", "[0].").removesuffix(".0")


NUMBERS = sorted({(kind, *found) for kind, model in KINDS.items() for found in numbers_of(model)}, key=str)
OF_JOBS = [found for found in sorted(set(numbers_of(TrainingJobModel)), key=str) if "template" not in found[0]]


def test_the_numbers_are_found():
    """By way of example: nested, optional, in lists, and quantities."""
    found = {dotted(path) for _, path, _ in NUMBERS}
    assert {"spec.trainer.resizeCostSeconds", "spec.trainer.sizes", "spec.checkpoint.everySeconds"} <= found
    assert {"spec.runPolicy.backoffLimit", "spec.nodes[0].cpu", "spec.parameterServer.trainersPerServer"} <= found
    assert len(found) >= 35


def bad_values(path, number):
    """What cannot be the number there.  A whole one in quotes is none to an API server; YAML takes 1e3 for a text."""
    name = next(step for step in reversed(path) if step != 0)
    yield from ((what, value) for what, value in BAD.items() if not (name in SIGNED and what == "negative"))
    if number is int and name not in QUANTITIES:
        yield from (("in quotes", "3"), ("a part", 2.5))


@pytest.mark.parametrize(
    ("kind", "path", "number"), NUMBERS, ids=[f"{kind} {dotted(path)}" for kind, path, _ in NUMBERS]
)
def test_what_cannot_be_that_number_is_refused_by_its_field(kind, path, number, tmp_path):
    """Not read as another number either: `true` is no 1."""
    file = tmp_path / "file.yaml"
    for what, value in bad_values(path, number):
        file.write_text(yaml.safe_dump(with_value(minimal(kind), path, value)))
        error = refusal_of(parse_files, [file])
        assert any(dotted(path) in one.path for one in getattr(error, "errors", ())), f"{what}: {error}"
        assert len(str(error)) < 3_000


@pytest.mark.parametrize(("path", "number"), OF_JOBS, ids=[dotted(path) for path, _ in OF_JOBS])
def test_the_operator_refuses_it_too(path, number):
    """A definition that is older than EDL may have let it pass."""
    for what, value in bad_values(path, number):
        content = with_value(minimal("TrainingJob"), path, value)
        content["metadata"] |= {"uid": "u", "generation": 1, "namespace": "default"}
        error = refusal_of(parse_job, content)
        assert dotted(path) in getattr(error, "path", ""), f"{what}: {error}"
        assert len(str(error)) < 1_000


def refusal_of(parse, what):
    """The typed error; None: it was taken."""
    try:
        parse(what)
    except (InvalidManifestError, InvalidSpecError) as error:
        return error
