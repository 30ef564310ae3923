"""One job description, three places to run it: the CRD says what `autoscaler.manifests.document_schema` says.

Compared are the names of fields, which of them are required, their defaults and bounds.  Pod templates are not: each
place to run reads them in its own way.
"""

from pathlib import Path

import pytest
import yaml

from autoscaler.manifests import document_schema, pod_values
from autoscaler.manifests.api_types import AUTO, MOST_REPLICAS, TRAINERS_PER_SERVER

CRD = yaml.safe_load(Path("charts/edl/files/trainingjobs.yaml").read_text())
VERSION = CRD["spec"]["versions"][0]
OPEN = VERSION["schema"]["openAPIV3Schema"]
DOCUMENT = document_schema.TrainingJobModel.model_json_schema(by_alias=True)

STRICTER_ON_KUBERNETES = {
    "spec.checkpoint": "no folder of the run's own there: one must be named",
    "spec.checkpoint.uri": "likewise",
}
NUMBER_OR_AUTO = "spec.parameterServer.trainersPerServer"
OPTIONAL_LEAST = {
    field.alias or name: bound.ge
    for model in (
        document_schema.RunPolicyModel,
        document_schema.TrainerModel,
        document_schema.ServerModel,
        document_schema.GroupModel,
    )
    for name, field in model.model_fields.items()
    for bound in field.metadata
    if hasattr(bound, "ge") and field.default is None
}
"""By the field's name: pydantic leaves a bound on `int | None` out of its JSON schema."""


def resolve(node):
    """The node with its reference unfolded; of an optional one what it may be beside absent."""
    if "anyOf" in node:
        (inner,) = (part for part in node["anyOf"] if part.get("type") != "null")
        return resolve(inner)
    if "$ref" in node:
        own = {key: value for key, value in node.items() if key != "$ref"}
        return DOCUMENT["$defs"][node["$ref"].rpartition("/")[2]] | own
    return node


def walk(model, crd, path):
    """(path, pydantic's node, the CRD's, whether each requires it) of every field but those of templates."""
    wanted, given = resolve(model).get("properties", {}), crd.get("properties", {})
    assert set(wanted) == set(given), path
    for name in sorted(wanted):
        where = f"{path}.{name}"
        required = name in resolve(model).get("required", []), name in crd.get("required", [])
        yield where, resolve(wanted[name]), given[name], required
        if name != "template":
            yield from walk(wanted[name], given[name], where)


FIELDS = {where: rest for where, *rest in walk(DOCUMENT["properties"]["spec"], OPEN["properties"]["spec"], "spec")}


@pytest.mark.parametrize("where", FIELDS)
def test_a_field_means_the_same_in_a_file_and_on_the_api_server(where):
    model, crd, (model_requires, crd_requires) = FIELDS[where]
    if where in STRICTER_ON_KUBERNETES:
        assert (crd_requires, model_requires) == (True, False)
        return
    assert crd_requires == model_requires
    if where == NUMBER_OR_AUTO:  # no JSON schema says what a validator does
        assert (crd["x-kubernetes-int-or-string"], crd["pattern"]) == (True, f"^{AUTO}$")
        assert (crd["minimum"], crd["default"]) == (1, TRAINERS_PER_SERVER)
        return
    if model["type"] != "object":
        assert model["type"] == crd["type"]
        assert model.get("default") == crd.get("default")
        assert model.get("enum") == crd.get("enum")
        assert _least(model, where.rpartition(".")[2]) == _least(crd)
        if "maximum" in model:
            assert crd["maximum"] <= model["maximum"]


def test_an_object_with_defaults_inside_is_there_when_it_is_left_out():
    """The API server fills in defaults of fields only below an object that is there; without `group` a job is none."""
    for where, (model, crd, _) in FIELDS.items():
        if where == "spec.group":
            assert "default" not in crd
            continue
        inner = crd.get("properties", {}).values()
        if model["type"] == "object" and "required" not in crd and any("default" in field for field in inner):
            assert crd["default"] == {}, where


def test_a_name_is_bounded_alike():
    model = resolve(resolve(DOCUMENT["properties"]["metadata"])["properties"]["name"])
    crd = OPEN["properties"]["metadata"]["properties"]["name"]
    assert (model["pattern"], model["maxLength"]) == (crd["pattern"], crd["maxLength"])


@pytest.mark.parametrize(
    "pattern",
    [
        document_schema.CHECKPOINT_URI,
        pod_values.DNS_LABEL,
        pod_values.DNS_SUBDOMAIN,
        pod_values.IMAGE,
        pod_values.QUALIFIED_NAME,
        pod_values.LABEL_VALUE,
        pod_values.VARIABLE,
    ],
)
def test_a_pattern_of_the_product_is_one_of_the_definition(pattern):
    """The API server and the parsers judge by the same letters (ADR 0161)."""
    assert pattern in _texts(OPEN)


def test_lists_are_bounded_alike():
    """What the definition takes, the operator takes: no more and no fewer items."""
    pod = OPEN["properties"]["spec"]["properties"]["trainer"]["properties"]["template"]["properties"]["spec"][
        "properties"
    ]
    container = pod["containers"]["items"]["properties"]
    said = {name: node["maxItems"] for name, node in (pod | container).items() if name in pod_values.MOST}
    assert said == pod_values.MOST


def test_listed_sizes_are_bounded_alike():
    sizes = OPEN["properties"]["spec"]["properties"]["trainer"]["properties"]["sizes"]
    assert sizes["maxItems"] == document_schema.MOST_SIZES
    assert (sizes["items"]["minimum"], sizes["items"]["maximum"]) == (1, MOST_REPLICAS)


def test_the_longest_name_of_a_pod_is_a_host_name():
    spec = OPEN["properties"]["spec"]["properties"]
    longest = OPEN["properties"]["metadata"]["properties"]["name"]["maxLength"]
    most = max(spec[role]["properties"]["maxReplicas"]["maximum"] for role in ("trainer", "parameterServer"))
    assert longest + len("-trainer-") + len(str(most - 1)) <= 63


def test_there_is_no_phase():
    """Conditions say what holds; a phase would say one thing of several."""
    assert "phase" not in OPEN["properties"]["status"]["properties"]


def test_the_subresources_read_fields_that_exist():
    assert VERSION["subresources"]["status"] == {}
    for path in VERSION["subresources"]["scale"].values():
        assert _at(path)["type"] in {"integer", "string"}
    for column in VERSION["additionalPrinterColumns"]:
        if not column["jsonPath"].startswith(".metadata"):
            field = _at(column["jsonPath"])
            assert column["type"] == ("date" if field.get("format") == "date-time" else field["type"])


def _texts(node):
    """All patterns and rules of a schema, in one text."""
    match node:
        case dict():
            return "\n".join(_texts(inner) for inner in node.values())
        case list():
            return "\n".join(_texts(inner) for inner in node)
        case _:
            return str(node)


def _at(path):
    node = OPEN
    for name in path.strip(".").split("."):
        node = node["properties"][name]
    return node


def _least(node, name=None):
    """The smallest value, and whether it is outside: JSON schema and OpenAPI 3.0 write it differently."""
    exclusive = node.get("exclusiveMinimum")
    if exclusive is True:
        return node["minimum"], True
    return (exclusive, True) if exclusive is not None else (node.get("minimum", OPTIONAL_LEAST.get(name)), False)
