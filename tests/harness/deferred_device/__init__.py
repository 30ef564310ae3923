"""A second device for PyTorch on a machine without one, whose copies are as late as they may be (its C++ is beside).

    device = load_deferred_device()     # torch.device("deferred", 0)

It is built by the C++ compiler at its first use, half a minute, and kept where torch keeps extensions.  A process that
has loaded it has an accelerator from then on, so tests load it in a process of their own.
"""

import shutil
import types
from functools import cache
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

SOURCE = Path(__file__).with_name("deferred.cpp")
SEEDS = []
"""What the device's generators were seeded with, the newest last."""


def can_be_built():
    """True where a C++ compiler and ninja are."""
    return all(map(shutil.which, ("g++", "ninja")))


@cache
def load_deferred_device():
    """The device; torch calls it its accelerator."""
    torch.utils.rename_privateuse1_backend("deferred")
    torch._register_device_module("deferred", _module())  # how a back end is added
    torch.utils.generate_methods_for_privateuse1_backend()
    return torch.device("deferred", 0)


@cache
def extension():
    """Its controls: fail and recover, the number of late copies, the bytes in use and their limit."""
    return load("edl_deferred_device", [str(SOURCE)], extra_cflags=["-O0"])


def _module():
    module = types.ModuleType("torch.deferred")
    module.is_available = module.is_initialized = lambda: True
    module._lazy_init = lambda: None
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.manual_seed_all = SEEDS.append
    module.manual_seed = SEEDS.append
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    extension()
    return module
