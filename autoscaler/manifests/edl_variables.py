"""Environment variables that EDL sets in its containers; a template that sets one itself would have no effect.

EDL's value wins, so a job with `EDL_SHARES` in `env` would train with what its spec says, and tell nobody.  A template
is therefore refused for each of these names, with the field of the spec that sets it where there is one: such a name in
every role, the others in the roles that get them.  What EDL leaves alone stays the owner's: EDL_BUCKETS of a master,
EDL_GLOBAL_BATCH where the spec has none.  docs/environment.md has the meaning of each variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from autoscaler.manifests.pod_fields import PodFinding

SET_BY_EDL: Final[Mapping[str, str]] = {
    "EDL_ADVERTISE": "",
    "EDL_AFTER_LOSS": "spec.parameterServer.afterLoss",
    "EDL_BACKOFF_LIMIT": "spec.runPolicy.backoffLimit",
    "EDL_CHECKPOINT_EVERY_S": "spec.checkpoint.everySeconds",
    "EDL_CHECKPOINT_START": "spec.checkpoint.start",
    "EDL_CHECKPOINT_URI": "spec.checkpoint.uri",
    "EDL_COPIES": "spec.parameterServer.copies",
    "EDL_ENV_VERSION": "",
    "EDL_ETCD_CA_FILE": "",
    "EDL_ETCD_CERT_FILE": "",
    "EDL_ETCD_ENDPOINTS": "",
    "EDL_ETCD_KEY_FILE": "",
    "EDL_ETCD_PASSWORD_FILE": "",
    "EDL_ETCD_USER": "",
    "EDL_GLOBAL_BATCH": "spec.group.globalBatch",
    "EDL_GRACE_S": "terminationGracePeriodSeconds of the template",
    "EDL_GROUP": "spec.group",
    "EDL_HISTORY": "",
    "EDL_JOB": "",
    "EDL_LISTEN": "",
    "EDL_MASTER": "",
    "EDL_MASTERS": "spec.master.replicas",
    "EDL_MAX_SERVERS": "spec.parameterServer.maxReplicas",
    "EDL_METRICS_LISTEN": "",
    "EDL_NAME": "",
    "EDL_ORDINAL": "",
    "EDL_ROLE": "",
    "EDL_SERVERS": "spec.parameterServer.minReplicas",
    "EDL_SHARES": "spec.group.shares",
    "EDL_TIER": "",
    "EDL_TLS_DIR": "",
    "EDL_TOKEN_FILE": "",
    "EDL_WHEN_UNREADABLE": "spec.checkpoint.whenUnreadable",
}
"""Field of the spec by variable; empty: none sets it, for EDL alone knows the value."""

_MEMBERS: Final = frozenset({"trainer", "parameterServer"})
_MASTER: Final = frozenset({"master"})
_ROLES: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("EDL_ADVERTISE", "EDL_GRACE_S", "EDL_ORDINAL", "EDL_TIER"), _MEMBERS),
    **dict.fromkeys((name for name in SET_BY_EDL if name.startswith("EDL_ETCD_")), _MASTER),
    **dict.fromkeys(("EDL_HISTORY", "EDL_METRICS_LISTEN"), _MASTER),
}
"""Roles that get a variable; all of them, if it is not here."""

_OF_PEERS: Final = frozenset({"EDL_ADVERTISE", "EDL_LISTEN"})  # a trainer gets them in a group alone
_CONTAINERS: Final = {"trainer": "trainer", "parameterServer": "server", "master": "master"}
"""Name of EDL's container by role; where none has it, the first one is EDL's."""


def check_variables(spec: Mapping[str, Any], role: str, job: Mapping[str, Any]) -> Iterator[PodFinding]:
    """Variables of EDL's own container that EDL sets; sidecars may have any.

    `role`: its field in a TrainingJob, `job`: that job's spec.  Paths begin in the pod's spec.  Never raises.
    """
    containers = spec.get("containers")
    listed = [one for one in enumerate(containers if isinstance(containers, list) else []) if _is_mapping(one[1])]
    named = [one for one in listed if one[1].get("name") == _CONTAINERS[role]]
    for place, container in (named or listed)[:1]:
        variables = container.get("env")
        for index, variable in enumerate(variables if isinstance(variables, list) else []):
            name = variable.get("name") if _is_mapping(variable) else None
            if isinstance(name, str) and is_set_by_edl(name, role, job):
                field = SET_BY_EDL[name]
                hint = f"set {field} instead" if field else "leave it out: EDL gives each of its containers its own"
                path = ("containers", place, "env", index, "name")
                yield PodFinding(path=path, problem=f"{name} is set by EDL", hint=hint)


def is_set_by_edl(name: str, role: str, job: Mapping[str, Any]) -> bool:
    """True if the variable is EDL's in a template of this role of this job: EDL's value, or none, is what counts."""
    group = job.get("group")
    if name == "EDL_GLOBAL_BATCH":
        return isinstance(group, Mapping) and group.get("globalBatch") is not None
    if name in _OF_PEERS and role == "trainer":
        return group is not None
    roles = {role}
    if role == "trainer" and not _has_template(job.get("master")):
        roles.add("master")  # which takes over the trainers' variables
    return name in SET_BY_EDL and not roles.isdisjoint(_ROLES.get(name, roles))


def _has_template(master: Any) -> bool:
    return isinstance(master, Mapping) and bool(master.get("template"))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)
