"""Fetches what Kubernetes' own Go client knows of the objects in EDL's chart: `python tools/kubernetes_schemas.py`.

For each version below, tests/chart/schemas holds the fields of these kinds and their types, taken from the typed schema
inside k8s.io/client-go.  The files are committed, so that tests need neither Go nor a network; run this when a kind or
a version is added.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

VERSIONS: Final = {"1.30": "v0.30.14", "1.32": "v0.32.10", "1.34": "v0.34.2", "1.36": "v0.36.3"}
KINDS: Final = (
    "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy",
    "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding",
    "io.k8s.api.apps.v1.DaemonSet",
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.apps.v1.StatefulSet",
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.PersistentVolumeClaim",
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.core.v1.Service",
    "io.k8s.api.core.v1.ServiceAccount",
    "io.k8s.api.networking.v1.Ingress",
    "io.k8s.api.networking.v1.NetworkPolicy",
    "io.k8s.api.policy.v1.PodDisruptionBudget",
    "io.k8s.api.rbac.v1.ClusterRole",
    "io.k8s.api.rbac.v1.ClusterRoleBinding",
    "io.k8s.api.rbac.v1.Role",
    "io.k8s.api.rbac.v1.RoleBinding",
    "io.k8s.api.scheduling.v1.PriorityClass",
)
SOURCE: Final = "applyconfigurations/internal/internal.go"
INTO: Final = Path(__file__).resolve().parent.parent / "tests" / "chart" / "schemas"
FETCH_BUDGET_S: Final = 300.0

Type = str | dict[str, Any]
"""A scalar's kind, a named type, or {"list": Type}, {"map": Type}, {"fields": {name: Type}}."""


def main() -> None:
    INTO.mkdir(exist_ok=True)
    for version, module in VERSIONS.items():
        types = _read_types(_fetch(module) / SOURCE)
        known = {name: types[name] for name in sorted(_needed(types))}
        path = INTO / f"{version}.json"
        lines = (f"{json.dumps(name)}: {json.dumps(known[name], sort_keys=True)}" for name in known)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        print(f"wrote {path}: {len(known)} types")


def _fetch(module: str) -> Path:
    command = ["go", "mod", "download", "-json", f"k8s.io/client-go@{module}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=FETCH_BUDGET_S)
    return Path(json.loads(answer.stdout)["Dir"])


def _read_types(source: Path) -> dict[str, Type]:
    found = re.search(r"typed\.YAMLObject\(`(.*?)`\)", source.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, f"{source} holds no schema"
    return {entry["name"]: _type_of(entry) for entry in yaml.safe_load(found[1])["types"]}


def _type_of(entry: dict[str, Any]) -> Type:
    if "namedType" in entry:
        return str(entry["namedType"])
    if "list" in entry:
        return {"list": _type_of(entry["list"]["elementType"])}
    if "map" in entry and "fields" in entry["map"]:
        return {"fields": {field["name"]: _type_of(field["type"]) for field in entry["map"]["fields"]}}
    if "map" in entry and "scalar" not in entry:
        return {"map": _type_of(entry["map"]["elementType"])}
    return str(entry["scalar"])


def _needed(types: dict[str, Type]) -> set[str]:
    """The kinds and every type that they name."""
    needed: set[str] = set()
    waiting = list(KINDS)
    while waiting:
        name = waiting.pop()
        if name in types and name not in needed:
            needed.add(name)
            waiting += _named_in(types[name])
    return needed


def _named_in(type_: Type) -> list[str]:
    match type_:
        case str():
            return [type_]
        case {"fields": fields}:
            return [name for field in fields.values() for name in _named_in(field)]
        case _:
            return [name for inner in type_.values() for name in _named_in(inner)]


if __name__ == "__main__":
    main()
