"""What users write becomes values, or is refused with the field's path and a hint, all of it at once."""

import textwrap
from pathlib import Path

import pytest

from autoscaler.domain import Resources
from autoscaler.manifests import InvalidManifestError, parse_files
from autoscaler.manifests.api_types import TRAINERS_PER_SERVER, AfterServerLoss, GroupShares, GroupSpec

MOST = 2**31 - 1

JOB = """
apiVersion: edl.dev/v1alpha1
kind: TrainingJob
metadata: {name: digits}
spec:
  weight: 200
  runPolicy: {backoffLimit: 3, ttlSecondsAfterFinished: 60}
  trainer:
    minReplicas: 2
    maxReplicas: 6
    template:
      spec:
        terminationGracePeriodSeconds: 5
        containers:
        - name: trainer
          image: ghcr.io/example/train:1
          command: [python, train.py]
          args: [--epochs, "3"]
          env: [{name: MODE, value: fast}]
          resources: {requests: {cpu: 500m, memory: 256Mi, nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}
  parameterServer:
    minReplicas: 2
    template: {spec: {containers: [{name: server, resources: {requests: {cpu: 1, memory: 512Mi}}}]}}
  checkpoint: {everySeconds: 5}
"""
FIXED_SERVERS = "    minReplicas: 2\n    template: {spec"
SERVERS = FIXED_SERVERS.replace(
    "2", "2\n    maxReplicas: 4\n    trainersPerServer: 3\n    replicas: 3\n    afterLoss: Keep\n    copies: 2"
)
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        command: [python, web.py]
        ports: [{containerPort: 8080}]
        livenessProbe: {tcpSocket: {port: 8080}}
        resources: {requests: {cpu: 1}, limits: {cpu: 1, memory: 128Mi}}
"""


@pytest.fixture
def parse(tmp_path):
    """Parses YAML texts, one file each."""

    def run(*texts):
        paths = []
        for number, text in enumerate(texts):
            path = tmp_path / f"file{number}.yaml"
            path.write_text(textwrap.dedent(text))
            paths.append(path)
        return parse_files(paths)

    return run


def refusals(parse, *texts):
    with pytest.raises(InvalidManifestError) as caught:
        parse(*texts)
    return caught.value.errors


def test_a_job_is_read_with_its_defaults(parse):
    """Quantities are integers, the class is edl-core, sizes are those of the file."""
    (job,) = parse(JOB).jobs
    assert (job.name, job.weight, job.priority_class, job.run_policy.backoff_limit) == ("digits", 200, "edl-core", 3)
    assert (job.trainer.replicas.minimum, job.trainer.replicas.maximum, job.trainer.step) == (2, 6, 1)
    assert job.trainer.template.command == ("python", "train.py", "--epochs", "3")
    assert job.trainer.template.env == (("MODE", "fast"),)
    assert job.trainer.template.requests == Resources(
        cpu_milli=500, memory_bytes=256 << 20, gpu_count=1, extended=(("pods", 1),)
    )
    assert job.trainer.template.grace_s == 5
    assert job.server is not None
    assert (job.server.replicas.minimum, job.server.replicas.maximum) == (2, 2)
    assert (job.server.after_loss, job.server.copies) == (AfterServerLoss.ROLL_BACK, 1)
    assert job.checkpoint.every_s == 5


def test_a_deployment_takes_requests_from_limits_as_kubernetes_does(parse):
    """A limit without a request is the request."""
    (web,) = parse(WEB).deployments
    assert (web.replicas, web.template.container_port) == (3, 8080)
    assert web.template.requests == Resources(cpu_milli=1000, memory_bytes=128 << 20, extended=(("pods", 1),))


def test_what_a_process_cannot_honour_is_said(parse):
    """A probe is set aside with a notice; an image without."""
    notices = parse(WEB).notices
    assert any("livenessProbe" in notice for notice in notices)
    assert not any("image" in notice for notice in notices)


def test_more_masters_are_accepted_with_a_notice(parse):
    """Standbys are for a cluster; here the one master is started again."""
    notices = " ".join(parse(JOB + "  master: {replicas: 2}\n").notices)
    assert "master.replicas 2" in notices


def test_servers_have_bounds_a_ratio_and_a_pin(parse):
    """Without a maximum their number is fixed."""
    text = JOB.replace(FIXED_SERVERS, SERVERS)
    found = parse(text)
    servers = found.jobs[0].server
    assert (servers.replicas.minimum, servers.replicas.maximum, servers.replicas.pinned) == (2, 4, 3)
    assert (servers.trainers_per_server, servers.is_ratio_measured) == (3, False)
    assert (servers.after_loss, servers.copies) == (AfterServerLoss.KEEP, 2)
    assert not any("server" in notice for notice in found.notices)


def test_a_ratio_may_be_measured(parse):
    """It begins as if the file had said nothing."""
    measured = parse(JOB.replace(FIXED_SERVERS, SERVERS.replace("Server: 3", "Server: auto"))).jobs[0].server
    silent = parse(JOB.replace(FIXED_SERVERS, SERVERS.replace("    trainersPerServer: 3\n", ""))).jobs[0].server
    assert (measured.is_ratio_measured, silent.is_ratio_measured) == (True, False)
    assert measured.trainers_per_server == silent.trainers_per_server == TRAINERS_PER_SERVER


@pytest.mark.parametrize(("pinned", "is_said"), [(0, True), (1, True), (2, False)])
def test_copies_for_which_there_may_be_too_few_servers_are_accepted_with_a_notice(parse, pinned, is_said):
    """The job may begin on one server and get its second copies later."""
    text = SERVERS.replace("minReplicas: 2", "minReplicas: 1").replace("replicas: 3", f"replicas: {pinned}")
    found = parse(JOB.replace(FIXED_SERVERS, text))
    assert found.jobs[0].server.copies == 2
    assert any("copies 2" in notice and "minReplicas 1" in notice for notice in found.notices) == is_said


def test_trainers_of_whole_nodes_step_by_whole_nodes(parse):
    """`perNode` is the step where none is written, beside powersOfTwo it is none."""
    trainers = [
        parse(JOB.replace("maxReplicas: 6", f"maxReplicas: 6\n    perNode: 2{more}")).jobs[0].trainer
        for more in ("", "\n    step: 4", "\n    powersOfTwo: true\n    resizeCostSeconds: 20")
    ]
    assert [(trainer.per_node, trainer.step, trainer.powers_of_two) for trainer in trainers] == [
        (2, 2, False),
        (2, 4, False),
        (2, 1, True),
    ]
    assert trainers[2].resize_cost_s == 20.0


def test_trainers_of_listed_sizes(parse):
    """`sizes` replaces the step, which is 1 then also with several trainers to a node."""
    listed = "maxReplicas: 6\n    sizes: [2, 6]"
    trainers = [
        parse(JOB.replace("maxReplicas: 6", listed + more)).jobs[0].trainer for more in ("", "\n    perNode: 2")
    ]
    assert [(trainer.sizes, trainer.step) for trainer in trainers] == [((2, 6), 1)] * 2


@pytest.mark.parametrize(
    ("written", "batch"),
    [("group: {}", None), ("group: {globalBatch: 256}", 256), (f"group: {{globalBatch: {MOST}}}", MOST)],
)
def test_a_job_is_a_group_has_servers_or_neither(parse, written, batch):
    alone = JOB[: JOB.index("  parameterServer:")] + "  checkpoint: {everySeconds: 5}\n"
    assert parse(alone).jobs[0].group is None
    job = parse(f"{alone}  {written}\n").jobs[0]
    assert (job.group, job.server) == (GroupSpec(global_batch=batch), None)
    assert not parse(f"{alone}  {written}\n").notices


def test_shares_of_a_group_are_equal_unless_they_are_to_be_measured(parse):
    """Measured ones need a second trainer to be shared with."""
    alone = JOB[: JOB.index("  parameterServer:")] + "  checkpoint: {everySeconds: 5}\n"
    measured = f"{alone}  group: {{shares: Measured}}\n"
    assert parse(f"{alone}  group: {{}}\n").jobs[0].group.shares is GroupShares.EQUAL
    assert parse(measured).jobs[0].group.shares is GroupShares.MEASURED
    one = measured.replace("maxReplicas: 6", "maxReplicas: 1").replace("minReplicas: 2", "minReplicas: 1")
    with pytest.raises(InvalidManifestError, match=r"spec\.group\.shares.*at most one trainer"):
        parse(one)


@pytest.mark.parametrize(
    ("edit", "more", "is_said"),
    [
        ("", "", True),
        ("", "  group: {}\n", False),
        ("maxReplicas: 1", "", False),
        ("", JOB[JOB.index("  parameterServer") : JOB.index("  checkpoint")], False),
    ],
)
def test_that_no_model_is_kept_is_said(parse, edit, more, is_said):
    """Trainers that only share out records are legal; one trainer may keep its model itself (rule 35)."""
    text = JOB[: JOB.index("  parameterServer")] + more
    if edit:
        text = text.replace("minReplicas: 2", "minReplicas: 1").replace("maxReplicas: 6", edit)
    said = [notice for notice in parse(text).notices if "no model is kept" in notice]
    assert len(said) == is_said
    assert all("up to 6 trainers" in notice for notice in said)


def test_min_above_max_names_the_field_and_both_ways_out(parse):
    """The text that the user meets most often."""
    (found,) = refusals(parse, JOB.replace("minReplicas: 2\n    maxReplicas: 6", "minReplicas: 5\n    maxReplicas: 3"))
    assert found.path == "spec.trainer.minReplicas"
    assert str(found).endswith(
        "file0.yaml:9 (document 1, TrainingJob digits) spec.trainer.minReplicas: 5 is larger than maxReplicas 3; "
        "raise maxReplicas or lower minReplicas"
    )


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        (
            "minReplicas: 2\n    max",
            "minReplicas: 0\n    max",
            "spec.trainer.minReplicas",
            "greater than or equal to 1",
        ),
        (
            "    minReplicas: 2\n    template: {spec",
            "    minReplicas: 100000000\n    template: {spec",
            "spec.parameterServer.minReplicas",
            "less than or equal to 10000",
        ),
        (FIXED_SERVERS, SERVERS.replace("maxReplicas: 4", "maxReplicas: 1"), "parameterServer.minReplicas", "larger"),
        (FIXED_SERVERS, SERVERS.replace("Server: 3", "Server: 0"), "parameterServer.trainersPerServer", "equal to 1"),
        (FIXED_SERVERS, SERVERS.replace("Server: 3", "Server: -2"), "parameterServer.trainersPerServer", "equal to 1"),
        (FIXED_SERVERS, SERVERS.replace("Server: 3", "Server: fast"), "parameterServer.trainersPerServer", "or auto"),
        (FIXED_SERVERS, SERVERS.replace("Server: 3", "Server: 1.5"), "parameterServer.trainersPerServer", "integer"),
        (FIXED_SERVERS, SERVERS.replace("Server: 3", "Server:"), "parameterServer.trainersPerServer", "or auto"),
        (
            FIXED_SERVERS,
            SERVERS.replace("Loss: Keep", "Loss: keep"),
            "parameterServer.afterLoss",
            "'RollBack' or 'Keep'",
        ),
        (FIXED_SERVERS, SERVERS.replace("copies: 2", "copies: 0"), "parameterServer.copies", "equal to 1"),
        (FIXED_SERVERS, SERVERS.replace("copies: 2", "copies: 3"), "parameterServer.copies", "equal to 2"),
        (FIXED_SERVERS, SERVERS.replace("copies: 2", "copies: true"), "parameterServer.copies", "write an integer"),
        (FIXED_SERVERS, SERVERS.replace("copies: 2", "copies: two"), "parameterServer.copies", "write an integer"),
        (FIXED_SERVERS, SERVERS.replace("copies: 2", 'copies: "2"'), "parameterServer.copies", "without quotes"),
        (FIXED_SERVERS, SERVERS.replace("replicas: 3", 'replicas: "9"'), "parameterServer.replicas", "without quotes"),
        (FIXED_SERVERS, SERVERS.replace("replicas: 3", "replicas: 9.0"), "parameterServer.replicas", "2 to 4, or 0"),
        (FIXED_SERVERS, SERVERS.replace("maxReplicas: 4", "maxReplicas: 1.0"), "parameterServer.minReplicas", "larger"),
        (
            FIXED_SERVERS,
            FIXED_SERVERS.replace("2", "1\n    copies: 2"),
            "parameterServer.copies",
            "at most one server; raise maxReplicas to 2",
        ),
        (FIXED_SERVERS, SERVERS.replace("replicas: 3", "replicas: 5"), "parameterServer.replicas", "2 to 4, or 0"),
        (FIXED_SERVERS, FIXED_SERVERS.replace("2", "2\n    replicas: 1"), "parameterServer.replicas", "2 to 2, or 0"),
        (
            "requests: {cpu: 1, memory: 512Mi}",
            "limits: {}",
            "spec.parameterServer.template.spec.containers[0].resources.requests.cpu",
            "so a pod without them has no size",
        ),
        (
            "[{name: server, resources: {requests: {cpu: 1, memory: 512Mi}}}]",
            "[]",
            "spec.parameterServer.template.spec.containers",
            "has no container",
        ),
        ("cpu: 500m, memory: 256Mi, ", "", "containers[0].resources.requests.cpu", "requests"),
        ("cpu: 500m", "cpu: 1cpu", "containers[0].resources.requests.cpu", "no quantity"),
        ("memory: 256Mi", "memory: 256m", "containers[0].resources.requests.memory", "Mi means"),
        ("maxReplicas: 6", "maxReplica: 6", "spec.trainer.maxReplica", "did you mean maxReplicas?"),
        ("weight: 200", "wieght: 200", "spec.wieght", "did you mean weight?"),
        ("weight: 200", "priorityClassName: hgih", "spec.priorityClassName", "no priority class hgih"),
        ("maxReplicas: 6", "maxReplicas: 6\n    replicas: 7", "spec.trainer.replicas", "2 to 6"),
        ("maxReplicas: 6", "maxReplicas: 6\n    perNode: 4", "spec.trainer.minReplicas", "not a multiple of perNode 4"),
        ("kind: TrainingJob", "", "kind", "is missing; add one of TrainingJob, Deployment"),
        ("everySeconds: 5", "everySeconds: true", "spec.checkpoint.everySeconds", "write a number"),
        ("everySeconds: 5", "everySeconds:", "spec.checkpoint.everySeconds", "has no value; should be a number"),
        ("backoffLimit: 3", "suspend: 'true'", "spec.runPolicy.suspend", "true or false, without quotes"),
        ("backoffLimit: 3", "suspend: 1", "spec.runPolicy.suspend", "true or false, without quotes"),
        ("weight: 200", "group: {}", "spec.group", "either every trainer holds the model, or the servers do"),
        ("weight: 200", "group:", "spec.group", "is empty"),
        ("weight: 200", "group: true", "spec.group", "a mapping of fields"),
        ("weight: 200", "group: {globalBatch: 0}", "spec.group.globalBatch", "greater than or equal to 1"),
        ("weight: 200", f"group: {{globalBatch: {MOST + 1}}}", "spec.group.globalBatch", f"equal to {MOST}"),
        ("weight: 200", "group: {globalBatch: '8'}", "spec.group.globalBatch", "without quotes"),
        ("weight: 200", "group: {globalBatch: null}", "spec.group.globalBatch", "is empty"),
        ("weight: 200", "group: {batch: 8}", "spec.group.batch", "unknown field"),
        ("weight: 200", "group: {shares: measured}", "spec.group.shares", "Measured"),
        ("weight: 200", "group: {shares: null}", "spec.group.shares", "Measured"),
        ("maxReplicas: 6", "maxReplicas: 6\n    sizes: [2, 4, 3, 6]", "spec.trainer.sizes", "in ascending order"),
        ("maxReplicas: 6", "maxReplicas: 6\n    sizes: [2, 2, 6]", "spec.trainer.sizes", "each size once"),
        ("maxReplicas: 6", "maxReplicas: 6\n    sizes: [1, 6]", "spec.trainer.sizes", "first size is minReplicas"),
        ("maxReplicas: 6", "maxReplicas: 6\n    sizes: [2, 8]", "spec.trainer.sizes", "last size is maxReplicas"),
        (
            "maxReplicas: 6",
            "maxReplicas: 6\n    perNode: 2\n    sizes: [2, 5, 6]",
            "spec.trainer.sizes",
            "perNode is 2",
        ),
        ("maxReplicas: 6", "maxReplicas: 6\n    step: 2\n    sizes: [2, 6]", "spec.trainer.step", "with sizes"),
        (
            "maxReplicas: 6",
            "maxReplicas: 6\n    powersOfTwo: true\n    sizes: [2, 6]",
            "spec.trainer.sizes",
            "powersOf",
        ),
        (
            "maxReplicas: 6",
            "maxReplicas: 6\n    replicas: 3\n    sizes: [2, 4, 6]",
            "spec.trainer.replicas",
            "2, 4 or 6",
        ),
        ("maxReplicas: 6", "maxReplicas: 6\n    sizes: []", "spec.trainer.sizes", "at least 1 item"),
        ("maxReplicas: 6", "maxReplicas: 6\n    sizes: [2, 4.5, 6]", "spec.trainer.sizes[1]", "integer"),
        ("maxReplicas: 6", "maxReplicas: 6\n    sizes: [0, 6]", "spec.trainer.sizes[0]", "equal to 1"),
        ("maxReplicas: 6", "maxReplicas: 6\n    sizes: 2", "spec.trainer.sizes", "a list"),
        ("maxReplicas: 6", "maxReplicas: 6\n    sizes:", "spec.trainer.sizes", "is empty"),
        ("maxReplicas: 6", "maxReplicas: 6\n    perNode: 2\n    step: 3", "spec.trainer.step", "2, 4, ..."),
        ("maxReplicas: 6", "maxReplicas: 6\n    perNode: 2\n    replicas: 5", "spec.trainer.replicas", "steps of 2"),
        ("maxReplicas: 6", "maxReplicas: 6\n    perNode: 0", "spec.trainer.perNode", "greater than or equal to 1"),
        ("maxReplicas: 6", "maxReplicas: 6\n    resizeCostSeconds: .nan", "resizeCostSeconds", "finite"),
        ("command: [python, train.py]", "envFrom: []", "containers[0].envFrom", "write the variables"),
        ("kind: TrainingJob", "kind: TrainigJob", "kind", "did you mean TrainingJob?"),
        ("edl.dev/v1alpha1", "edl.dev/v2", "apiVersion", "edl.dev/v1alpha1"),
        ("{name: digits}", "{name: Digits_1}", "metadata.name", "lower case"),
        ("minReplicas: 2\n    max", "minReplicas: true\n    max", "spec.trainer.minReplicas", "write an integer"),
        ("apiVersion: edl.dev/v1alpha1\n", "", "apiVersion", "add apiVersion: edl.dev/v1alpha1"),
        ("command: [python, train.py]", "command: python train.py", "containers[0].command", "a list, [a, b]"),
        ("value: fast", "value: 1", "env[0].value", "in quotes"),
        ("name: MODE", "name: EDL_SHARES", "containers[0].env[0].name", "is set by EDL; set spec.group.shares instead"),
        ("name: MODE", "name: EDL_MASTER", "containers[0].env[0].name", "is set by EDL; leave it out"),
        ("Seconds: 5\n        containers", "Seconds: .inf\n        containers", "GracePeriodSeconds", "3600"),
        ("everySeconds: 5", "everySeconds: .inf", "everySeconds", "finite"),
        ("everySeconds: 5", "everySeconds: 1e300", "everySeconds", "31536000"),
        ("[python, train.py]", '["", train.py]', "containers[0].command[0]", "name the program"),
        ("[python, train.py]", '[python, "a\\0b"]', "containers[0].command[1]", "NUL"),
        ("maxReplicas: 6", "maxReplicas: 6\n    powersOfTwo: true\n    replicas: 3", "spec.trainer.replicas", "powers"),
        ("minReplicas: 2\n    max", "powersOfTwo: true\n    minReplicas: 3\n    max", "minReplicas", "power of two"),
        ("{name: digits}", "{name: " + "a" * 60 + "}", "metadata.name", "at most 50 characters"),
    ],
)
def test_a_wrong_field_is_refused_with_its_path_and_a_hint(parse, old, new, path, words):
    """Each refusal says where and what to do."""
    assert old in JOB
    found = refusals(parse, JOB.replace(old, new, 1))
    assert any(refusal.path.endswith(path) and words in str(refusal) for refusal in found), [str(r) for r in found]


@pytest.mark.parametrize(("group", "is_refused"), [("{}", False), ("{globalBatch: 64}", True)])
def test_a_template_may_name_the_global_batch_where_the_spec_has_none(parse, group, is_refused):
    job = JOB[: JOB.index("  parameterServer:")].replace("weight: 200", f"group: {group}")
    job = job.replace("{name: MODE, value: fast}", "{name: EDL_GLOBAL_BATCH, value: '32'}")
    assert "EDL_GLOBAL_BATCH" in job
    if is_refused:
        (refusal,) = refusals(parse, job)
        assert "set spec.group.globalBatch instead" in str(refusal)
    else:
        assert parse(job).jobs[0].trainer.template.env == (("EDL_GLOBAL_BATCH", "32"),)


def test_one_slip_is_told_once(parse):
    """A list is not also called empty because what stands in it was refused."""
    (refusal,) = refusals(parse, JOB.replace("cpu: 500m", "cpu: 1cpu"))
    assert refusal.path.endswith("requests.cpu")


def test_a_deployment_that_takes_a_trainers_name_is_refused(parse):
    """Pods are named by their owner: one name would mean two pods."""
    (refusal,) = refusals(parse, JOB, WEB.replace("name: web,", "name: digits-trainer,"))
    assert "TrainingJob digits" in str(refusal)


def test_a_file_of_many_slips_is_judged_in_bounded_time(parse):
    """As much is said as somebody can read."""
    found = refusals(parse, "kind: TrainingJob\n" + "\n".join(f"k{i}: v" for i in range(5000)))
    assert 10 <= len(found) <= 60


def test_all_that_is_wrong_is_said_at_once(parse):
    """A user mends a file once."""
    text = JOB.replace("minReplicas: 2\n    maxReplicas: 6", "minReplicas: 5\n    maxReplicas: 3\n    spet: 2")
    found = refusals(parse, text.replace("cpu: 500m", "cpu: many"), JOB.replace("weight", "wait"))
    paths = {refusal.path for refusal in found}
    assert {"spec.trainer.minReplicas", "spec.trainer.spet", "spec.wait", "metadata.name"} <= paths
    assert any(path.endswith("requests.cpu") for path in paths)


def test_two_jobs_of_one_name_are_refused(parse):
    """Also across files."""
    (found,) = refusals(parse, JOB, JOB)
    assert found.file.endswith("file1.yaml")
    assert "digits is defined twice" in found.problem


def test_a_class_not_above_surplus_is_refused(parse):
    """Surplus must stay below everything else."""
    text = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: low}, value: -5}"
    (found,) = refusals(parse, text)
    assert found.path == "value"
    assert "not above surplus" in found.problem


def test_a_defined_class_is_known(parse):
    """Jobs and Deployments may use it, and its value counts."""
    text = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}"
    manifests = parse(text, JOB.replace("weight: 200", "priorityClassName: high"))
    assert manifests.priority_of("high") == 1000
    assert manifests.priority_of("edl-core") == manifests.priority_of(None) == 0


def test_the_default_class_lifts_core_with_it(parse):
    """edl-core stands level with the cluster's default."""
    text = """
    {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: std}, value: 10, globalDefault: true}
    """
    assert parse(text).priority_of("edl-core") == 10


def test_machines_of_a_cluster_file_are_numbered(parse):
    """`count` repeats a node."""
    text = """
    apiVersion: edl.dev/v1alpha1
    kind: LocalCluster
    metadata: {name: laptop}
    spec: {nodes: [{name: small, count: 2, cpu: 2, memory: 4Gi}, {name: big, cpu: 8, memory: 32Gi, gpu: 2}]}
    """
    nodes = parse(text).nodes
    assert [node.name for node in nodes] == ["small-1", "small-2", "big"]
    assert nodes[2].capacity.gpu_count == 2


def test_more_pods_than_any_machine_holds_are_refused(parse):
    """A thousand million replicas were taken in, and each became a value in memory."""
    (found,) = refusals(parse, WEB.replace("replicas: 3", "replicas: 1000000000"))
    assert "spec.replicas" in str(found)
    assert "less than or equal to 10000" in str(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not YAML"),
        ("- 1", "not a mapping"),
        ("", "contains no document"),
        ("---\n---\n# nothing\n", "contains no document"),
        ("---\n~\n", "not a mapping"),
        ("{a: 1, a: 2}", "is a duplicate"),
        ("x0: &x0 [z, z]\n" + "\n".join(f"x{i}: &x{i} [*x{i - 1}, *x{i - 1}]" for i in range(1, 40)), "more than"),
        ("a: &x [*x]", "nested too deeply"),
        ("a: " + "[" * 20_000, "nested too deeply"),
        ("a: 1\n\tb: 2", "with spaces, not with tabs"),
        ("a: " + "x" * 300_000, "KiB"),
        ("a: !!python/object:os.system {}", "not YAML"),
    ],
)
def test_a_file_that_is_no_list_of_documents_is_refused(parse, text, words):
    """Nothing is unpickled, unfolded or guessed."""
    assert any(words in str(refusal) for refusal in refusals(parse, text))


def test_empty_documents_are_passed_over_as_kubectl_does(parse):
    """A `---` at the end of a file, and what a template left empty, were refused as no mapping of fields."""
    assert len(parse(f"---\n# left out\n---\n{WEB}---\n").deployments) == 1


def test_a_device_without_an_end_is_refused():
    """Its size is told as 0."""
    with pytest.raises(InvalidManifestError, match="KiB"):
        parse_files([Path("/dev/zero")])


def test_a_file_that_is_not_there_is_refused(tmp_path):
    """By its name."""
    with pytest.raises(InvalidManifestError, match=r"nowhere\.yaml"):
        parse_files([tmp_path / "nowhere.yaml"])


@pytest.mark.parametrize("value", ["9" * 5000, "2026-13-45"])
def test_number_or_date_that_cannot_be_is_refused_by_its_file(tmp_path, value):
    """YAML's own reading raised a ValueError there, which ended the command (A11)."""
    file = tmp_path / "job.yaml"
    file.write_text(f"kind: TrainingJob\nspec: {{weight: {value}}}\n")
    with pytest.raises(InvalidManifestError, match="is not YAML that EDL can read"):
        parse_files([file])
