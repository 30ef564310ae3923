"""A script that runs alone starts again in its checkpoint folder: more epochs, fewer, another rate (98)."""

import json

import pytest

from master.api.checkpoints.audit import read_checkpoint
from tests.harness.lone_script import LIMIT_S, environment_alone

pytestmark = pytest.mark.torch

SCRIPT = """
import json, os, pathlib, sys
import torch
from torch.utils.data import TensorDataset
import trainer_sdk as edl
import trainer_sdk.torch as edl_torch

epochs, stop_after = int(sys.argv[1]), int(sys.argv[2])
records = TensorDataset(torch.randn(20, 3), torch.arange(20))
model = torch.nn.Linear(3, int(os.environ.get("WIDTH", "1")))
optimizer = torch.optim.SGD(model.parameters(), lr=float(os.environ.get("RATE", "0.1")))
trained, finals = [], []
with edl.open() as session:
    edl_torch.replicate(session, model, optimizer)
    if "HOOKLESS" not in os.environ:
        session.on_final(lambda arrays: finals.append(loader.step))
    loader = edl_torch.loader(session, records, epochs=epochs, global_batch=8, micro_batch=4, seed=5)
    if "EVALUATES" in os.environ:
        loader.evaluate(records, lambda batch: {"records": len(batch)})
    for epoch in loader.epochs():
        if loader.step == stop_after:
            loader.stop()
            break
        for x, numbers in loader:
            loader.backward(model(x).mean())
            optimizer.step()
            optimizer.zero_grad()
            trained.append((epoch, numbers.tolist()))
            if loader.has_stepped and loader.step == int(os.environ.get("DIES_AFTER", "-1")):
                loader._steps.checkpoint()
                os._exit(9)
            if loader.step == stop_after:
                loader.stop()
                break
        if loader.step == stop_after:
            break
told = {"trained": trained, "finals": finals, "ended": session.has_ended, "step": loader.step,
    "rate": optimizer.param_groups[0]["lr"], "weights": model.weight.tolist()}
pathlib.Path(sys.argv[3]).write_text(json.dumps(told))
"""


@pytest.fixture
def start(tmp_path, torch_forks):
    """Runs the script for so many epochs, stopped after a step; what it trained by epoch, or its error."""
    script, told, log = (tmp_path / name for name in ("script.py", "told.json", "log"))
    script.write_text(SCRIPT)
    folder = tmp_path / "checkpoints"

    def run(epochs, stop_after=-1, **variables):
        log.unlink(missing_ok=True)
        command = (str(script), str(epochs), str(stop_after), str(told))
        environment = environment_alone(tmp_path, EDL_CHECKPOINT_URI=str(folder), **variables)
        code = torch_forks.start(command, log=log, environment=environment).wait(LIMIT_S)
        run.stderr = log.read_text()
        return (json.loads(told.read_text()), "") if code == 0 else ({}, run.stderr)

    run.folder = folder
    return run


def order(trained):
    """Records in the order of their training, by epoch."""
    found = {}
    for epoch, numbers in trained:
        found.setdefault(epoch, []).extend(numbers)
    return found


def test_script_that_trains_nothing_more_has_the_trained_model_after_its_loop(start):
    """What it evaluates or saves there was the model as the script had made it; with a final hook it was not."""
    told = "edl: evaluate() before the loop was of the weights that the script had made: this job goes on from step 6"
    first, _ = start(2, HOOKLESS="1", EVALUATES="1")
    assert told not in start.stderr
    for variables in ({"HOOKLESS": "1", "EVALUATES": "1"}, {}):
        again, _ = start(2, **variables)
        assert (told in start.stderr) == ("EVALUATES" in variables)
        assert (again["trained"], again["ended"]) == ([], True)
        assert (again["weights"], again["step"]) == (first["weights"], 6)


def test_script_trains_more_epochs_from_where_it_ended(start, tmp_path):
    """More epochs change no earlier one; the same number again trains nothing; fewer than are done are refused."""
    first, _ = start(2)
    assert (first["step"], first["finals"], first["ended"]) == (6, [6], True)
    again, _ = start(2)
    assert (again["trained"], again["ended"]) == ([], True)
    more, error = start(4)
    assert error == ""
    assert sorted(order(more["trained"])) == [2, 3]
    assert (more["step"], more["finals"]) == (12, [12])
    _, error = start(3)
    assert "dataset.epochs: is 3, and the last checkpoint has done 12 steps, of 4 epochs. Declare 4 or more" in error
    audit = read_checkpoint(str(start.folder))
    assert (audit.is_sound, audit.head.step, audit.head.dataset.epochs) == (True, 12, 4)

    start.folder.rename(tmp_path / "before")
    at_once, _ = start(4)
    assert order(at_once["trained"]) == order(first["trained"] + more["trained"])


def test_loop_left_after_a_stop_ends_the_job_and_goes_on_with_more_epochs(start, tmp_path):
    """`break` after `stop()`: complete at that step, and the hook runs; more epochs train the cut one first."""
    first, error = start(2, stop_after=4)
    assert error == ""
    assert (first["step"], first["finals"], first["ended"]) == (4, [4], True)
    head = read_checkpoint(str(start.folder)).head
    assert (head.step, head.state.is_stopped, head.is_complete) == (4, True, True)
    again, _ = start(2)
    assert (again["trained"], again["ended"]) == ([], True)
    more, error = start(3)
    assert error == ""
    assert (more["step"], more["finals"]) == (9, [9])
    assert not read_checkpoint(str(start.folder)).head.state.is_stopped

    start.folder.rename(tmp_path / "before")
    at_once, _ = start(3)
    assert order(at_once["trained"]) == order(first["trained"] + more["trained"])


def test_script_may_stop_before_it_has_trained_a_step(start):
    """As one does that finds in its own state that it has trained enough: what it had loaded is the last checkpoint."""
    start(2, stop_after=4)
    again, error = start(3, stop_after=4)
    assert error == ""
    assert (again["trained"], again["step"], again["finals"], again["ended"]) == ([], 4, [4], True)
    head = read_checkpoint(str(start.folder)).head
    assert (head.step, head.state.is_stopped, head.dataset.epochs) == (4, True, 3)


def test_script_with_another_rate_trains_on_from_its_checkpoint(start):
    """What was loaded counts, as in torch, and is told; another shape is refused by its name (ADR 0273)."""
    start(2, DIES_AFTER="2")
    _, error = start(2, WIDTH="4")
    assert "model.weight: torch.float32 (1, 3) in the state, torch.float32 (4, 3) in the model" in error
    rest, _ = start(2, RATE="0.5")
    assert (rest["step"], rest["rate"]) == (6, 0.1)
    assert sorted(order(rest["trained"])) == [0, 1]
    assert "edl: the state that was loaded is of a script with other settings: optimizer.0.lr is 0.5, and was 0.1." in (
        start.stderr
    )
