"""`edl data verify` reads every byte and says what is whole: in words, as JSON and by its exit code (M11)."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from autoscaler.cli.commands.data import data
from autoscaler.cli.exit_codes import CommandError

KEPT = Path(__file__).parents[2] / "kept"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(KEPT / "v1", tmp_path / "checkpoints")


def verify(*words):
    done = CliRunner().invoke(data, ["verify", *map(str, words)], standalone_mode=False)
    if isinstance(done.exception, CommandError):
        return done.exception.code, done.output + str(done.exception)
    assert done.exception is None
    return 0, done.output


def test_a_whole_folder_is_told_with_what_it_holds(folder):
    """Exit code 0."""
    code, said = verify(folder)
    assert code == 0
    assert "intact       000002-0000000007-000003-5f3a9c21 (step 5, 80 of 200 samples" in said
    assert "<- HEAD" in said
    code, said = verify(folder, "--json")
    found = json.loads(said)
    assert (code, found["is_intact"], found["checkpoints"][0]["is_head"]) == (0, True, True)


def test_one_bit_is_found_and_named(folder):
    """Exit code 1, and the file."""
    (name,) = folder.glob("cut-*")
    content = bytearray(name.read_bytes())
    content[100] ^= 1
    name.write_bytes(content)
    code, said = verify(folder)
    assert code == 1
    assert "DAMAGED" in said
    assert f"{name.name}: does not match the digest" in said
    code, said = verify(folder, "--json")
    assert code == 1
    assert name.name in said


def test_data_files_without_a_manifest_are_no_empty_folder(folder):
    """Exit code 1; an empty folder has 3."""
    (folder / "HEAD").unlink()
    next(folder.glob("manifest-*")).unlink()
    code, said = verify(folder)
    assert (code, "unnamed      1 data files" in said) == (1, True)
    next(folder.glob("cut-*")).unlink()
    assert verify(folder)[0] == 3
