"""An address for the operator's probes that another process has."""

import socket

import pytest

from autoscaler.errors import InvalidSpecError
from autoscaler.operator.process.operator_settings import ProbeAddress
from autoscaler.operator.process.probes import OperatorState, serve_probes


async def test_an_address_that_is_taken_is_named_with_its_option():
    """An error of the command line, which has no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = ProbeAddress(host="127.0.0.1", port=taken.getsockname()[1])
        state = OperatorState(knows_leader=True, is_leading=False)
        with pytest.raises(InvalidSpecError, match=f"--listen: 127.0.0.1:{address.port} cannot be used"):
            async with serve_probes(address, state=lambda: state, render=lambda: b""):
                pass
