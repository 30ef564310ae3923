"""The chart as real helm renders it, for the sets of values that people use."""

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.toolbox import find_tools

CHART: Final = Path(__file__).resolve().parents[2] / "charts" / "edl"
IMAGES: Final = Path(__file__).resolve().parents[1] / "cluster" / "images.yaml"
BUDGET_S: Final = 180.0

VALUE_SETS: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "namespaced": {"namespaces": ["research", "vision"]},
    "planner": {
        "policy": {
            "reclaim": "planner",
            "headroom": [{"cpu": "2", "memory": "4Gi", "count": 3}],
            "surplusGraceSeconds": 5,
        }
    },
    "own-etcd": {"etcd": {"enabled": True, "existingSecret": "etcd-identity"}},
    "external-etcd": {
        "etcd": {
            "external": {
                "endpoints": ["https://etcd-0.example:2379", "https://etcd-1.example:12379"],
                "secretName": "etcd-client",
                "clientCertificate": True,
                "admin": True,
            }
        }
    },
    "monitored": {
        "metrics": {
            "annotations": False,
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True},
            "dashboards": {"enabled": True},
        }
    },
    "notified": {
        "notices": {
            "existingSecret": "chat",
            "format": "slack",
            "page": "https://edl.example",
            "mail": {
                "server": "mail.example:2525",
                "from": "edl@example.org",
                "to": ["ml@example.org", "ops@example.org"],
                "user": "edl",
                "existingSecret": "mail",
                "caKey": "ca.crt",
            },
        }
    },
    "placed": {
        "image": {"repository": "registry.example/edl", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Never"},
        "imagePullSecrets": ["registry"],
        "operator": {
            "replicas": 1,
            "logLevel": "DEBUG",
            "moveServers": True,
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "podLabels": {"team": "ml"},
            "podAnnotations": {"note": "1"},
            "extraEnv": [{"name": "TZ", "value": "UTC"}],
        },
        "serviceAccount": {"annotations": {"iam": "edl"}},
    },
    "agent": {
        "agent": {
            "enabled": True,
            "idleWatts": {"NVIDIA L4": 36},
            "dcgmUrl": "http://$(EDL_NODE_ADDRESS):9400/metrics",
            "runtimeClassName": "nvidia",
        },
        "metrics": {"podMonitor": {"enabled": True}},
        "policy": {"idleReclaim": "act"},
    },
    "page": {
        "metrics": {"podMonitor": {"enabled": True}},
        "page": {
            "enabled": True,
            "replicas": 2,
            "hosts": ["page.example"],
            "whatIf": True,
            "prometheus": {"url": "http://prometheus.monitoring:9090", "labels": {"cluster": "prod"}},
            "audiences": ["edl-page"],
            "tls": {"secretName": "page-tls"},
            "ingress": {"enabled": True, "className": "nginx", "host": "edl.example", "tlsSecretName": "edl-tls"},
        },
        "networkPolicy": {"pageFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]},
    },
    "page-namespaced": {"namespaces": ["research", "vision"], "page": {"enabled": True}},
    "bare": {
        "crd": {"install": False},
        "rbac": {"create": False, "aggregate": False, "plannerView": False},
        "serviceAccount": {"create": False, "name": "theirs"},
        "priorityClasses": {"create": False},
        "networkPolicy": {"enabled": False},
        "metrics": {"annotations": False},
    },
}
"""Certificates are drawn anew at each rendering, so etcd gets a Secret that is there already."""


class RefusedValuesError(Exception):
    """helm's own words."""


@functools.cache
def helm() -> Path:
    return find_tools(os.environ)["helm"]


def render(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects, but for the definition of TrainingJob, which is a file of its own.  Raises RefusedValuesError."""
    text = render_text(values)
    found = [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]
    return [document for document in found if document["kind"] != "CustomResourceDefinition"]


def render_text(values: dict[str, Any], *more: str) -> str:
    """What `helm template` prints, with the tests' images unless `values` names others.  Raises RefusedValuesError."""
    command = [str(helm()), "template", "edl", str(CHART), "--namespace", "edl-system"]
    command += ["--values", str(IMAGES), "--values", "-", *more]
    done = subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, check=False, timeout=BUDGET_S
    )
    if done.returncode != 0:
        raise RefusedValuesError(done.stderr)
    return done.stdout


@functools.cache
def render_set(name: str) -> tuple[dict[str, Any], ...]:
    return tuple(render(VALUE_SETS[name]))


def pod_templates(objects):
    """(name, pod spec) of everything that makes pods, and of pods."""
    for thing in objects:
        spec = thing.get("spec", {})
        if thing["kind"] == "Pod":
            yield thing["metadata"]["name"], spec
        elif "template" in spec and "spec" in spec["template"]:
            yield thing["metadata"]["name"], spec["template"]["spec"]
