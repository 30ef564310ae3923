"""Every manifest is valid for each version of Kubernetes that the chart supports: fields exist, and have their type.

The schemas are those of Kubernetes' own Go client (`tools/kubernetes_schemas.py`).  Kinds of other projects
(ServiceMonitor, PodMonitor, PrometheusRule) have none there.  The API server of the test cluster judges the whole chart
besides.
"""

import json
from pathlib import Path

import pytest
import yaml

from tests.chart.rendering import CHART, VALUE_SETS, render_set

SCHEMAS = {path.stem: json.loads(path.read_text()) for path in sorted(Path(__file__).with_name("schemas").iterdir())}
NOT_KUBERNETES = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "TrainingJob"}
SCALARS = {"string": str, "numeric": (int, float), "boolean": bool}
EXAMPLES = Path("examples/kubernetes")


def find_wrong(value, type_, schema, path):
    """Paths of fields that do not exist or have another type."""
    if isinstance(type_, str) and type_ in schema:
        type_ = schema[type_]
    match type_:
        case {"fields": fields}:
            if not isinstance(value, dict):
                return [f"{path} is no object"]
            unknown = [f"{path}.{name} is unknown" for name in value if name not in fields]
            known = (find_wrong(value[n], fields[n], schema, f"{path}.{n}") for n in value if n in fields)
            return [*unknown, *(wrong for found in known for wrong in found)]
        case {"list": inner}:
            if not isinstance(value, list):
                return [f"{path} is no list"]
            return [w for i, item in enumerate(value) for w in find_wrong(item, inner, schema, f"{path}[{i}]")]
        case {"map": inner}:
            if not isinstance(value, dict):
                return [f"{path} is no map"]
            return [w for key, item in value.items() for w in find_wrong(item, inner, schema, f"{path}.{key}")]
        case str() if type_ in SCALARS:
            is_right = isinstance(value, SCALARS[type_]) and (type_ == "boolean") == isinstance(value, bool)
            return [] if is_right else [f"{path} is {value!r}, wanted {type_}"]
        case _:
            return []


def judge(thing, schema):
    group, _, version = thing["apiVersion"].rpartition("/")
    name = f"io.k8s.api.{group.split('.')[0] or 'core'}.{version}.{thing['kind']}"
    assert name in schema, f"{name}: add it to tools/kubernetes_schemas.py"
    return find_wrong(thing, name, schema, thing["kind"])


@pytest.mark.parametrize("version", SCHEMAS)
@pytest.mark.parametrize("name", VALUE_SETS)
def test_a_rendered_object_is_valid(version, name):
    judged = [thing for thing in render_set(name) if thing["kind"] not in NOT_KUBERNETES]
    assert [wrong for thing in judged for wrong in judge(thing, SCHEMAS[version])] == []


@pytest.mark.parametrize("version", SCHEMAS)
def test_an_example_is_valid(version):
    files = sorted(EXAMPLES.glob("*.yaml"))
    things = [thing for file in files for thing in yaml.safe_load_all(file.read_text())]
    judged = [thing for thing in things if thing["kind"] not in NOT_KUBERNETES]
    assert {thing["kind"] for thing in judged} >= {"Deployment", "HorizontalPodAutoscaler"}
    assert [wrong for thing in judged for wrong in judge(thing, SCHEMAS[version])] == []


def test_a_slip_would_be_seen():
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"container": [], "containers": [{"name": 1}], "hostNetwork": "no"},
    }
    found = judge(pod, SCHEMAS["1.30"])
    assert sorted(wrong.split()[0] for wrong in found) == [
        "Pod.spec.container",
        "Pod.spec.containers[0].name",
        "Pod.spec.hostNetwork",
    ]


def test_the_oldest_version_is_the_one_that_the_chart_asks_for():
    wanted = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"]
    assert wanted == f">={min(SCHEMAS)}.0-0"
