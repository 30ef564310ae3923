"""Gradients of a PyTorch model, summed over a group while the backward pass goes on.

    buckets = GradientBuckets(model.parameters())
    buckets.begin(runtime.all_reduce)
    for micro_batch in mine:
        if it is the last: buckets.reduce_as_ready()
        buckets.backward(loss * weight)
    buckets.finish()           # StepAborted: call drop()
    buckets.deliver()          # once the whole step is complete: `grad` of each parameter is the sum

Each gradient goes into a flat bucket as the backward pass makes it, and `grad` stays None until `deliver`.  Optimisers,
clipping and unscaling do nothing on parameters without a gradient, so that what a loop calls after an unfinished or
dropped step changes nothing.  A parameter that no rank has used in a step keeps None, as in one process: behind the
gradients each bucket carries a number for each parameter, 1 at a rank that has a gradient of it, which is summed with
them.  The buckets are a function of the parameters alone (`bucket_layout`).

Gradients of a model on an accelerator are summed in host memory too: `host_staging` copies each bucket there and back.
Not here: who trains what, when a step counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

import torch

from trainer_sdk.errors import UsageError
from trainer_sdk.group.port import HostArray
from trainer_sdk.torch.bucket_layout import (
    BUCKET_BYTES,
    FIRST_BUCKET_BYTES,
    GradientBucket,
    check_parameters,
    make_buckets,
)
from trainer_sdk.torch.host_staging import HostStaging


class AllReduce(Protocol):
    """`MemberRuntime.all_reduce`: ends within a deadline of its own."""

    def __call__(self, array: HostArray, *, dtype: str = "") -> None: ...


class GradientBuckets:
    """The buckets of one process.  All calls come from the script's thread; one thread of its own makes all-reduces."""

    def __init__(
        self,
        parameters: Iterable[Any],
        *,
        first_bucket_bytes: int = FIRST_BUCKET_BYTES,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        """Raises UsageError for parameters that cannot be summed, or none to train."""
        self._parameters = list(dict.fromkeys(parameters))  # tied ones once
        self._trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        check_parameters(self._trained)
        device = self._trained[0].device
        self._staging: Final = None if device.type == "cpu" else HostStaging(device)
        self._buckets = make_buckets(self._trained, first_bucket_bytes, bucket_bytes, self._staging)
        self._hooks: list[Any] = []
        self._hooks_sum: bool | None = None  # True: they make sums; False: they fill `_own`; None: there are none
        self._own: deque[Any] = deque(maxlen=1)  # a parameter with a gradient of a backward pass of the script's own
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edl-gradients")
        self._all_reduce: AllReduce | None = None  # of the step under way
        self._is_shared = True
        self._is_last = False
        self._is_in_backward = False
        self._sums: list[Future[None]] = []  # of the first buckets, in their order
        self._failure: BaseException | None = None

    @property
    def is_on_accelerator(self) -> bool:
        return self._staging is not None

    def begin(self, all_reduce: AllReduce | None, *, is_shared: bool = True) -> None:
        """A step begins: gradients are zero, and `grad` is None.  Drops one that is under way.

        `all_reduce` None: the step is one backward pass of this process alone, and what torch leaves in `grad` is its
        gradient; `deliver` then does nothing.  Not `is_shared`: nobody else contributes, and gradients stay on their
        device.  Raises UsageError when layers were frozen or thawed since the buckets were made.
        """
        self.drop()
        now = [parameter for parameter in self._parameters if parameter.requires_grad]
        if len(now) != len(self._trained) or any(
            one is not other for one, other in zip(now, self._trained, strict=True)
        ):
            raise UsageError("requires_grad: layers were frozen or thawed while a group trains; do so before it starts")
        self._all_reduce, self._is_shared = all_reduce, is_shared
        self._hook(is_sum=all_reduce is not None)
        if all_reduce is None:
            return
        if self._staging is not None:
            self._staging.order()
        for bucket in self._buckets:
            places = range(len(bucket.parameters))
            bucket.missing, bucket.empty = set(places), set(places)
            bucket.streams.clear()

    def reduce_as_ready(self) -> None:
        """The next backward pass is this step's last: each bucket is all-reduced as soon as it is complete."""
        self._is_last = True

    def backward(self, loss: Any) -> None:
        """The backward pass of a micro-batch: its gradients belong to the step.

        Raises UsageError when the script has made a backward pass of its own in this step: its gradients would have
        another weight than the records of the step, or none.
        """
        is_alone = self._all_reduce is None
        if is_alone and any(parameter.grad is not None for parameter in self._trained):
            raise UsageError(_OWN_BACKWARD)
        self.check_own()
        self._is_in_backward = True
        try:
            loss.backward()
        finally:
            self._is_in_backward = False
            if is_alone:
                self._own.clear()

    def check_own(self) -> None:
        """Raises UsageError when the script has made a backward pass of its own since the step began.

        Whether its gradients are still there does not matter, nor whether the step is complete by now: they would have
        been added to the sum, or be of this process alone.
        """
        if self._own:
            raise UsageError(_OWN_BACKWARD)

    def finish(self) -> None:
        """All buckets are sums over the group; a rank without a gradient of a parameter counted as zero.

        Raises what the all-reduce raised (StepAborted); the buckets are then worthless: call `drop`.
        """
        if self._all_reduce is None:
            for parameter in self._trained:
                _check_layout(parameter.grad)
            return
        for bucket in self._buckets:
            bucket.missing.clear()
        self._hand_over()
        for reduced in self._sums:
            reduced.result()

    def check_device(self) -> None:
        """What this step gave to the accelerator is done, without an error; raises it otherwise (rule 68).

        A step to which nobody else contributes needs no such wait: what it leaves is seen by whoever reads it.
        """
        if self._staging is not None and self._is_shared and self._all_reduce is not None:
            self._staging.check()

    def deliver(self) -> None:
        """`grad` of each parameter is its sum, until the next step begins; None where no rank has one.

        After `finish`.
        """
        if self._all_reduce is None:
            return
        assert len(self._sums) == len(self._buckets), "deliver() without finish()"
        self._all_reduce = None
        if self._staging is not None:
            self._staging.order()
        for bucket in self._buckets:
            unused = bucket.unused() if self._is_shared else bucket.empty
            for place, (parameter, view) in enumerate(zip(bucket.parameters, bucket.views, strict=True)):
                parameter.grad = None if place in unused else view

    def drop(self) -> None:
        """The step under way is none: `grad` is None, and no all-reduce of it runs any more.  May be repeated."""
        self._all_reduce, self._is_last = None, False
        for reduced in self._sums:
            reduced.cancel()
        for reduced in self._sums:
            if not reduced.cancelled():
                reduced.exception()  # waits, as long as a collective does: it writes into the bucket until then
        self._sums, self._failure = [], None
        self._own.clear()
        for parameter in self._trained:
            parameter.grad = None

    def close(self) -> None:
        """Gradients are torch's own again, and the thread has ended.  May be repeated."""
        self.drop()
        self._unhook()
        self._thread.shutdown()
        if self._staging is not None:
            with suppress(RuntimeError):  # a device that has failed has said so where it was waited for
                self._staging.order()  # the memory may be given to others now, and a late copy of a dropped step not

    def _hook(self, *, is_sum: bool) -> None:
        if self._hooks_sum is is_sum:
            return
        self._unhook()
        self._hooks_sum = is_sum
        self._hooks = [  # without a sum no line of Python: each costs time in every backward pass
            parameter.register_post_accumulate_grad_hook(
                partial(self._collect, bucket, place) if is_sum else self._own.append
            )
            for bucket in self._buckets
            for place, parameter in enumerate(bucket.parameters)
        ]

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._hooks_sum = [], None

    # ---- during the backward pass -----------------------------------------------------------------------------------

    def _collect(self, bucket: GradientBucket, place: int, parameter: Any) -> None:
        if self._all_reduce is None:
            self._own.append(parameter)  # torch's own gradient, which no optimizer may apply before the next step
            return
        if not self._is_in_backward:
            raise UsageError(_OWN_BACKWARD)
        gradient = parameter.grad
        _check_layout(gradient)
        parameter.grad = None
        if self._failure is not None:
            raise self._failure  # the rest of this backward pass would be thrown away
        if place not in bucket.missing:
            raise UsageError("gradient: came after its sum had begun; add the losses up and call backward() once")
        if place in bucket.empty:
            bucket.empty.remove(place)
            bucket.views[place].copy_(gradient)
        else:
            bucket.views[place].add_(gradient)
        if self._staging is not None:
            bucket.streams.add(self._staging.current_stream())
        if self._is_last:
            bucket.missing.remove(place)
            self._hand_over()

    def _hand_over(self) -> None:
        """Hand buckets over in their order, which is that of all members."""
        assert self._all_reduce is not None
        while len(self._sums) < len(self._buckets) and not self._buckets[len(self._sums)].missing:
            bucket = self._buckets[len(self._sums)]
            for place in bucket.empty:
                bucket.views[place].zero_()
            copied = None
            if self._staging is not None:
                bucket.streams.add(self._staging.current_stream())  # that of the zeros
                copied = self._staging.to_host(bucket.host, bucket.flat, bucket.streams) if self._is_shared else None
            self._sums.append(self._thread.submit(self._reduce, bucket, self._all_reduce, copied))

    def _reduce(self, bucket: GradientBucket, all_reduce: AllReduce, copied: Any) -> None:
        if self._failure is not None:
            raise self._failure
        array, dtype = bucket.host_array()
        try:
            if copied is not None:
                copied.synchronize()
            if self._is_shared:
                bucket.tell_presence()
            all_reduce(array, dtype=dtype)
            if copied is not None and self._staging is not None:
                self._staging.to_device(bucket.flat, bucket.host)
        except BaseException as error:
            self._failure = error  # read by the next hook, which ends the backward pass
            raise


def _check_layout(gradient: Any) -> None:
    """Check it in a group of one as well: the script would end where a second trainer joins."""
    if gradient is not None and gradient.layout != torch.strided:
        raise UsageError(f"gradient: is {gradient.layout}; use sparse=False, groups sum dense gradients")


_OWN_BACKWARD: Final = (
    "gradient: of a backward() of the script's own within a step; add that loss to the one that loader.backward() is "
    "called with, or take its gradients by torch.autograd.grad()"
)
