"""`edl data audit` of a group: its step, the id of its state, what it skipped, and the digest of its replica."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from autoscaler.cli.commands.data import data
from autoscaler.cli.exit_codes import CommandError
from master.api.checkpoints.checkpoint_files import write_manifest
from master.api.checkpoints.local_storage import LocalStorage
from master.api.positions import PositionSet
from tests.harness.checkpoint_folders import alter, commit_copy, commit_plain
from trainer_sdk.group.captured_state import digest_arrays
from trainer_sdk.group.port import CapturedState

REPLICA = CapturedState(arrays={"w": np.arange(6.0).reshape(2, 3), "none": np.zeros((0, 2)), "step": np.array(4)})
SKIPPED = PositionSet.of(2, 5)


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path / "checkpoints")


def audit(storage, *words):
    done = CliRunner().invoke(data, ["audit", storage.uri, *words], standalone_mode=False)
    if isinstance(done.exception, CommandError):
        return done.exception.code, done.output + str(done.exception)
    assert done.exception is None
    return 0, done.output


def test_a_group_is_told_by_step_state_and_digest(storage):
    """In words and as JSON; the digest is that of the arrays, as one member sends it to another."""
    commit_copy(storage, REPLICA, step=4, skipped=SKIPPED)
    digest = digest_arrays(REPLICA.arrays)
    code, said = audit(storage)
    assert code == 0
    assert "step         4 of 6, 1 of 2 epochs done" in said
    assert "state        lineage 2, generation 5, step 4" in said
    assert "skipped      positions 2,5" in said
    assert f"digest       {digest}" in said
    code, said = audit(storage, "--json")
    assert (code, json.loads(said)["group"]) == (
        0,
        {
            "step": 4,
            "steps": 6,
            "epochs_done": 1,
            "is_stopped": False,
            "state": {"lineage": 2, "generation": 5, "step": 4},
            "skipped": "2,5",
            "digest": digest,
        },
    )


def test_replicas_that_differ_in_one_bit_have_other_digests(storage):
    """Of the same names and shapes."""
    arrays = {**REPLICA.arrays, "w": REPLICA.arrays["w"].copy()}
    arrays["w"].view(np.uint8)[1, 3] ^= 1
    assert digest_arrays(arrays) != digest_arrays(REPLICA.arrays)


def test_files_that_are_not_read_have_no_digest(storage):
    """--no-files, and a job that is no group."""
    commit_copy(storage, REPLICA, step=4)
    code, said = audit(storage, "--no-files")
    assert (code, "digest       not read" in said, "skipped" in said) == (0, True, False)
    commit_plain(storage)
    code, said = audit(storage, "--json")
    assert (code, json.loads(said)["group"]) == (0, None)


def test_a_damaged_replica_is_told_without_a_digest(storage):
    """Exit code 1; the rest of the audit is printed."""
    alter(storage, commit_copy(storage, REPLICA, step=4))
    code, said = audit(storage)
    assert code == 1
    assert "digest       not read" in said
    assert "does not match the digest" in said


def test_a_replica_of_another_state_than_its_manifest_is_found(storage, capfd):
    """The file is whole, and its manifest tells a later generation (rule 90)."""
    manifest = commit_copy(storage, REPLICA, step=4)
    write_manifest(storage, replace(manifest, state=replace(manifest.state, generation=6)))
    assert audit(storage)[0] == 1
    assert (
        "is of step 4 of generation 5, skipped none; its manifest says step 4 of generation 6" in capfd.readouterr().err
    )
