"""What a pod takes, against a definition by moments; and shapes: a pod that EDL makes asks for what was planned."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.kubernetes.builders.master_deployment import build_master
from autoscaler.clusters.kubernetes.builders.member_pods import build_pod, ungate_patch
from autoscaler.clusters.kubernetes.parsing.pod_objects import PodContext, parse_pod
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.clusters.kubernetes.parsing.pod_shapes import shape_of_template
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job, to_planner_job
from autoscaler.domain import Resources, Role, Tier
from tests.unit.clusters.kubernetes.raw_objects import SETTINGS, UID, as_stored, merge, placement, raw_job

NAMES = ("cpu", "memory", "nvidia.com/gpu", "example.com/fpga", "ephemeral-storage")
WRITTEN = {"cpu": "m", "memory": "Mi", "ephemeral-storage": "Mi"}


def quantities(name):
    return st.integers(0, 5).map(lambda n: f"{n}{WRITTEN[name]}" if name in WRITTEN else str(n))


amounts = st.fixed_dictionaries({}, optional={name: quantities(name) for name in NAMES})
resources = st.fixed_dictionaries({}, optional={"requests": amounts, "limits": amounts})
containers = st.builds(lambda asked: {"resources": asked}, resources)
inits = st.builds(
    lambda asked, *, always: {"resources": asked} | ({"restartPolicy": "Always"} if always else {}),
    resources,
    always=st.booleans(),
)
specs = st.builds(
    lambda main, init, overhead: {
        "containers": [{"name": f"c{i}", **c} for i, c in enumerate(main)],
        "initContainers": [{"name": f"i{i}", **c} for i, c in enumerate(init)],
        **({"overhead": overhead} if overhead else {}),
    },
    st.lists(containers, min_size=1, max_size=3),
    st.lists(inits, max_size=4),
    amounts,
)


def number(quantity):
    return int(quantity.removesuffix("m").removesuffix("Mi")) * (1 << 20 if quantity.endswith("Mi") else 1)


def ask(container, name):
    said = container["resources"].get("requests", {}).get(name)
    return number(said or container["resources"].get("limits", {}).get(name, "0"))


def by_moments(spec, name):
    """The largest sum of what runs at one time, in the order in which a kubelet starts things."""
    sidecars, moments = [], []
    for init in spec["initContainers"]:
        moments.append([*sidecars, init])
        if init.get("restartPolicy") == "Always":
            sidecars.append(init)
    moments.append([*sidecars, *spec["containers"]])
    overhead = number(spec.get("overhead", {}).get(name, "0"))
    return max(sum(ask(running, name) for running in moment) for moment in moments) + overhead


@given(specs)
def test_request_is_the_neediest_moment_of_the_pods_life(spec):
    """Init containers one by one, sidecars beside what follows them, containers together; overhead on top (rule 12)."""
    found = pod_request(spec)
    assert found == Resources(
        cpu_milli=by_moments(spec, "cpu"),
        memory_bytes=by_moments(spec, "memory"),
        gpu_count=by_moments(spec, "nvidia.com/gpu"),
        extended=(*((name, by_moments(spec, name)) for name in NAMES[3:]), ("pods", 1)),
    )


@given(specs, st.data())
def test_resize_holds_the_larger_of_wanted_and_allocated(spec, data):
    """While a resize in place is under way both sizes are reserved, as kube-scheduler reserves them (rule 12)."""
    held = data.draw(st.lists(amounts, min_size=len(spec["containers"]), max_size=len(spec["containers"])))
    statuses = [{"name": f"c{i}", "allocatedResources": one} for i, one in enumerate(held)]
    larger = [
        {"name": f"c{i}", "resources": {"requests": {n: max_of(n, ask(c, n), one) for n in NAMES}}}
        for i, (c, one) in enumerate(zip(spec["containers"], held, strict=True))
    ]
    resized = pod_request(spec, {"containerStatuses": statuses})
    assert resized == pod_request({**spec, "containers": larger})


def max_of(name, asked, held):
    return f"{max(asked, number(held.get(name, '0'))) // (1 << 20 if WRITTEN.get(name) == 'Mi' else 1)}" + WRITTEN.get(
        name, ""
    )


lines = st.builds(
    lambda key, operator, value: (
        {"key": key, "operator": operator} | ({"values": [value]} if operator in {"In", "NotIn"} else {})
    ),
    st.sampled_from(["zone", "disk", "edl.dev/opt-out"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.sampled_from(["a", "b"]),
)
fields = st.builds(
    lambda operator, node: {"key": "metadata.name", "operator": operator, "values": [node]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(["n1", "n2"]),
)
terms = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(lines, max_size=2),
        "matchFields": st.lists(fields, max_size=2),
    },
)
affinities = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.lists(terms, min_size=1, max_size=3).map(
            lambda found: {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}
        ),
        "podAntiAffinity": st.just({"preferredDuringSchedulingIgnoredDuringExecution": []}),
    },
)
tolerations = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["gpu", "spot", "node.kubernetes.io/not-ready"]),
        "operator": st.sampled_from(["", "Equal", "Exists"]),
        "value": st.sampled_from(["", "yes"]),
        "effect": st.sampled_from(["", "NoSchedule", "NoExecute", "PreferNoSchedule"]),
    },
)
needed = st.fixed_dictionaries({"cpu": st.just("2m"), "memory": quantities("memory")}, optional={})


def lawful(container, limits):
    """What a job may say (ADR 0161): an image, some cpu, no limit below its request, devices among the limits."""
    asked, limits = (
        dict(container["resources"].get("requests", {})),
        {**limits, **container["resources"].get("limits", {})},
    )
    if not number(asked.get("cpu", limits.get("cpu", "1m"))):
        asked["cpu"] = "1m"
    for name, quantity in asked.items():
        if name not in WRITTEN or (name in limits and number(limits[name]) < number(quantity)):
            limits[name] = quantity
    return {**container, "image": "edl/train:1", "resources": {"requests": asked, "limits": limits}}


templates = st.builds(
    lambda spec, requests, extra: {
        "spec": {
            **spec,
            **extra,
            "containers": [lawful(container, requests) for container in spec["containers"]],
            "initContainers": [lawful(container, {}) for container in spec["initContainers"]],
        }
    },
    specs,
    needed,
    st.fixed_dictionaries(
        {},
        optional={
            "affinity": affinities,
            "tolerations": st.lists(tolerations, max_size=2),
            "nodeSelector": st.dictionaries(st.sampled_from(["zone", "disk"]), st.sampled_from(["a", "b"])),
            "volumes": st.just([{"name": "data", "emptyDir": {}}]),
        },
    ),
)
CONTEXT = PodContext(jobs={UID: "team-a/digits"}, masters={"team-a/digits-master": UID})


@given(templates, st.sampled_from([Role.TRAINER, Role.SERVER]), st.booleans(), st.sets(st.sampled_from(["n2", "n3"])))
def test_pod_built_from_a_job_reads_back_as_its_shape(template, role, is_gated, avoid):
    """The planner plans with the job's shape: what is read from the pod is it, less the node that it is tied to."""
    avoid = frozenset(avoid)
    job = parse_job(raw_job(trainer={"template": template}, server={"template": template}))
    planned = to_planner_job(job, priority=0, avoid=avoid)
    body = build_pod(job, placement(role, tier=Tier.CORE, node="n1"), SETTINGS, is_gated=is_gated, avoid=avoid)
    stored = as_stored(body)
    if is_gated:
        assert parse_pod(stored, CONTEXT) is None  # no size and no room
        stored = merge(stored, ungate_patch(stored, "n1"))
    pod = parse_pod(stored, CONTEXT)
    assert pod.shape == (planned.trainer.shape if role is Role.TRAINER else planned.servers.shape)
    assert pod.place == "n1" or pod.shape.node_terms == ((),)  # such a pod may stand nowhere
    assert (pod.job, pod.role, pod.ordinal, pod.tier) == (job.key, role, 0, Tier.CORE)


@given(templates)
def test_master_built_from_a_job_reads_back_as_its_shape(template):
    """The same for the pod that the master's Deployment makes, which is tied to no node."""
    job = parse_job(raw_job(master={"replicas": 2, "template": template}))
    made = build_master(job, SETTINGS)["spec"]["template"]
    pod = as_stored(
        {"metadata": {**made["metadata"], "name": "digits-master-5d4f-x", "namespace": "team-a"}}
        | {"spec": made["spec"]}
    )
    pod["metadata"]["labels"]["pod-template-hash"] = "5d4f"
    pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "digits-master-5d4f", "controller": True}]
    assert parse_pod(pod, CONTEXT).shape == to_planner_job(job, priority=0).master.shape


@given(templates)
def test_shape_of_a_template_is_that_of_its_pod_after_defaulting(template):
    """What the API server fills in when it stores a pod changes nothing."""
    body = {"metadata": {"name": "w", "namespace": "x"}, "spec": template["spec"]}
    pod = parse_pod(as_stored(body), CONTEXT)
    assert pod.shape == shape_of_template(template)
    bound = as_stored(body)
    bound["spec"]["nodeName"] = "n1"
    standing = parse_pod(bound, CONTEXT)
    assert standing.shape == replace(standing.shape, requests=pod.requests)
