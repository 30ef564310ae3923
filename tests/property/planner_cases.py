"""Small clusters for the planner's properties, and the promises as checks on them."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

from hypothesis import strategies as st

from autoscaler.domain import (
    NOTHING,
    AdmitGang,
    CreatePod,
    DeletePod,
    History,
    Job,
    MasterSpec,
    Node,
    Operator,
    Pod,
    PodPhase,
    Policy,
    Requirement,
    Resources,
    Role,
    ServerSpec,
    Shape,
    Taint,
    Tier,
    Toleration,
    TrainerSpec,
)
from autoscaler.planner import plan, record_applied
from tests.unit.memory_cluster import MemoryCluster

NO_GATES = Policy(
    up_window_s=0.0,
    down_window_s=0.0,
    quiet_window_s=0.0,
    burst_window_s=0.0,
    victim_age_s=0.0,
    transfers_per_minute=10_000,
)


def amounts(cpu, memory, gpu):
    return st.builds(lambda c, m, g: Resources(cpu_milli=c * 500, memory_bytes=m << 28, gpu_count=g), cpu, memory, gpu)


few_gpus = st.sampled_from([0, 0, 0, 0, 1])
shapes = st.builds(lambda r: Shape(requests=r), amounts(st.integers(1, 4), st.integers(0, 3), few_gpus))
small_shapes = st.builds(lambda r: Shape(requests=r), amounts(st.integers(0, 1), st.integers(0, 1), st.just(0)))


SPOT = Taint(key="spot")
FAST = ("disk", "fast")
bindings = st.sampled_from(["", "", "", "", "tolerates", "selects", "wants", "shuns"])


def bound_to(shape, binding):
    """The shape with a say in where it may stand: spot nodes are tainted, fast ones carry a label."""
    match binding:
        case "tolerates":
            return replace(shape, tolerations=frozenset({Toleration(key=SPOT.key)}))
        case "selects":
            return replace(shape, node_selector=frozenset({FAST}))
        case "wants" | "shuns":
            operator = Operator.IN if binding == "wants" else Operator.NOT_IN
            return replace(shape, node_terms=((Requirement(key=FAST[0], operator=operator, values=(FAST[1],)),),))
    return shape


@st.composite
def jobs(draw, name, *, rich=False):
    """`rich`: also powers of two, pairs to a node, and a say in where trainers stand."""
    low, more = draw(st.integers(1, 3)), draw(st.integers(0, 8))
    kind = draw(st.sampled_from(["1", "1", "1", "2", *(["powers", "pairs"] if rich else [])]))
    low = {"powers": min(low, 2), "pairs": 2}.get(kind, low)
    trainer = TrainerSpec(
        shape=bound_to(draw(shapes), draw(bindings) if rich else ""),
        min_replicas=low,
        max_replicas=low + more,
        step=2 if kind in {"2", "pairs"} else 1,
        powers_of_two=kind == "powers",
        per_node=2 if kind == "pairs" else 1,
    )
    count = draw(st.integers(0, 2))
    servers = ServerSpec(shape=draw(small_shapes), min_replicas=count, max_replicas=count + 1) if count else None
    return Job(
        name=name,
        trainer=trainer,
        servers=servers,
        master=MasterSpec(shape=draw(small_shapes)),
        priority=draw(st.sampled_from([0, 0, 0, 5])),
        weight=draw(st.sampled_from([100, 100, 50, 300])),
        submitted_at_s=float(draw(st.integers(0, 900))),
    )


@st.composite
def clusters(draw, max_nodes=4, *, rich=False):
    """Nodes and nothing on them; `rich`: some tainted, some labelled."""
    sizes = amounts(st.integers(0, 16), st.integers(4, 16), st.integers(0, 2))
    count = draw(st.integers(1, max_nodes))
    labels = st.sampled_from([frozenset(), frozenset({FAST})] if rich else [frozenset()])
    taints = st.sampled_from([frozenset(), frozenset(), frozenset({SPOT})] if rich else [frozenset()])
    return MemoryCluster(
        Node(name=f"n{number}", allocatable=draw(sizes), labels=draw(labels), taints=draw(taints))
        for number in range(count)
    )


@st.composite
def stories(draw, max_events=8, *, rich=False):
    """What happens to a cluster, one event a turn: always jobs first, so that there is something to move."""
    listed = [draw(jobs(f"j{number}", rich=rich)) for number in range(draw(st.integers(2, 4)))]
    submissions = [("submit", job) for job in listed]
    others = draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("web"), shapes),
                st.tuples(st.sampled_from(["kill", "web leaves", "cordon", "open"]), st.integers(0, 30)),
            ),
            max_size=max_events,
        )
    )
    return [submissions[0], *draw(st.permutations([*submissions[1:], *others]))]


def happen(cluster, event):
    """Let one event of a story happen."""
    kind, what = event
    match kind:
        case "submit":
            cluster.put(replace(what, submitted_at_s=cluster.now()))
        case "web":
            cluster.put(web(cluster.revision, what, now_s=cluster.now()))
        case "kill":
            lose_one(cluster, what, lambda pod: pod.role is Role.TRAINER)
        case "web leaves":
            lose_one(cluster, what, lambda pod: pod.role is Role.OTHER)
        case "edit":
            name = sorted(cluster.jobs)[what % len(cluster.jobs)]
            cluster.put(edited(cluster.jobs[name], what))
        case "drain":
            name = sorted(cluster.nodes)[what % len(cluster.nodes)]
            cluster.put(replace(cluster.nodes[name], is_draining=not cluster.nodes[name].is_draining))
        case "cordon" | "open":
            name = sorted(cluster.nodes)[what % len(cluster.nodes)]
            cluster.put(replace(cluster.nodes[name], is_cordoned=kind == "cordon"))


def edited(job, number):
    """The user changes minimum, maximum and pin."""
    low = 1 + number % 3
    if job.trainer.powers_of_two or job.trainer.per_node > 1:
        return replace(job, trainer=replace(job.trainer, min_replicas=2, max_replicas=2 + 2 * (number % 4)))
    pinned = low + job.trainer.step if number % 2 else 0
    high = low + job.trainer.step + number % 5
    return replace(job, trainer=replace(job.trainer, min_replicas=low, max_replicas=high, pinned_replicas=pinned))


def lose_one(cluster, which, is_meant):
    """The pod is gone without a word."""
    names = sorted(pod.name for pod in cluster.pods.values() if is_meant(pod))
    if names:
        cluster.lose(names[which % len(names)])


def web(number, shape, *, priority=0, now_s=0.0):
    """A pod of others that waits for a node."""
    return Pod(
        name=f"web-{number}",
        role=Role.OTHER,
        tier=Tier.FOREIGN,
        shape=shape,
        phase=PodPhase.PENDING,
        priority=priority,
        created_at_s=now_s,
    )


class Driver:
    """Plans and applies, and checks after every single write that capacity holds (A2)."""

    def __init__(self, cluster, policy):
        self.cluster = cluster
        self.policy = policy
        self.history = History()

    def plan(self):
        return plan(self.cluster.view(history=self.history), self.policy, self.cluster.now())

    def turn(self):
        """One plan, carried out."""
        decided = self.plan()
        self.apply(decided, decided.actions)
        return decided

    def apply(self, decided, actions):
        self.history = decided.history
        for action in actions:
            outcome = self.cluster.carry_out(action)
            assert outcome.verdict == "done", f"{action}: {outcome.message}"
            self.cluster.check_capacity()
            self.history = record_applied(self.history, action, self.cluster.now())

    def live(self, story, seconds=3.0):
        """Let a whole story happen, at rest between its events."""
        for event in story:
            happen(self.cluster, event)
            self.settle(seconds=seconds)

    def settle(self, turns=60, seconds=3.0):
        """Plan and let pods leave until a plan asks for nothing and nothing is leaving."""
        story = []
        for _ in range(turns):
            self.cluster.bind_others()
            decided = self.turn()
            story.append(decided.actions)
            is_leaving = any(pod.phase is PodPhase.TERMINATING for pod in self.cluster.pods.values())
            if not decided.actions and not is_leaving:
                return decided
            self.cluster.advance(seconds)
        raise AssertionError(f"no rest after {turns} turns; the last ones: {story[-6:]}")


def check_targets(decided, view):
    """A1: every target is 0 or allowed."""
    specs = {job.name: job.trainer for job in view.jobs}
    for decision in decided.decisions:
        assert decision.target == 0 or specs[decision.job].is_allowed(decision.target), decision


def check_gangs(decided, view):
    """A1: a gang is admitted whole, and one at a time."""
    gangs = [action for action in decided.actions if isinstance(action, AdmitGang)]
    assert len(gangs) <= 1
    for gang in gangs:
        job = next(job for job in view.jobs if job.name == gang.job)
        counts = {role: sum(pod.role is role for pod in gang.pods) for role in Role}
        assert counts[Role.TRAINER] == job.trainer.min_replicas
        assert counts[Role.SERVER] == job.server_count
        assert counts[Role.MASTER] == job.master.replicas


def check_minimums(decided, view):
    """Nothing that EDL deletes takes a running, unchanged job below its minimum, or a server from it."""
    for job in view.jobs:
        deleted = {a.pod for a in decided.actions if isinstance(a, DeletePod) and a.job == job.name}
        standing = [p for p in view.pods if p.job == job.name and p.phase is not PodPhase.TERMINATING]
        trainers = [pod for pod in standing if pod.role is Role.TRAINER]
        left = [pod for pod in trainers if pod.name not in deleted]
        assert len(left) >= min(len(trainers), job.trainer.min_replicas)
        assert not any(pod.name in deleted for pod in standing if pod.role is not Role.TRAINER)


def check_forced_at_rest(view, decided):
    """A3: no waiting pod would run if some surplus on one node were gone, minimums kept and refusals apart."""
    refused = {refusal.pod for refusal in view.history.refusals}
    pending = [p for p in view.pods if p.role is Role.OTHER and p.place is None and p.priority >= 0]
    for pod in pending:
        if pod.unschedulable_since_s is None or pod.name in refused or not pod.is_modelled:
            continue
        for node in view.nodes:
            if node.is_open() and node.accepts(pod.shape):
                room = free_on(view, node) + takeable_on(view, node)
                assert not pod.requests.fits_into(room), f"{pod.name} could run on {node.name}: {decided.demands}"


def free_on(view, node):
    used = sum((pod.requests for pod in view.pods if pod.place == node.name), start=NOTHING)
    return node.allocatable - used


def takeable_on(view, node):
    """All surplus on the node that its jobs can spare."""
    total = NOTHING
    for job in view.jobs:
        trainers = [p for p in view.pods if p.job == job.name and p.role is Role.TRAINER]
        spare = max(0, len(trainers) - job.trainer.min_replicas)
        here = [pod for pod in trainers if pod.tier is Tier.SURPLUS and pod.node == node.name]
        total = sum((pod.requests for pod in here[:spare]), start=total)
    return total


def share_of(view, job, *, more=0):
    """Weighted dominant share of what stands, and `more` trainers."""
    capacity = sum((n.allocatable for n in view.nodes if n.is_ready and n.accepts(job.trainer.shape)), start=NOTHING)
    used = sum((pod.requests for pod in view.pods if pod.job == job.name), start=NOTHING)
    used = used.plus(job.trainer.shape.requests, times=more)
    parts = [Fraction(amount, capacity.amount(name)) for name, amount in used.amounts() if capacity.amount(name)]
    return max(parts, default=Fraction(0)) / job.weight


def check_exchange_at_rest(view):
    """A4: between jobs of one priority, taking a step from the richer would not let the poorer grow."""
    running = [job for job in view.jobs if any(pod.job == job.name for pod in view.pods)]
    size = {job.name: sum(p.job == job.name and p.role is Role.TRAINER for p in view.pods) for job in running}
    for poor in running:
        following = poor.trainer.next_size(size[poor.name])
        for rich in running:
            if following is None or rich is poor or rich.priority != poor.priority:
                continue
            down = size[rich.name] - rich.trainer.largest_allowed(size[rich.name] - 1)
            if down <= 0 or size[rich.name] <= rich.trainer.min_replicas:
                continue
            step = following - size[poor.name]
            if share_of(view, poor, more=step) < share_of(view, rich, more=-down):
                assert not could_grow(view, poor, step, rich, down), f"{rich.name} -> {poor.name}"


def could_grow(view, poor, step, rich, down):
    """Whether some `down` surplus trainers of the rich leave room for `step` of the poor: every choice is tried."""
    surplus = [p for p in view.pods if p.job == rich.name and p.tier is Tier.SURPLUS]
    shape = poor.trainer.shape
    for gone in combinations(surplus, down):
        left = replace(view, pods=tuple(pod for pod in view.pods if pod not in gone))
        nodes = [node for node in left.nodes if node.is_open() and node.accepts(shape)]
        if sum(shape.requests.copies_that_fit(free_on(left, node)) for node in nodes) >= step:
            return True
    return False


def created(decided):
    """All creations of a plan, those inside gangs included."""
    for action in decided.actions:
        if isinstance(action, CreatePod):
            yield action
        elif isinstance(action, AdmitGang):
            yield from action.pods
