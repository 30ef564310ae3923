"""The loop of a PyTorch script in its job's group: records of each step, backward passes, evaluation at an epoch's end.

    for epoch in loader.epochs():
        for x, y in loader:
            loader.backward(F.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()

Not here: what a step does with gradients and buffers (`step_in_hand`), how records are read (`record_fetcher`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, Final

import torch

from master.api.group_shares import steps_per_epoch
from master.api.identities import DatasetSpec
from master.api.positions import PositionSet
from trainer_sdk.errors import TrainerLeft, UsageError
from trainer_sdk.group.group_steps import GroupSteps
from trainer_sdk.group.port import StepShare
from trainer_sdk.session import Session
from trainer_sdk.specs import whole_number
from trainer_sdk.torch.data_digest import digest_of
from trainer_sdk.torch.evaluation import (
    EvaluationBatches,
    EvaluationBreaks,
    evaluate_alone,
    evaluate_together,
    evaluating,
)
from trainer_sdk.torch.micro_batches import MicroBatch, micro_batches
from trainer_sdk.torch.model_buffers import class_of
from trainer_sdk.torch.record_fetcher import Keys, RecordFetcher
from trainer_sdk.torch.record_source import RecordSource, is_stream, size_of
from trainer_sdk.torch.record_stream import StreamSource, stream_size
from trainer_sdk.torch.seeds import TRAINING, seed_generators
from trainer_sdk.torch.step_in_hand import StepInHand
from trainer_sdk.torch.training_replica import TrainingReplica

_OF_THE_SCRIPT: Final = (
    "edl: evaluate() before the loop was of the weights that the script had made: this job goes on from step {}, whose "
    "weights are there from the loop's first round on; evaluate in the loop or after it\n"
)


class GroupLoader:
    """This trainer's micro-batches, in the form that the data set and `collate_fn` give them.  Made by `loader`.

    Iterated directly it goes through all epochs; within `epochs()` each time through one of them.
    """

    def __init__(
        self,
        steps: GroupSteps,
        replica: TrainingReplica,
        fetcher: RecordFetcher,
        *,
        micro_batch: int | None,
        multiprocessing_context: Any = None,
    ) -> None:
        self._steps, self._replica, self._fetcher = steps, replica, fetcher
        self._is_stream: Final = fetcher.is_stream
        self._parts_of: Final = partial(micro_batches, size=micro_batch, has_norm=_has_norm(replica.modules))
        self._context: Final = multiprocessing_context
        self._step = StepInHand(steps, replica)
        self._breaks: Final = EvaluationBreaks()
        self._next: StepShare | None = None  # asked for, and not begun
        self._part: MicroBatch | None = None  # given to the script, whose backward pass has not come
        self._epoch: int | None = None  # the one that `epochs` has given
        self._has_begun = self._is_evaluated_before = False

    def __len__(self) -> int:
        """Steps of an epoch, as a learning-rate schedule counts them; trainers may make several rounds of one."""
        return steps_per_epoch(self._steps.spec)

    @property
    def step(self) -> int:
        """Steps that the group has done, with the one in hand once it is complete."""
        return max(self._steps.step, self._step.steps_done)

    @property
    def has_stepped(self) -> bool:
        """True from the round that completes a step until the next round: for what is done once for each step.

        For code of the script's own; optimizers, schedules, scalers and averages need no such condition.
        """
        return self._step.is_complete

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def epochs(self) -> Iterator[int]:
        """The epochs that are still to train, the first one being 0; within each iterate over the loader once.

        A trainer that joins begins in the epoch that the group is in.  One that has to leave raises TrainerLeft (a
        SystemExit) at the end of its batches: code after an epoch runs only when the epoch is trained.
        """
        before = -1
        while (share := self._upcoming()) is not None:
            if share.epoch == before:
                raise UsageError(
                    "epochs(): its epoch was not trained: iterate over this loader, not over a DataLoader, and to the "
                    "end; loader.stop() ends training early"
                )
            self._epoch = before = share.epoch
            yield share.epoch
        self._epoch = None
        self._check_present()

    def __iter__(self) -> Iterator[Any]:
        """Raises UsageError on misuse, MasterUnavailableError, and what reading a record raises."""
        epoch = self._epoch
        while (share := self._upcoming()) is not None:
            if epoch is not None and share.epoch != epoch:
                return
            self._next = None
            yield from self._rounds(share)
            is_end = (share.step + 1) % len(self) == 0
            if epoch is not None and is_end and self.has_stepped:
                return  # with the step in hand, so that what the script does now belongs to it
        if epoch is not None:
            self._check_present()

    def backward(self, loss: Any) -> None:
        """In place of `loss.backward()`, once for each micro-batch; `loss` is its mean, maybe scaled by a GradScaler.

        After the last one of a step the gradients are those of the mean over the whole global batch.  Raises UsageError
        for a loss that is not one number with a gradient.
        """
        part = self._part
        if part is None:
            raise UsageError(
                "backward() without a micro-batch: call it once in each round of a loop over this loader, which stands "
                "in place of a DataLoader"
            )
        self._part = None
        self._step.contribute(loss, part)

    def evaluate(
        self,
        dataset: Any,
        function: Callable[[Any], Mapping[str, Any]],
        *,
        batch_size: int = 256,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
    ) -> dict[str, float]:
        """Sums of what `function(batch)` returns of all batches of the data set, the same for every trainer.

        Called when a step is complete, as after an epoch, the trainers share the batches; otherwise each evaluates all
        of them.  So all trainers call it: where one alone does, the group breaks and forms anew each time.  Modules are
        in evaluation mode meanwhile, and no gradient is kept.  The function returns numbers by name: {"correct": 31,
        "loss": 4.5}.

        Worker processes start with each call, in the loader's `multiprocessing_context`.  Without one it is
        "forkserver", for this process has threads by now and forking it might hang: the data set is sent to the
        workers by pickle, and the script keeps what it does under `if __name__ == "__main__":`.  `collate_fn` is not
        taken over from the loader, as it may augment what is trained.
        """
        self._check_present()
        self._is_evaluated_before |= not self._has_begun
        options: dict[str, Any] = {"num_workers": num_workers, "collate_fn": collate_fn}
        if num_workers:
            options["multiprocessing_context"] = self._context or "forkserver"
        batches = EvaluationBatches(dataset, batch_size, options)
        with evaluating(self._replica.modules):
            if self.has_stepped:
                return evaluate_together(batches, function, self._steps, self._breaks)
            return evaluate_alone(batches, function)

    def stop(self) -> None:
        """Ends training early, for the whole job, with the last complete step: that in hand, if `has_stepped`.

        The loops then end by themselves, and what follows `epochs()` runs as after the last epoch; leaving the loops by
        `break` is as good.  The job is completed: the final hook runs, and the last checkpoint holds the steps trained.

        Let all trainers decide alike, by numbers that they share, as those of `evaluate`.  If one alone calls it the
        job ends too, after a change of members that the others wait for, some seconds at most.  Raises UsageError
        before the first step.
        """
        self._steps.stop()

    @property
    def _has_part(self) -> bool:
        return self._part is not None

    # ---- one step ---------------------------------------------------------------------------------------------------

    def _upcoming(self) -> StepShare | None:
        if self._next is None or self._steps.is_stopping:
            self._fetcher.start()
            self._step.apply()
            self._next = self._steps.next_step()
            self._tell_of_early_evaluation()
        return self._next

    def _tell_of_early_evaluation(self) -> None:
        """The first step, or the end, shows whether the job had trained before: the script's weights were not its."""
        if self._is_evaluated_before and not self._has_begun and self._steps.step:
            sys.stderr.write(_OF_THE_SCRIPT.format(self._steps.step))
        self._has_begun = True

    def _rounds(self, share: StepShare) -> Iterator[Any]:
        parts = self._parts_of(share)
        self._step.begin(share, parts, self._sample(share, parts))
        if not parts:
            self._step.end_without_parts()
        for place, part in enumerate(parts):
            expected = partial(self._ahead, share, parts[place + 1 :])
            with self._steps.loading():
                data = self._fetcher.read(share.step, self._keys(part.positions), expected)
            seed_generators(self._steps.spec.seed, part.positions.bounds[0], TRAINING)
            self._part = part
            yield data
            if self._has_part:
                raise UsageError(
                    "a round without backward(): call loader.backward(loss) once for each micro-batch, in place of "
                    "loss.backward()"
                )
            if self._step.has_ended:
                return

    def _sample(self, share: StepShare, parts: tuple[MicroBatch, ...]) -> str:
        """Position and digest of a record that all trainers read, so that it shows where theirs is another.

        It is read twice, as a micro-batch of two: a `collate_fn` that pairs or mixes records fails on a single one.
        """
        if not share.sample or not parts:
            return ""
        with self._steps.loading():
            data = self._fetcher.read(share.step, self._keys(share.sample) * 2, partial(self._ahead, share, parts))
        digest = digest_of(data)
        return f"{share.sample.bounds[0]} {digest}" if digest else ""

    def _ahead(self, share: StepShare, rest: tuple[MicroBatch, ...]) -> Iterator[Keys]:
        """The micro-batches that come next if nobody comes or goes."""
        yield from (self._keys(part.positions) for part in rest)
        for step in count(share.step + 1):
            if (expected := self._steps.expected_share(step)) is None:
                return
            yield from (self._keys(part.positions) for part in self._parts_of(expected))

    def _keys(self, positions: PositionSet) -> Keys:
        if self._is_stream:  # its order is that of the epoch
            return tuple((position, position % self._steps.spec.size) for position in positions)
        return tuple(zip(positions, self._steps.records(positions).tolist(), strict=True))

    def _check_present(self) -> None:
        if self._steps.has_left:
            raise TrainerLeft


def loader(
    session: Session,
    dataset: Any,
    *,
    epochs: int,
    global_batch: int | None = None,
    micro_batch: int | None = None,
    size: int | None = None,
    seed: int = 0,
    name: str = "",
    num_workers: int = 0,
    collate_fn: Callable[[Any], Any] | None = None,
    pin_memory: bool = False,
    prefetch_factor: int | None = None,
    multiprocessing_context: Any = None,
) -> GroupLoader:
    """The records of `dataset`, `epochs` times, in an order keyed by `seed`: `global_batch` a step, over all trainers.

    Without `global_batch` it is the job's (spec.group.globalBatch).  Each trainer takes its share of a step in parts of
    at most `micro_batch` records, one round of the loop each; without a number in one part.  (A model with batch
    normalisation has no part of a single record: with 2 an odd share has one of three.)  Random numbers are those of
    (`seed`, position), so a record is augmented alike whoever reads it; a data set with `__getitems__` has those of a
    micro-batch's first record.  The parameters from `num_workers` on are those of DataLoader, whose worker processes
    start before this process has threads; its others, as sampler, shuffle, drop_last, worker_init_fn and generator, do
    not exist here: order and seeds are the group's, and no record is left out.

    `dataset` has __getitem__ and __len__; or it is an IterableDataset, whose own order is then that of each epoch, and
    `size` the number of its records where it has no len().  Every trainer and worker process reads such a stream for
    itself and passes over what others train: give it a method `iterate_from(place)`, which iterates from this place of
    the epoch on, and none of that is read.  `set_epoch(epoch)`, if it has that, is called before each time through it.

    Raises UsageError: without `replicate` before, for a data set without a known size, for numbers outside their range;
    in the loop for a stream that has another number of records.
    """
    replica = session.replica
    if not isinstance(replica, TrainingReplica):
        raise UsageError(
            "loader(): no model yet; call model, optimizer = edl_torch.replicate(session, model, optimizer) before"
        )
    if micro_batch is not None:
        micro_batch = whole_number("micro_batch", micro_batch)
    if size is not None and not is_stream(dataset):
        raise UsageError(
            f"size: {type(dataset).__name__} is no IterableDataset, and its len() is its size; leave it out"
        )
    steps = session.group_steps(
        name or type(dataset).__name__.lower(),
        size=stream_size(dataset, size) if is_stream(dataset) else size_of(dataset),
        epochs=epochs,
        global_batch=global_batch,
        seed=seed,
    )
    options: dict[str, Any] = {"num_workers": num_workers, "collate_fn": collate_fn, "pin_memory": pin_memory}
    if num_workers:
        options |= {"prefetch_factor": prefetch_factor, "multiprocessing_context": multiprocessing_context}
    fetcher = RecordFetcher(_source(dataset, steps.spec, options), options)
    steps.at_close(replica.gate.release)
    steps.at_close(replica.buckets.close)
    steps.at_close(fetcher.close)
    return GroupLoader(
        steps, replica, fetcher, micro_batch=micro_batch, multiprocessing_context=multiprocessing_context
    )


def _has_norm(modules: Iterable[Any]) -> bool:
    """True if one of them normalises by the micro-batch while it trains."""
    kinds = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001  the class that all of torch's have in common
    return any(issubclass(class_of(one), kinds) for module in modules for one in module.modules())


def _source(dataset: Any, spec: DatasetSpec, options: Mapping[str, Any]) -> RecordSource | StreamSource:
    collate_fn = options["collate_fn"]
    if not is_stream(dataset):
        return RecordSource(dataset, spec.seed, collate_fn)
    steps_ahead = options["num_workers"] * (options.get("prefetch_factor") or 2)  # 2 is DataLoader's
    return StreamSource(dataset, spec.seed, collate_fn, size=spec.size, kept=spec.batch_size * (2 + steps_ahead))
