"""Servers that come and go under an operator: what the master is told, and when a server's pod is deleted."""

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DISRUPTION_BUDGETS, PODS, TRAINING_JOBS
from autoscaler.domain import Policy, Reclaim, Role
from autoscaler.jobs.lifecycle import Life
from autoscaler.jobs.restart_policy import SILENCE_LIMIT_S
from autoscaler.jobs.server_ratio import SETTLED_S
from autoscaler.manifests.api_types import ReplicaBounds
from autoscaler.operator.controllers.server_drain import drain_problem, plan_server_count
from autoscaler.operator.job.job_record import JobRecord, ServerDrain, emptied_servers
from master.api.master_status import JobPhase
from tests.unit.clusters.kubernetes.raw_objects import kube_job, template
from tests.unit.operator.bench import JOB, write_events
from tests.unit.operator.fake_master import StandInMaster, progress
from tests.unit.operator.term import Term

SIZES = ReplicaBounds(minimum=1, maximum=4)
CALM = Policy(
    reclaim=Reclaim.SCHEDULER, quiet_window_s=0.0, up_window_s=0.0, down_window_s=3.0, payoff_s=0.0, victim_age_s=0.0
)


@pytest.mark.parametrize(
    ("standing", "draining", "target", "told", "expected"),
    [
        ((0,), (), 1, 1, 1),
        ((0, 1), (), 2, 1, 2),  # a pod has come
        ((0, 1, 2), (2,), 2, 3, 2),  # the last one is to go
        ((0, 2), (), 3, 3, 3),  # one in the middle is lost: its number comes back
        ((), (), 1, 2, 1),  # all lost: the minimum is waited for
        ((0, 1, 2), (), 2, 2, 2),  # an earlier leader's shrink goes on
        ((0, 1, 2), (), 3, 2, 3),  # and is taken back when the planner wants it back
        ((0, 2), (), 2, 2, 3),  # its number was still taken when it came: it is wanted all the same
        ((0, 1, 2), (), 3, 4, 3),  # one that had come is lost
        ((0, 10**30), (), 2, 1, 6),  # somebody's own pod under a server's name
        ((1, 5), (), 2, 6, 6),  # servers have moved, and hold the spare numbers
    ],
)
def test_the_master_is_told_what_stands_less_what_is_to_go(standing, draining, target, told, expected):
    assert plan_server_count(SIZES, target=target, active=standing, draining=draining, current=told) == expected


@pytest.mark.parametrize(
    ("standing", "moving_in", "told", "expected"),
    [
        ((0, 1, 2), (2,), 2, 3),  # it stands beside the one whose place it takes
        ((0, 1, 2), (2,), 3, 3),
        ((0, 1, 4), (4,), 2, 5),
        ((0, 2, 1), (1,), 3, 3),  # it has a number that was free
        ((1, 2), (), 3, 3),  # the other one has gone; its number stays free
        ((0, 1, 2, 3), (2,), 2, 3),  # an earlier leader's shrink goes on beside it
    ],
)
def test_a_server_that_takes_anothers_place_is_counted_on_beside_it(standing, moving_in, told, expected):
    counted = plan_server_count(SIZES, target=2, active=standing, draining=(), current=told, successors=moving_in)
    assert counted == expected


def record(progress=None, *, at_s=0.0):
    job = kube_job(server={"minReplicas": 1, "maxReplicas": 4})
    return JobRecord(job=job, life=Life(policy=job.spec.run_policy), progress=progress, progress_at_s=at_s)


DRAIN = ServerDrain(ordinal=2, since_s=10.0)


class TestWhyAServerStays:
    def test_master_is_yet_to_be_told(self):
        assert "not been set to the new number" in drain_problem(DRAIN, record(progress(wanted=3), at_s=11.0), 11.0)

    def test_it_holds_something(self):
        known = record(progress(buckets=((0, 40), (2, 7))), at_s=11.0)
        assert "being moved" in drain_problem(DRAIN, known, 11.0)

    def test_it_is_free_to_go_when_it_holds_nothing(self):
        assert drain_problem(DRAIN, record(progress(buckets=((0, 47), (2, 0))), at_s=11.0), 11.0) == ""
        assert drain_problem(DRAIN, record(progress(buckets=((0, 47),)), at_s=11.0), 11.0) == ""

    @pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.WAITING_FOR_SERVERS, JobPhase.RESTORING])
    def test_a_new_master_does_not_know_yet_what_it_holds(self, phase):
        """It names nobody before they have registered with it."""
        assert "does not know its buckets yet" in drain_problem(DRAIN, record(progress(phase=phase), at_s=11.0), 11.0)

    def test_a_master_that_says_so_keeps_it_for_as_long_as_it_takes(self):
        late_s = 10.0 + 100 * SILENCE_LIMIT_S
        known = record(progress(buckets=((2, 7),)), at_s=late_s - 1.0)
        assert "being moved" in drain_problem(DRAIN, known, late_s)

    @pytest.mark.parametrize("known", [None, progress(wanted=3), progress(buckets=((2, 7),))])
    def test_silence_keeps_it_for_a_while_alone(self, known):
        silent = record(known, at_s=10.5)
        assert drain_problem(DRAIN, silent, 10.5 + SILENCE_LIMIT_S - 1.0)
        assert drain_problem(DRAIN, silent, 10.5 + SILENCE_LIMIT_S) == ""


class Scene(Term):
    """A job with one to three servers, one for two trainers, and its master."""

    def __init__(self, *, server=None, **more):
        super().__init__(policy=CALM, elastic_servers=True, job={"parameterServer": SERVERS | (server or {})})
        self.master = StandInMaster(self, count=1, **more)
        self.follow()

    def follow(self):
        self.leading.masters.poll, self.leading.masters.set_servers = self.master.poll, self.master.set_servers

    async def live(self, times=1):
        for _ in range(times):
            await self.step()
            await self.leading.poller.poll(self.leading.store.objects.jobs[JOB])

    @property
    def servers(self):
        return sorted(self.bench.pods(Role.SERVER))

    def shrink_trainers(self):
        """The user wants fewer, so that fewer servers are needed."""
        self.bench.edit(trainer={"minReplicas": 2, "maxReplicas": 4, "replicas": 2, "template": template(cpu="1")})


SERVERS = {"minReplicas": 1, "maxReplicas": 3, "trainersPerServer": 2, "template": template(cpu="1")}
TWO = ["digits-server-0", "digits-server-1"]


async def grown(**more):
    scene = Scene(**more)
    await scene.live(12)
    assert scene.servers == TWO
    return scene


async def test_servers_come_with_their_trainers_and_the_master_is_told():
    scene = await grown()
    assert scene.master.told == [2]
    servers = scene.status()["servers"]
    assert {name: servers[name] for name in ("ready", "target", "min", "max", "wanted", "leaving", "draining")} == {
        "ready": 2, "target": 2, "min": 1, "max": 3, "wanted": 2, "leaving": 0, "draining": 0
    }  # fmt: skip
    assert ("server", 1, 2) in [(one["role"], one["from"], one["to"]) for one in scene.status()["resizes"]]
    assert 'edl_job_servers{job="digits",namespace="team-a",state="wanted"} 2.0' in scene.metrics.render().decode()


async def test_a_measured_ratio_brings_servers_and_the_next_leader_keeps_it():
    """`trainersPerServer: auto`: four trainers have one server, wait a third of their time for it, and get another."""
    scene = Scene(server={"trainersPerServer": "auto"})
    scene.master.load = 0.55
    await scene.live(12)
    assert (scene.servers, scene.status()["servers"]["trainersPerServer"]) == (TWO[:1], 4)
    await scene.live(int(SETTLED_S))
    assert scene.servers == TWO
    assert scene.status()["servers"]["trainersPerServer"] == 2
    assert scene.reasons().count("RatioMeasured") == 1
    scene.lead()
    scene.follow()
    await scene.watch()
    await scene.live(int(3 * SETTLED_S))
    assert scene.servers == TWO
    assert scene.reasons().count("RatioMeasured") == 1, "a fifth of the time is neither much nor nothing"
    scene.master.load = 0.0
    await scene.live(int(3 * SETTLED_S))
    assert scene.servers == TWO[:1]


async def test_a_server_leaves_when_its_master_says_that_it_holds_nothing():
    scene = await grown(moves=1)
    scene.master.buckets[1] = 6
    scene.shrink_trainers()
    await scene.live(8)
    assert scene.servers == TWO
    assert scene.master.told[-1] == 1
    assert scene.status()["servers"]["draining"] == 1
    assert scene.told("Scaled") == ("False", "Shrinking")
    assert "being moved" in message(scene, "Scaled")
    drains = "server team-a/digits-server-1: drains, and is deleted once its buckets have been moved"
    assert ("ServerDraining", drains) in scene.notes()
    await scene.live(8)
    assert scene.servers == TWO[:1]
    assert ("server", 2, 1, "Ratio") in [
        (one["role"], one["from"], one["to"], one["cause"]) for one in scene.status()["resizes"]
    ]


async def test_a_server_that_its_master_lets_go_has_not_failed():
    """It ends by itself, with 0, before anybody has deleted its pod."""
    scene = await grown(moves=0)
    scene.shrink_trainers()
    await scene.live(8)
    scene.bench.rest.end("team-a", "digits-server-1", code=0)
    scene.master.buckets.pop(1)
    await scene.live(3)
    assert scene.servers == TWO[:1]
    assert "ServerLeft" in scene.reasons()
    assert "ServerFailed" not in scene.reasons()
    assert scene.leading.store.records[JOB].server_failures == 0


async def test_a_server_that_was_let_go_has_not_failed_when_it_is_wanted_again():
    """The planner wants its number back between its end and the judgement of it."""
    scene = await grown(moves=0)
    scene.shrink_trainers()
    await scene.live(8)
    assert scene.master.count == 1
    scene.bench.edit(trainer={"minReplicas": 2, "maxReplicas": 4, "template": template(cpu="1")})
    scene.bench.rest.end("team-a", "digits-server-1", code=0)
    scene.master.buckets.pop(1)
    scene.leading.reporter._drains.keep_planned(())
    await scene.live(12)
    assert "ServerLeft" in scene.reasons()
    assert "ServerFailed" not in scene.reasons()
    assert scene.servers == TWO
    assert scene.master.count == 2


async def test_a_server_that_was_let_go_has_not_failed_when_it_is_wanted_before_its_end_is_seen():
    """The master lets it go; before the cluster shows that it has ended, its number is wanted and the master told."""
    scene = await grown(moves=0)
    scene.shrink_trainers()
    await scene.live(8)
    assert scene.master.count == 1
    scene.bench.edit(trainer={"minReplicas": 2, "maxReplicas": 4, "template": template(cpu="1")})
    await scene.live(8)
    assert scene.master.count == 2
    scene.bench.rest.end("team-a", "digits-server-1", code=0)
    scene.master.buckets.pop(1)
    await scene.live(8)
    assert "ServerLeft" in scene.reasons()
    assert "ServerFailed" not in scene.reasons()
    assert scene.servers == TWO


async def test_a_server_that_ends_with_0_and_is_wanted_has_failed():
    scene = await grown()
    scene.bench.rest.end("team-a", "digits-server-1", code=0)
    await scene.live(6)
    assert "ServerFailed" in scene.reasons()
    assert "ServerLost" in scene.reasons(), "nobody else has what it had"
    assert scene.servers == TWO  # made anew


async def test_a_silent_master_keeps_a_server_for_half_a_minute():
    scene = await grown()
    scene.master.is_silent = True
    scene.shrink_trainers()
    await scene.live(25)
    assert scene.servers == TWO
    await scene.live(20)
    assert scene.servers == TWO[:1]


async def test_a_server_stays_while_masters_answer_and_none_leads():
    """Their etcd is away: it comes back, and nothing is lost."""
    scene = await grown(moves=0)
    scene.shrink_trainers()
    await scene.live(8)
    scene.master.is_refusing = True
    await scene.live(4 * int(SILENCE_LIMIT_S))
    assert scene.servers == TWO
    assert "no master leads" in message(scene, "Scaled")
    scene.master.is_refusing, scene.master.moves = False, 12
    await scene.live(10)
    assert scene.servers == TWO[:1]


async def test_trainers_that_come_back_keep_their_server():
    """The planner changes its mind while the server is being emptied: the master is told so, and nothing leaves."""
    scene = await grown(moves=0)
    scene.shrink_trainers()
    await scene.live(8)
    assert scene.master.count == 1
    scene.bench.edit(trainer={"minReplicas": 2, "maxReplicas": 4, "template": template(cpu="1")})
    await scene.live(8)
    assert scene.master.count == 2
    assert scene.servers == TWO
    assert scene.status()["servers"]["draining"] == 0


async def test_another_leader_goes_on_with_a_shrink_that_has_begun():
    scene = await grown(moves=0)
    scene.shrink_trainers()
    await scene.live(8)
    told = len(scene.master.told)
    scene.lead()
    scene.follow()
    await scene.watch()
    await scene.live(2)
    assert scene.master.told[told:] == []
    scene.master.moves = 12
    await scene.live(10)
    assert scene.servers == TWO[:1]


async def test_a_count_that_the_master_refuses_is_said_once():
    scene = Scene(refuses="is 2: this job has declared no tables")
    await scene.live(14)
    assert scene.reasons().count("ServersRefused") == 1


async def test_the_budget_counts_servers_that_stand():
    """A server that somebody drains counts until it is gone, so that they go one at a time."""
    scene = await grown()
    trainers, master = 2, 1
    assert await budget(scene) == trainers + 2 + master - 1
    await scene.bench.api.delete(PODS, "digits-server-1", namespace="team-a")
    await scene.watch()
    assert await budget(scene) == trainers + 2 + master - 1
    await scene.live(2)
    scene.bench.edit(parameterServer=SERVERS | {"replicas": 1})
    await scene.live(6)
    assert scene.servers == TWO[:1]
    assert await budget(scene) == trainers + 1 + master - 1


async def end_while_leaving(scene, code):
    """The second server was told to leave, and has ended."""
    scene.bench.rest.end("team-a", "digits-server-1", code=code)
    raw = scene.server.get(PODS, "team-a", "digits-server-1")
    leaving = raw["metadata"] | {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 120}
    scene.server.rewrite(PODS, raw, raw | {"metadata": leaving})
    await scene.watch()
    await scene.leading.jobs.reconcile(JOB)
    await write_events(scene.leading.events)


@pytest.mark.parametrize(("code", "reason"), [(0, "ServerLeft"), (75, "ServerLost"), (137, "ServerLost")])
async def test_the_end_of_a_drained_server_is_told_from_a_crash(code, reason):
    scene = await grown()
    await end_while_leaving(scene, code)
    assert reason in scene.reasons()
    assert "ServerFailed" not in scene.reasons()


async def leave(scene, *, moves):
    """The second server is told to leave while its process runs; the master moves its buckets, and then forgets it."""
    scene.master.moves, scene.master.count = moves, 1
    raw = scene.server.get(PODS, "team-a", "digits-server-1")
    leaving = raw["metadata"] | {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 120}
    scene.server.rewrite(PODS, raw, raw | {"metadata": leaving})
    await scene.watch()
    await scene.leading.poller.poll(scene.leading.store.objects.jobs[JOB])
    assert scene.master.buckets[1] == (0 if moves else 1)
    scene.master.buckets.pop(1)
    await scene.leading.poller.poll(scene.leading.store.objects.jobs[JOB])


@pytest.mark.parametrize(("moves", "reason"), [(12, "ServerLeft"), (0, "ServerLost")])
async def test_a_server_killed_at_the_end_of_its_grace_is_a_loss_only_with_buckets(moves, reason):
    """Its master has reported that it owns nothing, and does not know it any more once it is gone."""
    scene = await grown()
    await leave(scene, moves=moves)
    scene.bench.rest.end("team-a", "digits-server-1", code=137)
    await scene.watch()
    await scene.leading.jobs.reconcile(JOB)
    await write_events(scene.leading.events)
    assert {"ServerLeft", "ServerLost"} & set(scene.reasons()) == {reason}
    (note,) = [note for which, note in scene.notes() if which == reason]
    assert note.startswith("server team-a/digits-server-1: "), "which of them it was"


async def test_a_report_after_a_loss_does_not_prove_that_a_server_was_empty():
    """With the lineage that follows the loss, the master counts nothing of the lost server any more."""
    leaving = {"metadata": {"name": "digits-server-1", "uid": "u", "deletionTimestamp": "2026-01-02T03:04:05Z"}}
    leaving["metadata"]["labels"] = {"edl.dev/role": "server", "edl.dev/ordinal": "1"}
    known = record(progress(wanted=1, buckets=((0, 5), (1, 7)), lineage=1))
    assert emptied_servers(known, [leaving], progress(wanted=1, buckets=((0, 12), (1, 0)), lineage=2)) == set()
    assert emptied_servers(known, [leaving], progress(wanted=1, buckets=((0, 12), (1, 0)), lineage=1)) == {"u"}


@pytest.mark.parametrize(("code", "told"), [(0, set()), (75, {"ServerLost"})])
async def test_a_server_of_a_suspended_job_that_could_not_commit_is_told(code, told):
    """What it had is trained again once the job is resumed; that the others have left is no news."""
    scene = await grown()
    scene.bench.edit(runPolicy={"suspend": True})
    await scene.watch()
    await scene.leading.jobs.reconcile(JOB)
    await end_while_leaving(scene, code)
    assert {"ServerLost", "ServerLeft"} & set(scene.reasons()) == told


async def test_where_servers_stay_they_stay_at_the_minimum():
    term = Term(policy=CALM, job={"parameterServer": SERVERS})
    await term.step(12)
    assert sorted(term.bench.pods(Role.SERVER)) == TWO[:1]
    assert term.status()["trainers"]["ready"] == 4


async def budget(scene):
    await scene.leading.owned.prepare(scene.leading.store.objects.jobs[JOB])
    [one] = scene.server.all(DISRUPTION_BUDGETS)
    return one["spec"]["minAvailable"]


def message(scene, kind):
    conditions = scene.server.get(TRAINING_JOBS, "team-a", "digits")["status"]["conditions"]
    return next(one["message"] for one in conditions if one["type"] == kind)
