"""What a job owns is there before its pods, and again when somebody has deleted or changed it."""

from datetime import UTC, datetime, timedelta

import pytest

from autoscaler.clusters.kubernetes.api.errors import ConflictError
from autoscaler.clusters.kubernetes.api.kinds import DISRUPTION_BUDGETS, SECRETS, SERVICES
from autoscaler.clusters.kubernetes.builders.build_settings import EtcdAccess
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.clusters.kubernetes.writes.object_ownership import NameTakenError
from autoscaler.fault_isolation import JobErrors
from autoscaler.operator.controllers.owned_objects import OwnedObjects
from autoscaler.operator.job.job_pods import UNSTARTED_S, has_unstarted
from tests.unit.clusters.kubernetes.raw_objects import kube_job

KINDS = (SECRETS, SERVICES, DISRUPTION_BUDGETS)


class Bench:
    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.servers = 0
        self.is_stuck = False
        self.errors = JobErrors(lambda: 0.0)
        self.server = MemoryServer(now=self.wall_s, namespaces=("team-a",))
        self.api = MemoryApi(self.server)
        self.objects = self.keeper()

    def wall_s(self):
        return self.now.timestamp()

    def keeper(self):
        etcd = EtcdAccess(endpoints="http://etcd")
        return OwnedObjects(self.api, etcd, self, now=lambda: self.now)

    def server_count(self, _job):
        return self.servers

    def has_unstarted_pod(self, _job):
        return self.is_stuck

    def names(self):
        return {one["metadata"]["name"] for kind in KINDS for one in self.server.all(kind)}

    def versions(self):
        return {
            one["metadata"]["name"]: one["metadata"]["resourceVersion"] for k in KINDS for one in self.server.all(k)
        }

    def secret(self, name):
        return self.server.get(SECRETS, "team-a", name)["data"]


ALL = {"digits-authority", "digits-member", "digits-master", "digits-core"}


@pytest.fixture
async def bench():
    bench = Bench()
    await bench.objects.prepare(kube_job())
    return bench


async def test_all_of_it_is_made(bench):
    assert bench.names() == ALL
    budget = bench.server.get(DISRUPTION_BUDGETS, "team-a", "digits-core")
    assert budget["spec"]["minAvailable"] == 2  # two trainers and a master, one may go


async def test_a_new_jobs_secrets_are_made_without_a_look():
    """Nothing of a job that starts stands yet: what is asked for all the same costs each of many starts three calls."""
    bench = Bench()
    looked = bench.api.get

    async def get(kind, name, **where):
        assert kind != SECRETS
        return await looked(kind, name, **where)

    bench.api.get = get
    await bench.objects.prepare(kube_job())
    assert bench.names() == ALL


@pytest.mark.parametrize("made", range(4))
async def test_secrets_of_which_a_lost_leader_made_some_become_whole(bench, made):
    """Those that stand alone tell no story yet; three that do are kept."""
    whole = bench.secret("digits-member")["token"]
    for name in ("digits-authority", "digits-member", "digits-master")[made:]:
        await bench.api.delete(SECRETS, name, namespace="team-a")
    keeper = bench.keeper()
    await keeper.prepare(kube_job())
    assert bench.names() == ALL
    assert await bench.keeper().identity_of(kube_job()) == await keeper.identity_of(kube_job())
    assert (bench.secret("digits-member")["token"] == whole) is (made > 1)


async def test_making_it_again_changes_nothing(bench):
    before = bench.versions()
    await bench.objects.prepare(kube_job())
    assert bench.versions() == before
    await bench.keeper().prepare(kube_job())  # another leader
    assert bench.versions() == before


async def test_an_identity_that_stands_is_kept_by_the_next_leader(bench):
    token, keeper = bench.secret("digits-member")["token"], bench.keeper()
    identity = await keeper.identity_of(kube_job())
    assert identity is not None
    await keeper.prepare(kube_job())
    assert bench.secret("digits-member")["token"] == token


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SERVICES, "digits-master"),
        (DISRUPTION_BUDGETS, "digits-core"),
    ],
)
async def test_what_somebody_deletes_is_made_again(bench, kind, name):
    await bench.api.delete(kind, name, namespace="team-a")
    await bench.objects.restore([kube_job()], with_secrets=False)
    assert bench.server.get(kind, "team-a", name)


@pytest.mark.parametrize("name", ["digits-member", "digits-master"])
async def test_a_deleted_secret_is_made_again_with_the_token_that_pods_know(bench, name):
    token, authority = bench.secret("digits-member")["token"], bench.secret("digits-authority")
    await bench.api.delete(SECRETS, name, namespace="team-a")
    await bench.objects.restore([kube_job()], with_secrets=True)
    assert bench.names() == ALL
    assert bench.secret(name)["token"] == token
    assert bench.secret("digits-authority") == authority


async def test_a_deleted_secret_is_missed_as_soon_as_a_pod_does_not_start(bench):
    """Pods that run have what they mounted; the next one waits for it, and so did its job, for ten minutes."""
    await bench.api.delete(SECRETS, "digits-member", namespace="team-a")
    await bench.objects.restore([kube_job()], with_secrets=False)
    assert bench.names() == ALL - {"digits-member"}
    bench.is_stuck = True
    await bench.objects.restore([kube_job()], with_secrets=False)
    assert bench.names() == ALL


def pod(*, node="n1", phase="Pending", bound_at="2026-01-01T00:00:00Z", **metadata):
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound_at}]
    return {
        "metadata": metadata,
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": conditions},
    }


@pytest.mark.parametrize(
    ("raw", "after_s", "is_stuck"),
    [
        (pod(), UNSTARTED_S + 1.0, True),
        (pod(), UNSTARTED_S - 1.0, False),
        (pod(phase="Running"), 3600.0, False),
        (pod(node=""), 3600.0, False),
        (pod(deletionTimestamp="2026-01-01T00:00:00Z"), 3600.0, False),
        (pod(bound_at=""), 3600.0, False),
    ],
)
def test_a_pod_that_does_not_start_is_bound_and_has_no_containers_for_long(raw, after_s, is_stuck):
    assert has_unstarted([raw], datetime(2026, 1, 1, tzinfo=UTC).timestamp() + after_s) is is_stuck


async def test_without_its_authority_the_identity_is_another_one(bench):
    """All three tell one story: a lone new certificate would be worth nothing."""
    await bench.api.delete(SECRETS, "digits-authority", namespace="team-a")
    await bench.objects.restore([kube_job()], with_secrets=True)
    assert bench.secret("digits-member")["token"] == bench.secret("digits-master")["token"]
    assert bench.secret("digits-member")["ca.crt"] == bench.secret("digits-authority")["ca.crt"]


async def test_a_budget_that_somebody_changed_is_put_right(bench):
    await bench.api.patch(DISRUPTION_BUDGETS, "digits-core", {"spec": {"minAvailable": 0}}, namespace="team-a")
    await bench.objects.restore([kube_job()], with_secrets=False)
    assert bench.server.get(DISRUPTION_BUDGETS, "team-a", "digits-core")["spec"]["minAvailable"] == 2


async def test_an_edited_minimum_moves_the_budget(bench):
    await bench.objects.prepare(kube_job(trainer={"minReplicas": 5}))
    assert bench.server.get(DISRUPTION_BUDGETS, "team-a", "digits-core")["spec"]["minAvailable"] == 5


async def test_an_edit_is_followed_by_whoever_keeps(bench):
    edited = kube_job(trainer={"minReplicas": 5})
    bench.objects.queue_if_edited(kube_job())
    assert not bench.objects._edited
    bench.objects.queue_if_edited(edited)
    await bench.objects._prepare_edited([edited])
    assert bench.server.get(DISRUPTION_BUDGETS, "team-a", "digits-core")["spec"]["minAvailable"] == 5


async def test_the_budget_covers_the_servers_that_have_come(bench):
    """Else a drain could take all of them at once, and with them what is not yet in a checkpoint (rule 18)."""
    bench.servers = 3
    bench.objects.queue_if_edited(kube_job())
    await bench.objects._prepare_edited([kube_job()])
    assert bench.server.get(DISRUPTION_BUDGETS, "team-a", "digits-core")["spec"]["minAvailable"] == 5


async def test_certificates_are_renewed_before_they_end(bench):
    before = bench.secret("digits-member")
    bench.now += timedelta(days=300)
    await bench.objects.restore([kube_job()], with_secrets=True)
    after = bench.secret("digits-member")
    assert after["tls.crt"] != before["tls.crt"]
    assert (after["token"], after["ca.crt"]) == (before["token"], before["ca.crt"])


async def test_what_an_earlier_job_left_is_no_identity(bench):
    """A job made again under its name gets its own, when the garbage collector has been there."""
    keeper = bench.keeper()
    raw = bench.server.get(SECRETS, "team-a", "digits-member")
    other = [{**raw["metadata"]["ownerReferences"][0], "uid": "another"}]
    bench.server.rewrite(SECRETS, raw, raw | {"metadata": raw["metadata"] | {"ownerReferences": other}})
    for ask in (keeper.identity_of, keeper.prepare):
        with pytest.raises(
            ConflictError, match="Secret team-a/digits-member still belongs to an earlier job of this name"
        ):
            await ask(kube_job())


@pytest.mark.parametrize(
    ("kind", "name"),
    [(SECRETS, "digits-member"), (SERVICES, "digits-master"), (DISRUPTION_BUDGETS, "digits-core")],
)
async def test_what_others_made_under_such_a_name_is_left_as_it_is(kind, name):
    bench = Bench()
    theirs = await bench.api.create(kind, {"metadata": {"name": name, "namespace": "team-a"}, "data": {"key": "aGk="}})
    with pytest.raises(NameTakenError, match=f"team-a/{name} exists and is not owned by this job"):
        await bench.objects.prepare(kube_job())
    assert bench.server.get(kind, "team-a", name) == theirs


async def test_an_edited_minimum_costs_one_write(bench):
    before = bench.versions()
    await bench.objects.prepare(kube_job(trainer={"minReplicas": 5}))
    assert {name for name, version in bench.versions().items() if version != before[name]} == {"digits-core"}
