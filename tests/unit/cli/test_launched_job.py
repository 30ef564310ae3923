"""What `edl launch` was told, as a TrainingJob."""

import json
from dataclasses import replace

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from autoscaler.cli.arguments.launched_job import (
    CountRange,
    LaunchedJob,
    build_document,
    hide_values,
    job_name_of,
    option_of,
)
from autoscaler.manifests.documents import read_text
from autoscaler.manifests.parsing import parse_documents

counts = st.integers(1, 50).flatmap(lambda low: st.builds(CountRange, least=st.just(low), most=st.integers(low, 60)))
words = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=20)
kinds = st.one_of(
    st.fixed_dictionaries({"servers": st.none() | counts}),
    st.fixed_dictionaries({"is_group": st.just(True), "global_batch": st.none() | st.integers(1, 2**31 - 1)}),
)
jobs = st.builds(
    LaunchedJob,
    name=st.sampled_from(["a", "train-digits"]),
    command=st.lists(words, max_size=4).map(lambda rest: ("python", "train.py", *rest)),
    trainers=counts,
    cpu=st.sampled_from(["1", "250m", "0.5"]),
    memory=st.sampled_from(["64Mi", "1Gi"]),
    gpu_count=st.integers(0, 8),
    env=st.lists(st.tuples(st.sampled_from(["A", "B_C"]), words), max_size=2, unique_by=lambda one: one[0]).map(tuple),
    checkpoint_uri=st.sampled_from(["", "/shared/train", "s3://bucket/train"]),
    checkpoint_every_s=st.none() | st.floats(0.1, 1e6),
    max_restarts=st.integers(0, 100),
).flatmap(lambda job: kinds.map(lambda kind: replace(job, **kind)))

SPOKEN = LaunchedJob(
    name="a", command=("python", "\U0001f98a fox.py"), trainers=CountRange(least=1, most=2), cpu="1", memory="1Gi"
)
"""With a character that JSON escapes as two."""


@pytest.mark.parametrize("write", [yaml.safe_dump, json.dumps])
@given(job=jobs)
@example(job=SPOKEN)
def test_the_document_says_what_was_said(write, job):
    """Through YAML, or JSON, and the parser of job files, every word of the command line arrives unchanged."""
    documents, errors = read_text("edl launch", write(build_document(job)))
    assert not errors
    (parsed,) = parse_documents(documents).jobs
    template = parsed.trainer.template
    assert (parsed.name, template.command, template.env) == (job.name, job.command, job.env)
    assert (parsed.trainer.replicas.minimum, parsed.trainer.replicas.maximum) == (job.trainers.least, job.trainers.most)
    assert template.requests.gpu_count == job.gpu_count
    assert parsed.run_policy.backoff_limit == job.max_restarts + 1
    assert parsed.checkpoint.uri == job.checkpoint_uri
    assert parsed.checkpoint.every_s == (60 if job.checkpoint_every_s is None else job.checkpoint_every_s)
    assert (parsed.group is not None) == job.is_group
    assert parsed.group is None or parsed.group.global_batch == job.global_batch
    if job.servers is None:
        assert parsed.server is None
    else:
        bounds = parsed.server.replicas
        assert (bounds.minimum, bounds.maximum) == (job.servers.least, job.servers.most)


def test_a_record_of_the_launch_has_names_of_variables_alone():
    """Run folders are sent around, and values of variables may be secrets."""
    job = LaunchedJob(
        name="a",
        command=("x",),
        trainers=CountRange(least=1, most=1),
        cpu="1",
        memory="1Gi",
        env=(("KEY", "secret=1"), ("EMPTY", "")),
    )
    words = ["launch", "--env", "KEY=secret=1", "--env=KEY=secret=1", "--env", "EMPTY=", "train.py", "KEY=other"]
    assert hide_values(words, job.env) == [
        *("launch", "--env", "KEY", "--env=KEY", "--env", "EMPTY"),
        *("train.py", "KEY=other"),
    ]
    recorded = build_document(job, has_values=False)
    assert "secret" not in str(recorded)
    assert recorded["spec"]["trainer"]["template"]["spec"]["containers"][0]["env"] == [
        {"name": "KEY"},
        {"name": "EMPTY"},
    ]


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("train.py", "train"),
        ("examples/Train_Digits.py", "train-digits"),
        ("team.models.train_digits", "train-digits"),
        ("/opt/2024-run.py", "run"),
        ("42.py", "job"),
        ("x" * 80, "x" * 50),
    ],
)
def test_a_job_is_named_after_its_script(program, name):
    assert job_name_of(program) == name


@given(words)
def test_every_script_gives_a_legal_name(program):
    """Whatever a file is called, its job can be created."""
    job = LaunchedJob(
        name=job_name_of(program), command=("x",), trainers=CountRange(least=1, most=1), cpu="1", memory="1Gi"
    )
    documents, _ = read_text("edl launch", yaml.safe_dump(build_document(job)))
    assert parse_documents(documents).jobs[0].name == job.name


@pytest.mark.parametrize(
    ("path", "option"),
    [
        ("spec.checkpoint.uri", "--checkpoint"),
        ("spec.checkpoint.everySeconds", "--checkpoint-every"),
        ("spec.trainer.minReplicas", "--trainers"),
        ("spec.trainer.sizes", "--sizes"),
        ("spec.group.globalBatch", "--global-batch"),
        ("spec.trainer.template.spec.containers[0].env[1].name", "--env"),
        ("metadata.name", "--name"),
        ("metadata.names", ""),
    ],
)
def test_a_refused_field_names_its_option(path, option):
    assert option_of(path) == option
