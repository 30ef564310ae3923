"""`edl run`: run job files on this machine, in the foreground, with a live view.

The command line becomes `RunSettings`; `local.foreground` runs them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from autoscaler.cli.arguments.options import page_options
from autoscaler.cli.arguments.parameter_types import Duration, HostPort
from autoscaler.cli.arguments.place_selection import RUNS
from autoscaler.cli.exit_codes import CommandError, Exit

if TYPE_CHECKING:  # these cost half a second, which --help need not wait for
    from autoscaler.local_run.run_settings import RunSettings
    from autoscaler.manifests import Manifests, VirtualNode

_START: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--nodes", type=click.IntRange(1, 1000), default=4, show_default=True, help="Number of virtual nodes.")
@click.option("--cpu", default="4", show_default=True, help="CPU of each node (accounting only).")
@click.option("--memory", default="8Gi", show_default=True, help="Memory of each node (accounting only).")
@click.option(
    "--gpu", default="0", show_default=True, help="GPUs of each node; auto: the machine's GPUs, spread over the nodes."
)
@click.option(
    "--gpu-window",
    type=Duration(),
    default="5m",
    show_default=True,
    help="With --gpu auto: how long a GPU must not compute to count as held or free; 0s: GPUs are not watched.",
)
@click.option(
    "--cluster",
    "cluster_file",
    type=click.Path(path_type=Path),
    default=None,
    help="A LocalCluster document with nodes of different sizes, instead of the four options above.",
)
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    default=RUNS,
    show_default=True,
    help="Folder in which run folders are created.",
)
@click.option("--json", "is_json", is_flag=True, help="Events as JSON lines, no live view.")
@click.option("--no-view", is_flag=True, help="Events as plain lines, no live view.")
@page_options
@click.option("--duration", type=Duration(), default=None, help="Stop after this long (exit 0), e.g. 90s.")
@click.option("--stay", is_flag=True, help="Keep running after all jobs have ended.")
@click.option(
    "--move-servers",
    is_flag=True,
    help="Let parameter servers move to nodes where they leave the least unusable capacity.",
)
@click.option("--no-etcd", is_flag=True, help="Masters keep their state in memory and start again from checkpoints.")
@click.option("--shared-folders", is_flag=True, help="Checkpoint folders may be open to every user of this machine.")
@click.option(
    "--metrics",
    type=HostPort(),
    default=None,
    help="Serve metrics for Prometheus there: /metrics of the run, /targets for the discovery of its masters.",
)
@click.option("--from", "starts", multiple=True, metavar="[JOB=]MANIFEST", help="Resume a job from this checkpoint.")
@click.option("--fall-back", is_flag=True, help="Resume from the previous checkpoint if the newest cannot be read.")
@click.option("--start-fresh", is_flag=True, help="Set aside the job's checkpoint folder and start from zero.")
def run(*, files: Sequence[Path], cluster_file: Path | None, **options: Any) -> None:
    """Run TrainingJobs and Deployments on a cluster of virtual nodes on this machine.

    Pods are processes; capacity is accounting.  Runs until all jobs have ended (files without a job: until Ctrl-C).
    Ctrl-C ends everything in order; a second one kills.  Other terminals: edl get, edl scale, ...

    \b
    edl run examples/digits.yaml
    edl run job.yaml web.yaml --nodes 2 --cpu 8 --gpu auto
    """  # noqa: D301 - click keeps the lines after this mark as they are
    from autoscaler.cli.local.foreground_command import choose_output, choose_page, run_manifests  # noqa: PLC0415 - not for --help
    from autoscaler.manifests import InvalidManifestError, parse_files  # noqa: PLC0415 - with it

    if scripts := [path for path in files if path.suffix == ".py"]:
        raise CommandError(Exit.USAGE, f"{scripts[0]} is a script: edl launch {scripts[0]} runs it without a job file")
    try:
        if cluster_file is not None:
            _check_cluster(parse_files([cluster_file]), cluster_file)
        manifests = parse_files([*files, *([cluster_file] if cluster_file is not None else [])])
    except InvalidManifestError as error:
        raise CommandError(Exit.REFUSED, str(error)) from None
    manifests = _with_starts(manifests, options["starts"], starts_fresh=options["start_fresh"])
    manifests = _with_fall_back(manifests) if options["fall_back"] else manifests
    if not manifests.jobs and not manifests.deployments:
        raise CommandError(Exit.REFUSED, "the files hold no TrainingJob and no Deployment: there is nothing to run")
    settings = _settings(manifests, files, options)
    output = choose_output(is_json=options["is_json"], has_view=not options["no_view"])
    code = run_manifests(
        settings,
        manifests,
        output=output,
        duration_s=options["duration"],
        stays=options["stay"],
        page_port=choose_page(is_wanted=options["is_page"], port=options["page_port"], output=output),
    )
    sys.exit(code)


def _with_starts(manifests: Manifests, starts: Sequence[str], *, starts_fresh: bool) -> Manifests:
    """The jobs with the checkpoints that --from and --start-fresh name (M11)."""
    if not starts and not starts_fresh:
        return manifests
    from master.api.checkpoints.resume import FRESH  # noqa: PLC0415 - not for --help

    names = [job.name for job in manifests.jobs]
    if len(names) != 1 and (starts_fresh or not all("=" in start for start in starts)):
        raise CommandError(
            Exit.USAGE, f"--from and --start-fresh need the name of a job: --from JOB=MANIFEST ({_listed(names)})"
        )
    by_job = {job or names[0]: start for job, _, start in (start.rpartition("=") for start in starts)}
    if starts_fresh:
        by_job[names[0]] = FRESH
    if len(by_job) != len(starts) + starts_fresh:
        raise CommandError(Exit.USAGE, "--from and --start-fresh exclude each other for one job")
    for name in by_job.keys() - set(names):
        raise CommandError(Exit.USAGE, f"--from {name}=...: the files have no such job ({_listed(names)})")
    for name, start in by_job.items():
        if not _START.fullmatch(start):
            raise CommandError(
                Exit.USAGE, f"--from {name}={start[:40]} is no id of a checkpoint; edl data verify lists them"
            )
    jobs = tuple(
        replace(job, checkpoint=replace(job.checkpoint, start=by_job.get(job.name, job.checkpoint.start)))
        for job in manifests.jobs
    )
    for job in jobs:
        if job.name in by_job and not job.checkpoint.uri:
            raise CommandError(Exit.USAGE, f"tj/{job.name} has no spec.checkpoint.uri: its folder is new with each run")
    return replace(manifests, jobs=jobs)


def _with_fall_back(manifests: Manifests) -> Manifests:
    from master.api.identities import WhenUnreadable  # noqa: PLC0415 - not for --help

    jobs = (
        replace(job, checkpoint=replace(job.checkpoint, when_unreadable=WhenUnreadable.FALL_BACK))
        for job in manifests.jobs
    )
    return replace(manifests, jobs=tuple(jobs))


def _listed(names: Sequence[str]) -> str:
    return "jobs: " + (", ".join(names) or "none")


def _check_cluster(manifests: Manifests, file: Path) -> None:
    if not manifests.nodes or manifests.jobs or manifests.deployments:
        raise CommandError(Exit.REFUSED, f"--cluster {file}: a LocalCluster document belongs there, and only that")


def _settings(manifests: Manifests, files: Sequence[Path], options: dict[str, Any]) -> RunSettings:
    from autoscaler.cli.local.launch_nodes import check_gpus, gpus_by_number  # noqa: PLC0415 - not for --help
    from autoscaler.clusters.local.machine.gpus import GpuLookupError, find_gpus, spread  # noqa: PLC0415 - with it
    from autoscaler.local_run.run_settings import (  # noqa: PLC0415 - with it
        LEAST_GPU_WINDOW_S,
        LOCAL_POLICY,
        MOVING_SERVERS_POLICY,
        MetricsAddress,
        RunSettings,
    )

    nodes = manifests.nodes or _equal_nodes(options)
    check_gpus(nodes, "the LocalCluster document" if manifests.nodes else "--gpu")
    shares: list[tuple[int, ...]] = []
    cuda_ids: dict[int, str] = {}
    gpu_window_s = 0.0
    if options["gpu"] == "auto" and not manifests.nodes:
        try:
            cuda_ids = {gpu.number: gpu.cuda_id for gpu in find_gpus(os.environ)}
        except GpuLookupError as error:
            raise CommandError(Exit.REFUSED, str(error)) from None
        shares = list(spread(list(cuda_ids), len(nodes)))
        nodes = tuple(_with_gpus(node, len(share)) for node, share in zip(nodes, shares, strict=True))
        gpu_window_s = options["gpu_window"] if any(shares) else 0.0
        if 0.0 < gpu_window_s < LEAST_GPU_WINDOW_S:
            raise CommandError(Exit.USAGE, f"--gpu-window is below {LEAST_GPU_WINDOW_S:g}s: no sample would lie in it")
    else:
        numbers, cuda_ids = count(), gpus_by_number(nodes)
        shares = [tuple(next(numbers) for _ in range(node.capacity.gpu_count)) for node in nodes]
    return RunSettings(
        name=(manifests.jobs or manifests.deployments)[0].name,
        machines=nodes,
        devices=tuple(shares),
        cuda_ids=cuda_ids,
        parent=options["run_dir"],
        policy=MOVING_SERVERS_POLICY if options["move_servers"] else LOCAL_POLICY,
        with_etcd=bool(manifests.jobs) and not options["no_etcd"],
        allows_shared_folders=options["shared_folders"],
        gpu_window_s=gpu_window_s,
        metrics=MetricsAddress(host=options["metrics"][0], port=options["metrics"][1]) if options["metrics"] else None,
        described={
            "command": sys.argv[1:],
            "namespaces": list(dict.fromkeys(job.namespace for job in manifests.jobs))
            or list(dict.fromkeys(deployment.namespace for deployment in manifests.deployments)),
            "files": {str(path): path.read_text(encoding="utf-8") for path in files},
        },
    )


def _equal_nodes(options: dict[str, Any]) -> tuple[VirtualNode, ...]:
    from autoscaler.domain import Resources  # noqa: PLC0415 - not for --help
    from autoscaler.manifests.conversion import make_virtual_node  # noqa: PLC0415 - with it
    from autoscaler.quantities import QuantityError, parse_count, parse_cpu_m, parse_memory_bytes  # noqa: PLC0415 - too

    def read(option: str, parse: Callable[[str], int]) -> int:
        try:
            return parse(options[option])
        except QuantityError as error:
            raise CommandError(Exit.REFUSED, f"--{option}: {error}") from None

    cpu_milli, memory_bytes = read("cpu", parse_cpu_m), read("memory", parse_memory_bytes)
    gpu_count = 0 if options["gpu"] == "auto" else read("gpu", parse_count)
    capacity = Resources(cpu_milli=cpu_milli, memory_bytes=memory_bytes, gpu_count=gpu_count)
    return tuple(make_virtual_node(f"node-{number}", capacity) for number in range(1, options["nodes"] + 1))


def _with_gpus(node: VirtualNode, count: int) -> VirtualNode:
    return replace(node, capacity=replace(node.capacity, gpu_count=count))
