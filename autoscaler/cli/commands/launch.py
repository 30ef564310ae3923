"""`edl launch`: run a training script as an elastic job, without a job file.

Words before the script are options of `edl launch`, words after it the script's, as with torchrun and python.  They
become a TrainingJob (`manifests.launched_job`), which is checked as a file's is, and run here or created on a cluster.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from autoscaler.cli.arguments.launch_types import Counts, EnvironmentVariable, ListedSizes, VirtualNodes
from autoscaler.cli.arguments.launched_job import (
    CountRange,
    LaunchedJob,
    build_document,
    hide_values,
    job_name_of,
    option_of,
)
from autoscaler.cli.arguments.parameter_types import Duration
from autoscaler.cli.arguments.place_options import complete_context, complete_namespace
from autoscaler.cli.arguments.place_selection import PLUGIN, RUNS, PlaceKind
from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.quantities import QuantityError, parse_count, parse_cpu_m, parse_memory_bytes
from master.api.host.log_lines import escape_controls

if TYPE_CHECKING:  # these cost half a second, which --help need not wait for
    from autoscaler.cli.kubernetes.cluster_place import ClusterPlace
    from autoscaler.domain import Resources
    from autoscaler.manifests import FieldError
    from autoscaler.manifests.documents import Document

FILE: Final = "edl launch"
"""What the job's document is called where a file's name would stand."""

_MOST_GPUS: Final = 1024
_MOST_RECORDS: Final = 2**31 - 1  # of a step, as EDL_GLOBAL_BATCH has it


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(), metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option("-m", "--module", "is_module", is_flag=True, help="SCRIPT is a module, as python -m has it.")
@click.option("--no-python", "is_program", is_flag=True, help="SCRIPT is a program of its own.")
@click.option(
    "--trainers", type=Counts(), default=None, help="How many: 4, or 1:8 for 1 to 8 (default: --sizes, or 1)."
)
@click.option("--sizes", type=ListedSizes(), default=None, help="The allowed numbers of trainers alone: 1,2,4,8.")
@click.option(
    "--group/--no-group",
    "is_group",
    default=None,
    help="Each trainer holds the model, or trainers share out the data alone (default: a group, without --servers).",
)
@click.option(
    "--global-batch",
    type=click.IntRange(1, _MOST_RECORDS),
    default=None,
    help="Records of a group's step over all trainers (default: the script's).",
)
@click.option("--servers", type=Counts(), default=None, help="Parameter servers, for a script with tables: 2, or 1:3.")
@click.option("--cpu", default="1", show_default=True, help="Cores of each trainer.")
@click.option("--memory", default="1Gi", show_default=True, help="Memory of each trainer.")
@click.option("--gpu", default="0", show_default=True, help="GPUs of each trainer.")
@click.option("--name", default=None, help="The job's name (default: the script's).")
@click.option(
    "--env",
    "variables",
    type=EnvironmentVariable(),
    multiple=True,
    help="A variable for the trainers; KEY alone takes its value from here.  Repeatable.",
)
@click.option("--checkpoint", default="", metavar="URI", help="Folder or object store to resume from and commit to.")
@click.option("--checkpoint-every", type=Duration(), default=None, help="Time between commits (default: 60s).")
@click.option(
    "--max-restarts",
    type=click.IntRange(0, 1000),
    default=3,
    show_default=True,
    help="Failures of trainers that the job survives without a batch completed between them.",
)
@click.option("--nodes", type=VirtualNodes(), default=None, help="Virtual nodes (default: this machine as one node).")
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    default=RUNS,
    show_default=True,
    help="Folder in which run folders are created.",
)
@click.option("--no-view", is_flag=True, help="Events as plain lines, no live view.")
@click.option(
    "--no-etcd", is_flag=True, help="The master keeps its state in memory; it starts again from a checkpoint."
)
@click.option(
    "--on",
    type=click.Choice([kind.value for kind in PlaceKind]),
    default=None,
    help="Where to run it (default: local; kubectl edl: kubernetes).",
)
@click.option("--image", default="", help="Image of the trainers, with the script in it (kubernetes).")
@click.option("--kubeconfig", metavar="FILE", default=None, help="Kubeconfig file (kubernetes).")
@click.option(
    "--context", "kube_context", default=None, shell_complete=complete_context, help="Its context (kubernetes)."
)
@click.option("-n", "--namespace", default=None, shell_complete=complete_namespace, help="Namespace (kubernetes).")
@click.option("--detach", is_flag=True, help="Do not follow the job (kubernetes).")
@click.option("--dry-run", "is_dry", is_flag=True, help="Print the TrainingJob and start nothing.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="Format of --dry-run.")
@click.option("--json", "is_json", is_flag=True, help="Events as JSON lines, no live view.")
@click.option("--ends-with-stdin", is_flag=True, hidden=True, help="Stop once standard input closes.")
@click.pass_context
def launch(context: click.Context, /, **options: Any) -> None:
    """Run a training script as a job that grows and shrinks, without a job file.

    Options stand before the script; everything after it is the script's own.  On this machine the job grows to what
    the machine has, and the output, Ctrl-C and the run folder are those of edl run.  --dry-run prints the job file.

    \b
    edl launch --trainers 1:8 train.py --lr 0.1
    edl launch --trainers 1:4 --gpu 1 --cpu 2 --memory 8Gi -m team.train
    edl launch --servers 1:3 examples/digits_pserver.py
    edl launch --no-group --trainers 1:4 examples/plain_sharding.py
    edl launch --trainers 2:6 --dry-run train.py > job.yaml
    edl launch --on kubernetes --image team/train:1 --checkpoint s3://b/t train.py
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind = options["on"] or (PlaceKind.KUBERNETES if context.find_root().info_name == PLUGIN else PlaceKind.LOCAL)
    _check_place(kind, options)
    job = _read_job(kind, options)
    content = build_document(job)
    document = _check_document(content, kind)
    if options["is_dry"]:
        from autoscaler.cli.output.formats import format_content  # noqa: PLC0415 - not for --help

        print(escape_controls(format_content(content, options["output"])))
    elif kind == PlaceKind.KUBERNETES:
        sys.exit(_run_on_cluster(content, options))
    else:
        sys.exit(_run_here(job, document, options))


def _check_place(kind: str, options: dict[str, Any]) -> None:
    """Refuse what belongs to the other place, and what a cluster needs.  Raises CommandError."""
    if kind == PlaceKind.KUBERNETES:
        if options["nodes"] is not None or options["ends_with_stdin"]:
            raise CommandError(Exit.USAGE, "--nodes means this machine; a cluster has nodes of its own: leave it out")
        if not options["image"]:
            hint = "name an image that has the script and EDL, --image registry.example/team/train:1"
            raise CommandError(Exit.USAGE, f"--image is missing: pods of a cluster run an image; {hint}")
        if not options["checkpoint"]:
            hint = "name a store that all pods reach, --checkpoint s3://bucket/folder"
            raise CommandError(Exit.USAGE, f"--checkpoint is missing: a pod's own files end with the pod; {hint}")
        return
    given = {"--image": "image", "--kubeconfig": "kubeconfig", "--context": "kube_context", "--namespace": "namespace"}
    for option, name in {**given, "--detach": "detach"}.items():
        if options[name]:
            raise CommandError(Exit.USAGE, f"{option} means a cluster; add --on kubernetes, or leave it out")


def _read_job(kind: str, options: dict[str, Any]) -> LaunchedJob:
    script, is_local = options["script"], kind == PlaceKind.LOCAL
    if options["is_module"] and options["is_program"]:
        raise CommandError(Exit.USAGE, "-m and --no-python exclude each other: a module is run by python")
    if is_local and not options["is_module"] and not options["is_program"] and not Path(script).is_file():
        hint = "a module is named by -m, a program by --no-python; options of edl launch stand before the script"
        raise CommandError(Exit.NOT_FOUND, f"{script}: there is no such script; {hint}")
    start = () if options["is_program"] else ("python", "-m") if options["is_module"] else ("python",)
    gpu_count = _read_amount("gpu", options, parse_count)
    if gpu_count > _MOST_GPUS:
        raise CommandError(Exit.USAGE, f"--gpu {gpu_count}: a trainer has at most {_MOST_GPUS}")
    for option, parse in (("cpu", parse_cpu_m), ("memory", parse_memory_bytes)):
        if not _read_amount(option, options, parse):
            raise CommandError(Exit.USAGE, f"--{option} 0: a trainer needs some; write --{option} 1, for example")
    sizes = options["sizes"] or (1,)
    uri = options["checkpoint"]
    if is_local and uri and "://" not in uri:
        uri = str(Path(uri).absolute())  # on one machine a relative folder means the same to all
    return LaunchedJob(
        name=options["name"] or job_name_of(script),
        command=(*start, script, *options["arguments"]),
        trainers=options["trainers"] or CountRange(least=sizes[0], most=sizes[-1]),
        sizes=options["sizes"] or (),
        is_group=_is_group(options),
        global_batch=options["global_batch"],
        servers=options["servers"],
        cpu=options["cpu"],
        memory=options["memory"],
        gpu_count=gpu_count,
        env=options["variables"],
        checkpoint_uri=uri,
        checkpoint_every_s=options["checkpoint_every"],
        max_restarts=options["max_restarts"],
        image=options["image"],
        namespace=options["namespace"] or "",
    )


def _is_group(options: dict[str, Any]) -> bool:
    """Whether each trainer holds the model.  Raises CommandError where options say both."""
    has_servers, is_group = options["servers"] is not None, options["is_group"]
    if has_servers and is_group:
        hint = "the model is on parameter servers, or in every trainer: leave one of them out"
        raise CommandError(Exit.USAGE, f"--servers and --group exclude each other: {hint}")
    if options["global_batch"] is not None and (has_servers or is_group is False):
        other = "--servers" if has_servers else "--no-group"
        hint = "only a group makes steps of all trainers; without one the script's batch_size is each trainer's own"
        raise CommandError(Exit.USAGE, f"--global-batch and {other} exclude each other: {hint}")
    return not has_servers if is_group is None else bool(is_group)


def _read_amount(option: str, options: dict[str, Any], parse: Any) -> int:
    try:
        return int(parse(options[option]))
    except QuantityError as error:
        raise CommandError(Exit.USAGE, f"--{option}: {error}") from None


def _check_document(content: dict[str, Any], kind: str) -> Document:
    """The document, found valid for the place.  Raises CommandError that names options in place of fields."""
    from autoscaler.cli.output.formats import format_content  # noqa: PLC0415 - not for --help
    from autoscaler.manifests import InvalidManifestError  # noqa: PLC0415 - with it
    from autoscaler.manifests.documents import read_text  # noqa: PLC0415 - with it
    from autoscaler.manifests.parsing import parse_documents  # noqa: PLC0415 - with it

    (document, *_), errors = read_text(FILE, format_content(content, "json"))  # JSON is YAML, each text in quotes
    if kind == PlaceKind.KUBERNETES:
        from autoscaler.cli.kubernetes.validation import validate_document  # noqa: PLC0415 - not for runs

        errors = (*errors, *validate_document(document))
    else:
        try:
            parse_documents([document], errors)
        except InvalidManifestError as error:
            errors = error.errors
    if errors:
        raise CommandError(Exit.REFUSED, "\n".join(map(_explain, errors)))
    return document


def _explain(error: FieldError) -> str:
    hint = f"; {error.hint}" if error.hint else ""
    return f"{option_of(error.path) or error.path}: {error.problem}{hint}"


# ---- on this machine ------------------------------------------------------------------------------------------------


def _run_here(launched: LaunchedJob, document: Document, options: dict[str, Any]) -> Exit:
    from autoscaler.cli.local.foreground_command import choose_output, run_manifests  # noqa: PLC0415 - not for --help
    from autoscaler.cli.local.launch_nodes import equal_nodes, machine_capacity, nodes_of_machine  # noqa: PLC0415 - too
    from autoscaler.cli.output.formats import format_content  # noqa: PLC0415 - too
    from autoscaler.local_run.run_settings import RunSettings  # noqa: PLC0415 - too
    from autoscaler.manifests.parsing import parse_documents  # noqa: PLC0415 - too

    manifests = parse_documents([document])
    (job,) = manifests.jobs
    named: tuple[int, Resources] | None = options["nodes"]
    nodes = equal_nodes(*named) if named else nodes_of_machine(job, machine_capacity())
    numbers = iter(range(sum(node.capacity.gpu_count for node in nodes)))
    settings = RunSettings(
        name=job.name,
        machines=nodes,
        devices=tuple(tuple(next(numbers) for _ in range(node.capacity.gpu_count)) for node in nodes),
        parent=options["run_dir"],
        with_etcd=not options["no_etcd"],
        described={
            "command": hide_values(sys.argv[1:], launched.env),
            "namespaces": [job.namespace],
            "files": {FILE: format_content(build_document(launched, has_values=False), "yaml")},
        },
    )
    output = choose_output(is_json=options["is_json"], has_view=not options["no_view"])
    return run_manifests(settings, manifests, output=output, ends_with_stdin=options["ends_with_stdin"])


# ---- on a cluster ---------------------------------------------------------------------------------------------------


def _run_on_cluster(content: dict[str, Any], options: dict[str, Any]) -> Exit:
    from autoscaler.cli.kubernetes.cluster_place import open_cluster  # noqa: PLC0415 - not for runs

    cluster = options["kubeconfig"], options["kube_context"], options["namespace"]
    with open_cluster(*cluster, is_all_namespaces=False) as place:
        return submit_and_follow(place, content, is_json=options["is_json"], is_followed=not options["detach"])


def submit_and_follow(place: ClusterPlace, content: dict[str, Any], *, is_json: bool, is_followed: bool) -> Exit:
    """Create the job and print it after each change until it ends.  FAILED: it failed; the reason is printed.

    Ctrl-C ends the command alone: the job is the cluster's.  Raises CommandError.
    """
    name = content["metadata"]["name"]
    created = place.create_job(content)
    print(json.dumps({"created": name}) if is_json else escape_controls(created), flush=True)
    if not is_followed:
        return Exit.OK
    try:
        return _follow(place, name, is_json=is_json)
    except KeyboardInterrupt:
        target = shlex.quote(f"tj/{name}")
        hint = f"edl get {target} -w follows it, edl logs {target} -f shows a trainer, edl delete {target} ends it"
        print(escape_controls(f"edl: the job goes on; {hint}"), file=sys.stderr)
        return Exit.INTERRUPTED


def _follow(place: ClusterPlace, name: str, *, is_json: bool) -> Exit:
    from autoscaler.cli.output.object_tables import GrowingTable  # noqa: PLC0415 - not for --help
    from autoscaler.clusters.kubernetes.objects.fields import condition_of, text  # noqa: PLC0415 - too

    table = GrowingTable(is_wide=False)
    for found in place.watch("tj", name):
        for one in found.objects:
            if is_json:
                print(json.dumps(one), flush=True)
            for line in () if is_json else table.add(one, found.columns):
                print(escape_controls(line), flush=True)
            for ending, code in (("Completed", Exit.OK), ("Failed", Exit.FAILED)):
                told = condition_of(one, ending)
                if told.get("status") == "True":
                    reason = f"tj/{name}: {ending}: {text(told, 'message')}"
                    print(escape_controls(reason), file=sys.stderr)
                    return code
    raise CommandError(
        Exit.FAILED, f"tj/{name} has been deleted, or the cluster no longer tells; see edl get tj/{name}"
    )
