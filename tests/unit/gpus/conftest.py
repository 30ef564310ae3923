"""The fake driver library, loaded once by the real pynvml of this process."""

import pytest

from tests.harness import fake_nvml


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory):
    fake_nvml.load(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def scenario(nvml_library, tmp_path, monkeypatch):
    """What the driver answers to this test."""
    path = tmp_path / "scenario"
    monkeypatch.setenv(fake_nvml.VARIABLE, str(path))
    return fake_nvml.Scenario(path)
