"""The bodies that EDL sends for a job: owner, class, grace, gate, affinity, environment, security."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.builders.disruption_budget import build_budget
from autoscaler.clusters.kubernetes.builders.job_identity import build_secrets, issue_identity
from autoscaler.clusters.kubernetes.builders.master_deployment import build_master, build_service
from autoscaler.clusters.kubernetes.builders.member_pods import build_pod, ungate_patch
from autoscaler.clusters.kubernetes.builders.pod_environment import IDENTITY_FOLDER
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job
from autoscaler.domain import Policy, Role, Tier
from autoscaler.jobs.server_count import SPARE_ORDINALS
from autoscaler.manifests.edl_variables import SET_BY_EDL, is_set_by_edl
from master.job.domain.job_config import AfterLoss
from master.process.master_config import Settings
from tests.unit.clusters.kubernetes.builders.secret_files import NOW, write_files
from tests.unit.clusters.kubernetes.raw_objects import (
    CREATED,
    SETTINGS,
    UID,
    kube_job,
    placement,
    planner_settings,
    raw_job,
    template,
)
from trainer_sdk.environment import parse_environment
from trainer_sdk.pserver.alive import LIMIT_S


def build(placement_=None, *, settings=SETTINGS, is_gated=False, avoid=frozenset(), spec=None, **fields):
    job = kube_job(trainer={"template": template(spec=spec, **fields)}, server={})
    return build_pod(job, placement_ or placement(), settings, is_gated=is_gated, avoid=avoid)


def variables(container):
    """What the process sees; of the downward API a stand-in."""
    return {
        v["name"]: v.get("value", v.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")) for v in container["env"]
    }


def terms(body):
    required = body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"]


def nulls(value, path=""):
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in nulls(inner, f"{path}.{key}")]
    if isinstance(value, list):
        return [found for number, inner in enumerate(value) for found in nulls(inner, f"{path}[{number}]")]
    return [path] if value is None else []


def test_pod_is_owned_and_labelled():
    """Deterministic name; the job controls it; labels by the recommended convention and EDL's own."""
    metadata = build(placement(ordinal=3, tier=Tier.SURPLUS, grade=5))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("digits-trainer-3", "team-a")
    (owner,) = metadata["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (UID, True, True)
    assert metadata["labels"] == {
        "app.kubernetes.io/name": "trainingjob",
        "app.kubernetes.io/instance": "digits",
        "app.kubernetes.io/component": "trainer",
        "app.kubernetes.io/managed-by": "edl",
        "edl.dev/job": "digits",
        "edl.dev/role": "trainer",
        "edl.dev/ordinal": "3",
        "edl.dev/tier": "surplus",
        "edl.dev/grade": "5",
    }


@pytest.mark.parametrize(
    ("tier", "grade", "settings", "expected"),
    [
        (Tier.CORE, 0, SETTINGS, "edl-core"),
        (Tier.SURPLUS, 8, SETTINGS, "edl-surplus-8"),
        (Tier.SURPLUS, 1, SETTINGS, "edl-surplus-1"),
        (Tier.SURPLUS, 8, planner_settings(), "edl-surplus"),
        (Tier.CORE, 0, planner_settings(), "edl-core"),
    ],
)
def test_class_follows_tier_grade_and_reclaim(tier, grade, settings, expected):
    """Graded surplus for the scheduler to choose from, level surplus for the planner (rules 1 to 4)."""
    spec = build(placement(tier=tier, grade=grade), settings=settings)["spec"]
    assert spec["priorityClassName"] == expected
    assert "preemptionPolicy" not in spec  # admission fills in the class's, and refuses another


def test_core_carries_the_users_class():
    """Servers and minimum trainers stand where the job's owner put them (rule 3)."""
    job = kube_job(server={}, priorityClassName="gold")
    for role in (Role.TRAINER, Role.SERVER):
        assert build_pod(job, placement(role), SETTINGS, is_gated=False)["spec"]["priorityClassName"] == "gold"
    assert build_master(job, SETTINGS)["spec"]["template"]["spec"]["priorityClassName"] == "gold"


@pytest.mark.parametrize(
    ("tier", "users", "limit_s", "expected"),
    [("surplus", 60, 10.0, 10), ("surplus", 4, 10.0, 4), ("core", 60, 10.0, 60), ("surplus", 60, 0.5, 1)],
)
def test_grace_of_surplus_is_bounded(tier, users, limit_s, expected):
    """The web waits for it (rule 7); the SDK is told the same."""
    settings = replace(SETTINGS, surplus_grace_s=limit_s)
    body = build(placement(tier=Tier(tier), grade=1), spec={"terminationGracePeriodSeconds": users}, settings=settings)
    assert body["spec"]["terminationGracePeriodSeconds"] == expected
    assert variables(body["spec"]["containers"][0])["EDL_GRACE_S"] == str(expected)


def test_pin_and_opt_out_are_in_every_alternative():
    """Terms are ORed: a pin in one alone would leave the others open.  An empty one matches nothing and stays so."""
    users = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": users}, "podAffinity": {}}
    body = build(spec={"affinity": affinity}, avoid=frozenset({"n9"}))
    first, empty = terms(body)
    assert [line["key"] for line in first["matchExpressions"]] == ["zone", "edl.dev/opt-out"]
    assert [(line["operator"], line["values"]) for line in first["matchFields"]] == [("NotIn", ["n9"]), ("In", ["n1"])]
    assert empty == {}
    assert "podAffinity" in body["spec"]["affinity"]
    assert users["nodeSelectorTerms"][1] == {}  # the user's own object is as it was
    assert len(users["nodeSelectorTerms"][0]["matchExpressions"]) == 1


def test_gate_is_lifted_with_the_pin_in_the_same_write():
    """What was proved is what happens (rule 8); gates of others stay."""
    gated = build(is_gated=True)
    gated["spec"]["schedulingGates"].append({"name": "other"})  # as admission may
    assert [gate["name"] for gate in gated["spec"]["schedulingGates"]] == ["edl.dev/gang", "other"]
    assert all("matchFields" not in term for term in terms(gated))
    patch = ungate_patch(gated, "n4")
    assert patch["spec"]["schedulingGates"] == [{"name": "other"}]
    assert terms(patch)[0]["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n4"]}]


def test_users_template_stays_but_for_what_is_edls():
    """Sidecars, annotations, tolerations and volumes are the user's; his variables cannot stand in for EDL's."""
    own = template(
        env=[
            {"name": "EDL_ROLE", "value": "master"},
            {"name": "LR", "value": "0.1"},
            {"name": "OMP_NUM_THREADS", "value": "9"},
        ],
        command=["python", "train.py"],
        spec={"volumes": [{"name": "data", "emptyDir": {}}], "tolerations": [{"operator": "Exists"}]},
    )
    own["spec"]["containers"].append({**template("log")["spec"]["containers"][0], "image": "log:1"})
    own["metadata"] = {"labels": {"team": "a", "edl.dev/role": "master"}, "annotations": {"note": "x"}}
    started = raw_job(trainer={"template": own}) | {"status": {"startTime": CREATED}}  # a new one would be refused
    body = build_pod(parse_job(started), placement(), SETTINGS, is_gated=False)
    main, log = body["spec"]["containers"]
    said = variables(main)
    assert (said["EDL_ROLE"], said["LR"], said["OMP_NUM_THREADS"]) == ("trainer", "0.1", "9")
    assert len(said) == len(main["env"])  # no name twice
    assert "env" not in log
    assert body["metadata"]["labels"]["team"] == "a"
    assert body["metadata"]["labels"]["edl.dev/role"] == "trainer"
    assert body["metadata"]["annotations"] == {"note": "x"}
    assert [volume["name"] for volume in body["spec"]["volumes"]] == ["data", "edl-identity"]
    assert main["command"] == ["python", "train.py"]
    assert body["spec"]["restartPolicy"] == "Never"
    assert own["spec"]["containers"][0]["env"][0]["value"] == "master"  # the template is as it was


def test_container_named_after_the_role_is_edls():
    """With sidecars in front of it too."""
    own = template("proxy")
    own["spec"]["containers"].append({**own["spec"]["containers"][0], "name": "trainer"})
    body = build_pod(kube_job(trainer={"template": own}), placement(), SETTINGS, is_gated=False)
    proxy, trainer = body["spec"]["containers"]
    assert "env" not in proxy
    assert variables(trainer)["EDL_ROLE"] == "trainer"


def test_identity_is_mounted_read_only():
    """Token and certificates; the authority's key is in no pod."""
    for body, secret in (
        (build(), "digits-member"),
        (build_master(kube_job(), SETTINGS)["spec"]["template"], "digits-master"),
    ):
        mount = next(m for m in body["spec"]["containers"][0]["volumeMounts"] if m["name"] == "edl-identity")
        assert (mount["mountPath"], mount["readOnly"]) == (IDENTITY_FOLDER, True)
        volume = next(v for v in body["spec"]["volumes"] if v["name"] == "edl-identity")
        assert volume["secret"]["secretName"] == secret


def test_pods_are_restricted_unless_their_owner_chose_otherwise():
    """Pod Security Standards; what the user wrote stays."""
    plain = build()["spec"]
    assert plain["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert plain["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert plain["automountServiceAccountToken"] is False
    root = build(
        securityContext={"runAsUser": 0, "capabilities": {"add": ["SYS_ADMIN"]}}, spec={"serviceAccountName": "s3"}
    )
    assert "runAsNonRoot" not in root["spec"]["securityContext"]
    assert root["spec"]["containers"][0]["securityContext"] == {"runAsUser": 0, "capabilities": {"add": ["SYS_ADMIN"]}}
    assert "automountServiceAccountToken" not in root["spec"]


def test_trainer_and_server_environments_are_what_the_sdk_reads():
    """Version 1 of the published list; a server publishes the pod's own address."""
    job = kube_job(server={})
    for role in (Role.TRAINER, Role.SERVER):
        body = build_pod(job, placement(role, ordinal=2, tier=Tier.CORE), SETTINGS, is_gated=False)
        said = variables(body["spec"]["containers"][0])
        parsed = parse_environment(said, role=role)
        grace_s = 30.0 if role is Role.TRAINER else 120.0  # a server hands over what it holds
        assert (parsed.role, parsed.ordinal, parsed.tier, parsed.grace_s) == (role, 2, "core", grace_s)
        assert parsed.master == "digits-master.team-a.svc:7164"
        assert parsed.job == "team-a.digits.0f8fad5b"
        assert parsed.checkpoint_uri == "file:///shared/digits"
        assert parsed.tls_dir == IDENTITY_FOLDER
    assert (said["EDL_ADVERTISE"], said["EDL_LISTEN"]) == ("status.podIP", "0.0.0.0:7166")
    assert body["spec"]["containers"][0]["command"] == ["python", "-m", "trainer_sdk.pserver"]


def test_trainers_of_a_group_are_reached_by_their_peers():
    """As servers are by trainers; the master is told of the group too (ADR 0234)."""
    job = kube_job(group={"globalBatch": 256})
    container = build_pod(job, placement(Role.TRAINER, ordinal=2, tier=Tier.CORE), SETTINGS, is_gated=False)["spec"][
        "containers"
    ][0]
    said = variables(container)
    assert (said["EDL_ADVERTISE"], said["EDL_LISTEN"]) == ("status.podIP", "0.0.0.0:7166")
    assert container["ports"] == [{"name": "edl-data", "containerPort": 7166, "protocol": "TCP"}]
    of_master = variables(build_master(job, SETTINGS)["spec"]["template"]["spec"]["containers"][0])
    assert [(one["EDL_GROUP"], one["EDL_GLOBAL_BATCH"]) for one in (said, of_master)] == [("1", "256")] * 2


@pytest.mark.parametrize(("group", "shares"), [({}, "Equal"), ({"shares": "Measured"}, "Measured"), (None, None)])
def test_master_of_a_group_is_told_how_a_step_is_shared(group, shares):
    """By the spec, which the master's template cannot contradict; other jobs share no step (ADR 0296)."""
    job = kube_job(**({} if group is None else {"group": group}))
    container = build_master(job, SETTINGS)["spec"]["template"]["spec"]["containers"][0]
    assert variables(container).get("EDL_SHARES") == shares


def test_variables_that_no_template_may_set_are_those_that_edl_sets():
    """One that is missing in the table would be overridden, and nobody told."""
    etcd = EtcdAccess(
        endpoints="https://etcd:2379", ca="CA", certificate="C", key="K", user="edl", password="p", is_separate=True
    )
    settings = BuildSettings(image="edl:test", etcd=etcd)
    group, served = kube_job(group={"globalBatch": 8}), kube_job(server={})
    bodies = [
        *(build_master(job, settings)["spec"]["template"] for job in (group, served)),
        build_pod(group, placement(Role.TRAINER), settings, is_gated=False),
        build_pod(served, placement(Role.SERVER), settings, is_gated=False),
    ]
    names = {name for body in bodies for name in variables(body["spec"]["containers"][0])}
    assert {name for name in names if name.startswith("EDL_")} == set(SET_BY_EDL)


MASTER_TEMPLATE = {"template": template(cpu="1")}


@pytest.mark.parametrize("group", [None, {}, {"globalBatch": 8}])
def test_a_template_may_set_what_edl_leaves_to_its_role(group):
    """EDL_GLOBAL_BATCH in a job whose spec has none was refused, with a reason that was not true."""
    written = {"master": MASTER_TEMPLATE} | ({"server": {}} if group is None else {"group": group})
    job, spec = kube_job(**written), raw_job(**written)["spec"]
    etcd = EtcdAccess(
        endpoints="https://etcd:2379", ca="CA", certificate="C", key="K", user="edl", password="p", is_separate=True
    )
    settings = BuildSettings(image="edl:test", etcd=etcd)
    bodies = {
        "master": build_master(job, settings)["spec"]["template"],
        "trainer": build_pod(job, placement(Role.TRAINER), settings, is_gated=False),
    }
    if group is None:
        bodies["parameterServer"] = build_pod(job, placement(Role.SERVER), settings, is_gated=False)
    for role, body in bodies.items():
        names = {name for name in variables(body["spec"]["containers"][0]) if name.startswith("EDL_")}
        refused = {name for name in SET_BY_EDL if is_set_by_edl(name, role, spec)}
        assert names <= refused
        assert all(SET_BY_EDL[name] for name in refused - names), "the spec says it, and its template could not"
        assert ("EDL_GLOBAL_BATCH" in refused) == (group == {"globalBatch": 8})


def test_variables_of_a_master_are_its_own_also_where_it_takes_over_the_trainers():
    assert is_set_by_edl("EDL_ETCD_CA_FILE", "trainer", {})
    assert not is_set_by_edl("EDL_ETCD_CA_FILE", "trainer", {"master": MASTER_TEMPLATE})


def test_trainers_of_other_jobs_listen_nowhere():
    pods = [
        build_pod(job, placement(Role.TRAINER, ordinal=2, tier=Tier.CORE), SETTINGS, is_gated=False)
        for job in (kube_job(), kube_job(server={}))
    ]
    for pod in pods:
        container = pod["spec"]["containers"][0]
        assert not {"EDL_LISTEN", "EDL_ADVERTISE", "EDL_GROUP", "EDL_GLOBAL_BATCH"} & set(variables(container))
        assert "ports" not in container
    said = variables(
        build_pod(kube_job(group={}), placement(Role.TRAINER), SETTINGS, is_gated=False)["spec"]["containers"][0]
    )
    assert "EDL_GLOBAL_BATCH" not in said  # the script says it


def test_masters_environment_is_what_the_master_reads(tmp_path):
    """Its settings parse, with the files of its own secret where they are mounted."""
    job = kube_job(
        server={"minReplicas": 2, "maxReplicas": 5, "afterLoss": "Keep", "copies": 2}, master={"replicas": 3}
    )
    _, _, secret = build_secrets(job, issue_identity(job, NOW), SETTINGS.etcd)
    write_files(tmp_path, secret)
    container = build_master(job, SETTINGS)["spec"]["template"]["spec"]["containers"][0]
    said = {name: value.replace(IDENTITY_FOLDER, str(tmp_path)) for name, value in variables(container).items()}
    said["EDL_ETCD_PASSWORD_FILE"] = str(tmp_path / "token")
    settings = Settings.from_environment(said)
    assert (settings.config.servers, settings.config.most_servers) == (2, 5 + SPARE_ORDINALS)
    assert (settings.config.after_loss, settings.config.copies) == (AfterLoss.KEEP, 2)
    assert (settings.has_standbys, settings.listen.port) == (True, 7164)
    assert settings.etcd.endpoints == ("etcd:2379",)
    assert settings.tls is not None
    assert settings.token


def test_master_is_a_deployment_of_its_replicas():
    """Replaced by Kubernetes itself while EDL is down; standbys rather apart; no surge, whose room nobody proved."""
    body = build_master(kube_job(master={"replicas": 3}), SETTINGS)
    assert (body["metadata"]["name"], body["spec"]["replicas"]) == ("digits-master", 3)
    assert body["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    made = body["spec"]["template"]
    assert body["spec"]["selector"]["matchLabels"].items() <= made["metadata"]["labels"].items()
    assert made["spec"]["containers"][0]["image"] == "edl:test"
    assert made["spec"]["containers"][0]["command"] == ["python", "-m", "master.supervisor"]
    apart = made["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart[0]["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert [wish["weight"] for wish in apart] == [100, 50]  # the API server takes 1 to 100
    assert "schedulingGates" not in made["spec"]
    assert "matchFields" not in terms(made)[0]


def test_masters_and_servers_that_stand_still_are_found_by_their_silence():
    """Not by an open port, which the kernel answers for; and not sooner than a busy one may take."""
    server, master = probed()
    assert server["livenessProbe"]["exec"]["command"] == ["python", "-m", "trainer_sdk.pserver.alive"]
    assert master["livenessProbe"]["httpGet"] == {"path": "/metrics", "port": 7165}
    for probe in (server["livenessProbe"], master["livenessProbe"]):
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 120
        assert probe["timeoutSeconds"] > LIMIT_S  # the probe says itself what it met
        assert probe["terminationGracePeriodSeconds"] <= 10  # who stands still has nothing to finish
    assert "livenessProbe" not in build()["spec"]["containers"][0]  # a trainer may compute for an hour


def test_the_grace_of_surplus_is_the_policys_where_nobody_says_another():
    assert BuildSettings(image="edl:1", etcd=SETTINGS.etcd).surplus_grace_s == Policy().surplus_grace_s


@pytest.mark.parametrize("own", [{"command": ["./serve"]}, {"args": ["--more"]}])
def test_programs_of_others_are_not_asked_what_they_may_not_know(own):
    assert not any("livenessProbe" in container for container in probed(**own))


def test_a_server_in_an_image_of_others_is_not_either():
    server, master = probed(image="ours:1")
    assert "livenessProbe" not in server
    assert "livenessProbe" in master  # it has served its metrics for as long as there are masters


def test_a_probe_of_the_users_own_is_left_as_it_is():
    own = {"tcpSocket": {"port": 7164}}
    assert [container["livenessProbe"] for container in probed(livenessProbe=own)] == [own, own]


def probed(**container):
    """The containers of a server and of a master that say this and no more."""
    one = {
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}, **container}]
        }
    }
    job = kube_job(master={"template": one}, server={"template": one})
    server = build_pod(job, placement(role=Role.SERVER), SETTINGS, is_gated=False)["spec"]["containers"][0]
    return server, build_master(job, SETTINGS)["spec"]["template"]["spec"]["containers"][0]


def test_service_lists_masters_that_do_not_lead():
    """Headless: members ask until they meet the leader (M5)."""
    body = build_service(kube_job())
    assert (body["spec"]["clusterIP"], body["spec"]["publishNotReadyAddresses"]) == ("None", True)
    made = build_master(kube_job(), SETTINGS)["spec"]["template"]
    assert body["spec"]["selector"].items() <= made["metadata"]["labels"].items()


@pytest.mark.parametrize(("core", "least"), [(4, 3), (1, 0), (0, 0)])
def test_budget_lets_one_core_pod_leave_at_a_time(core, least):
    """An integer, over core pods of every role (rule 18)."""
    body = build_budget(kube_job(), core)
    assert body["spec"]["minAvailable"] == least
    wanted = body["spec"]["selector"]["matchLabels"].items()
    assert wanted <= build()["metadata"]["labels"].items()
    assert wanted <= build_master(kube_job(), SETTINGS)["spec"]["template"]["metadata"]["labels"].items()
    assert not wanted <= build(placement(tier=Tier.SURPLUS, grade=1))["metadata"]["labels"].items()


def test_no_body_has_a_null():
    """For a server-side apply a null is a wish."""
    job = kube_job(server={})
    bodies = [build(), build(is_gated=True), build_master(job, SETTINGS), build_service(job), build_budget(job, 2)]
    bodies += build_secrets(job, issue_identity(job, NOW), SETTINGS.etcd)
    assert [nulls(body) for body in bodies] == [[]] * len(bodies)
    assert all(body["metadata"]["ownerReferences"][0]["uid"] == UID for body in bodies)


def test_masters_are_sent_to_their_proved_nodes_and_not_tied_to_them():
    """Elsewhere one may take the room that another gang was given; where its node is lost it comes back elsewhere."""
    tied = build_master(kube_job(), SETTINGS)["spec"]["template"]["spec"]
    sent = build_master(kube_job(), SETTINGS, nodes=["n1", "n2"])["spec"]["template"]["spec"]
    wishes = sent["affinity"]["nodeAffinity"].pop("preferredDuringSchedulingIgnoredDuringExecution")
    assert [one["preference"]["matchFields"][0]["values"] for one in wishes] == [["n1"], ["n2"]]
    assert {one["weight"] for one in wishes} == {100}
    assert sent == tied, "what is required is as without"
