"""Misuse of the SDK answers at once, with what to write instead; none of this needs a master."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import trainer_sdk as edl
from master.api.identities import DatasetSpec
from trainer_sdk.environment import parse_environment
from trainer_sdk.environment_variables import VARIABLES, environment_page
from trainer_sdk.errors import TableError, UsageError
from trainer_sdk.session import open_session


@pytest.fixture
def session():
    with open_session({"EDL_MASTER": "127.0.0.1:9"}) as opened:
        yield opened


def declare(session):
    return session.dataset("d", size=10, epochs=1, batch_size=2)


def test_use_after_close_is_refused(session):
    """next() after close."""
    data = declare(session)
    session.close()

    with pytest.raises(UsageError, match="closed"):
        next(data)
    with pytest.raises(UsageError, match="closed"):
        session.report({})


def test_a_second_close_changes_nothing(session):
    """close() may be called in a finally as well."""
    session.close()
    session.close()


def test_use_from_a_second_thread_is_refused(session):
    """One thread owns a session; a loader thread must not take its batches."""
    data = declare(session)
    seen = []

    def use():
        try:
            next(data)
        except UsageError as error:
            seen.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()

    assert len(seen) == 1
    assert "second thread" in seen[0]


def test_close_from_a_second_thread_is_refused(session):
    """It would end the loop of the thread that trains."""
    seen = []

    def close():
        try:
            session.close()
        except UsageError as error:
            seen.append(str(error))

    thread = threading.Thread(target=close)
    thread.start()
    thread.join()

    assert "second thread" in seen[0]
    declare(session)


def test_a_second_session_of_one_name_is_refused_while_the_first_is_open(session):
    """Two would fence each other for ever; after close() there is room again."""
    with pytest.raises(UsageError, match="second session"):
        open_session({"EDL_MASTER": "127.0.0.1:9"})
    session.close()

    open_session({"EDL_MASTER": "127.0.0.1:9"}).close()


def test_hook_that_cannot_be_called_is_refused_before_training(session):
    """It would fail at the end of the job, or of this trainer's grace."""
    with pytest.raises(UsageError, match=r"on_final: 'model\.pt' cannot be called"):
        session.on_final("model.pt")
    with pytest.raises(UsageError, match="on_drain: None cannot be called"):
        session.on_drain(None)


@pytest.mark.parametrize("value", ["a", None, [1.0, 2.0], 10**400])
def test_metric_that_is_no_number_is_refused(session, value):
    """By its name; a whole number may be too large for one, too."""
    declare(session)
    with pytest.raises(UsageError, match=r"metrics {'loss': .*give names and numbers"):
        session.report({"loss": value})


def test_use_after_fork_is_refused(session):
    """A forked worker has no stream of its own and would speak for its parent."""
    data = declare(session)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            next(data)
        except UsageError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)

    told = os.read(read, 1000).decode()
    assert "after fork" in told
    assert "batch.indices" in told
    os.close(read)


@pytest.mark.parametrize("before", [signal.SIG_DFL, lambda *_: os._exit(7)], ids=["default", "handler"])
def test_sigterm_ends_what_the_script_has_forked(before):
    """As it did before: a pool ends its workers so and waits for them, at the latest when the script exits."""
    kept = signal.signal(signal.SIGTERM, before)
    try:
        with open_session({"EDL_MASTER": "127.0.0.1:9"}) as session:
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert not session.is_draining
    finally:
        signal.signal(signal.SIGTERM, kept)

    assert os.waitstatus_to_exitcode(status) == (7 if callable(before) else -signal.SIGTERM)


@pytest.mark.parametrize("field", ["size", "epochs", "batch_size"])
@pytest.mark.parametrize("value", [0, -1, 2.5])
def test_impossible_data_sets_are_refused_by_field(session, field, value):
    """The message names the argument."""
    arguments = {"size": 10, "epochs": 1, "batch_size": 2} | {field: value}

    with pytest.raises(UsageError, match=rf"dataset\.{field}"):
        session.dataset("d", **arguments)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("", {}, r"dataset\.name"),
        ("d", {"seed": "seven"}, r"dataset\.seed"),
        ("d", {"seed": 2**63}, r"dataset\.seed"),
        ("d", {"size": 2**61, "epochs": 3}, r"2\*\*62"),
    ],
)
def test_what_cannot_travel_is_refused_where_it_is_written(session, name, changes, message):
    """Not by an error of the wire, later and in another thread."""
    with pytest.raises(UsageError, match=message):
        session.dataset(name, **({"size": 10, "epochs": 1, "batch_size": 2} | changes))


def test_whole_numbers_of_numpy_are_whole_numbers(session):
    """`len(x)` and `x.shape[0]` are the same to a script."""
    data = session.dataset("d", size=np.int64(10), epochs=np.int32(2), batch_size=np.uint8(5), seed=np.int64(3))

    assert data.spec == DatasetSpec(name="d", size=10, epochs=2, batch_size=5, seed=3)
    assert type(data.spec.size) is int


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, "without a table"),
        ({"w": (3, 4)}, r"tables\.w: .* not a table"),
        ({"": edl.dense(3)}, "not a name"),
        ({"w": edl.dense(3, dtype="float16")}, r"tables\.w\.dtype"),
        ({"w": edl.dense(3, init=0.0)}, r"tables\.w\.init"),
        ({"w": edl.dense(3, optimiser=0.1)}, r"tables\.w\.optimiser"),
        ({"w": edl.dense(3, optimiser=edl.sgd(float("nan")))}, r"tables\.w\.optimiser"),
        ({"w": edl.dense(3, dtype="int64", optimiser=edl.adam(0.1))}, r"tables\.w\.optimiser"),
    ],
)
def test_impossible_tables_are_refused_by_field(session, tables, message):
    """At the declaration, not when the servers come to make them."""
    with pytest.raises((UsageError, TableError), match=message):
        session.tables(tables)


@pytest.mark.parametrize("shape", [0, -3, 2.5, (3, 0), "34"])
def test_impossible_shapes_are_refused(shape):
    """Extents are whole numbers from 1 up."""
    with pytest.raises(UsageError, match="shape"):
        edl.dense(shape)


def test_metrics_are_numbers(session):
    """A text, or no mapping at all, is said at once."""
    data = declare(session)
    session.report({"loss": np.float32(0.5)})

    assert data.metrics.values == {"loss": 0.5}
    for metrics in ({"loss": "low"}, [0.5]):
        with pytest.raises(UsageError, match="metrics"):
            session.report(metrics)


def test_a_loss_that_is_not_finite_is_told_and_hides_behind_no_older_one(session, capsys):
    """A model that has diverged does not look as it did before; standard error says so once a name."""
    data = declare(session)
    session.report({"loss": 0.5, "accuracy": 0.9})
    for _ in range(2):
        session.report({"loss": float("nan")})

    assert data.metrics.values == {"accuracy": 0.9}
    assert capsys.readouterr().err.count("reported loss=nan") == 1
    session.report({"loss": 0.4})
    assert data.metrics.values == {"loss": 0.4, "accuracy": 0.9}


def test_a_sparse_table_is_not_pulled_whole(session):
    """Asked for by name; without names the dense ones are meant."""
    declare(session)
    tables = session.tables({"w": edl.dense(3), "e": edl.sparse(10, 2)})

    with pytest.raises(UsageError, match="pull_rows"):
        tables.pull("w", "e")


def test_a_second_data_set_is_refused(session):
    """A job trains one data set."""
    declare(session)

    with pytest.raises(UsageError, match="second time"):
        declare(session)


def test_two_models_are_refused(session):
    """Tables on servers, or a model of the script's own: never both, they would be committed apart."""
    session.own_model(save=dict, restore=print)

    with pytest.raises(UsageError, match="second model"):
        session.tables({"w": edl.dense(3)})


def test_a_rank_before_the_data_set_is_refused(session):
    """Nothing is said to the master before everything is declared."""
    with pytest.raises(UsageError, match="dataset"):
        _ = session.rank


def test_push_outside_the_loop_is_refused(session):
    """A gradient belongs to a batch."""
    declare(session)
    tables = session.tables({"w": edl.dense(3)})

    with pytest.raises(UsageError, match="without a batch"):
        tables.push({})


def test_checkpoint_without_a_model_of_ones_own_is_refused(session):
    """With tables the servers are committed, without a model there is nothing to commit."""
    with pytest.raises(UsageError, match="own_model"):
        session.checkpoint()


def test_a_script_that_raises_before_its_first_batch_leaves_nothing_behind():
    """No thread, no handler, and the error is the script's own."""
    before = signal.getsignal(signal.SIGTERM)

    with pytest.raises(ZeroDivisionError), open_session({"EDL_MASTER": "127.0.0.1:9"}):
        _ = 1 / 0

    assert signal.getsignal(signal.SIGTERM) is before
    assert not [t for t in threading.enumerate() if t.name == "edl-channel"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EDL_ENV_VERSION", "2"),
        ("EDL_ORDINAL", "two"),
        ("EDL_ORDINAL", "\u0663"),  # a digit, and no number of ours
        ("EDL_ORDINAL", "9" * 26),
        ("EDL_ORDINAL", "9" * 5000),
        ("EDL_ROLE", "banana"),
        ("EDL_GRACE_S", "-1"),
        ("EDL_GRACE_S", "nan"),
        ("EDL_GRACE_S", "1e300"),
        ("EDL_MASTER", "somewhere"),
        ("EDL_MASTER", "7070"),
        ("EDL_MASTER", "somewhere:70700"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(name, value):
    """The environment is parsed once, at the edge."""
    with pytest.raises(UsageError, match=name):
        parse_environment({name: value})


def test_an_empty_variable_is_as_one_that_is_not_set():
    """A trainer of the empty name was refused by its master, again and again, for two minutes."""
    assert parse_environment({variable.name: "" for variable in VARIABLES}) == parse_environment({})


def test_no_grace_is_a_grace():
    """Kubernetes knows it, and whoever asks for it is killed at once; such a trainer refused to start."""
    environment = parse_environment({"EDL_GRACE_S": "0"})
    assert (environment.grace_s, environment.drain_s) == (0, 0)


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe", "geheim\u00fc".encode()])
def test_a_file_without_a_secret_is_refused(tmp_path, content):
    """As the master refuses it: nobody is let in with nothing in hand."""
    (tmp_path / "token").write_bytes(content)

    with pytest.raises(UsageError, match=r"EDL_TOKEN_FILE: .* holds no secret"):
        parse_environment({"EDL_TOKEN_FILE": str(tmp_path / "token")}).check_files()


def test_the_published_list_of_variables_is_the_one_in_the_code():
    """docs/environment.md is made from the code."""
    page = Path(__file__).parents[3] / "docs" / "environment.md"

    assert page.read_text(encoding="utf-8") == environment_page()


def test_every_variable_that_is_read_is_published():
    """A variable that is not on the list would be set by nobody."""

    asked = set()

    class Spy(dict):
        def get(self, key, default=None):
            asked.add(key)
            return default

    parse_environment(Spy())

    assert asked <= {variable.name for variable in VARIABLES}
