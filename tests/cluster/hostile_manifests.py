"""Hostile and mistyped manifests, each with the component and field that reject it.

One table for three judges: the API server (test_hostile_manifests.py here), the product's own parser (tests/unit) and
an operator at work.  `test_crd_refusals.BAD` has more that the API server refuses.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tests.cluster.trainingjobs import GONE

TRAINER: Final = "spec.trainer"
POD: Final = f"{TRAINER}.template.spec"
META: Final = f"{TRAINER}.template.metadata"
ONE: Final = f"{POD}.containers.0"
FIRST: Final = f"{POD}.containers[0]"
URI: Final = "spec.checkpoint.uri"
DIGITS: Final = "9" * 5_000
GPU: Final = "nvidia.com/gpu"


class Judge(StrEnum):
    """The component that rejects a manifest."""

    API_SERVER = "the API server, at once"
    OPERATOR = "the operator, as InvalidSpec"
    NOBODY = "nobody: it is a job like others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`field`: the path that is named, or a part of it that both spellings share."""

    edits: dict[str, Any]
    judge: Judge
    field: str = ""


def refused(field: str, **edits: Any) -> Case:
    return Case(edits=edits, judge=Judge.API_SERVER, field=field)


def told(field: str, **edits: Any) -> Case:
    return Case(edits=edits, judge=Judge.OPERATOR, field=field)


def taken(**edits: Any) -> Case:
    return Case(edits=edits, judge=Judge.NOBODY)


def _init(**fields: Any) -> dict[str, Any]:
    return {f"{POD}.initContainers": [{"name": "prepare", "image": "busybox", **fields}]}


def _asks(**requests: Any) -> dict[str, Any]:
    return {"resources": {"requests": {name.replace("_", "/"): value for name, value in requests.items()}}}


def _amounts(requests: Any, limits: Any = None) -> dict[str, Any]:
    both = {"requests": requests} | ({} if limits is None else {"limits": limits})
    return {f"{ONE}.resources": both}


_WHOLE: Final = {"cpu": "1", "memory": "1Gi"}
_MASTER: Final = {"name": "master", "image": "edl/operator"}
_AFFINITY: Final = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_SIDE: Final = {"name": "side", "image": "side", "resources": {"requests": _WHOLE}}

URIS: Final = {
    "blank uri": refused(URI, **{URI: "  "}),
    "relative uri": refused(URI, **{URI: "checkpoints/digits"}),
    "dotted uri": refused(URI, **{URI: "./digits"}),
    "uri of a drive": refused(URI, **{URI: "C:\\digits"}),
    "uri of no scheme that is known": refused(URI, **{URI: "zz://bucket/digits"}),
    "uri that nothing can be written to": refused(URI, **{URI: "https://host/digits"}),
    "uri of a chain": refused(URI, **{URI: "simplecache::s3://bucket/digits"}),
    "uri of one machine's memory": refused(URI, **{URI: "memory://digits"}),
    "uri without a bucket": refused(URI, **{URI: "s3://"}),
    "uri of three slashes": refused(URI, **{URI: "s3:///digits"}),
    "uri of another host": refused(URI, **{URI: "file://host/digits"}),
    "uri with one slash": refused(URI, **{URI: "s3:/bucket"}),
    "uri with NUL": refused(URI, **{URI: "file:///digits\0"}),
    "uri with a newline": refused(URI, **{URI: "s3://bucket/a\nEDL_TOKEN=x"}),
    "uri with an escape code": refused(URI, **{URI: "file:///\x1b[2J"}),
    "uri that ends in a blank": refused(URI, **{URI: "s3://bucket/digits "}),
    "uri of 3,000 characters": refused(URI, **{URI: "s3://" + "b" * 3_000}),
    "uri that is a list": refused(URI, **{URI: ["file:///digits"]}),
}
NUMBERS: Final = {
    "every 1e-300 s": refused("spec.checkpoint.everySeconds", **{"spec.checkpoint.everySeconds": 1e-300}),
    "every -1 s": refused("spec.checkpoint.everySeconds", **{"spec.checkpoint.everySeconds": -1}),
    "every 1e300 s": refused("spec.checkpoint.everySeconds", **{"spec.checkpoint.everySeconds": 1e300}),
    "every text": refused("spec.checkpoint.everySeconds", **{"spec.checkpoint.everySeconds": "often"}),
    "a weight of 2^40": refused("spec.weight", **{"spec.weight": 2**40}),
    "a weight in words": refused("spec.weight", **{"spec.weight": "heavy"}),
    "suspended, perhaps": refused("spec.runPolicy.suspend", **{"spec.runPolicy.suspend": "perhaps"}),
    "a policy of text": refused("spec.runPolicy", **{"spec.runPolicy": "never"}),
    "no mode": refused("spec.mode", **{"spec.mode": ""}),
    "trainers that are a list": refused(TRAINER, **{TRAINER: []}),
    "a queue of 300 characters": refused("spec.queueName", **{"spec.queueName": "q" * 300}),
    "a grace in words": refused("GracePeriodSeconds", **{f"{POD}.terminationGracePeriodSeconds": "30"}),
    "no step": refused("resizeCostSeconds", **{f"{TRAINER}.resizeCostSeconds": -0.5}),
}
NAMES: Final = {
    "a container named A_b": refused(f"{FIRST}.name", **{f"{ONE}.name": "A_b"}),
    "a container named a.b": refused(f"{FIRST}.name", **{f"{ONE}.name": "a.b"}),
    "a container of 64 letters": refused(f"{FIRST}.name", **{f"{ONE}.name": "a" * 64}),
    "a container without a name": refused(f"{FIRST}.name", **{f"{ONE}.name": ""}),
    "a container named by a number": refused(f"{FIRST}.name", **{f"{ONE}.name": 5}),
    "two containers of one name": refused(f"{POD}.containers", **{f"{POD}.containers": [_SIDE, _SIDE]}),
    "an init container named like a container": refused(f"{POD}.", **_init(name="main")),
    "two init containers of one name": refused(
        f"{POD}.", **{f"{POD}.initContainers": [{"name": "i", "image": "x"}, {"name": "i", "image": "y"}]}
    ),
    "a master's container named A_b": refused(
        "spec.master.template.spec.containers[0].name",
        **{"spec.master.template": {"spec": {"containers": [{**_MASTER, "name": "A_b"}]}}},
    ),
    "a blank image": refused(f"{FIRST}.image", **{f"{ONE}.image": " "}),
    "an image of two words": refused(f"{FIRST}.image", **{f"{ONE}.image": "edl trainer"}),
    "an image behind http": refused(f"{FIRST}.image", **{f"{ONE}.image": "https://registry/edl"}),
    "an image in capitals": refused(f"{FIRST}.image", **{f"{ONE}.image": "registry/Trainer"}),
    "an image with a newline": refused(f"{FIRST}.image", **{f"{ONE}.image": "edl/trainer\n"}),
    "an image with half a digest": refused(f"{FIRST}.image", **{f"{ONE}.image": "edl/trainer@sha256:12"}),
    "an image of 2,000 letters": refused(f"{FIRST}.image", **{f"{ONE}.image": "a" * 2_000}),
    "a class in capitals": refused("spec.priorityClassName", **{"spec.priorityClassName": "Edl_Core"}),
    "a class of two words": refused("spec.priorityClassName", **{"spec.priorityClassName": "edl core"}),
    "a class with a newline": refused("spec.priorityClassName", **{"spec.priorityClassName": "edl-core\n"}),
    "a label of two words": refused(f"{META}.labels", **{f"{META}.labels": {"a b": "x"}}),
    "a label that begins with -": refused(f"{META}.labels", **{f"{META}.labels": {"-a": "x"}}),
    "a label of 70 letters": refused(f"{META}.labels", **{f"{META}.labels": {"a" * 70: "x"}}),
    "a label with two slashes": refused(f"{META}.labels", **{f"{META}.labels": {"a/b/c": "x"}}),
    "a label's value of two words": refused(f"{META}.labels.a", **{f"{META}.labels": {"a": "b c"}}),
    "a label's value of 64 letters": refused(f"{META}.labels.a", **{f"{META}.labels": {"a": "b" * 64}}),
    "a label's value that is a number": refused(f"{META}.labels.a", **{f"{META}.labels": {"a": 1}}),
    "labels in a list": refused(f"{META}.labels", **{f"{META}.labels": ["a"]}),
    "an annotation of two words": refused(f"{META}.annotations", **{f"{META}.annotations": {"a b": "x"}}),
    "a variable named A=B": refused("env[0].name", **{f"{ONE}.env": [{"name": "A=B", "value": "x"}]}),
    "a variable without a name": refused("env[0].name", **{f"{ONE}.env": [{"name": "", "value": "x"}]}),
    "a variable that is a number": refused("env[0].value", **{f"{ONE}.env": [{"name": "A", "value": 5}]}),
    "a variable with NUL": refused("env[0].value", **{f"{ONE}.env": [{"name": "A", "value": "\0"}]}),
    "an argument with NUL": refused(f"{FIRST}.args", **{f"{ONE}.args": ["a\0b"]}),
    "arguments that are numbers": refused(f"{FIRST}.args[0]", **{f"{ONE}.args": [1]}),
    "a command of text": refused(f"{FIRST}.command", **{f"{ONE}.command": "python train.py"}),
}
RESOURCES: Final = {
    "a gpu by its short name": refused("resources.requests", **_amounts({**_WHOLE, "gpu": 1})),
    "half a gpu": refused("resources", **_amounts(_WHOLE, {GPU: "0.5"})),
    "half a short gpu": refused("resources.requests", **_amounts({**_WHOLE, "gpu": "0.5"})),
    "a gpu without a limit": refused("resources.requests", **_amounts({**_WHOLE, GPU: 1})),
    "a gpu of two, limited": refused("resources.requests", **_amounts({**_WHOLE, GPU: 1}, {GPU: 2})),
    "a resource of two words": refused("resources.requests", **_amounts({**_WHOLE, "a b/c": 1})),
    "no unit of memory": refused("resources.requests.memory", **_amounts({"cpu": 1, "memory": "1Q"})),
    "cpu of 5,000 digits": refused("resources.requests.cpu", **_amounts({"cpu": DIGITS, "memory": "1Gi"})),
    "cpu of 5,000 digits of exponent": refused("resources.requests", **_amounts({**_WHOLE, "cpu": f"1e{DIGITS}"})),
    "cpu of 2^63": refused("resources.requests", **_amounts({**_WHOLE, "cpu": str(2**63)})),
    "cpu that is true": refused("resources.requests.cpu", **_amounts({**_WHOLE, "cpu": True})),
    "cpu that is a list": refused("resources.requests.cpu", **_amounts({**_WHOLE, "cpu": []})),
    "nothing of both": refused(f"{POD}.containers", **_amounts({"cpu": 0, "memory": "0Gi"})),
    "requests in a list": refused("resources.requests", **_amounts(["cpu"])),
    "resources of text": refused(f"{FIRST}.resources", **{f"{ONE}.resources": "all"}),
    "an init container of 5,000 digits": refused("initContainers[0].resources", **_init(**_asks(cpu=DIGITS))),
    "an init container below zero": refused("initContainers[0].resources", **_init(**_asks(cpu="-1"))),
    "an init container with half a gpu": refused("initContainers[0].resources", **_init(**_asks(nvidia_gpu="0.5"))),
    "an init container named A_b": refused("initContainers[0].name", **_init(name="A_b")),
    "ten init containers": refused(f"{POD}.initContainers", **{f"{POD}.initContainers": [{"name": "i"}] * 10}),
    "an overhead of 5,000 digits": refused("overhead", **{f"{POD}.overhead": {"cpu": DIGITS}}),
    "an overhead below zero": refused("overhead", **{f"{POD}.overhead": {"cpu": "-1"}}),
    "an overhead of text": refused("overhead", **{f"{POD}.overhead": "much"}),
    "an overhead of nothing known": refused("overhead", **{f"{POD}.overhead": {"gpu": 1}}),
}
PLACES: Final = {
    "affinity: here": refused(f"{POD}.affinity", **{f"{POD}.affinity": "here"}),
    "nodeSelector: [a]": refused(f"{POD}.nodeSelector", **{f"{POD}.nodeSelector": ["a"]}),
    "nodeSelector: here": refused(f"{POD}.nodeSelector", **{f"{POD}.nodeSelector": "here"}),
    "nodeSelector of two words": refused(f"{POD}.nodeSelector", **{f"{POD}.nodeSelector": {"a b": "c"}}),
    "nodeSelector with a number": refused(f"{POD}.nodeSelector.a", **{f"{POD}.nodeSelector": {"a": 5}}),
    "affinity with terms of text": told("nodeSelectorTerms", **{f"{POD}.{_AFFINITY}.nodeSelectorTerms": "x"}),
    "affinity with values of mappings": told(
        "values[0]",
        **{
            f"{POD}.{_AFFINITY}.nodeSelectorTerms": [
                {"matchExpressions": [{"key": "k", "operator": "In", "values": [{}]}]}
            ]
        },
    ),
    "nodeAffinty": told("affinity.nodeAffinty", **{f"{POD}.affinity": {"nodeAffinty": {}}}),
    "a spread of numbers": told("topologySpreadConstraints[0]", **{f"{POD}.topologySpreadConstraints": [1]}),
    "a toleration of lists": told("tolerations[0].key", **{f"{POD}.tolerations": [{"key": ["x"]}]}),
    "tolerations of text": refused(f"{POD}.tolerations", **{f"{POD}.tolerations": "all"}),
    "a runtime class in a list": told("runtimeClassName", **{f"{POD}.runtimeClassName": ["gvisor"]}),
    "trainers restarted on failure": refused(f"{POD}.restartPolicy", **{f"{POD}.restartPolicy": "OnFailure"}),
    "trainers restarted always": refused(f"{POD}.restartPolicy", **{f"{POD}.restartPolicy": "Always"}),
    "servers restarted always": refused(
        "spec.parameterServer.template.spec.restartPolicy",
        **{"spec.parameterServer.template.spec.restartPolicy": "Always"},
    ),
    "masters never restarted": refused(
        "spec.master.template.spec.restartPolicy",
        **{"spec.master.template": {"spec": {"restartPolicy": "Never", "containers": [_MASTER]}}},
    ),
}
SLIPS: Final = {
    "nodeSelectr": told(f"{POD}.nodeSelectr", **{f"{POD}.nodeSelectr": {"zone": "a"}}),
    "nodeselector": told(f"{POD}.nodeselector", **{f"{POD}.nodeselector": {"zone": "a"}}),
    "toleration": told(f"{POD}.toleration", **{f"{POD}.toleration": []}),
    "securityContxt": told(f"{POD}.securityContxt", **{f"{POD}.securityContxt": {}}),
    "servicAccountName": told(f"{POD}.servicAccountName", **{f"{POD}.servicAccountName": "x"}),
    "terminationGracePeriodSecond": told("PeriodSecond", **{f"{POD}.terminationGracePeriodSecond": 5}),
    "volumeMount": told(f"{FIRST}.volumeMount", **{f"{ONE}.volumeMount": []}),
    "livenesProbe": told(f"{FIRST}.livenesProbe", **{f"{ONE}.livenesProbe": {}}),
    "imagePullPolcy": told(f"{FIRST}.imagePullPolcy", **{f"{ONE}.imagePullPolcy": "Always"}),
    "image pulled allways": told(f"{FIRST}.imagePullPolicy", **{f"{ONE}.imagePullPolicy": "Allways"}),
    "resource": told(f"{FIRST}.resource", **{f"{ONE}.resource": {}}),
    "runAsUsr": told("securityContext.runAsUsr", **{f"{POD}.securityContext": {"runAsUsr": 0}}),
    "a probe's prt": told(
        "livenessProbe.httpGet.prt", **{f"{ONE}.livenessProbe": {"httpGet": {"port": 80, "prt": 80}}}
    ),
    "emptyDirr": told("volumes[0].emptyDirr", **{f"{POD}.volumes": [{"name": "v", "emptyDirr": {}}]}),
    "effekt": told("tolerations[0].effekt", **{f"{POD}.tolerations": [{"key": "k", "effekt": "NoSchedule"}]}),
}
TYPES: Final = {
    "a port in a list": refused("ports[0].containerPort", **{f"{ONE}.ports": [{"containerPort": [1]}]}),
    "a master's port in a list": refused(
        "ports[0].containerPort",
        **{"spec.master.template": {"spec": {"containers": [{**_MASTER, "ports": [{"containerPort": [1]}]}]}}},
    ),
    "port 99999": refused("ports[0].containerPort", **{f"{ONE}.ports": [{"containerPort": 99_999}]}),
    "port 0": refused("ports[0].containerPort", **{f"{ONE}.ports": [{"containerPort": 0}]}),
    "port of text": refused("ports[0].containerPort", **{f"{ONE}.ports": [{"containerPort": "80"}]}),
    "host port 99999": told("ports[0].hostPort", **{f"{ONE}.ports": [{"containerPort": 80, "hostPort": 99_999}]}),
    "protocol upd": told("ports[0].protocol", **{f"{ONE}.ports": [{"containerPort": 80, "protocol": ["UDP"]}]}),
    "a mount without its volume": told(
        "volumeMounts[0].name", **{f"{ONE}.volumeMounts": [{"name": "gone", "mountPath": "/x"}]}
    ),
    "a mount without a path": told(
        "volumeMounts[0].mountPath",
        **{f"{POD}.volumes": [{"name": "v", "emptyDir": {}}], f"{ONE}.volumeMounts": [{"name": "v"}]},
    ),
    "two volumes of one name": told(
        "volumes[1].name", **{f"{POD}.volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}
    ),
    "a volume named V_1": told("volumes[0].name", **{f"{POD}.volumes": [{"name": "V_1", "emptyDir": {}}]}),
    "a volume named by a list": told("volumes[0].name", **{f"{POD}.volumes": [{"name": [1]}]}),
    "volumes of text": refused(f"{POD}.volumes", **{f"{POD}.volumes": "all"}),
    "variables of text": refused(f"{FIRST}.env", **{f"{ONE}.env": "A=B"}),
    "a variable that is EDL's": told(
        f"{FIRST}.env[0].name", **{f"{ONE}.env": [{"name": "EDL_SHARES", "value": "Measured"}]}
    ),
    "variables from text": told(f"{FIRST}.envFrom", **{f"{ONE}.envFrom": "secret"}),
    "a user by name": told("securityContext.runAsUser", **{f"{POD}.securityContext": {"runAsUser": "root"}}),
    "a user in a list": told("securityContext.runAsUser", **{f"{POD}.securityContext": {"runAsUser": [0]}}),
    "security of text": refused(f"{POD}.securityContext", **{f"{POD}.securityContext": "none"}),
    "capabilities that are a number": told(
        "capabilities.add", **{f"{ONE}.securityContext": {"capabilities": {"add": 5}}}
    ),
    "the host's network, perhaps": told(f"{POD}.hostNetwork", **{f"{POD}.hostNetwork": "yes"}),
    "an account that is a number": told(f"{POD}.serviceAccountName", **{f"{POD}.serviceAccountName": 5}),
    "claims of text": told(f"{POD}.resourceClaims", **{f"{POD}.resourceClaims": "x"}),
    "links, perhaps": told(f"{POD}.enableServiceLinks", **{f"{POD}.enableServiceLinks": "true"}),
    "a probe in a list": told(f"{FIRST}.livenessProbe", **{f"{ONE}.livenessProbe": []}),
    "a life of text": told(f"{FIRST}.lifecycle", **{f"{ONE}.lifecycle": "long"}),
    "gates of readiness that are text": told(f"{POD}.readinessGates", **{f"{POD}.readinessGates": "x"}),
    "an init container restarted by a list": told(
        f"{POD}.initContainers[0].restartPolicy", **_init(restartPolicy=["A"])
    ),
    "pull secrets that are numbers": told(f"{POD}.imagePullSecrets[0]", **{f"{POD}.imagePullSecrets": [{"name": 1}]}),
    "a subdomain that is a number": told(f"{POD}.subdomain", **{f"{POD}.subdomain": 5}),
}
HARMLESS: Final = {
    "the plainest": taken(),
    "a folder with blanks and letters of all alphabets": taken(**{URI: "file:///é b/数字"}),
    "a folder of this host": taken(**{URI: "file://localhost/digits"}),
    "a plain path": taken(**{URI: "/checkpoints/digits"}),
    "a bucket": taken(**{URI: "s3://bucket"}),
    "an image by digest": taken(**{f"{ONE}.image": f"host:5000/edl/trainer@sha256:{'0' * 64}"}),
    "an image of a tag": taken(**{f"{ONE}.image": "registry.example/edl/trainer__x:V1.2_3"}),
    "gpus among the limits": taken(**_amounts(_WHOLE, {GPU: "0"})),
    "no cpu, but memory": taken(**_amounts({"cpu": 0, "memory": "1Gi"})),
    "cpu in nanos": taken(**_amounts({"cpu": "1000000000n", "memory": "1.5Gi"})),
    "cpu in powers of ten": taken(**_amounts({"cpu": "1e0", "memory": "1e9"})),
    "two containers": taken(**{f"{POD}.containers": [{**_SIDE, "name": "main"}, _SIDE]}),
    "an init container that stays": taken(**_init(restartPolicy="Always")),
    "never restarted": taken(**{f"{POD}.restartPolicy": "Never"}),
    "labels of others": taken(**{f"{META}.labels": {"example.com/team": "a_b.c", "x": ""}}),
    "a selector": taken(**{f"{POD}.nodeSelector": {}}),
    "fields that are null": taken(**{f"{POD}.affinity": None, f"{ONE}.env": None, f"{POD}.tolerations": None}),
    "64 variables": taken(**{f"{ONE}.env": [{"name": f"V_{n}", "value": "x" * 100} for n in range(64)]}),
    "a field of a later Kubernetes": taken(**{f"{POD}.quantumEntanglement": {"a": [1]}}),
    "a class that nobody has": taken(**{"spec.priorityClassName": "nobody-has-it"}),
    "nodes that nobody has": taken(**{f"{POD}.nodeSelector": {"zone": "nowhere"}}),
    "a pod as large as can be counted": taken(**_amounts({"cpu": "9223372036854775807m", "memory": "1Gi"})),
    "no trainer template's image but a server's": taken(
        **{"spec.parameterServer.template.spec.containers.0.image": GONE}
    ),
}
CASES: Final[dict[str, Case]] = {
    **URIS,
    **NUMBERS,
    **NAMES,
    **RESOURCES,
    **PLACES,
    **SLIPS,
    **TYPES,
    **HARMLESS,
}


def by_judge(judge: Judge) -> list[str]:
    """Names of the cases."""
    return [name for name, case in CASES.items() if case.judge is judge]
