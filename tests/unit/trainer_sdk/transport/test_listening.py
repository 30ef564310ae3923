"""Where a parameter server listens when it is told so, and when it is told nothing (ADR 0170)."""

import socket
from pathlib import Path

import pytest

from trainer_sdk.errors import UsageError
from trainer_sdk.transport.listen_address import listen
from trainer_sdk.transport.security import Security


def listened(variables, master="127.0.0.1:7070"):
    listening, address = listen(variables, master, "incarnation")
    with listening:
        return listening.getsockname(), address


def test_told_nothing_it_is_reached_on_the_way_to_its_master_alone():
    """It bound 0.0.0.0: every network of the machine reached it."""
    (host, port), address = listened({})
    assert host == "127.0.0.1"
    assert address == f"127.0.0.1:{port}"


def test_told_an_address_it_listens_there_and_tells_another():
    """As in a pod, which is reached at its own address, or behind a translation."""
    (host, port), address = listened({"EDL_LISTEN": "0.0.0.0:0"})
    assert (host, address) == ("0.0.0.0", f"127.0.0.1:{port}")
    (_, port), address = listened({"EDL_LISTEN": "127.0.0.1:0", "EDL_ADVERTISE": "10.1.2.3"})
    assert address == f"10.1.2.3:{port}"
    assert listened({"EDL_LISTEN": "127.0.0.1:0", "EDL_ADVERTISE": "[fd00::1]"})[1].startswith("[fd00::1]:")


def test_in_a_folder_it_takes_a_name_of_its_own_for_its_owner_alone(tmp_path):
    """The process before it may still hold its own; a socket that was left behind is no hindrance."""
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    for _ in range(2):
        name, address = listened({"EDL_LISTEN": f"unix:{folder}"}, master=f"unix:{folder}/m")
        assert name == f"{folder}/incarnation"
        assert address == f"unix:{name}"
        assert Path(name).stat().st_mode & 0o777 == 0o600
    assert listened({"EDL_LISTEN": f"unix:{folder}/named"})[0] == f"{folder}/named"


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_a_folder_that_others_reach_is_refused(tmp_path, mode):
    """Whoever reaches a socket's folder takes the place of its owner, or knocks."""
    folder = tmp_path / "s"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UsageError, match=r"EDL_LISTEN: .*chmod 700"):
        listen({"EDL_LISTEN": f"unix:{folder}"}, "unix:/m", "incarnation")


@pytest.mark.parametrize(
    "text", ["nonsense", "host:", "127.0.0.1:99999", "127.0.0.1:-1", "unix:relative", "unix:/no/such/s"]
)
def test_what_is_no_place_to_listen_is_refused_by_name(text):
    with pytest.raises(UsageError, match="EDL_LISTEN"):
        listen({"EDL_LISTEN": text}, "127.0.0.1:1", "incarnation")


def test_a_port_that_is_taken_is_refused_by_name():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match=r"EDL_LISTEN: .*in use"):
        listen({"EDL_LISTEN": f"127.0.0.1:{taken.getsockname()[1]}"}, "127.0.0.1:1", "incarnation")


@pytest.mark.parametrize("content", ["", " \n"])
def test_a_secret_of_nothing_opens_no_server_to_everybody(tmp_path, content):
    """As the master and a trainer have it: an empty file is a mistake, not the wish for no secret."""
    (tmp_path / "token").write_text(content)
    with pytest.raises(UsageError, match=r"EDL_TOKEN_FILE=.* holds no secret"):
        Security.from_environment({"EDL_TOKEN_FILE": str(tmp_path / "token")})
