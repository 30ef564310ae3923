"""What a job trains, loses and ends with in the simulated cluster, worked out by hand from its speed."""

import pytest

from autoscaler.clusters.simulated import SpeedCurve, TrainingWork
from autoscaler.domain import JobState, Role
from autoscaler.errors import InvalidSpecError
from tests.unit.clusters.simulated.small_worlds import LINEAR, cluster, job, last, node, running_job, shape


def test_samples_are_speed_times_time():
    """Trainers bound 0.02 and 0.03 s after the start: 10 samples a second each from 1.02 and 1.03 s on."""
    sim = running_job()
    sim.run_until(11.03)
    assert last(sim).samples_trained == pytest.approx(0.01 * 10 + 10.0 * 20)
    assert last(sim)[1:5] == (2, 0, 1, True)


def test_job_without_its_servers_does_not_train():
    """Trainable: trainer, master and all servers."""
    sim = running_job(servers=2)
    sim.run_until(5.0)
    assert last(sim).is_trainable
    sim.kill_pod("j-server-0")
    trained = last(sim).samples_trained
    sim.run_until(9.0)
    assert not last(sim).is_trainable
    assert last(sim).samples_trained == trained


def test_killed_trainer_loses_what_it_had_in_hand_and_a_drained_one_nothing():
    """0.5 s of its own work at 10 samples a second."""
    sim = running_job()
    sim.run_until(5.0)
    sim.delete_pods(["j-trainer-0"], grace_s=30.0)
    sim.run_until(10.0)
    assert last(sim).samples_lost == 0
    sim.delete_pods(["j-trainer-1"], grace_s=1.0)
    sim.run_until(15.0)
    assert last(sim).samples_lost == pytest.approx(5.0)


def test_killed_server_takes_the_job_back_to_its_checkpoint():
    """60 s between checkpoints, trained for 80 s: 20 s are lost."""
    sim = running_job(servers=1)
    sim.run_until(1.05)
    begun_s = sim._jobs.by_name["j"].progress.first_trained_at_s
    sim.run_until(begun_s + 80.0)
    sim.kill_pod("j-server-0")
    assert last(sim).samples_lost == pytest.approx(20.0 * 20)


def test_elastic_server_moves_state_and_freezes_the_job():
    """A server of 5 GiB works 5 s after it is ready; the job stands still for half a second."""
    sim = running_job(servers=1, server=shape(1, 5), servers_elastic=True)
    assert sim.view().capabilities.servers_elastic
    sim.run_until(20.0)
    sim.create_pods("j", Role.SERVER, 1)
    sim.run_until(25.9)
    before = last(sim).samples_trained
    sim.run_until(27.9)
    assert last(sim).samples_trained - before == pytest.approx(20 * (2.0 - 0.5))


def test_few_servers_saturate():
    """Optimus' curve: more trainers per server, less per trainer; more servers help."""
    curve = SpeedCurve()
    assert curve.samples_per_s(0, 4) == 0
    assert curve.samples_per_s(20, 2) < 20 * curve.samples_per_s(1, 1)
    assert curve.samples_per_s(20, 2) > curve.samples_per_s(10, 2)
    assert curve.samples_per_s(20, 8) > curve.samples_per_s(20, 2)


def test_job_ends_when_its_samples_are_trained():
    """1000 samples at 20 a second from 1.03 s on; then its pods leave and it is over."""
    sim = running_job(TrainingWork(curve=LINEAR, samples_total=1_000.1))
    sim.run_until(51.02)
    assert sim.jobs["j"].state is JobState.ACTIVE
    sim.run_until(51.04)
    assert sim.jobs["j"].state is JobState.OVER
    sim.run_until(60.0)
    assert sim.pods == {}
    assert last(sim).samples_trained == pytest.approx(1_000.1)


def test_edited_job_keeps_its_age_and_a_job_that_is_over_gets_no_pods():
    """Bounds change, the instant of submission does not."""
    sim = running_job()
    sim.run_until(5.0)
    sim.submit(job("late"))
    sim.edit_job(job("late", high=9, weight=300))
    assert (sim.jobs["late"].submitted_at_s, sim.jobs["late"].trainer.max_replicas) == (5.0, 9)
    sim.edit_job(job(high=8, state=JobState.SUSPENDED))
    assert not last(sim).is_trainable
    sim.delete_job("j")
    with pytest.raises(InvalidSpecError, match="it is over"):
        sim.create_pods("j", Role.TRAINER, 1)


def test_job_that_is_over_is_not_started_again_by_its_controllers():
    """Its pods leave for good; under its name another job may come, of another shape."""
    sim = cluster(node("a", cpu=40))
    sim.submit(job(), TrainingWork(curve=LINEAR, samples_total=100.0))
    sim.set_replicas("j", Role.MASTER, 1, spreads=True)
    sim.set_replicas("j", Role.TRAINER, 2)
    sim.run_until(60.0)
    assert sim.pods == {}
    sim.delete_job("j")
    sim.submit(job(trainer=shape(2)))
    sim.set_replicas("j", Role.TRAINER, 1)
    sim.run_until(70.0)
    assert [pod.shape for pod in sim.pods.values()] == [shape(2)]
