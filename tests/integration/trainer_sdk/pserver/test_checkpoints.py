"""Parameter servers and real files: cuts, restores onto another number of servers, harmed files, a full disk."""

import resource

import pytest

from master.api.checkpoints.storage import open_storage
from master.api.identities import (
    CutId,
    Lineage,
    Term,
)
from master.api.messages.from_members import CutRefusal, CutRefused, CutTaken, RestoreFailed, Written
from master.api.messages.to_members import Cut
from tests.integration.trainer_sdk.pserver.in_process_servers import FIRST, span, verdicts
from trainer_sdk.errors import NotReadyError
from trainer_sdk.pserver.core.messages import PushVerdict
from trainer_sdk.pserver.transfer.checkpoint_file import read_index


def test_checkpoint_is_restored_onto_another_number_of_servers(new_job, tmp_path):
    """Files are read by bucket: 2 -> 3 -> 1 servers; counters equal the data state (the ledger), slots come along."""
    job = new_job(2).restore()
    job.push(0, 4)
    job.cut(span(0, 8))
    job.push(8, 12)
    job.push(4, 8)
    files = tuple(server.wait_for(Written).file for server in job.servers)
    assert {marks.applied for file in files for marks in file.marks} == {span(0, 8)}
    index = read_index(open_storage(str(tmp_path / "checkpoints")), files[0].name, files[0].size_bytes)
    assert (index.cut, index.marks, index.extents) == (FIRST, files[0].marks, files[0].extents)
    job.push(12, 16)
    after = []
    for lineage, count in ((2, 3), (3, 1)):
        restored = new_job(count, first=lineage * 10, lineage=lineage, files=files, data=span(0, 8)).restore()
        assert restored.counts() == [1] * 8 + [0] * 16
        assert verdicts(restored.push(4, 8)) == {(PushVerdict.REPEAT, "0-31")}
        restored.push(8, 24)
        assert restored.counts() == [1] * 24
        after.append(restored.client.pull(["w"]).tables["w"].copy())
    assert (after[0] == after[1]).all()


@pytest.mark.parametrize("harm", ["truncated", "altered", "missing"])
def test_harmed_checkpoint_file_is_named_and_not_loaded(new_job, tmp_path, harm):
    """RestoreFailed names the file; the server holds no model and says so."""
    job = new_job(1).restore()
    job.push(0, 4)
    job.cut(span(0, 4))
    file = job.servers[0].wait_for(Written).file
    path = tmp_path / "checkpoints" / file.name
    data = bytearray(path.read_bytes())
    path.unlink()
    if harm == "truncated":
        path.write_bytes(data[: len(data) // 2])
    if harm == "altered":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    other = new_job(1, first=5, lineage=2, files=(file,), data=span(0, 4))
    other.servers[0].service.control(other.orders[0])
    assert file.name in other.servers[0].wait_for(RestoreFailed).message
    with pytest.raises(NotReadyError):
        other.client.pull()


def test_manifest_that_disagrees_with_its_files_is_not_loaded(new_job):
    """A checkpoint's data state is what its files say (rule 22)."""
    job = new_job(1).restore()
    job.push(0, 4)
    job.cut(span(0, 4))
    file = job.servers[0].wait_for(Written).file
    other = new_job(1, first=5, lineage=2, files=(file,), data=span(0, 5))
    other.servers[0].service.control(other.orders[0])
    assert "manifest says" in other.servers[0].wait_for(RestoreFailed).message


def test_full_disk_costs_the_cut_and_nothing_else(new_job, tmp_path):
    """CutRefused(FAILED) with the reason, no file left, training goes on, the next cut is written."""
    job = new_job(1).restore()
    job.push(0, 4)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        job.cut(span(0, 4))
        refusal = job.servers[0].wait_for(CutRefused)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert refusal.reason is CutRefusal.FAILED
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert verdicts(job.push(4, 8)) == {(PushVerdict.APPLIED, "0-31")}
    second = CutId(term=Term(1), lineage=Lineage(1), sequence=2)
    job.cut(span(0, 8), second)
    assert job.servers[0].wait_for(Written).cut == second


def test_cut_is_taken_again_when_asked_again(new_job):
    """A repeat of CUT after the file was written says WRITTEN again (rule 21)."""
    job = new_job(1).restore()
    job.push(0, 4)
    job.cut(span(0, 4))
    server = job.servers[0]
    first, taken = server.wait_for(Written), len(server.all_of(CutTaken))
    server.service.control(Cut(cut=FIRST, data=span(0, 4)))
    assert server.all_of(Written) == [first, first]
    assert len(server.all_of(CutTaken)) == taken
