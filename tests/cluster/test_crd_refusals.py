"""What the API server refuses by itself: each bad input with the field's path and what to do about it."""

import json
import secrets
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.cluster.accounts import open_client
from tests.cluster.trainingjobs import DEFINITION, GONE, GROUP, make_job
from tests.harness.waiting import wait_for

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "kubernetes"
TRAINER = "spec.trainer"
POD = "spec.trainer.template.spec"
CONTAINER = f"{POD}.containers.0"
REQUESTS = f"{CONTAINER}.resources.requests"
TWO_CONTAINERS = [
    {"name": name, "image": "edl/trainer", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    for name in ("main", "side")
]

BAD = {
    "min > max": ({f"{TRAINER}.minReplicas": 9}, f"{TRAINER}.minReplicas", "larger than maxReplicas"),
    "zero": ({f"{TRAINER}.minReplicas": 0}, f"{TRAINER}.minReplicas", "greater than or equal to 1"),
    "negative": ({f"{TRAINER}.maxReplicas": -1}, f"{TRAINER}.maxReplicas", "greater than or equal to 1"),
    "float": ({f"{TRAINER}.maxReplicas": 2.5}, f"{TRAINER}.maxReplicas", "must be of type int32"),
    "2^31": ({f"{TRAINER}.maxReplicas": 2**31}, f"{TRAINER}.maxReplicas", "less than or equal to 10000"),
    "text for a number": ({f"{TRAINER}.minReplicas": "2"}, f"{TRAINER}.minReplicas", "must be of type integer"),
    "no minReplicas": ({f"{TRAINER}.minReplicas": GONE}, f"{TRAINER}.minReplicas", "Required value"),
    "step 0": ({f"{TRAINER}.step": 0}, f"{TRAINER}.step", "greater than or equal to 1"),
    "step and powersOfTwo": ({f"{TRAINER}.step": 2, f"{TRAINER}.powersOfTwo": True}, f"{TRAINER}.step", "remove one"),
    "no power of two": (
        {f"{TRAINER}.minReplicas": 3, f"{TRAINER}.powersOfTwo": True},
        f"{TRAINER}.minReplicas",
        "is not a power of two",
    ),
    "min off perNode": ({f"{TRAINER}.perNode": 4}, f"{TRAINER}.minReplicas", "is not a multiple of perNode"),
    "step off perNode": (
        {f"{TRAINER}.perNode": 2, f"{TRAINER}.step": 3},
        f"{TRAINER}.step",
        "is not a multiple of perNode",
    ),
    "pinned below": ({f"{TRAINER}.replicas": 1}, f"{TRAINER}.replicas", "0 lets EDL decide"),
    "pinned above": ({f"{TRAINER}.replicas": 9}, f"{TRAINER}.replicas", "0 lets EDL decide"),
    "pinned off the step": (
        {f"{TRAINER}.replicas": 5, f"{TRAINER}.step": 2},
        f"{TRAINER}.replicas",
        "is not an allowed size",
    ),
    "pinned off perNode": (
        {f"{TRAINER}.replicas": 5, f"{TRAINER}.perNode": 2},
        f"{TRAINER}.replicas",
        "is not an allowed size",
    ),
    "pinned, no power": (
        {f"{TRAINER}.replicas": 6, f"{TRAINER}.powersOfTwo": True},
        f"{TRAINER}.replicas",
        "is not an allowed size",
    ),
    "sizes in no order": ({f"{TRAINER}.sizes": [2, 5, 4, 8]}, f"{TRAINER}.sizes", "ascending order"),
    "a size twice": ({f"{TRAINER}.sizes": [2, 4, 4, 8]}, f"{TRAINER}.sizes", "each once"),
    "sizes from above min": ({f"{TRAINER}.sizes": [4, 8]}, f"{TRAINER}.sizes", "begin with minReplicas"),
    "sizes to below max": ({f"{TRAINER}.sizes": [2, 4]}, f"{TRAINER}.sizes", "end with maxReplicas"),
    "sizes off perNode": (
        {f"{TRAINER}.sizes": [2, 5, 8], f"{TRAINER}.perNode": 2},
        f"{TRAINER}.sizes",
        "are not multiples of perNode",
    ),
    "sizes and step": ({f"{TRAINER}.sizes": [2, 8], f"{TRAINER}.step": 2}, f"{TRAINER}.step", "remove one"),
    "sizes and powersOfTwo": (
        {f"{TRAINER}.sizes": [2, 8], f"{TRAINER}.powersOfTwo": True},
        f"{TRAINER}.sizes",
        "remove one",
    ),
    "pinned off the sizes": (
        {f"{TRAINER}.sizes": [2, 4, 8], f"{TRAINER}.replicas": 6},
        f"{TRAINER}.replicas",
        "is not an allowed size",
    ),
    "no sizes": ({f"{TRAINER}.sizes": []}, f"{TRAINER}.sizes", "at least 1 items"),
    "65 sizes": ({f"{TRAINER}.sizes": [*range(1, 66)]}, f"{TRAINER}.sizes", "at most 64 items"),
    "group and servers": ({"spec.group": {}}, "spec.group", "remove one of the two"),
    "global batch 0": (
        {"spec.parameterServer": GONE, "spec.group": {"globalBatch": 0}},
        "spec.group.globalBatch",
        "equal to 1",
    ),
    "global batch 2^31": (
        {"spec.parameterServer": GONE, "spec.group": {"globalBatch": 2**31}},
        "spec.group.globalBatch",
        "equal to 2147483647",
    ),
    "shares of another kind": (
        {"spec.parameterServer": GONE, "spec.group": {"shares": "Fair"}},
        "spec.group.shares",
        "Measured",
    ),
    "measured shares of one trainer": (
        {
            "spec.parameterServer": GONE,
            "spec.group": {"shares": "Measured"},
            f"{TRAINER}.minReplicas": 1,
            f"{TRAINER}.maxReplicas": 1,
        },
        "spec.group.shares",
        "at most one trainer",
    ),
    "servers min > max": (
        {"spec.parameterServer.minReplicas": 5},
        "spec.parameterServer.minReplicas",
        "larger than maxReplicas",
    ),
    "servers pinned": (
        {"spec.parameterServer.maxReplicas": GONE, "spec.parameterServer.replicas": 2},
        "spec.parameterServer.replicas",
        "0 lets EDL decide",
    ),
    "servers zero": ({"spec.parameterServer.minReplicas": 0}, "spec.parameterServer.minReplicas", "equal to 1"),
    "servers 2^31": ({"spec.parameterServer.maxReplicas": 2**31}, "spec.parameterServer.maxReplicas", "equal to 10000"),
    "servers pinned below": (
        {"spec.parameterServer.minReplicas": 2, "spec.parameterServer.replicas": 1},
        "spec.parameterServer.replicas",
        "0 lets EDL decide",
    ),
    "ratio 0": ({"spec.parameterServer.trainersPerServer": 0}, "spec.parameterServer.trainersPerServer", "equal to 1"),
    "ratio -1": (
        {"spec.parameterServer.trainersPerServer": -1},
        "spec.parameterServer.trainersPerServer",
        "equal to 1",
    ),
    "ratio in words": (
        {"spec.parameterServer.trainersPerServer": "automatic"},
        "spec.parameterServer.trainersPerServer",
        "auto",
    ),
    "ratio 1.5": ({"spec.parameterServer.trainersPerServer": 1.5}, "spec.parameterServer.trainersPerServer", "integer"),
    "no copy": ({"spec.parameterServer.copies": 0}, "spec.parameterServer.copies", "equal to 1"),
    "three copies": ({"spec.parameterServer.copies": 3}, "spec.parameterServer.copies", "equal to 2"),
    "two copies on one server": (
        {"spec.parameterServer.maxReplicas": GONE, "spec.parameterServer.copies": 2},
        "spec.parameterServer.copies",
        "raise maxReplicas",
    ),
    "copies, and no servers": ({"spec.parameterServer": {"copies": 2}}, "spec.parameterServer.template", "Required"),
    "a count of servers, and no servers": (
        {"spec.parameterServer": {"replicas": 3}},
        "spec.parameterServer.template",
        "Required value",
    ),
    "too many masters": ({"spec.master.replicas": 4}, "spec.master.replicas", "less than or equal to 3"),
    "weight 0": ({"spec.weight": 0}, "spec.weight", "greater than or equal to 1"),
    "unknown mode": ({"spec.mode": "watch"}, "spec.mode", "supported values"),
    "no cpu": ({f"{REQUESTS}.cpu": GONE}, f"{POD}.containers", "requests.cpu is missing"),
    "no memory": ({f"{REQUESTS}.memory": GONE}, f"{POD}.containers", "requests.memory is missing"),
    "no requests": ({f"{CONTAINER}.resources": GONE}, f"{POD}.containers", "requests.cpu is missing"),
    "no requests of a server": (
        {"spec.parameterServer.template.spec.containers.0.resources": GONE},
        "spec.parameterServer.template.spec.containers",
        "requests.cpu is missing",
    ),
    "a second container without requests": (
        {f"{POD}.containers": [TWO_CONTAINERS[0], {"name": "side", "image": "side"}]},
        f"{POD}.containers",
        "requests.cpu is missing",
    ),
    "bad quantity": ({f"{REQUESTS}.cpu": "many"}, f"{POD}.containers[0].resources.requests.cpu", "should match"),
    "negative quantity": ({f"{REQUESTS}.cpu": "-1"}, f"{POD}.containers[0].resources.requests.cpu", "should match"),
    "negative number": (
        {f"{REQUESTS}.cpu": -1},
        f"{POD}.containers[0].resources.requests.cpu",
        "greater than or equal",
    ),
    "request > limit": (
        {f"{CONTAINER}.resources.limits": {"cpu": "500m"}},
        f"{POD}.containers[0].resources.requests",
        "more than the limit",
    ),
    "no image": ({f"{CONTAINER}.image": GONE}, f"{POD}.containers", "set the image that contains the training script"),
    "no containers": ({f"{POD}.containers": []}, f"{POD}.containers", "at least 1 items"),
    "no template": ({f"{TRAINER}.template": GONE}, f"{TRAINER}.template", "Required value"),
    "a class of one's own": (
        {f"{POD}.priorityClassName": "edl-core"},
        f"{POD}.priorityClassName",
        "set spec.priorityClassName of the job instead",
    ),
    "a priority": ({f"{POD}.priority": 7}, f"{POD}.priorityClassName", "set spec.priorityClassName of the job instead"),
    "a node": ({f"{POD}.nodeName": "node-1"}, f"{POD}.nodeName", "use nodeSelector or affinity instead"),
    "no grace": (
        {f"{POD}.terminationGracePeriodSeconds": 0},
        f"{POD}.terminationGracePeriodSeconds",
        "greater than or equal to 1",
    ),
    "gates": ({f"{POD}.schedulingGates": [{"name": "x"}]}, f"{POD}.schedulingGates", "runPolicy.suspend"),
    "endless grace": (
        {f"{POD}.terminationGracePeriodSeconds": 100_000},
        f"{POD}.terminationGracePeriodSeconds",
        "less than or equal to 3600",
    ),
    "no checkpoint": ({"spec.checkpoint": GONE}, "spec.checkpoint", "Required value"),
    "start from a path": ({"spec.checkpoint.start": "../1"}, "spec.checkpoint.start", "should match"),
    "another way with damage": (
        {"spec.checkpoint.whenUnreadable": "Ignore"},
        "spec.checkpoint.whenUnreadable",
        "Unsupported value",
    ),
    "no folder": ({"spec.checkpoint.uri": ""}, "spec.checkpoint.uri", "at least 1 chars"),
    "every 0 s": ({"spec.checkpoint.everySeconds": 0}, "spec.checkpoint.everySeconds", "equal to 0.1"),
    "51 characters": ({"metadata.name": "a" * 51}, "metadata.name", "may not be more than 50"),
    "300 characters": ({"metadata.name": "a" * 300}, "metadata.name", "253"),
    "a digit first": ({"metadata.name": "1digits"}, "metadata.name", "should match"),
    "a dot": ({"metadata.name": "dig.its"}, "metadata.name", "should match"),
    "capitals": ({"metadata.name": "Digits"}, "metadata.name", "should match"),
    "too many containers": ({f"{POD}.containers": [TWO_CONTAINERS[0]] * 9}, f"{POD}.containers", "at most 8 items"),
    "a huge command": ({f"{CONTAINER}.args": ["x"] * 257}, f"{CONTAINER[:-2]}[0].args", "at most 256 items"),
}


@pytest.fixture(scope="module")
def definition(control_plane):
    """TrainingJob as a kind of this API server; with the chart, if a test has installed that before."""
    if "trainingjobs.edl.dev" not in control_plane.kubectl("get", "crd", "-o", "name"):
        control_plane.kubectl("apply", "--server-side", "-f", str(DEFINITION))
    control_plane.wait_served("trainingjobs.edl.dev")


@pytest.fixture
def jobs(definition, api):
    return client.CustomObjectsApi(api)


def refusal_of(call, *arguments, **options):
    """{path: all that the API server said of it}."""
    with pytest.raises(ApiException) as refused:
        call(*arguments, **options)
    assert refused.value.status == 422, refused.value.body
    said = {}
    for cause in json.loads(refused.value.body)["details"]["causes"]:
        said[cause["field"]] = f"{said.get(cause['field'], '')}{cause['message']}\n"
    return said


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_the_fields_path(jobs, case):
    edits, path, words = BAD[case]
    said = refusal_of(jobs.create_namespaced_custom_object, **GROUP, namespace="default", body=make_job(**edits))
    assert path in said
    assert words in said[path]


def test_the_examples_are_accepted(definition, control_plane, namespace):
    """Strictly, and the same files that `edl run` takes (tests/chart/test_examples_parse.py)."""
    said = control_plane.kubectl("create", "--dry-run=server", "--namespace", namespace, "-f", str(EXAMPLES))
    assert said.count("trainingjob.edl.dev/") == 2


def test_a_misspelt_field_is_refused_by_whoever_asks_for_it(jobs, control_plane):
    """kubectl asks for strict checking by itself."""
    with pytest.raises(Exception, match=r'unknown field "spec.trainer.minReplica"'):
        control_plane.kubectl(
            "create", "-f", "-", stdin=json.dumps(make_job(**{"spec.trainer.minReplica": 2})), kubeconfig=None
        )


def test_what_is_left_out_has_its_default(jobs, namespace):
    job = make_job()
    spec = jobs.create_namespaced_custom_object(**GROUP, namespace=namespace, body=job)["spec"]
    assert spec["mode"] == "manage"
    assert (spec["priorityClassName"], spec["weight"]) == ("edl-core", 100)
    assert spec["runPolicy"] == {"backoffLimit": 6, "suspend": False}
    assert spec["master"] == {"replicas": 1}
    assert spec["checkpoint"]["everySeconds"] == 60
    assert (spec["trainer"]["replicas"], spec["trainer"]["perNode"]) == (0, 1)
    assert "step" not in spec["trainer"]
    assert (spec["parameterServer"]["trainersPerServer"], spec["parameterServer"]["copies"]) == (4, 1)


@pytest.mark.parametrize(
    "edits",
    [
        {f"{TRAINER}.sizes": [2, 3, 8]},
        {f"{TRAINER}.sizes": [2, 4, 8], f"{TRAINER}.step": 1, f"{TRAINER}.perNode": 2, f"{TRAINER}.replicas": 4},
        {"spec.parameterServer": GONE, "spec.group": {}},
        {"spec.parameterServer": GONE, "spec.group": {"globalBatch": 256}, f"{TRAINER}.sizes": [2, 8]},
        {"spec.parameterServer": GONE, "spec.group": {"shares": "Measured"}},
    ],
)
def test_listed_sizes_and_groups_are_accepted(jobs, edits):
    jobs.create_namespaced_custom_object(**GROUP, namespace="default", body=make_job(**edits), dry_run="All")


def test_a_ratio_may_be_measured(jobs):
    job = make_job(**{"spec.parameterServer.trainersPerServer": "auto"})
    made = jobs.create_namespaced_custom_object(**GROUP, namespace="default", body=job, dry_run="All")
    assert made["spec"]["parameterServer"]["trainersPerServer"] == "auto"


def test_what_kubernetes_knows_of_pods_is_kept(jobs, namespace):
    """Volumes, affinity and what later versions bring pass through."""
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    probe = {"exec": {"command": ["true"]}}
    job = make_job(**{f"{POD}.affinity": affinity, f"{CONTAINER}.livenessProbe": probe, f"{POD}.newIn2030": {"a": [1]}})
    pod = jobs.create_namespaced_custom_object(**GROUP, namespace=namespace, body=job)["spec"]["trainer"]["template"]
    assert pod["spec"]["affinity"] == affinity
    assert pod["spec"]["containers"][0]["livenessProbe"] == probe
    assert pod["spec"]["newIn2030"] == {"a": [1]}


def test_a_limit_stands_for_a_request_as_with_pods(jobs):
    job = make_job(**{f"{CONTAINER}.resources": {"limits": {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": 1}}})
    jobs.create_namespaced_custom_object(**GROUP, namespace="default", body=job, dry_run="All")


def test_a_whole_pods_requests_stand_for_its_containers(jobs):
    whole = {"requests": {"cpu": "2", "memory": "4Gi"}}
    job = make_job(**{f"{CONTAINER}.resources": GONE, f"{POD}.resources": whole})
    jobs.create_namespaced_custom_object(**GROUP, namespace="default", body=job, dry_run="All")


IMMUTABLE = {
    "trainer's image": ({f"{CONTAINER}.image": "edl/other"}, f"{TRAINER}.template"),
    "trainer's volumes": ({f"{POD}.volumes": [{"name": "data", "emptyDir": {}}]}, f"{TRAINER}.template"),
    "trainer's node selector": ({f"{POD}.nodeSelector": {"zone": "a"}}, f"{TRAINER}.template"),
    "servers gone": ({"spec.parameterServer": GONE}, "spec.parameterServer"),
    "a group": ({"spec.parameterServer": GONE, "spec.group": {"globalBatch": 64}}, "spec.group"),
    "server's image": (
        {"spec.parameterServer.template.spec.containers.0.image": "edl/other"},
        "spec.parameterServer",
    ),
    "most servers": ({"spec.parameterServer.maxReplicas": 3}, "spec.parameterServer.maxReplicas"),
    "most servers, unsaid": ({"spec.parameterServer.maxReplicas": GONE}, "spec.parameterServer.maxReplicas"),
    "copies": ({"spec.parameterServer.copies": 2}, "spec.parameterServer.copies"),
    "checkpoints": ({"spec.checkpoint.uri": "file:///elsewhere"}, "spec.checkpoint.uri"),
    "what it does with damage": (
        {"spec.checkpoint.whenUnreadable": "FallBack"},
        "spec.checkpoint.whenUnreadable",
    ),
    "where it begins": ({"spec.checkpoint.start": "fresh"}, "spec.checkpoint.start"),
    "how often": ({"spec.checkpoint.everySeconds": 7}, "spec.checkpoint.everySeconds"),
    "masters": ({"spec.master.replicas": 2}, "spec.master.replicas"),
    "observed": ({"spec.mode": "observe"}, "spec.mode"),
    "class": ({"spec.priorityClassName": "web"}, "spec.priorityClassName"),
    "master's template": ({"spec.master.template": {"spec": {"containers": [{"name": "m"}]}}}, "spec.master.template"),
}


@pytest.mark.parametrize("case", IMMUTABLE)
def test_what_pods_are_made_from_stands_from_start_to_suspension(jobs, namespace, case):
    edits, path = IMMUTABLE[case]
    there = {**GROUP, "namespace": namespace, "name": "digits"}
    jobs.create_namespaced_custom_object(**GROUP, namespace=namespace, body=make_job())
    started = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    jobs.patch_namespaced_custom_object_status(**there, body=started)

    body = make_job(**edits) | {"metadata": jobs.get_namespaced_custom_object(**there)["metadata"]}
    said = refusal_of(jobs.replace_namespaced_custom_object, **there, body=body)
    assert "the job has started" in said[path]
    assert "runPolicy.suspend" in said[path]

    jobs.patch_namespaced_custom_object_status(**there, body={"status": {"startTime": None}})
    body["metadata"] = jobs.get_namespaced_custom_object(**there)["metadata"]
    jobs.replace_namespaced_custom_object(**there, body=body)


def test_sizes_weight_and_policy_change_while_it_runs(jobs, namespace):
    there = {**GROUP, "namespace": namespace, "name": "digits"}
    jobs.create_namespaced_custom_object(**GROUP, namespace=namespace, body=make_job())
    jobs.patch_namespaced_custom_object_status(**there, body={"status": {"startTime": "2026-01-01T00:00:00Z"}})
    servers = {"minReplicas": 2, "replicas": 2, "trainersPerServer": 3}
    edit = {"spec": {"weight": 7, "trainer": {"maxReplicas": 16}, "runPolicy": {"suspend": True}}}
    edit["spec"]["parameterServer"] = servers
    spec = jobs.patch_namespaced_custom_object(**there, body=edit)["spec"]
    assert (spec["weight"], spec["trainer"]["maxReplicas"], spec["runPolicy"]["suspend"]) == (7, 16, True)
    assert {name: spec["parameterServer"][name] for name in servers} == servers


def test_a_started_job_that_is_observed_may_be_managed_again(jobs, namespace):
    """It could not be suspended: nothing is written for it."""
    there = {**GROUP, "namespace": namespace, "name": "digits"}
    jobs.create_namespaced_custom_object(**GROUP, namespace=namespace, body=make_job(**{"spec.mode": "observe"}))
    jobs.patch_namespaced_custom_object_status(**there, body={"status": {"startTime": "2026-01-01T00:00:00Z"}})
    for edit in ({"weight": 7}, {"mode": "manage"}):
        spec = jobs.patch_namespaced_custom_object(**there, body={"spec": edit})["spec"]
        assert spec.items() >= edit.items()


def test_scale_reads_and_writes_the_pinned_size(jobs, namespace, control_plane):
    there = {**GROUP, "namespace": namespace, "name": "digits"}
    jobs.create_namespaced_custom_object(**GROUP, namespace=namespace, body=make_job())
    status = {"trainers": {"ready": 3}, "selector": "edl.dev/job=digits,edl.dev/role=trainer"}
    jobs.patch_namespaced_custom_object_status(**there, body={"status": status})
    scale = jobs.get_namespaced_custom_object_scale(**there)
    assert scale["spec"].get("replicas", 0) == 0
    assert (scale["status"]["replicas"], scale["status"]["selector"]) == (3, status["selector"])
    control_plane.kubectl("scale", "tj/digits", "--replicas=4", "-n", namespace)
    assert jobs.get_namespaced_custom_object(**there)["spec"]["trainer"]["replicas"] == 4
    with pytest.raises(Exception, match=r"spec\.trainer\.replicas.*0 lets EDL decide"):
        control_plane.kubectl("scale", "tj/digits", "--replicas=40", "-n", namespace)


def test_kubectl_shows_what_matters(jobs, namespace, control_plane):
    there = {**GROUP, "namespace": namespace, "name": "digits"}
    jobs.create_namespaced_custom_object(**GROUP, namespace=namespace, body=make_job())
    status = {
        "trainers": {"ready": 3, "target": 5},
        "servers": {"ready": 1, "target": 2, "min": 1, "max": 4},
        "progress": {"percent": "42 %"},
        "reason": "Fit",
        "share": "0.25",
    }
    jobs.patch_namespaced_custom_object_status(**there, body={"status": status})
    heads, line = control_plane.kubectl("get", "tj", "-n", namespace).splitlines()
    assert heads.split() == ["NAME", "TRAINERS", "MIN", "MAX", "SERVERS", "PROGRESS", "CHECKPOINT", "REASON", "AGE"]
    assert line.split()[:-1] == ["digits", "3", "2", "8", "1", "42", "%", "Fit"]
    heads, line = control_plane.kubectl("get", "tj", "-n", namespace, "-o", "wide").splitlines()
    assert heads.split()[9:] == ["PRIORITY", "WEIGHT", "SHARE", "TARGET", "SERVERSMIN", "SERVERSMAX", "SERVERSTARGET"]
    assert line.split()[-7:] == ["edl-core", "100", "0.25", "5", "1", "4", "2"]
    for category in ("edl", "all"):
        assert "trainingjob.edl.dev/digits" in control_plane.kubectl("get", category, "-n", namespace, "-o", "name")


def test_kubectl_waits_for_a_condition(jobs, namespace, control_plane):
    there = {**GROUP, "namespace": namespace, "name": "digits"}
    jobs.create_namespaced_custom_object(**GROUP, namespace=namespace, body=make_job())
    done = {"type": "Completed", "status": "True", "reason": "Done", "message": "all epochs are committed"}
    done["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    jobs.patch_namespaced_custom_object_status(**there, body={"status": {"conditions": [done]}})
    control_plane.kubectl("wait", "--for=condition=Completed", "tj/digits", "-n", namespace, "--timeout=180s")


def test_a_status_is_the_operators_alone(jobs, namespace, api, core, account):
    """Somebody who may edit jobs cannot forge what has become of them."""
    kubeconfig = account("user")
    rules = [{"apiGroups": ["edl.dev"], "resources": ["trainingjobs"], "verbs": ["get", "create", "update", "patch"]}]
    rbac = client.RbacAuthorizationV1Api(api)
    rbac.create_namespaced_role(namespace, {"metadata": {"name": "user"}, "rules": rules})
    rbac.create_namespaced_role_binding(
        namespace,
        {
            "metadata": {"name": "user"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user"},
            "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": namespace}],
        },
    )
    there = {**GROUP, "namespace": namespace, "name": "digits"}
    forged = {"status": {"trainers": {"ready": 99}}}
    with open_client(kubeconfig) as opened:
        own = client.CustomObjectsApi(opened)
        wait_for("the role", lambda: _may_read(own, namespace))
        created = own.create_namespaced_custom_object(**GROUP, namespace=namespace, body=make_job() | forged)
        assert "status" not in created
        assert "status" not in own.patch_namespaced_custom_object(**there, body=forged)
        with pytest.raises(ApiException) as refused:
            own.patch_namespaced_custom_object_status(**there, body=forged)
    assert refused.value.status == 403


def test_a_namespace_that_is_being_deleted_takes_no_job(jobs, core):
    name = f"leaving-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}})
    core.create_namespaced_config_map(name, {"metadata": {"name": "holds", "finalizers": ["edl.dev/test"]}})
    core.delete_namespace(name)
    with pytest.raises(ApiException) as refused:
        jobs.create_namespaced_custom_object(**GROUP, namespace=name, body=make_job())
    core.patch_namespaced_config_map("holds", name, {"metadata": {"finalizers": None}})
    assert refused.value.status == 403
    assert "being terminated" in refused.value.body


def _may_read(own, namespace):
    try:
        own.get_namespaced_custom_object(**GROUP, namespace=namespace, name="digits")
    except ApiException as error:
        return error.status == 404
    return True
