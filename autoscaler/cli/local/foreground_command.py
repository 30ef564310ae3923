"""A run in the foreground as a command has it: which output it gets, and refusals as errors of the command."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.local.foreground import RunOutput, run_in_foreground
from autoscaler.cli.local.launch_nodes import cores_and_memory, oversize_notices
from autoscaler.clusters.local.run_files.checkpoint_locks import CheckpointFolderLockedError
from autoscaler.clusters.local.run_files.run_folder import RunFolderError
from autoscaler.errors import AutoscalerError, InvalidSpecError
from autoscaler.local_run.run_etcd import EtcdRefusedError
from autoscaler.local_run.run_settings import RunSettings
from autoscaler.manifests.api_types import Manifests
from master.api.errors import StorageError


def choose_output(*, is_json: bool, has_view: bool) -> RunOutput:
    """JSON lines if asked for; else the live view, where there is a terminal and it is not declined."""
    if is_json:
        return RunOutput.JSON
    return RunOutput.VIEW if has_view and sys.stdout.isatty() else RunOutput.LINES


def choose_page(*, is_wanted: bool | None, port: int | None, output: RunOutput) -> int | None:
    """Port of the page, 0 for a free one; None for no page.  Without a word it is there where a terminal is."""
    if is_wanted is False:
        return None
    if is_wanted or port is not None:
        return port or 0
    return 0 if output is not RunOutput.JSON and sys.stdout.isatty() else None


def run_manifests(
    settings: RunSettings,
    manifests: Manifests,
    *,
    output: RunOutput,
    duration_s: float | None = None,
    stays: bool = False,
    ends_with_stdin: bool = False,
    page_port: int | None = None,
) -> Exit:
    """Run to the end; see `run_in_foreground`.  Raises CommandError: REFUSED, then nothing was started, or FAILED.

    A notice says where a virtual node is larger than the machine.
    """
    oversize = oversize_notices(manifests, settings.machines, cores_and_memory())
    manifests = replace(manifests, notices=(*manifests.notices, *oversize))
    try:
        return asyncio.run(
            run_in_foreground(
                settings,
                manifests,
                output=output,
                duration_s=duration_s,
                stays=stays,
                ends_with_stdin=ends_with_stdin,
                page_port=page_port,
            )
        )
    except (EtcdRefusedError, CheckpointFolderLockedError, InvalidSpecError, RunFolderError, StorageError) as error:
        raise CommandError(Exit.REFUSED, str(error)) from None
    except AutoscalerError as error:
        raise CommandError(Exit.FAILED, str(error)) from None
