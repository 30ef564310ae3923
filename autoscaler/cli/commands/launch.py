"""`edl launch`: run a training script as an elastic job, without a job file.

Words before the script are options of `edl launch`, words after it the script's, as with torchrun and python.  They
become a TrainingJob (`launch_options`, `launched_job`), which is checked as a file's is, and run here or created on a
cluster, where `followed_job` waits for its end.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from autoscaler.cli.arguments.launch_options import misplaced_options, read_job
from autoscaler.cli.arguments.launch_types import Counts, EnvironmentVariable, ListedSizes, VirtualNodes
from autoscaler.cli.arguments.launched_job import LaunchedJob, build_document, hide_values, option_of
from autoscaler.cli.arguments.options import page_options
from autoscaler.cli.arguments.parameter_types import Duration
from autoscaler.cli.arguments.place_options import complete_context, complete_namespace
from autoscaler.cli.arguments.place_selection import PLUGIN, RUNS, PlaceKind
from autoscaler.cli.exit_codes import CommandError, Exit
from master.api.host.log_lines import escape_controls

if TYPE_CHECKING:  # these cost half a second, which --help need not wait for
    from autoscaler.domain import Resources
    from autoscaler.manifests import FieldError
    from autoscaler.manifests.documents import Document

FILE: Final = "edl launch"
"""What the job's document is called where a file's name would stand."""

_MOST_RECORDS: Final = 2**31 - 1  # of a step, as EDL_GLOBAL_BATCH has it


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(), metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option("-m", "--module", "is_module", is_flag=True, help="SCRIPT is a module, as python -m has it.")
@click.option("--no-python", "is_program", is_flag=True, help="SCRIPT is a program of its own.")
@click.option(
    "--trainers", type=Counts(), default=None, help="Number of trainers: 4, or 1:8 for 1 to 8 (default: --sizes, or 1)."
)
@click.option(
    "--sizes", type=ListedSizes(), default=None, help="The only numbers of trainers that are allowed: 1,2,4,8."
)
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
    help="A variable for the trainers; KEY alone takes its value from here.  Repeatable.  On kubernetes the job "
    "shows the value: give secrets by envFrom (--dry-run prints the job).",
)
@click.option("--checkpoint", default="", metavar="URI", help="Folder or object store to resume from and commit to.")
@click.option("--checkpoint-every", type=Duration(), default=None, help="Time between commits (default: 60s).")
@click.option(
    "--max-restarts",
    type=click.IntRange(0, 1000),
    default=3,
    show_default=True,
    help="Failures in a row, without a completed batch between them, that the job survives.",
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
@page_options
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
@click.option("--owner-folder", hidden=True, help="Folder to remove at the end, where standard input has closed.")
@click.pass_context
def launch(context: click.Context, /, **options: Any) -> None:
    """Run a training script as a job that grows and shrinks, without a job file.

    Options stand before the script; everything after it is the script's own.  On this machine the job grows to what
    the machine has, and the output, Ctrl-C and the run folder are those of edl run.  --dry-run prints the job file.

    \b
    edl launch --trainers 1:8 train.py --lr 0.1
    edl launch --trainers 1:4 --gpu 1 --cpu 2 --memory 8Gi -m team.train
    edl launch --trainers 1:6 --servers 1:3 examples/digits_pserver.py
    edl launch --no-group --trainers 1:4 examples/plain_sharding.py
    edl launch --trainers 2:6 --dry-run train.py > job.yaml
    edl launch --on kubernetes --image team/train:1 --checkpoint s3://b/t train.py
    """  # noqa: D301 - click keeps the lines after this mark as they are
    kind = options["on"] or (PlaceKind.KUBERNETES if context.find_root().info_name == PLUGIN else PlaceKind.LOCAL)
    job = read_job(kind, options)
    for word in misplaced_options(options["arguments"]):
        click.echo(f"edl: {word} after the script is the script's own; options of edl launch stand before it", err=True)
    content = build_document(job)
    document = _check_document(content, kind)
    if options["is_dry"]:
        from autoscaler.cli.output.formats import format_content  # noqa: PLC0415 - not for --help

        print(escape_controls(format_content(content, options["output"])))
    elif kind == PlaceKind.KUBERNETES:
        sys.exit(_run_on_cluster(content, options))
    else:
        try:
            code = _run_here(job, document, options)
        finally:
            _remove_of_lost_owner(options["owner_folder"])
        sys.exit(code)


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
    from autoscaler.cli.local.foreground_command import choose_output, choose_page, run_manifests  # noqa: PLC0415 - not for --help
    from autoscaler.cli.local.launch_nodes import (  # noqa: PLC0415 - too
        check_gpus,
        cores_and_memory,
        equal_nodes,
        gpus_by_number,
        machine_gpus,
        nodes_of_machine,
    )
    from autoscaler.cli.output.formats import format_content  # noqa: PLC0415 - too
    from autoscaler.local_run.run_settings import GPU_WINDOW_S, RunSettings  # noqa: PLC0415 - too
    from autoscaler.manifests.parsing import parse_documents  # noqa: PLC0415 - too

    manifests = parse_documents([document])
    (job,) = manifests.jobs
    named: tuple[int, Resources] | None = options["nodes"]
    if named:
        nodes = equal_nodes(*named)
        check_gpus(nodes, "--nodes")
        cuda_ids = gpus_by_number(nodes)
    else:
        cuda_ids = {gpu.number: gpu.cuda_id for gpu in machine_gpus()}
        nodes = nodes_of_machine(job, replace(cores_and_memory(), gpu_count=len(cuda_ids)))
    numbers = iter(cuda_ids or range(sum(node.capacity.gpu_count for node in nodes)))
    settings = RunSettings(
        name=job.name,
        machines=nodes,
        devices=tuple(tuple(next(numbers) for _ in range(node.capacity.gpu_count)) for node in nodes),
        cuda_ids=cuda_ids,
        parent=options["run_dir"],
        with_etcd=not options["no_etcd"],
        gpu_window_s=0.0 if named or not nodes[0].capacity.gpu_count else GPU_WINDOW_S,
        described={
            "command": hide_values(sys.argv[1:], launched.env),
            "namespaces": [job.namespace],
            "files": {FILE: format_content(build_document(launched, has_values=False), "yaml")},
        },
    )
    output = choose_output(is_json=options["is_json"], has_view=not options["no_view"])
    page_port = choose_page(is_wanted=options["is_page"], port=options["page_port"], output=output)
    return run_manifests(
        settings, manifests, output=output, ends_with_stdin=options["ends_with_stdin"], page_port=page_port
    )


def _remove_of_lost_owner(folder: str | None) -> None:
    """Remove the private folder of `edl.launch` where its interpreter has gone: one that was killed cannot."""
    from autoscaler.cli.local.stop_request import is_input_closed  # noqa: PLC0415 - not for --help

    if folder is not None and is_input_closed():
        shutil.rmtree(folder, ignore_errors=True)


# ---- on a cluster ---------------------------------------------------------------------------------------------------


def _run_on_cluster(content: dict[str, Any], options: dict[str, Any]) -> Exit:
    from autoscaler.cli.kubernetes.cluster_place import open_cluster  # noqa: PLC0415 - not for runs
    from autoscaler.cli.kubernetes.followed_job import submit_and_follow  # noqa: PLC0415 - with it

    cluster = options["kubeconfig"], options["kube_context"], options["namespace"]
    with open_cluster(*cluster, is_all_namespaces=False) as place:
        return submit_and_follow(place, content, is_json=options["is_json"], is_followed=not options["detach"])
