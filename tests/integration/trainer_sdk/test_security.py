"""A job with a secret and certificates: its own script trains, a stranger's is told so."""

import pytest

from tests.harness.certificates import JobAuthority
from tests.harness.job_processes import running
from tests.harness.master_process import JOB
from trainer_sdk.errors import MasterUnavailableError, UsageError
from trainer_sdk.session import open_session


@pytest.fixture
def closed_job(tmp_path):
    """A job whose master and parameter server ask for the token and for certificates of one authority."""
    JobAuthority("our authority").issue(tmp_path / "ours")
    JobAuthority("their authority").issue(tmp_path / "theirs")
    (tmp_path / "token").write_text("open sesame\n")
    (tmp_path / "wrong").write_text("open barley\n")
    secrets = {"EDL_TLS_DIR": str(tmp_path / "ours"), "EDL_TOKEN_FILE": str(tmp_path / "token")}
    with running(tmp_path, servers=1, **secrets) as job:
        yield job


def first_batch(job, *, tls: str, token: str, budget_s: float = 100.0):
    variables = {
        "EDL_MASTER": job.address,
        "EDL_JOB": JOB,
        "EDL_NAME": f"{JOB}-stranger",
        "EDL_TLS_DIR": str(job.folder / tls) if tls else "",
        "EDL_TOKEN_FILE": str(job.folder / token) if token else "",
    }
    with open_session(variables, master_budget_s=budget_s) as session:
        next(session.dataset("ledger", size=60, epochs=2, batch_size=8, seed=0))


def test_a_script_trains_behind_tls_and_a_token_and_strangers_do_not(closed_job):
    """Both doors, the master's and the servers', open to the job's own trainer and to nobody else."""
    trainer = closed_job.trainer(0, "ledger.py", "--size", "60", "--epochs", "2", "--batch-size", "8")
    assert closed_job.wait_for_exit(trainer) == 0, closed_job.log("trainer-0")
    assert "counters from 2 to 2" in closed_job.log("trainer-0")

    for token in ("wrong", ""):
        with pytest.raises(UsageError, match="EDL_TOKEN_FILE"):
            first_batch(closed_job, tls="ours", token=token)
    with pytest.raises(MasterUnavailableError, match="EDL_TLS_DIR"):
        first_batch(closed_job, tls="theirs", token="token", budget_s=3.0)
    with pytest.raises(MasterUnavailableError, match="EDL_TLS_DIR"):
        first_batch(closed_job, tls="", token="token", budget_s=3.0)
    with pytest.raises(UsageError, match=r"EDL_TLS_DIR.*ca\.crt"):
        first_batch(closed_job, tls="nowhere", token="token")
