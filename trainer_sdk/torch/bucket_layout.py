"""Layout of a model's gradients in flat buckets: a function of its parameters alone, and so the same at every rank.

DDP of torch rebuilds its buckets by the order of the first backward pass, which a joiner has not seen: its sums would
be of other parameters.  Behind the gradients each bucket has a number for each parameter, 1 at a rank that has a
gradient of it.  Not here: when a bucket is filled and summed (`gradient_buckets`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import torch

from trainer_sdk.errors import UsageError
from trainer_sdk.group.port import HostArray
from trainer_sdk.torch.host_staging import HostStaging

BUCKET_BYTES: Final = 4 << 20  # large enough that its all-reduce is one of bandwidth, small enough to overlap
FIRST_BUCKET_BYTES: Final = 1 << 20  # as DDP's: the first all-reduce begins early in the backward pass
DTYPES: Final = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})


@dataclass(slots=True, eq=False)
class GradientBucket:
    """Gradients of consecutive parameters of one dtype, in one flat tensor, and who has them."""

    parameters: list[Any]
    flat: Any
    host: Any  # what is summed: `flat`, or the host memory that it is copied to
    views: list[Any]  # of `flat`, one a parameter, in its shape and with its strides
    presence: Any  # of `host`, behind the gradients: a number for each parameter, 0 where no rank has a gradient
    missing: set[int] = field(default_factory=set)  # parameters without a gradient of the last micro-batch, by place
    empty: set[int] = field(default_factory=set)  # parameters without any gradient of this step: their part is not zero
    streams: set[Any] = field(default_factory=set)  # of the accelerator, on which this step's gradients were made

    def host_array(self) -> tuple[HostArray, str]:
        """The memory of `host` and, where NumPy lacks it, the name of its dtype."""
        if self.host.dtype == torch.bfloat16:
            return self.host.view(torch.uint16).numpy(), "bfloat16"
        return self.host.numpy(), ""

    def tell_presence(self) -> None:
        """`presence` is that of this rank."""
        self.presence.fill_(1)
        for place in self.empty:
            self.presence[place] = 0

    def unused(self) -> set[int]:
        """Places of the parameters of which no rank has a gradient, once the bucket is summed."""
        return {place for place, ranks in enumerate(self.presence.tolist()) if not ranks}


def check_parameters(parameters: list[Any]) -> None:
    """Raises UsageError for parameters that cannot be summed, or none to train."""
    if not parameters:
        raise UsageError("parameters: none has requires_grad; there is nothing to train")
    for number, parameter in enumerate(parameters):
        if parameter.device.type == "meta":
            raise UsageError(f"parameters[{number}]: is on meta; give the model memory before it is replicated")
        if parameter.device != parameters[0].device:
            raise UsageError(
                f"parameters[{number}]: is on {parameter.device}, parameters[0] on {parameters[0].device}; a trainer's "
                "model is on one device"
            )
        if parameter.dtype not in DTYPES:
            raise UsageError(f"parameters[{number}]: {parameter.dtype} cannot be summed; use a float of 16 to 64 bits")


def make_buckets(
    parameters: list[Any], first_bytes: int, bytes_: int, staging: HostStaging | None
) -> list[GradientBucket]:
    """Buckets in reverse order of the parameters, as gradients are made; each of one dtype, never empty.

    A bucket is full once it has reached its size.  Closed before, a small last layer would have an all-reduce of its
    own, and what follows would wait for one large bucket.
    """
    groups: list[list[Any]] = []
    for parameter in reversed(parameters):
        limit = first_bytes if len(groups) <= 1 else bytes_
        if not groups or groups[-1][0].dtype != parameter.dtype or _size_bytes(groups[-1]) >= limit:
            groups.append([])
        groups[-1].append(parameter)
    return [_make_bucket(group, staging) for group in groups]


def _size_bytes(parameters: list[Any]) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)


def _make_bucket(parameters: list[Any], staging: HostStaging | None) -> GradientBucket:
    first, sizes = parameters[0], [parameter.numel() for parameter in parameters]
    flat = torch.zeros(sum(sizes) + len(sizes), dtype=first.dtype, device=first.device)
    parts = flat.split([*sizes, len(sizes)])[:-1]
    views = [_view(part, parameter) for part, parameter in zip(parts, parameters, strict=True)]
    host = flat if staging is None else staging.pinned(flat)
    return GradientBucket(parameters=parameters, flat=flat, host=host, views=views, presence=host[sum(sizes) :])


def _view(part: Any, parameter: Any) -> Any:
    """The part in the parameter's shape, and with its strides where these leave no gaps, as torch's own gradients.

    Fused optimizers go through the memory of parameter and gradient side by side, without a look at the strides.
    """
    strides = torch.empty_like(parameter, device="meta").stride()  # those of a parameter without gaps are kept
    if parameter.is_contiguous() or strides != parameter.stride():
        return part.view(parameter.shape)
    return part.as_strided(parameter.shape, strides, part.storage_offset())
