"""No resize is made that costs more than it brings, by sums of its own: nothing of the planner's cost model is used."""

from collections import Counter, defaultdict
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from autoscaler.domain import Cause, CreatePod, DeletePod, IdleTrainer, PodPhase, Role
from autoscaler.throughput import CurveShape, FittedCurve
from tests.property.planner_cases import NO_GATES, Driver, happen
from tests.property.planner_draws import clusters, gated_policies, stories
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, node, web

FOR_A_JOB = {Cause.TRANSFER, Cause.IDLE}
OTHERS = "others"  # who gets what leaves for another reason

bent = [CurveShape(work=1.0, serial=serial) for serial in (0.0, 0.1, 0.4, 2.0)]
curves = st.sampled_from(
    [None, *(FittedCurve(expected=one, favourable=one, sizes=sizes) for one in bent for sizes in ((2, 4), (1, 3, 8)))]
)
pauses = st.sampled_from([0.0, 0.0, 5.0, 15.0, 30.0])  # up to half of the time that counts


@st.composite
def resized_jobs(draw, name):
    """A job that is resized at some cost, of which more or less is known."""
    spec = job(
        name,
        low=draw(st.integers(1, 2)),
        high=draw(st.integers(5, 12)),
        cpu_milli=1_000 * draw(st.integers(1, 2)),
        weight=draw(st.sampled_from([100, 100, 400])),
        resize_cost_s=draw(pauses),
        resize_pause_s=draw(pauses),
        remaining_s=draw(st.sampled_from([None, None, 30.0, 1e4])),
        throughput=draw(curves),
    )
    return replace(spec, trainer=replace(spec.trainer, efficiency=draw(st.sampled_from([0.0, 0.7]))))


happenings = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["node", "tide", "tide", "idle", "idle", "seen"]), st.integers(1, 4)),
        st.tuples(st.just("curve"), curves),
        st.tuples(st.just("submit"), resized_jobs("later")),
        st.tuples(st.just("time"), st.just(150)),
    ),
    min_size=3,
    max_size=8,
)


@settings(max_examples=300)
@given(
    st.lists(st.integers(5, 12), min_size=1, max_size=2),
    st.tuples(resized_jobs("a"), resized_jobs("b")),
    st.lists(st.integers(1, 2), min_size=1, max_size=3),
    happenings,
    st.sampled_from([60.0, 60.0, 600.0]),
    st.sampled_from([0.0, 60.0]),
)
def test_no_resize_costs_more_than_it_brings(rooms, jobs, webs, story, payoff_s, observing_s):
    """A6: what a plan does of its own accord brings more within the time that counts than the pauses of all who wait.

    Jobs have settled without a price before. Then nodes and jobs come, web pods leave one by one, trainers are told to
    do no work, and throughput becomes known.
    """
    cluster = MemoryCluster([node(f"n{number}", 1_000 * cores) for number, cores in enumerate(rooms)], jobs)
    for number, cores in enumerate(webs):
        place = f"n{number % len(rooms)}"
        cluster.put(
            replace(
                web(f"w{number}", 1_000 * min(cores, rooms[number % len(rooms)] // 3)), phase=PodPhase.READY, node=place
            )
        )
    driver = Driver(cluster, NO_GATES)
    driver.settle()
    driver.policy = replace(NO_GATES, payoff_s=payoff_s, observing_s=observing_s, idle_pause_s=5.0)
    for what, amount in story:
        change(cluster, what, amount)
        check_turns(driver, 3)


@settings(max_examples=60)
@given(clusters(), stories(max_events=8), gated_policies, st.sampled_from([20.0, 60.0]))
def test_no_resize_costs_more_in_any_cluster(cluster, story, policy, payoff_s):
    """The same with all that a document and a policy can say."""
    driver = Driver(cluster, replace(policy, payoff_s=payoff_s))
    for what in story:
        happen(cluster, what)
        cluster.bind_others()
        check_turns(driver, 3)


def check_turns(driver, count):
    for _ in range(count):
        view = driver.cluster.view(history=driver.history)
        check_every_resize_pays(view, driver.turn(), driver.policy)
        driver.cluster.advance(1.0)
        driver.cluster.bind_others()


def change(cluster, what, amount):
    """Something that makes another size worth while."""
    match what:
        case "node":
            cluster.put(node(f"n{cluster.revision}", 1_000 * amount))
        case "tide":  # room comes, and more of it is being vacated
            cluster.put(node(f"n{cluster.revision}", 1_000 * amount))
            names = [name for name, pod in cluster.pods.items() if pod.role is Role.EXTERNAL]
            for place, name in enumerate(names):
                cluster.put(replace(cluster.pods[name], phase=PodPhase.TERMINATING))
                cluster.leaves_at_s[name] = cluster.now() + 1.5 * (1 + place)
        case "idle":
            tell_of_idle_trainers(cluster, amount)
        case "seen":
            for one in list(cluster.jobs.values()):
                size = sum(pod.job == one.name and pod.role is Role.TRAINER for pod in cluster.pods.values())
                known = FittedCurve(expected=bent[0], favourable=bent[0], sizes=(max(1, size),))
                cluster.put(replace(one, throughput=known))
        case "curve":
            cluster.put(replace(cluster.jobs["a"], throughput=amount))
        case "submit":
            cluster.put(replace(amount, submitted_at_s=cluster.now()))
        case "time":
            cluster.advance(float(amount))


def tell_of_idle_trainers(cluster, count):
    """So many of the largest job's ready trainers do no work; of the others all do."""
    ready = defaultdict(list)
    for pod in cluster.pods.values():
        if pod.role is Role.TRAINER and pod.phase is PodPhase.READY:
            ready[pod.job].append(pod.name)
    for name, spec in list(cluster.jobs.items()):
        is_largest = ready and name == max(sorted(ready), key=lambda one: len(ready[one]))
        idle = sorted(ready[name])[:count] if is_largest else ()
        cluster.put(
            replace(spec, idle=tuple(IdleTrainer(pod=pod, since_s=cluster.now(), is_hung=False) for pod in idle))
        )


def check_every_resize_pays(view, decided, policy):
    """Growth, what is given for others, and what a job gives back for its efficiency."""
    jobs, told = {job.name: job for job in view.jobs}, {one.job: one for one in decided.decisions}
    trainers = [action for action in decided.actions if getattr(action, "role", None) is Role.TRAINER]
    gone = [action for action in trainers if isinstance(action, DeletePod)]
    come = Counter(one.job for one in trainers if isinstance(one, CreatePod) and one.cause is Cause.FREE_CAPACITY)
    lost = Counter(one.job for one in gone)
    for name, count in ((name, count - lost[name]) for name, count in come.items()):
        before = told[name].now
        if count > 0 and before >= jobs[name].trainer.min_replicas:
            event("grows into free room")
            assert brought(policy, jobs[name], before, before + count) > 0, f"{name}: {before} + {count}"
    check_gifts_pay(policy, jobs, told, gone)
    for name, count in Counter(one.job for one in gone if one.cause is Cause.EFFICIENCY).items():
        event("gives back")
        assert freed(policy, jobs[name], told[name].now, told[name].now - count) > 0, f"{name}: {count} fewer"


def check_gifts_pay(policy, jobs, told, gone):
    """All that is given to other jobs together, and what each of them gets: neither is better left.

    A giver waits once in a plan, whoever gets its trainers. If it is resized for another reason besides, it would wait
    anyway.
    """
    goes_to = defaultdict(set)
    for one in gone:
        goes_to[one.job].add(one.beneficiary if one.cause in FOR_A_JOB else OTHERS)
    costs = {
        giver: waiting(jobs[giver], told[giver].now) * pause(jobs[giver])
        for giver, takers in goes_to.items()
        if OTHERS not in takers
    }
    gains = {}
    for name, cause in {one.beneficiary: one.cause for one in gone if one.cause in FOR_A_JOB}.items():
        event(f"{cause} from another job")
        gains[name] = brought(policy, jobs[name], told[name].now, told[name].target)
        alone = [giver for giver in costs if goes_to[giver] == {name}]
        cost = sum(costs[giver] for giver in alone)
        assert gains[name] > cost, f"{name} brings {gains[name]}, and {alone} lose {cost}"
    if gains:
        cost = sum(costs.values())
        assert sum(gains.values()) > cost, f"{gains} are brought, and {costs} are lost"


def brought(policy, job, before, after):
    """Trainer-seconds that growth brings, less those of all its trainers that wait while it is resized."""
    return (speed(job, after) - speed(job, before)) * counted_s(policy, job) - speed(job, before) * pause(job)


def freed(policy, job, before, after):
    """Trainer-seconds that others can have, less those that the job loses by its size and its pause.

    Of a job that was seen at one size nobody knows what it loses: at best its minimum is as fast, and it comes back to
    its size after a look.
    """
    curve = job.throughput
    if curve.is_known:
        others = (before - after) - (speed(job, before) - speed(job, after))
        return others * counted_s(policy, job) - speed(job, before) * pause(job)
    look = (before - after) * policy.observing_s + (before + after) * pause(job)
    return (before - job.trainer.min_replicas) * counted_s(policy, job) - look


def counted_s(policy, job):
    return policy.payoff_s if job.remaining_s is None else min(policy.payoff_s, job.remaining_s)


def pause(job):
    return max(job.resize_cost_s, job.resize_pause_s)


def waiting(job, size):
    """Trainers that stand still while the job is resized, in what they are worth: those that do no work wait not."""
    return speed(job, size) * (size - len(job.idle)) / size


def speed(job, size):
    """In trainers of the minimum, where sizes have been seen; else each trainer is one."""
    curve, least = job.throughput, job.trainer.min_replicas
    if curve is None or len(set(curve.sizes)) < 2:
        return float(size)

    def samples_per_s(trainers):
        return curve.expected.samples_per_s(trainers, servers_beside(job, trainers))

    return samples_per_s(size) / samples_per_s(least) * least


def servers_beside(job, trainers):
    if job.servers is None:
        return 1.0
    if job.servers.pinned_replicas:
        return float(job.servers.pinned_replicas)
    wanted = trainers / job.servers.trainers_per_server
    return min(max(wanted, job.servers.min_replicas), job.servers.max_replicas)
