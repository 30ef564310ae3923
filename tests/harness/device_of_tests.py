"""The device on which the tests of models run: the CPU, or what EDL_TEST_DEVICE names, "cuda" or "deferred"."""

import os

import torch


def device_of_tests():
    """It is loaded once; see `tests/unit/trainer_sdk/torch/test_accelerator.py`, which runs these tests on others."""
    name = os.environ.get("EDL_TEST_DEVICE", "cpu")
    if name == "deferred":
        from tests.harness.deferred_device import load_deferred_device  # noqa: PLC0415  it becomes torch's accelerator

        return load_deferred_device()
    return torch.device(name)
