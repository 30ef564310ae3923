"""The command line of `edl launch`: what becomes of options and words, what is refused and how, and its nodes."""

import json

import click
import pytest
import yaml

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.kubernetes.followed_job import submit_and_follow
from autoscaler.cli.local.launch_nodes import bounded_capacity, nodes_of_machine, oversize_notices
from autoscaler.cli.main import edl
from autoscaler.clusters.kubernetes.api import kinds
from autoscaler.clusters.kubernetes.api.api_port import Subresource
from autoscaler.clusters.local.machine.cgroup_limits import CgroupLimits
from autoscaler.domain import Resources
from autoscaler.manifests import parse_files
from autoscaler.manifests.api_types import Manifests
from master.api.host.launch_variables import GIVEN
from tests.unit.cli.kube_place import NAMESPACE, stage

ON_CLUSTER = ("--on", "kubernetes", "--image", "registry.example/t:1", "--checkpoint", "s3://b/t")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a script."""
    (tmp_path / "train.py").write_text("print()\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launch(*words):
    with edl.make_context("edl", ["launch", *words]) as context:
        edl.invoke(context)


def document(capsys, *words):
    launch("--dry-run", *words)
    return yaml.safe_load(capsys.readouterr().out)


def container(found):
    return found["spec"]["trainer"]["template"]["spec"]["containers"][0]


def test_words_after_the_script_are_its_own(capsys):
    """Options of the same names, `--` and `-m` reach the script, as with torchrun."""
    words = ["--trainers", "9", "--", "-m", "-o", "--dry-run"]
    launch("--dry-run", "--trainers", "1:8", "--gpu", "1", "train.py", *words)
    printed = capsys.readouterr()
    assert (
        printed.err == "edl: --trainers after the script is the script's own; options of edl launch stand before it\n"
    )
    found = yaml.safe_load(printed.out)
    assert container(found)["command"] == ["python", "train.py", *words]
    assert container(found)["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert (found["spec"]["trainer"]["minReplicas"], found["spec"]["trainer"]["maxReplicas"]) == (1, 8)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("-m", "team.train", "-v"), ["python", "-m", "team.train", "-v"]),
        (("--no-python", "./run.sh", "-m"), ["./run.sh", "-m"]),
        (("--", "train.py", "-v"), ["python", "train.py", "-v"]),
    ],
)
def test_modules_and_programs_run_as_torchrun_runs_them(capsys, words, command):
    assert container(document(capsys, *words))["command"] == command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), {"group": {}}),
        (("--group", "--global-batch", "256"), {"group": {"globalBatch": 256}}),
        (("--no-group",), {}),
        (("--servers", "2"), {"parameterServer": {}}),
        (("--no-group", "--servers", "2"), {"parameterServer": {}}),
    ],
)
def test_a_launched_job_is_a_group_unless_it_is_told_otherwise(capsys, words, said):
    """Scripts that torchrun starts hold the model in each process; servers or `--no-group` make another kind of job."""
    spec = document(capsys, *words, "train.py")["spec"]
    assert {name: spec[name] for name in ("group", "parameterServer") if name in spec}.keys() == said.keys()
    assert spec.get("group") == said.get("group")


def test_listed_sizes_are_those_of_the_job_and_its_bounds(capsys):
    """Without `--trainers` the list has the bounds; one trainer is the default without both."""
    trainer = document(capsys, "--sizes", "2,4,8", "train.py")["spec"]["trainer"]
    assert (trainer["minReplicas"], trainer["maxReplicas"], trainer["sizes"]) == (2, 8, [2, 4, 8])
    trainer = document(capsys, "train.py")["spec"]["trainer"]
    assert (trainer["minReplicas"], trainer["maxReplicas"], "sizes" in trainer) == (1, 1, False)


def test_the_printed_job_is_a_job_file(capsys, folder):
    """`--dry-run` prints what `edl validate` and `edl run` take; -o json says the same."""
    options = ("--servers", "1:2", "--env", "A=b=c", "--checkpoint", "kept", "--checkpoint-every", "5s")
    found = document(capsys, *options, "train.py")
    (folder / "job.yaml").write_text(yaml.safe_dump(found))
    (job,) = parse_files([folder / "job.yaml"]).jobs
    assert job.trainer.template.env == (("A", "b=c"),)
    assert job.checkpoint.uri == str(folder / "kept"), "a relative folder of this machine"
    launch("--dry-run", "-o", "json", *options, "train.py")
    assert json.loads(capsys.readouterr().out) == found


def test_a_variable_without_a_value_takes_that_of_the_environment(capsys, monkeypatch):
    """As in docker run; what `edl.launch` hands over comes first, and the command's own PATH stays its own."""
    monkeypatch.setenv("SECRET", "a=b")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv(f"{GIVEN}PATH", "/given")
    words = [word for name in ("SECRET", "EMPTY", "PATH") for word in ("--env", name)]
    env = container(document(capsys, *words, "train.py"))["env"]
    assert {one["name"]: one["value"] for one in env} == {"SECRET": "a=b", "EMPTY": "", "PATH": "/given"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--trainers", "8:1", "train.py"), "write 1:8"),
        (("--trainers", "0", "train.py"), "at least 1"),
        (("--trainers", "many", "train.py"), "--trainers"),
        (("--cpu", "much", "train.py"), "--cpu: 'much'"),
        (("--cpu", "0", "train.py"), "--cpu 0"),
        (("--memory", "512m", "train.py"), "--memory: '512m'"),
        (("--memory", "5", "train.py"), "--memory 5: a trainer needs more; a number without a unit is in bytes"),
        (("--gpu", "0.5", "train.py"), "--gpu: '0.5'"),
        (("--env", "A b", "train.py"), "LOG_LEVEL=debug"),
        (
            ("--env", "UNSET_HERE", "train.py"),
            "UNSET_HERE is not set in this environment; set it, or write UNSET_HERE=",
        ),
        (("--env", "EDL_NAME=x", "train.py"), "EDL's own"),
        (("--name", "Train", "train.py"), "--name: 'Train' is not a Kubernetes name"),
        (("--checkpoint", "nfs://x/y", "train.py"), "--checkpoint: 'nfs://x/y' has an unknown scheme"),
        (("--trainers", "1:20000", "train.py"), "--trainers: 20000"),
        (("--servers", "2", "--group", "train.py"), "--servers and --group exclude each other"),
        (("--servers", "2", "--global-batch", "9", "train.py"), "--global-batch and --servers exclude each other"),
        (("--no-group", "--global-batch", "9", "train.py"), "--global-batch and --no-group exclude each other"),
        (("--global-batch", "0", "train.py"), "--global-batch"),
        (("--sizes", "1,two", "train.py"), "write 1,2,4,8"),
        (("--sizes", "0,2", "train.py"), "'0,2': a job has at least 1 trainer; write 2"),
        (("--sizes", "4,2", "train.py"), "--sizes: "),
        (("--sizes", "1,4,2,8", "train.py"), "--sizes: "),
        (("--sizes", "2,4", "--trainers", "1:4", "train.py"), "--sizes: "),
        (("--nodes", "0x1cpu,1Gi", "train.py"), "1 to 1000 nodes"),
        (("--image", "x", "train.py"), "--image means a cluster"),
        (("--detach", "train.py"), "--detach means a cluster"),
        (("nowhere.py",), "nowhere.py: there is no such script"),
        (("train.py", "--nodes"), None),
        (("-m", "--no-python", "x"), "exclude each other"),
        (("--on", "kubernetes", "train.py"), "--image is missing"),
        (("--on", "kubernetes", "--image", "x", "train.py"), "--checkpoint is missing"),
        ((*ON_CLUSTER, "--nodes", "1cpu,1Gi", "train.py"), "--nodes means this machine"),
        (("--on", "kubernetes", "--image", "x", "--checkpoint", "here", "train.py"), "--checkpoint: 'here'"),
    ],
)
def test_refusals_name_the_option_and_what_to_do(words, told, capsys):
    if told is None:  # the script's own word
        assert container(document(capsys, *words))["command"] == ["python", *words]
        return
    with pytest.raises(click.ClickException) as refused:
        launch("--dry-run", *words)
    assert told in refused.value.format_message()


@pytest.mark.parametrize(("given", "advised"), [("0", "1"), ("0:0", "1"), ("0:1", "1"), ("0:4", "1:4")])
def test_no_trainers_are_refused_with_what_is_nearest(given, advised):
    """A range of one number is no advice."""
    with pytest.raises(click.ClickException) as refused:
        launch("--dry-run", "--trainers", given, "train.py")
    assert refused.value.format_message().endswith(f"at least 1 is needed; write {advised}")


def machine_of(**amounts):
    return Resources(cpu_milli=4000, memory_bytes=8 << 30, **amounts)


def job_of(capsys, folder, *words):
    (folder / "job.yaml").write_text(yaml.safe_dump(document(capsys, *words, "train.py")))
    return parse_files([folder / "job.yaml"]).jobs[0]


def test_the_machine_is_one_node_that_holds_the_minimum(capsys, folder):
    """Growth stops at the machine's cores, and the master takes none of them; the minimum runs anyhow."""
    (node,) = nodes_of_machine(job_of(capsys, folder, "--trainers", "1:8"), machine_of())
    assert node.capacity.cpu_milli == 4000 + 100
    (node,) = nodes_of_machine(job_of(capsys, folder, "--trainers", "6:8", "--servers", "2"), machine_of())
    assert node.capacity.cpu_milli == 6000 + 2 * 500 + 100


@pytest.mark.parametrize(
    ("limits", "cores", "memory"),
    [
        (CgroupLimits(), 4000, 8 << 30),
        (CgroupLimits(cpu_milli=1500, memory_bytes=1 << 30), 1500, 1 << 30),
        (CgroupLimits(cpu_milli=64_000, memory_bytes=1 << 63), 4000, 8 << 30),
    ],
)
def test_a_container_has_what_its_limits_leave(limits, cores, memory):
    """Growth stops there, where the kernel would throttle trainers or kill one."""
    found = bounded_capacity(machine_of(gpu_count=2), limits)
    assert (found.cpu_milli, found.memory_bytes, found.gpu_count) == (cores, memory, 2)


def test_a_job_that_asks_for_more_than_the_machine_is_told_so(capsys, folder):
    """It runs all the same, slowly; what the machine holds needs no notice, and nor does the master's own request."""
    machine, notices = machine_of(), []
    for words in ((), ("--cpu", "64"), ("--memory", "64Gi")):
        job = job_of(capsys, folder, *words)
        notices.append(oversize_notices(Manifests(jobs=(job,)), nodes_of_machine(job, machine), machine))

    fits, (cores,), (memory,) = notices
    assert fits == ()
    assert "64.1 cores, and this machine has 4" in cores
    assert "GiB of memory, and this machine has 8.0" in memory


def test_gpus_that_are_not_there_are_refused(capsys, folder):
    job = job_of(capsys, folder, "--trainers", "2:8", "--gpu", "2")
    with pytest.raises(CommandError, match=r"--gpu 2 for 2 trainers needs 4 GPUs; this machine has 3"):
        nodes_of_machine(job, machine_of(gpu_count=3))
    (node,) = nodes_of_machine(job, machine_of(gpu_count=5))
    assert node.capacity.gpu_count == 5


@pytest.mark.parametrize(
    ("ending", "why", "code"),
    [
        ("Completed", "AllTrained", Exit.OK),
        ("Completed", "ScriptFailed", Exit.FAILED),
        ("Failed", "GivenUp", Exit.FAILED),
    ],
)
def test_a_job_on_a_cluster_is_created_and_followed_to_its_end(capsys, ending, why, code):
    content = document(capsys, *ON_CLUSTER, "--trainers", "2:4", "train.py")
    with stage() as (made_on, place):
        assert submit_and_follow(place, content, is_json=False, is_followed=False) is Exit.OK
        assert "tj/train created" in capsys.readouterr().out
        made = made_on.server.all(kinds.TRAINING_JOBS)[0]
        assert made["metadata"]["namespace"] == NAMESPACE
        assert container(made)["image"] == "registry.example/t:1"
        with pytest.raises(CommandError, match="choose another --name"):
            place.create_job(content)
        other = {**content, "metadata": {"name": "other"}}
        make = place.create_job

        def create_that_ends(body):
            line = make(body)
            told = {"type": ending, "status": "True", "reason": why, "message": "so it is", "lastTransitionTime": "x"}
            place._do(
                made_on.api.patch(
                    kinds.TRAINING_JOBS,
                    "other",
                    {"status": {"conditions": [told]}},
                    namespace=NAMESPACE,
                    subresource=Subresource.STATUS,
                )
            )
            return line

        place.create_job = create_that_ends
        assert submit_and_follow(place, other, is_json=False, is_followed=True) is code
        assert f"tj/other: {ending}: so it is" in capsys.readouterr().err
