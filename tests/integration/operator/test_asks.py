"""The operator asks a real master with the identity that it issued: by its address, for the host in its certificate."""

from datetime import UTC, datetime

from autoscaler.clusters.kubernetes.builders.job_identity import issue_identity
from autoscaler.clusters.kubernetes.objects.names import master_host, store_name
from autoscaler.jobs.master_connections import MasterConnections, MasterEndpoint, MasterTls
from autoscaler.jobs.progress import JobProgress
from master.api.master_status import JobPhase
from tests.harness.master_process import MasterProcess, running, wait_for_condition
from tests.unit.clusters.kubernetes.raw_objects import kube_job


async def test_a_master_is_asked_with_the_jobs_own_identity(tmp_path):
    """Token, authority and certificate as they stand in the job's Secrets; a stranger's are refused."""
    job, now = kube_job(), datetime.now(UTC)
    ours, theirs = issue_identity(job, now), issue_identity(job, now)
    folder = tmp_path / "identity"
    folder.mkdir()
    for name, content in {
        "ca.crt": ours.authority.certificate,
        "tls.crt": ours.master.certificate,
        "tls.key": ours.master.key,
        "token": ours.token.encode(),
    }.items():
        (folder / name).write_bytes(content)
    name = store_name(job.namespace, job.name, job.uid)
    process = MasterProcess(tmp_path, EDL_JOB=name, EDL_TLS_DIR=str(folder), EDL_TOKEN_FILE=str(folder / "token"))

    def door(identity, *, token=ours.token, as_job=name):
        tls = MasterTls(
            authority=identity.authority.certificate,
            certificate=identity.member.certificate,
            key=identity.member.key,
            host=master_host(job.namespace, job.name),
        )
        return MasterEndpoint(job=as_job, address=master.address, token=token, tls=tls)

    async with running(process) as (master,), MasterConnections() as masters:

        async def is_starting():
            answer = await masters.poll(door(ours))
            return isinstance(answer, JobProgress) and answer.phase is JobPhase.STARTING

        await wait_for_condition(is_starting)
        assert not isinstance(await masters.poll(door(theirs)), JobProgress)
        assert not isinstance(await masters.poll(door(ours, token="another")), JobProgress)
        assert not isinstance(await masters.poll(door(ours, as_job="another")), JobProgress)
        await masters.keep_only(name, frozenset())
        await wait_for_condition(is_starting)
