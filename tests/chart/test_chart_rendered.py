"""The rendered chart is what its goldens say, and every pod in it is restricted."""

import json
import subprocess

import pytest

from tests.chart.golden import GOLDEN, make_pages
from tests.chart.rendering import (
    BUDGET_S,
    CHART,
    IMAGES,
    VALUE_SETS,
    RefusedValuesError,
    helm,
    pod_templates,
    render,
    render_set,
    render_text,
)

FENCE = ("ValidatingAdmissionPolicy", "edl-operator")
SETS = pytest.mark.parametrize("name", VALUE_SETS)


def test_the_goldens_are_what_the_chart_renders():
    """After a change that was meant: `python -m tests.chart.golden`, and read the difference."""
    pages = make_pages()
    assert {path.name for path in GOLDEN.iterdir()} == set(pages)
    for name, page in pages.items():
        assert (GOLDEN / name).read_text(encoding="utf-8") == page, name


def test_nothing_may_everything():
    """No role holds a wildcard, and nobody but the operator may write a status."""
    for name in VALUE_SETS:
        for role in (thing for thing in render_set(name) if thing["kind"] in {"Role", "ClusterRole"}):
            for rule in role["rules"]:
                words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"], *rule.get("resourceNames", [])]
                assert not any("*" in word for word in words), role["metadata"]["name"]
                writes = set(rule["verbs"]) - {"get", "list", "watch"}
                if writes and "trainingjobs/status" in rule["resources"]:
                    assert role["metadata"]["name"].endswith("-operator")


def test_dns_is_open_on_the_ports_that_are_named_and_no_others():
    values = {"networkPolicy": {"dnsPorts": [53, 5353], "jobNamespaces": ["research"]}, "etcd": {"enabled": True}}
    policies = [thing for thing in render(values) if thing["kind"] == "NetworkPolicy"]
    for spec in (policy["spec"] for policy in policies if "egress" in policy["spec"]):
        dns = {
            (one["port"], one["protocol"])
            for rule in spec["egress"]
            if "to" not in rule
            for one in rule.get("ports", ())
        }
        assert {(53, "UDP"), (53, "TCP"), (5353, "UDP"), (5353, "TCP")} <= dns


def test_metrics_for_nobody_are_open_to_nobody():
    """In a NetworkPolicy a rule whose `from` is empty lets everybody in."""
    values = {"networkPolicy": {"metricsFrom": [], "jobNamespaces": ["research"]}, "etcd": {"enabled": True}}
    policies = [thing["spec"] for thing in render(values) if thing["kind"] == "NetworkPolicy"]
    rules = [rule for spec in policies for rule in spec.get("ingress", ())]
    assert rules
    assert all(rule["from"] for rule in rules)


def test_with_namespaces_nothing_is_written_elsewhere():
    roles = [thing for thing in render_set("namespaced") if thing["kind"] == "ClusterRole"]
    (operator,) = (role for role in roles if role["metadata"]["name"] == "edl-operator")
    assert {verb for rule in operator["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert "secrets" not in {resource for rule in operator["rules"] for resource in rule["resources"]}


@SETS
def test_every_pod_is_restricted(name):
    """Pod security at the level `restricted`, a root that is read only, and requests and a memory limit."""
    for pod_name, pod in pod_templates(render_set(name)):
        if pod_name.endswith("-agent"):
            continue  # below
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, pod_name
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert all(next(iter(set(volume) - {"name"})) != "hostPath" for volume in pod.get("volumes", []))
        for container in pod["containers"]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["readOnlyRootFilesystem"] is True
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]


def test_the_agent_is_root_without_privileges():
    """The kubelet's socket is root's: it reads two folders of the host, sees its processes, and has no capability."""
    (pod,) = (pod for name, pod in pod_templates(render_set("agent")) if name.endswith("-agent"))
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert "privileged" not in security
    assert not {"hostNetwork", "hostIPC"} & pod.keys()
    folders = {volume["name"] for volume in pod["volumes"] if "hostPath" in volume}
    assert folders == {"pod-resources", "pod-logs"}
    assert all(mount["readOnly"] for mount in container["volumeMounts"] if mount["name"] in folders)


def test_the_agents_role_holds_its_reports_alone():
    """It reads no pod and no node, and a policy holds it to its own node's object (ADR 0283)."""
    (role,) = (
        thing
        for thing in render_set("agent")
        if thing["kind"] == "ClusterRole" and thing["metadata"]["name"] == "edl-agent"
    )
    assert {resource for rule in role["rules"] for resource in rule["resources"]} == {"nodegpus", "nodegpus/status"}
    (policy,) = (
        thing["spec"]
        for thing in render_set("agent")
        if thing["kind"] == "ValidatingAdmissionPolicy" and thing["metadata"]["name"] == "edl-agent"
    )
    assert policy["failurePolicy"] == "Fail"


def test_without_agents_nothing_of_others_may_be_taken():
    """Nobody tells then which GPUs are unused, whatever `policy.idleReclaim` says."""
    objects = render({"policy": {"idleReclaim": "act"}})
    rules = [rule for thing in objects if thing["kind"] in {"Role", "ClusterRole"} for rule in thing["rules"]]
    assert not {"pods/eviction", "deployments/scale", "statefulsets/scale"} & {
        resource for rule in rules for resource in rule["resources"]
    }

    def fence_of(found):
        return next(one["spec"] for one in found if (one["kind"], one["metadata"]["name"]) == FENCE)

    assert fence_of(objects) == fence_of(render_set("default"))


@SETS
def test_only_the_operator_the_agent_and_the_page_have_a_token(name):
    for pod_name, pod in pod_templates(render_set(name)):
        assert pod_name.endswith(("-operator", "-agent", "-page")) or pod["automountServiceAccountToken"] is False


@SETS
def test_every_object_has_the_recommended_labels_and_a_place(name):
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "PriorityClass"}
    cluster_wide |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    for thing in render_set(name):
        labels = thing["metadata"]["labels"]
        assert {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version"} <= labels.keys()
        assert (thing["kind"] in cluster_wide) == ("namespace" not in thing["metadata"])


def test_a_pod_that_no_policy_opens_is_closed():
    policies = [thing["spec"] for thing in render_set("own-etcd") if thing["kind"] == "NetworkPolicy"]
    closed = [spec for spec in policies if "ingress" not in spec and "egress" not in spec]
    assert len(closed) == 1
    for thing in render_set("own-etcd"):
        labels = thing.get("spec", {}).get("template", {}).get("metadata", {}).get("labels")
        if labels:
            assert closed[0]["podSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("reclaim", ["scheduler", "planner"])
def test_classes_stand_in_order_and_never_preempt(reclaim):
    """beside-the-scheduler.md 2 to 4; the same classes in both modes, since a class's value cannot be changed."""
    objects = render({"policy": {"reclaim": reclaim}, "priorityClasses": {"core": 7}})
    classes = {thing["metadata"]["name"]: thing for thing in objects if thing["kind"] == "PriorityClass"}
    values = {name: thing["value"] for name, thing in classes.items()}
    surplus = {f"edl-surplus-{grade}": -grade for grade in range(1, 9)}
    assert values == {"edl-core": 7, "edl-surplus": 7, "edl-operator": 1_000_000, **surplus}
    assert all(thing["preemptionPolicy"] == "Never" for name, thing in classes.items() if name != "edl-operator")
    assert not any(thing.get("globalDefault") for thing in classes.values())


@pytest.mark.parametrize("values", [(), ("--values", str(IMAGES))])
def test_helm_finds_no_fault_with_the_chart(values):
    """Strictly, and also without an image, which is asked for at the installation alone."""
    command = [str(helm()), "lint", "--strict", str(CHART), *values]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUDGET_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_definition_stays_when_the_chart_goes():
    text = render_text({}, "--show-only", "templates/crd.yaml")
    assert "helm.sh/resource-policy: keep" in text
    assert (CHART / "files" / "trainingjobs.yaml").read_text(encoding="utf-8").strip() in text
    assert "kind: CustomResourceDefinition" not in render_text({"crd": {"install": False}})


def test_members_without_volumes_keep_their_data_in_the_pod():
    objects = render({"etcd": {"enabled": True, "storage": {"persistent": False, "size": "1Gi"}}})
    (members,) = (thing["spec"] for thing in objects if thing["kind"] == "StatefulSet")
    assert "volumeClaimTemplates" not in members
    assert {"name": "data", "emptyDir": {"sizeLimit": "1Gi"}} in members["template"]["spec"]["volumes"]


def test_an_identity_is_made_for_etcd_where_none_is_named():
    objects = render({"etcd": {"enabled": True}})
    (secret,) = (thing for thing in objects if thing["kind"] == "Secret")
    assert set(secret["data"]) == {"ca.crt", "tls.crt", "tls.key", "root-password"}
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_nobody_but_who_makes_etcds_users_is_given_roots_password():
    """The job that turns authentication on, and the operator, which hands it on to nobody (ADR 0165)."""
    holders = {name for name, pod in pod_templates(render_set("own-etcd")) if "root-password" in json.dumps(pod)}
    assert len(holders) == 2
    assert all("etcd-auth" in name or name.endswith("operator") for name in holders)


@pytest.mark.parametrize("values", ["own-etcd", "external-etcd"])
def test_the_operator_makes_users_where_it_may_and_hands_on_none(values):
    """Masters get a user of their own: no shared one stands beside the administrator's (A11, ADR 0165)."""
    (operator,) = (pod for name, pod in pod_templates(render_set(values)) if name.endswith("operator"))
    variables = {one["name"] for one in operator["containers"][0]["env"]}
    assert {"EDL_ETCD_ADMIN_USER", "EDL_ETCD_ADMIN_PASSWORD_FILE"} <= variables
    assert not {"EDL_ETCD_USER", "EDL_ETCD_PASSWORD_FILE"} & variables
    assert ("EDL_ETCD_KEEPS_ROOM" in variables) == (values == "own-etcd")  # others may use an external one


def test_an_external_etcd_has_one_kind_of_user():
    """A shared user beside the administrator's would be handed to every job."""
    external = {"endpoints": ["https://etcd:2379"], "secretName": "etcd", "admin": True, "password": True}
    with pytest.raises(RefusedValuesError, match=r"etcd\.external\.admin"):
        render({"etcd": {"external": external}})
