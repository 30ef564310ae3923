"""Small clusters that nobody thought of: every feature of nodes, jobs and pods, every field of the policy."""

from dataclasses import replace
from math import nan

from hypothesis import strategies as st

from autoscaler.domain import (
    Admission,
    Capabilities,
    Fairness,
    Headroom,
    Job,
    LabelOperator,
    MasterSpec,
    Node,
    Policy,
    Reclaim,
    Requirement,
    Resources,
    ServerSpec,
    Shape,
    Taint,
    TaintEffect,
    Toleration,
    TrainerSpec,
    Workload,
)
from autoscaler.throughput import CurveShape, FittedCurve
from tests.property.planner_cases import NO_GATES
from tests.unit.clusters.memory_cluster import MemoryCluster

SPOT = Taint(key="spot")
FAST = ("disk", "fast")
DEVICES = ("vendor.example/large", "vendor.example/small")  # two kinds of GPUs, as extended resources
DEVICE = Taint(key="vendor.example/gpu", value="present", effect=TaintEffect.NO_EXECUTE)
NAMESPACES = ("blue", "red")
numbers = st.integers(0, 30)


def often(usual, *others):
    """The usual value in two of three draws, or one of the others."""
    return st.sampled_from([usual] * 2 * len(others) + [*others])


def amounts(cpu, memory, gpu):
    return st.builds(lambda c, m, g: Resources(cpu_milli=c * 500, memory_bytes=m << 28, gpu_count=g), cpu, memory, gpu)


few_gpus = st.sampled_from([0, 0, 0, 0, 1])
shapes = st.builds(lambda r: Shape(requests=r), amounts(st.integers(1, 4), st.integers(0, 3), few_gpus))
small_shapes = st.builds(lambda r: Shape(requests=r), amounts(st.integers(0, 1), st.integers(0, 1), st.just(0)))
bindings = often("", "tolerates", "selects", "wants", "shuns", *DEVICES)


def bound_to(shape, binding):
    """The shape with a say in where it may stand: spot nodes are tainted, fast ones carry a label, GPUs both."""
    match binding:
        case "tolerates":
            return replace(shape, tolerations=frozenset({Toleration(key=SPOT.key)}))
        case "selects":
            return replace(shape, node_selector=frozenset({FAST}))
        case "wants" | "shuns":
            operator = LabelOperator.IN if binding == "wants" else LabelOperator.NOT_IN
            return replace(shape, node_terms=((Requirement(key=FAST[0], operator=operator, values=(FAST[1],)),),))
        case "":
            return shape
        case device:
            requests = replace(shape.requests, extended=((device, 1),))
            tolerations = frozenset({Toleration(key=DEVICE.key, value=DEVICE.value)})
            return replace(shape, requests=requests, tolerations=tolerations)


@st.composite
def nodes(draw, name):
    """A node, perhaps tainted or labelled, perhaps with GPUs of one kind and the taint that keeps others away."""
    sizes = amounts(st.integers(0, 16), st.integers(4, 16), st.integers(0, 2))
    labels = draw(st.sampled_from([frozenset(), frozenset({FAST})]))
    kind = draw(often("", "spot", *DEVICES))
    allocatable = draw(sizes)
    if kind in DEVICES:
        allocatable = replace(allocatable, extended=((kind, draw(st.integers(1, 4))),))
    taints = frozenset({DEVICE} if kind in DEVICES else {SPOT} if kind else ())
    return Node(name=name, allocatable=allocatable, labels=labels, taints=taints)


@st.composite
def clusters(draw, max_nodes=4, *, has_limits=True):
    """Nodes and nothing on them; with limits also quotas and what the adapter can do."""
    count = draw(st.integers(1, max_nodes))
    cluster = MemoryCluster(draw(nodes(f"n{number}")) for number in range(count))
    if has_limits:
        cluster.capabilities = Capabilities(
            servers_elastic=draw(st.booleans()),
            moves_servers=draw(st.booleans()),
            replaces_masters=draw(often(False, True)),
        )
        hard = amounts(st.integers(4, 24), st.integers(0, 24), st.just(0))
        cluster.hard = draw(often({}, {NAMESPACES[0]: draw(hard)}, dict.fromkeys(NAMESPACES, draw(hard))))
    return cluster


@st.composite
def listed_sizes(draw, low, unit):
    """Sizes from the minimum on, in units, with gaps of any width."""
    more = draw(st.sets(st.integers(1, 8), max_size=4))
    return (low, *(low + unit * number for number in sorted(more)))


@st.composite
def trainers(
    draw, sizes=("ones", "ones", "ones", "twos", "powers", "pairs", "powers in pairs", "listed", "listed pairs")
):
    """Trainers of any allowed sizes, sometimes pinned."""
    low, more = draw(st.integers(1, 3)), draw(st.integers(0, 8))
    kind = draw(st.sampled_from(sizes))
    low = {"powers": min(low, 2), "pairs": 2, "powers in pairs": 2, "listed pairs": 2}.get(kind, low)
    sizes_listed = draw(listed_sizes(low, 2 if "pairs" in kind else 1)) if "listed" in kind else ()
    spec = TrainerSpec(
        shape=bound_to(draw(shapes), draw(bindings)),
        efficiency=draw(often(0.0, 0.7)),
        min_replicas=low,
        max_replicas=sizes_listed[-1] if sizes_listed else low + more,
        step=2 if kind in {"twos", "pairs"} else 1,
        sizes=sizes_listed,
        powers_of_two=kind in {"powers", "powers in pairs"},
        per_node=2 if "pairs" in kind else 1,
    )
    is_pinned = draw(st.integers(0, 7)) == 7
    return replace(spec, pinned_replicas=spec.next_size(low) or low) if is_pinned else spec


@st.composite
def servers(draw):
    """Servers, or none: one or two, up to two more where they are elastic."""
    low = draw(st.integers(0, 2))
    if not low:
        return None
    most = low + draw(st.integers(0, 2))
    return ServerSpec(
        shape=draw(small_shapes),
        min_replicas=low,
        max_replicas=most,
        trainers_per_server=draw(st.integers(1, 4)),
        pinned_replicas=draw(often(0, low, most)),
        prefers_anti_affinity=draw(often(False, True)),
    )


bent = CurveShape(work=1.0, serial=0.1)
throughputs = often(
    None,
    FittedCurve(expected=bent, favourable=bent, sizes=(2, 4)),
    FittedCurve(expected=CurveShape(work=2.0), favourable=CurveShape(work=2.0), sizes=(2, 3)),
    FittedCurve(expected=bent, favourable=bent, sizes=(3,)),
)


@st.composite
def jobs(draw, name, **trainer):
    """A job with everything that a document can say, and what jobs tell of themselves."""
    return Job(
        name=name,
        trainer=draw(trainers(**trainer)),
        servers=draw(servers()),
        master=MasterSpec(shape=draw(small_shapes), replicas=draw(often(1, 2))),
        namespace=draw(st.sampled_from(NAMESPACES)),
        priority=draw(often(0, 5, -3)),
        weight=draw(often(100, 50, 300)),
        submitted_at_s=float(draw(st.integers(0, 900))),
        grace_s=draw(often(30.0, 0.5)),
        checkpoint_age_s=draw(often(None, 3.0, 60.0)),
        resize_cost_s=draw(often(0.0, 5.0)),
        resize_pause_s=draw(often(0.0, 0.05, 5.0)),
        remaining_s=draw(often(None, 4.0, 1e6)),
        throughput=draw(throughputs),
    )


odd_flags = st.sampled_from([{"priority": 5}, {"priority": -1}, {"is_modelled": False}, {"can_preempt": True}])
workloads = st.builds(
    lambda number, shape, priority, desired, more: Workload(
        name=f"w{number}", shape=shape, priority=priority, desired_replicas=desired, max_replicas=desired + more
    ),
    st.integers(0, 1),
    shapes,
    often(0, 5),
    st.integers(0, 3),
    st.integers(0, 3),
)
common_events = st.one_of(
    st.tuples(st.just("web"), shapes),
    st.tuples(st.sampled_from(["kill", "web leaves", "cordon", "open"]), numbers),
)
rare_events = st.one_of(
    st.tuples(st.just("odd web"), st.tuples(shapes, odd_flags)),
    st.tuples(st.just("workload"), workloads),
    st.tuples(
        st.sampled_from(["kill core", "quota", "edit", "drain", "suspend", "resume", "over", "hold", "age"]), numbers
    ),
)


@st.composite
def stories(draw, max_events=8, **trainer):
    """What happens to a cluster, one event a turn: always jobs first, so that there is something to move."""
    listed = [draw(jobs(f"j{number}", **trainer)) for number in range(draw(st.integers(2, 4)))]
    submissions = [("submit", job) for job in listed]
    others = draw(st.lists(st.one_of(common_events, rare_events), max_size=max_events))
    return [submissions[0], *draw(st.permutations([*submissions[1:], *others]))]


CHOICES = {
    "admission": st.sampled_from(Admission),
    "reclaim": st.sampled_from(Reclaim),
    "fairness": st.sampled_from(Fairness),
    "preempts_jobs": st.booleans(),
    "stale_limit_s": often(10.0, 2.0),
    "lost_nodes_limit_percent": often(30, 60),
    "gang_age_s": often(120.0, 5.0),
    "shortfall_limit_s": often(60.0, 5.0),
    "refused_after_s": often(5.0, 1.0),
    "refusal_backoff_s": often(60.0, 2.0),
    "refusal_backoff_limit_s": often(600.0, 3.0),
    "vacated_nodes_per_pod": often(2, 1, 0),
    "preemption_wait_s": often(2.0, 0.0),
    "surplus_grace_s": often(10.0, 0.5),
    "is_frozen": st.booleans(),
    "headroom": st.lists(st.builds(Headroom, shape=shapes, count=st.integers(0, 3)), max_size=1).map(tuple),
    "headroom_percent": often(0.0, 20.0, nan),
    "autoscaler_headroom_percent": often(0.0, 50.0),
    "has_device_reserve": st.booleans(),
}
GATES = {
    "up_window_s": often(3.0, 0.0),
    "down_window_s": often(30.0, 0.0, 5.0),
    "quiet_window_s": often(1.0, 0.0),
    "victim_age_s": often(30.0, 0.0),
    "burst_window_s": often(6.0, 0.0),
    "burst_part": often(20, 4, 2),
    "transfers_per_minute": often(6, 0, 1),
    "transfers_percent_per_minute": often(25, 0, 100),
    "resizes_per_minute": often(0, 1, 3),
    "server_moves_per_minute": often(6, 0, 1),
    "server_moves_percent_per_minute": often(50, 0, 100),
    "server_move_cost_s": often(1.0, 0.0, 60.0),
    "payoff_s": often(600.0, 0.0, 20.0),
    "preempted_pause_s": often(30.0, 0.0),
}


def policies(*, has_gates, **settled):
    """Policies with all windows and caps on changes drawn, or all off; `settled` are as they are given."""
    base = Policy() if has_gates else NO_GATES
    drawn = {**CHOICES, **(GATES if has_gates else {})}
    kept = {name: strategy for name, strategy in drawn.items() if name not in settled}
    return st.fixed_dictionaries({}, optional=kept).map(lambda found: replace(base, **found, **settled))


open_policies = policies(has_gates=False)
gated_policies = policies(has_gates=True)
