"""Gradients of a model on an accelerator, by way of pinned host memory, where a group sums them (ADR 0270).

    staging = HostStaging(device)
    copied = staging.to_host(host, flat)    # while the backward pass goes on
    copied.synchronize()                    # another thread; it sums `host` over the group
    staging.to_device(flat, host)
    staging.order()                         # before `flat` is read or written again
    staging.check()                         # before anything is written that belongs to the next step (rule 68)

Copies run on a stream of their own, which waits for the streams that made what they read; nobody waits for them but who
needs them.  An error of the device shows where the host waits for it, which is after the call that caused it: `check`
is the last such place before a step counts.  The calls are those of torch for any accelerator, whatever device it is.
"""

from __future__ import annotations

from typing import Any, Final

import torch


class HostStaging:
    """Copies between one accelerator and host memory.  Calls may come from several threads, one at a time."""

    def __init__(self, device: Any) -> None:
        self.device: Final = device
        self._stream = torch.Stream(device)

    def order(self) -> None:
        """What is given to the current stream from now on comes after all copies, those of a dropped step included."""
        torch.accelerator.current_stream(self.device).wait_stream(self._stream)

    def pinned(self, flat: Any) -> Any:
        """Host memory for what is in `flat`, from and to which the device copies by itself."""
        return torch.zeros(flat.shape, dtype=flat.dtype, pin_memory=True)

    def current_stream(self) -> Any:
        """The stream on which what is called now runs."""
        return torch.accelerator.current_stream(self.device)

    def to_host(self, host: Any, flat: Any, made_on: set[Any]) -> Any:
        """An event: once it has come, `host` is what `flat` is when the work in these streams is done."""
        for stream in made_on:
            self._stream.wait_stream(stream)
        with self._stream:
            host.copy_(flat, non_blocking=True)
        return self._stream.record_event()

    def to_device(self, flat: Any, host: Any) -> None:
        """`flat` is `host` for what comes after `order`."""
        with self._stream:
            flat.copy_(host, non_blocking=True)

    def check(self) -> None:
        """All that the device was given is done, without an error.

        Raises what torch raises (torch.AcceleratorError): some call of the step failed, and a CUDA device is then of
        no use to this process any more.
        """
        try:
            torch.accelerator.synchronize(self.device)
        except RuntimeError as error:
            error.add_note(NOTE)
            raise


NOTE: Final = (
    "edl: the device failed in a call of this step, maybe long before the line above; the step counts at no trainer. "
    "CUDA_LAUNCH_BLOCKING=1 shows the call."
)


def device() -> Any:
    """The accelerator that this process was given, the first one if there are several; else the CPU.

    EDL shows each trainer its own GPUs alone, and none to one that asked for none.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if accelerator is None else torch.device(accelerator.type, 0)
