"""What a member's process remembers of its master's answers."""

from dataclasses import replace

import pytest

from master.api.messages.to_members import OfferAnswered
from master.api.positions import EMPTY
from master.api.wire.hello import Hello
from tests.unit.trainer_sdk.group.member_cases import synced
from trainer_sdk.group.core.member_state import Copy
from trainer_sdk.group.member_shell import MemberShell
from trainer_sdk.master_stream import MasterAddress


@pytest.fixture
def shell(tmp_path):
    state = synced()
    state = replace(state, copy=Copy(number=1, offer=2, state=state.state, skipped=EMPTY, stamp=1))
    nobody = MasterAddress(target=f"unix:{tmp_path}/nobody", hello=Hello(job="j", software="tests"))
    made = MemberShell(state, listener=None, master=nobody, master_budget_s=60.0, check_alive=lambda: None)
    yield made
    made.stream.close()


def test_a_late_answer_to_an_older_offer_is_no_refusal_of_the_newer_one(shell):
    """Who asked for a checkpoint is told why it failed, and of which one."""
    shell.received((OfferAnswered(offer=2, manifest=None, reason="no room"),))
    assert shell.refusal == "no room"
    shell.received((OfferAnswered(offer=1, manifest=None, reason="older"), OfferAnswered(offer=1, manifest=None)))
    assert shell.refusal == "no room"
