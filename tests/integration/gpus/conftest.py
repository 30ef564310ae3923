"""Sockets of a kubelet lie where their path is short enough."""

import tempfile
from pathlib import Path

import pytest

from tests.harness.fake_kubelet import Kubelet


@pytest.fixture
def socket():
    with tempfile.TemporaryDirectory(prefix="edl-kubelet-", dir="/tmp") as folder:
        yield Path(folder) / "kubelet.sock"


@pytest.fixture
def kubelet():
    return Kubelet()
