"""A job created on a cluster and followed to its end, as `edl launch` does it."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.kubernetes.cluster_place import ClusterPlace
from autoscaler.cli.output.object_tables import GrowingTable
from autoscaler.clusters.kubernetes.objects.fields import condition_of, text
from autoscaler.jobs.lifecycle import CompletionReason
from master.api.host.log_lines import escape_controls


def submit_and_follow(place: ClusterPlace, content: dict[str, Any], *, is_json: bool, is_followed: bool) -> Exit:
    """Create the job and print it after each change until it ends.  FAILED: it failed, or its script did after the end;
    the reason is printed.

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
    table = GrowingTable(is_wide=False)
    for found in place.watch("tj", name):
        for one in found.objects:
            if is_json:
                print(json.dumps(one), flush=True)
            for line in () if is_json else table.add(one, found.columns):
                print(escape_controls(line), flush=True)
            for ending, code in (("Completed", Exit.OK), ("Failed", Exit.FAILED)):
                condition = condition_of(one, ending)
                if condition.get("status") == "True":
                    reason = f"tj/{name}: {ending}: {text(condition, 'message')}"
                    print(escape_controls(reason), file=sys.stderr)
                    has_failed = text(condition, "reason") == CompletionReason.SCRIPT_FAILED
                    return Exit.FAILED if has_failed else code
    raise CommandError(
        Exit.FAILED, f"tj/{name} has been deleted, or the cluster no longer tells; see edl get tj/{name}"
    )
