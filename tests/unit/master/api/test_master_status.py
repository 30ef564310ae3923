"""A master's status: what is read as it was written, and what is refused."""

import json

import pytest

from master.api.document import encode_document, to_plain
from master.api.errors import DocumentError
from master.api.identities import MemberRole
from master.api.master_status import JobPhase, JobStatus, MemberStatus, PositionCounts, decode_status
from master.api.positions import EMPTY

SERVER = MemberStatus(
    name="s0",
    role=MemberRole.SERVER,
    ordinal=0,
    is_connected=True,
    is_serving=True,
    leased=0,
    steps=0,
    samples_per_s=0.0,
    metrics={},
    buckets=3,
    took_over=2,
    waiting_share=0.5,
)
TOLD = JobStatus(
    phase=JobPhase.TRAINING,
    problem="",
    checkpoint_problem="",
    store_problem="",
    moves_problem="",
    term=2,
    lineage=1,
    head=None,
    checkpoint_age_s=None,
    epochs=10,
    epoch_size=100,
    positions=PositionCounts(total=1000, todo=500, leased=100, done=100, skipping=0, committed=300, quarantined=0),
    per_epoch=(),
    epochs_committed=3,
    quarantine=EMPTY,
    reworked=7,
    members=(SERVER,),
    servers=2,
    servers_wanted=3,
    servers_max=4,
    moving=1,
    waiting_to_move=5,
    copies=2,
    single_copies=3,
    failures=(),
    failures_in_a_row=0,
)


def test_status_of_this_version_is_read_as_it_is():
    """Every field, and each member's."""
    assert decode_status(encode_document(TOLD)) == TOLD


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda plain: plain.pop("servers_wanted"), "servers_wanted"),
        (lambda plain: plain["members"][0].pop("buckets"), "members[0].buckets"),  # none would say: it may go
        (lambda plain: plain.update(planets=9), "planets"),
        (lambda plain: plain.update(members=5), "members"),
        (lambda plain: plain.pop("copies"), "copies"),
        (lambda plain: plain.pop("checkpoint_problem"), "checkpoint_problem"),
        (lambda plain: plain["members"][0].pop("took_over"), "members[0].took_over"),
        (lambda plain: plain.update(phase=[1]), "phase"),
        (lambda plain: plain.update(problem=5), "problem"),
        (lambda plain: plain.update(members=[5]), "members[0]"),
    ],
)
def test_status_that_lacks_what_cannot_be_guessed_is_refused(change, path):
    plain = to_plain(TOLD)
    change(plain)
    with pytest.raises(DocumentError) as refused:
        decode_status(json.dumps(plain).encode())
    assert str(refused.value).startswith(f"{path} ") or f"{path}:" in str(refused.value), refused.value


@pytest.mark.parametrize("data", [b"", b"5", b"[]", b"null"])
def test_what_is_no_status_is_refused(data):
    with pytest.raises(DocumentError):
        decode_status(data)
