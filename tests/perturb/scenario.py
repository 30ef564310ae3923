"""The day that every run lives through: jobs come and go, the web rises and falls, nodes and trainers fail.

Four nodes of eight CPUs; every pod asks for one, so that what fits does not depend on where things happen to stand.
Ads has a server for every four trainers.  At the end both jobs have what they may have, and the room is full.  Where
shares decide there are several right ends: a step moves from job to job only for a gap of more than two (A4), and a
server beyond the minimum that was lost comes back into free room alone.
"""

from dataclasses import dataclass

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.objects.labels import JOB, ROLE
from autoscaler.domain import Policy, Reclaim
from tests.unit.clusters.kubernetes.fake_controllers import CONTROLLER, add_job
from tests.unit.clusters.kubernetes.raw_objects import raw_job, template

NAMESPACE = "team-a"
NODES = ("n1", "n2", "n3", "n4")

POLICY = Policy(
    reclaim=Reclaim.PLANNER,
    up_window_s=2.0,
    down_window_s=5.0,
    victim_age_s=5.0,
    burst_window_s=0.0,
    payoff_s=0.0,
    surplus_grace_s=2.0,
    shortfall_limit_s=10.0,
)
"""Windows as short as the day: what they cost in time is not what is asked here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioStep:
    """Something that others do, on the clock of the run."""

    at_s: float
    name: str
    apply: object  # of the world


def job(name, *, trainers, servers=None, weight=1):
    one = template(cpu="1", memory="256Mi")
    server = None if servers is None else {"minReplicas": servers[0], "maxReplicas": servers[1], "template": one}
    return raw_job(
        name,
        trainer={"minReplicas": trainers[0], "maxReplicas": trainers[1], "template": one},
        server=server,
        master={"replicas": 1, "template": one},
    )


def begin(world):
    """Objects that exist before EDL starts."""
    world.add_classes()
    for name in NODES:
        world.add_node(name, cpu="8", memory="32Gi", pods="30")
    web = {
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, **template(cpu="1", memory="256Mi")},
        },
    }
    world.server.create(DEPLOYMENTS, web, CONTROLLER)


def web(replicas):
    return lambda world: world.scale(NAMESPACE, "web", replicas)


def submit(raw):
    return lambda world: add_job(world.server, raw)


def suspend(name, on):
    def happen(world):
        raw = world.server.get(TRAINING_JOBS, NAMESPACE, name)
        policy = raw["spec"].get("runPolicy", {}) | {"suspend": on}
        world.server.rewrite(TRAINING_JOBS, raw, raw | {"spec": raw["spec"] | {"runPolicy": policy}})

    return happen


def pin(name, trainers):
    """The user pins the size; 0: EDL decides.  Servers follow by the ratio after a while."""

    def happen(world):
        raw = world.server.get(TRAINING_JOBS, NAMESPACE, name)
        trainer = raw["spec"]["trainer"] | {"replicas": trainers}
        world.server.rewrite(TRAINING_JOBS, raw, raw | {"spec": raw["spec"] | {"trainer": trainer}})

    return happen


def delete(name):
    return lambda world: world.server.delete(TRAINING_JOBS, NAMESPACE, name)


def fail_one(name, role):
    """The first pod of this role that runs ends with an error."""

    def happen(world):
        for pod in world.server.all(PODS):
            metadata = pod["metadata"]
            labels = metadata.get("labels", {})
            if (labels.get(JOB), labels.get(ROLE)) != (name, role) or "deletionTimestamp" in metadata:
                continue
            if pod["status"]["phase"] == "Running":
                world.end(NAMESPACE, metadata["name"], code=1)
                return

    return happen


def come_back(world):
    world.add_node("n3", cpu="8", memory="32Gi", pods="30")


DAY = tuple(
    ScenarioStep(at_s=at_s, name=name, apply=happen)
    for at_s, name, happen in (
        (2.0, "ads comes", submit(job("ads", trainers=(2, 6), servers=(1, 2)))),
        (3.0, "books comes", submit(job("books", trainers=(2, 8)))),
        (14.0, "web rises", web(14)),
        (24.0, "a trainer fails", fail_one("ads", "trainer")),
        (32.0, "n4 is cordoned", lambda world: world.cordon("n4", is_cordoned=True)),
        (42.0, "n4 is open again", lambda world: world.cordon("n4", is_cordoned=False)),
        (50.0, "n3 falls silent", lambda world: world.silence("n3")),
        (54.0, "n3 is lost", lambda world: world.lose("n3")),
        (66.0, "cars comes", submit(job("cars", trainers=(2, 6), servers=(1, 1)))),
        (76.0, "n3 comes back", come_back),
        (86.0, "books is suspended", suspend("books", on=True)),
        (98.0, "web falls", web(6)),
        (100.0, "ads is pinned", pin("ads", 3)),
        (108.0, "books goes on", suspend("books", on=False)),
        (112.0, "ads is free again", pin("ads", 0)),
        (120.0, "a server fails", fail_one("ads", "server")),
        (130.0, "cars is deleted", delete("cars")),
        (140.0, "web rises once more", web(14)),
    )
)
