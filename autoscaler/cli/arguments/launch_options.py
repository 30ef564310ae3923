"""Options and words of `edl launch` as a LaunchedJob; those that contradict each other are refused.

What is wrong with the job itself, `parsing` says of its document (`launched_job`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from autoscaler.cli.arguments.launched_job import CountRange, LaunchedJob, job_name_of
from autoscaler.cli.arguments.place_selection import PlaceKind
from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.quantities import QuantityError, parse_count, parse_cpu_m, parse_memory_bytes

_MOST_GPUS: Final = 1024
_LEAST_MEMORY_BYTES: Final = 1 << 20
"""Less is a unit that was forgotten: no interpreter starts in it."""

_RARELY_A_SCRIPTS: Final = frozenset({"--trainers", "--servers", "--sizes", "--dry-run", "--no-view"})


def read_job(kind: str, options: dict[str, Any]) -> LaunchedJob:
    """The job of these options of the command, by parameter name.  Raises CommandError naming an option."""
    _check_place(kind, options)
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
    if not _read_amount("cpu", options, parse_cpu_m):
        raise CommandError(Exit.USAGE, f"--cpu {options['cpu']}: a trainer needs some; write --cpu 1, for example")
    if _read_amount("memory", options, parse_memory_bytes) < _LEAST_MEMORY_BYTES:
        hint = "a trainer needs more; a number without a unit is in bytes: write --memory 1Gi, for example"
        raise CommandError(Exit.USAGE, f"--memory {options['memory']}: {hint}")
    sizes = options["sizes"] or (1,)
    uri = options["checkpoint"]
    if is_local and uri and "://" not in uri:
        uri = str(Path(uri).absolute())  # on one machine a relative folder means the same to all
    return LaunchedJob(
        name=options["name"] or job_name_of(script),
        command=(*start, script, *options["arguments"]),
        trainers=options["trainers"] or CountRange(least=min(sizes), most=max(sizes)),
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


def misplaced_options(arguments: Sequence[str]) -> list[str]:
    """Words for the script that edl launch has as options and scripts hardly ever: probably meant for it."""
    words = [word.partition("=")[0] for word in takewhile(lambda word: word != "--", arguments)]
    return [word for word in words if word in _RARELY_A_SCRIPTS]


def _is_group(options: dict[str, Any]) -> bool:
    """True if each trainer holds the model.  Raises CommandError where options say both."""
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


def _check_place(kind: str, options: dict[str, Any]) -> None:
    """Refuse what belongs to the other place, and what a cluster needs.  Raises CommandError."""
    if kind == PlaceKind.KUBERNETES:
        if options["nodes"] is not None or options["ends_with_stdin"]:
            raise CommandError(Exit.USAGE, "--nodes means this machine; a cluster has nodes of its own: leave it out")
        if not options["image"]:
            hint = "name an image that has the script and EDL, --image registry.example/team/train:1"
            raise CommandError(Exit.USAGE, f"--image is missing: pods of a cluster run an image; {hint}")
        if not options["checkpoint"]:
            hint = "name a store that all pods reach, --checkpoint s3://bucket/folder, whose client is in all images"
            raise CommandError(Exit.USAGE, f"--checkpoint is missing: a pod's own files end with the pod; {hint}")
        return
    given = {"--image": "image", "--kubeconfig": "kubeconfig", "--context": "kube_context", "--namespace": "namespace"}
    for option, name in {**given, "--detach": "detach"}.items():
        if options[name]:
            raise CommandError(Exit.USAGE, f"{option} means a cluster; add --on kubernetes, or leave it out")
