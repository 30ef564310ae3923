"""What a master calls its place in the leader key is its own: who starts elsewhere buries nobody (ADR 0202)."""

import asyncio
import sys

import pytest

from master.leadership.leader_identity import this_holder

ADDRESS = "0.0.0.0:7164"


@pytest.mark.parametrize("differs", ["host", "boot"])
def test_two_machines_with_one_name_and_one_address_are_two_places(tmp_path, monkeypatch, differs):
    """Each start of a hand-run master on all interfaces revoked the lease of the living one on another host."""
    (tmp_path / "one").write_text("0d2a6f53-65c2-4c1e-9a6e-0e3f0f3b7b11\n")
    (tmp_path / "other").write_text("7be1c1a0-3d57-4f0e-8ad2-1c6d0b6b4c22\n")
    monkeypatch.setattr("master.leadership.leader_identity.BOOT_ID", tmp_path / "one")
    here = this_holder("digits-master-0", ADDRESS)
    if differs == "host":
        monkeypatch.setattr("socket.gethostname", lambda: "another")
    else:
        monkeypatch.setattr("master.leadership.leader_identity.BOOT_ID", tmp_path / "other")
    assert this_holder("digits-master-0", ADDRESS) != here


async def test_the_next_process_at_a_place_has_its_name():
    """Else nobody would give back a dead master's lease."""
    program = (
        "from master.leadership.leader_identity import this_holder; "
        f"print(this_holder('digits-master-0', {ADDRESS!r}), end='')"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    assert said.decode() == this_holder("digits-master-0", ADDRESS)
