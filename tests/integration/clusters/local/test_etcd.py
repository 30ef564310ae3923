"""The run's own etcd comes back, also where that takes more than one attempt."""

import asyncio
import os
import shutil
import time

from autoscaler.clusters.local.machine.processes import Processes
from autoscaler.clusters.local.run_files.run_folder import make_run_folder
from autoscaler.local_run.run_etcd import KEY, start_etcd, supervise_etcd

DEADLINE_S = 60.0


async def until(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


async def test_etcd_that_cannot_start_for_a_while_ends_no_run(etcd_binary, tmp_path):
    """One failed start ended the run and all its jobs, though the machine was only full for some seconds."""
    is_ill, program = tmp_path / "ill", tmp_path / "etcd"
    program.write_text(f'#!/bin/sh\n[ -e {is_ill} ] && exit 1\nexec {etcd_binary.path} "$@"\n')
    program.chmod(0o755)
    folder = make_run_folder(tmp_path, "test", described={"name": "test"})
    log, starts, news = folder.log_of("etcd"), [], []
    async with Processes(on_end=lambda _: None) as processes:

        async def start(_story):
            environment = {**os.environ, "EDL_ETCD": str(program)}
            starts.append(await start_etcd(processes, folder, log, environment, report=print))

        await start("")
        keeping = asyncio.create_task(supervise_etcd(processes, log, restart=start, on_event=news.append))
        is_ill.touch()
        processes.end(KEY)
        await until(lambda: keeping.done() or "NotStarted" in {one.reason for one in news})
        is_ill.unlink()
        await until(lambda: keeping.done() or len(starts) == 2)
        assert not keeping.done()
        assert starts[0] == starts[1]
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    shutil.rmtree(folder.sockets, ignore_errors=True)  # which may be in /tmp
