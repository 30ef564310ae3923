"""A small cluster through its life: what happens to it, and the planner that answers.  Drawn by `planner_draws`."""

from dataclasses import replace

from autoscaler.domain import History, JobState, Pod, PodPhase, Policy, Role, Tier
from autoscaler.planner import plan, record_applied

NO_GATES = Policy(
    up_window_s=0.0,
    down_window_s=0.0,
    quiet_window_s=0.0,
    burst_window_s=0.0,
    victim_age_s=0.0,
    transfers_per_minute=10_000,
    payoff_s=0.0,
    observing_s=0.0,
    preempted_pause_s=0.0,
)

RESTS_S = 6.0  # longer than anything that settles by itself: pauses of jobs, the scheduler's time for a pod


def happen(cluster, event):  # noqa: C901 - one line for each kind of event
    """Let one event of a story happen.  A number chooses among what there is."""
    kind, what = event
    match kind:
        case "submit":
            cluster.put(replace(what, submitted_at_s=cluster.now()))
        case "web":
            cluster.put(web(cluster.revision, what, now_s=cluster.now()))
        case "odd web":
            shape, flags = what
            cluster.put(replace(web(cluster.revision, shape, now_s=cluster.now()), **flags))
        case "workload":
            cluster.put(what)
        case "kill":
            lose_one(cluster, what, lambda pod: pod.role is Role.TRAINER)
        case "kill core":
            lose_one(cluster, what, lambda pod: pod.role in {Role.SERVER, Role.MASTER})
        case "web leaves":
            lose_one(cluster, what, lambda pod: pod.role is Role.EXTERNAL)
        case "quota":
            namespace = ("blue", "red")[what % 2]
            if namespace in cluster.hard:
                cluster.hard[namespace] = cluster.hard[namespace].plus(cluster.hard[namespace], times=what % 3)
                cluster.touch()
        case "edit" | "suspend" | "resume" | "over" | "hold" | "age" if cluster.jobs:
            name = sorted(cluster.jobs)[what % len(cluster.jobs)]
            cluster.put(changed(cluster.jobs[name], kind, what, cluster.now()))
        case "drain" | "cordon" | "open":
            node = cluster.nodes[sorted(cluster.nodes)[what % len(cluster.nodes)]]
            is_draining = not node.is_draining if kind == "drain" else node.is_draining
            is_cordoned = {"cordon": True, "open": False}.get(kind, node.is_cordoned)
            cluster.put(replace(node, is_draining=is_draining, is_cordoned=is_cordoned))


def changed(job, kind, number, now_s):
    """The user changes the document, or the job tells of itself."""
    match kind:
        case "edit":
            return edited(job, number)
        case "suspend" | "resume" if job.state in {JobState.ACTIVE, JobState.SUSPENDED}:
            return replace(job, state=JobState.SUSPENDED if kind == "suspend" else JobState.ACTIVE)
        case "over":
            return replace(job, state=JobState.OVER if number % 2 else JobState.ENDING)
        case "hold":
            return replace(job, hold_until_s=now_s + number % 5)
        case "age":
            return replace(job, checkpoint_age_s=None if number % 3 == 0 else float(number))
    return job


def edited(job, number):
    """The user changes minimum, maximum and pin."""
    low = 1 + number % 3
    if job.trainer.sizes:
        unit = job.trainer.per_node
        sizes = tuple(unit * size for size in (low, low + 1, low + 3, low + 4 + number % 5))
        pinned = sizes[2] if number % 2 else 0
        bounds = {"min_replicas": sizes[0], "max_replicas": sizes[-1], "pinned_replicas": pinned}
        return replace(job, trainer=replace(job.trainer, **bounds, sizes=sizes))
    if job.trainer.powers_of_two or job.trainer.per_node > 1:
        high = 2 + 2 * (number % 4)
        return replace(job, trainer=replace(job.trainer, min_replicas=2, max_replicas=high, pinned_replicas=0))
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
        role=Role.EXTERNAL,
        tier=Tier.EXTERNAL,
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
            assert outcome.result == "done", f"{action}: {outcome.message}"
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

    def rest(self):
        """As `settle`, and nothing comes of a moment's patience either."""
        self.settle()
        self.cluster.advance(RESTS_S)
        return self.settle()
