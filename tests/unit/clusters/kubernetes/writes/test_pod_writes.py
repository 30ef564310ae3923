"""Pods that the adapter creates and deletes on an API server in memory: lost answers, refusals, names, masters."""

import asyncio
from dataclasses import replace

import pytest

from autoscaler.cluster_port import WriteResult
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import (
    DEPLOYMENTS,
    PODS,
    TRAINING_JOBS,
)
from autoscaler.clusters.kubernetes.gangs.start_backoff import BIND_LIMIT_S
from autoscaler.domain import Cause, DeletePod, JobState, Role
from tests.unit.clusters.cluster_contract import gang, leave, placement, pods_of
from tests.unit.clusters.kubernetes.cluster_bench import JOB, CutShort, Slow, gang_of, small_job
from tests.unit.clusters.kubernetes.fake_controllers import add_job
from tests.unit.clusters.kubernetes.raw_objects import template


def refuse_pods(kind, _wanted, before):
    if kind == PODS and before is None:
        raise ForbiddenError("exceeded quota: small", RefusedBy.QUOTA)


@pytest.mark.asyncio
class TestPods:
    async def test_a_pod_whose_answer_was_lost_occupies_its_room(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        bench.cluster._writer._api = CutShort(bench.api, 0)
        assert (await bench.cluster.apply(placement(stage, 1))).result is WriteResult.FAILED
        assert (await pods_of(stage))[Role.TRAINER, 1].place == "n1"
        bench.cluster._writer._api = bench.api
        assert (await bench.cluster.apply(placement(stage, 1))).result is WriteResult.DONE

    async def test_room_is_given_away_once_though_creations_overlap(self, bench, stage):
        """The loop sends sixteen at a time, and the planner may have seen more room than there is by now."""
        await bench.cluster.apply(gang(stage))
        await bench.cluster.apply(placement(stage, 1))  # of four CPUs three are taken
        bench.cluster._writer._api = Slow(bench.api)
        outcomes = await asyncio.gather(*(bench.cluster.apply(placement(stage, number)) for number in (2, 3)))
        assert [outcome.result for outcome in outcomes] == [WriteResult.DONE, WriteResult.REFUSED]
        assert "node n1 has no free capacity any more" in outcomes[1].message

    async def test_room_of_a_creation_that_was_refused_is_free_again(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        await bench.cluster.apply(placement(stage, 1))
        bench.server.admissions = (refuse_pods,)
        assert (await bench.cluster.apply(placement(stage, 2))).result is WriteResult.REFUSED
        bench.server.admissions = ()
        bench.now_s += 10.0  # the pause after a refusal
        await bench.refresh()
        assert (await bench.cluster.apply(placement(stage, 3))).result is WriteResult.DONE

    async def test_refusals_side_by_side_count_as_one(self, bench, stage):
        """Else the pause after the first would be the longest at once."""
        await bench.cluster.apply(gang(stage))
        bench.server.admissions = (refuse_pods,)
        bench.cluster._writer._api = Slow(bench.api)
        outcomes = await asyncio.gather(*(bench.cluster.apply(placement(stage, n, node=1)) for n in (1, 2, 3)))
        assert {outcome.message for outcome in outcomes} == {"exceeded quota: small"}
        bench.server.admissions = ()
        bench.now_s += 10.0
        await bench.refresh()
        assert (await bench.cluster.apply(placement(stage, 1, node=1))).result is WriteResult.DONE

    async def test_a_deletion_that_fails_holds_up_no_other_job(self, bench, stage):
        """Of a gang that lost its race one pod cannot be deleted; beside it another gang waits for its master."""
        await bench.cluster.apply(gang(stage))
        bench.rest.holds_back = {"digits-trainer-0"}
        await bench.settle()
        add_job(bench.server, small_job("other"))
        await bench.refresh()
        await bench.cluster.apply(gang_of("team-a/other", node="n2"))
        bench.rest.settle()
        bench.now_s += BIND_LIMIT_S
        await bench.refresh()
        bench.cluster.view()
        bench.cluster._writer._api = CutShort(bench.api, -1)
        with pytest.raises(UnavailableError):
            await bench.cluster._gangs.settle(bench.now_s)
        assert [raw["metadata"]["name"] for raw in bench.server.all(DEPLOYMENTS)] == ["other-master"]

    async def test_of_a_job_that_is_gone_nothing_is_kept(self, bench, stage):
        """Leaders live for weeks, jobs for hours."""
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        before = bench.cluster.views.pods.stamp(JOB)
        await bench.api.delete(TRAINING_JOBS, "digits", namespace="team-a")
        bench.now_s += 60.0  # beyond every grace
        await bench.settle()
        pods = bench.cluster.views.pods
        assert bench.names() == set()
        assert before > pods.stamp(JOB) == 0
        assert pods._labelled == pods._stamps == pods._job_by_label == pods._reservations == {}

    async def test_a_name_held_by_a_pod_of_somebody_else_is_refused(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        foreign = {
            "metadata": {"name": "digits-trainer-1", "namespace": "team-a"},
            "spec": template(cpu="1")["spec"],
        }
        await bench.api.create(PODS, foreign)
        outcome = await bench.cluster.apply(placement(stage, 1))
        assert (outcome.result, outcome.message) == (
            WriteResult.REFUSED,
            "pod team-a/digits-trainer-1 exists and is not owned by this job",
        )

    async def test_a_pod_that_changed_since_it_was_chosen_is_not_deleted(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        await bench.cluster.apply(placement(stage, 1))
        chosen = (await pods_of(stage))[Role.TRAINER, 1]
        bench.rest.settle()  # it is bound meanwhile, and the watch has not said so
        outcome = await bench.cluster.apply(leave(stage, chosen))
        assert outcome.result is WriteResult.FAILED
        assert "deletionTimestamp" not in bench.raw("digits-trainer-1")["metadata"]

    async def test_a_refusal_is_no_news(self, bench, stage):
        """Planned again at once it would be refused again at once, ten times a second."""
        await bench.cluster.apply(gang(stage))
        await bench.cluster.changed(0.0)
        assert (await bench.cluster.apply(placement(stage, 1, node=0, role=Role.MASTER))).result is WriteResult.REFUSED
        assert not await bench.cluster.changed(0.0)

    async def test_a_surplus_pod_not_bound_in_time_goes_alone(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        bench.rest.holds_back = {"digits-trainer-1"}
        await bench.cluster.apply(placement(stage, 1))
        await bench.settle()
        bench.now_s += BIND_LIMIT_S
        await bench.settle()
        assert set(await pods_of(stage)) == {(Role.MASTER, 0), (Role.TRAINER, 0)}

    async def test_a_master_that_somebody_deleted_comes_back_while_a_trainer_is_on_its_way(self, bench, stage):
        """What runs without its master is no gang that starts: it lost all its pods for the one that was late."""
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        bench.rest.holds_back = {"digits-trainer-1"}
        await bench.cluster.apply(placement(stage, 1))
        await bench.api.delete(DEPLOYMENTS, "digits-master", namespace="team-a")
        await bench.settle()
        assert len(bench.server.all(DEPLOYMENTS)) == 1
        bench.now_s += BIND_LIMIT_S
        await bench.settle()
        assert set(await pods_of(stage)) == {(Role.MASTER, 0), (Role.TRAINER, 0)}

    async def test_a_pod_that_has_ended_meanwhile_is_left_as_it_is(self, bench, stage):
        """It has no room that anybody could want, and its log may be asked for."""
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        trainer = (await pods_of(stage))[Role.TRAINER, 0]
        bench.rest.end("team-a", "digits-trainer-0", code=0)
        await bench.refresh()
        assert (await bench.cluster.apply(leave(stage, trainer))).result is WriteResult.DONE
        assert "deletionTimestamp" not in bench.raw("digits-trainer-0")["metadata"]

    async def test_masters_leave_with_their_deployment(self, bench, stage):
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        bench.state = JobState.OVER
        master = (await pods_of(stage))[Role.MASTER, 0]
        action = DeletePod(pod=master.name, job=JOB, role=Role.MASTER, node=master.node, cause=Cause.EDIT, grace_s=5.0)
        assert (await bench.cluster.apply(action)).result is WriteResult.DONE
        assert bench.server.all(DEPLOYMENTS) == []
        await bench.settle()
        assert set(await pods_of(stage)) == {(Role.TRAINER, 0)}

    async def test_a_job_that_is_only_observed_is_not_touched(self, bench, stage):
        add_job(bench.server, small_job("watched") | {"spec": small_job("watched")["spec"] | {"mode": "observe"}})
        await bench.refresh()
        outcome = await bench.cluster.apply(gang_of("team-a/watched"))
        assert (outcome.result, outcome.message) == (WriteResult.REFUSED, "job team-a/watched is only observed")
        assert bench.names() == set()

    async def test_nobody_gives_room_to_a_job_that_is_only_observed(self, bench, stage):
        """It would not take it: the other jobs shrank for nothing."""
        add_job(bench.server, small_job("watched") | {"spec": small_job("watched")["spec"] | {"mode": "observe"}})
        await bench.cluster.apply(gang(stage))
        await bench.settle()
        pod = (await pods_of(stage))[Role.TRAINER, 0]
        action = replace(leave(stage, pod), cause=Cause.GANG)
        outcome = await bench.cluster.apply(replace(action, beneficiary="team-a/watched"))
        assert outcome.result is WriteResult.REFUSED
        assert (await bench.cluster.apply(replace(action, beneficiary="team-a/other"))).result is WriteResult.DONE
