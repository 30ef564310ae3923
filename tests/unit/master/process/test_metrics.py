"""What Prometheus reads of a master, sample by sample."""

from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry

from master import job
from master.api.master_status import JobStatus
from master.job.domain.durable_records import SECOND, Instant
from master.job.domain.job_events import CommitDue
from master.process.metrics import MasterCollector
from master.term.counters import Counters
from tests.unit.master.job.driver import run_servers, serving


@dataclass
class Looked:
    """A master as the collector sees it."""

    status: JobStatus | None
    counts: Counters = field(
        default_factory=lambda: Counters(
            events=1, received=2, sent=3, commits=4, terms=5, taken_over=6, commits_timed=3, commit_ns=1_500_000_000
        )
    )
    stream_count: int = 7
    waiting_write_count: int = 8

    def try_status(self):
        return self.status


def samples(master):
    """By name and labels, without the time at which a counter began."""
    registry = CollectorRegistry()
    registry.register(MasterCollector(master, wall_s=lambda: 9.0))
    return {
        (sample.name.removeprefix("edl_master_"), *sample.labels.values()): sample.value
        for metric in registry.collect()
        for sample in metric.samples
    }


PROCESS = {
    ("events_total",): 1,
    ("received_messages_total",): 2,
    ("sent_messages_total",): 3,
    ("commits_total",): 4,
    ("commit_seconds_count",): 3,
    ("commit_seconds_sum",): 1.5,
    ("terms_total",): 5,
    ("buckets_taken_over_total",): 6,
    ("streams",): 7,
    ("waiting_writes",): 8,
    ("clock_timestamp_seconds",): 9,
}


def test_a_master_that_does_not_lead_tells_of_itself_alone():
    """Its job is another one's to tell of: two sources would add up to twice the truth."""
    assert samples(Looked(status=None)) == {**PROCESS, ("leads",): 0}


def test_a_master_that_leads_tells_all_of_its_job():
    """Each number of the status that has a metric is under its own name."""
    driver, servers = serving()
    driver.fire(CommitDue)
    run_servers(driver, servers)
    told = job.status(driver.state, Instant(driver.now + 5 * SECOND))
    trainer, server, other = told.members
    status = replace(
        told,
        term=21, lineage=22, servers=23, servers_wanted=24, servers_max=25, moving=26, waiting_to_move=27,
        single_copies=28, reworked=29, failures_in_a_row=30, checkpoint_age_s=31.0, problem="p", store_problem="s",
        positions=replace(told.positions, todo=11, leased=12, done=13, skipping=14, committed=15, quarantined=16),
        members=(replace(trainer, samples_per_s=2.5), server, replace(other, is_connected=False, samples_per_s=9.0)),
    )  # fmt: skip
    assert samples(Looked(status=status)) == {
        **PROCESS,
        ("leads",): 1,
        ("term",): 21,
        ("lineage",): 22,
        **{("positions", place): 11 + at for at, place in enumerate(
            ("todo", "leased", "done", "skipping", "committed", "quarantined")
        )},
        ("problem", "training"): 1, ("problem", "checkpoints"): 0, ("problem", "store"): 1, ("problem", "moves"): 0,
        ("problem", "data"): 0, ("problem", "trainers"): 0,
        ("members", "trainer"): 1, ("members", "server"): 1,
        ("servers", "ready"): 23, ("servers", "wanted"): 24, ("servers", "max"): 25,
        ("moving_buckets",): 26,
        ("buckets_waiting_to_move",): 27,
        ("buckets_with_one_copy",): 28,
        ("reworked_positions_total",): 29,
        ("samples_per_second",): 2.5,
        ("failures_in_a_row",): 30,
        ("checkpoint_age_seconds",): 31.0,
    }  # fmt: skip
    assert ("checkpoint_age_seconds",) not in samples(Looked(status=replace(status, checkpoint_age_s=None)))
