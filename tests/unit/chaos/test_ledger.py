"""The ledger's verdict can fail: each kind of damage is found, and a sound history is not accused."""

from dataclasses import replace

import numpy as np
import pytest

import trainer_sdk as edl
from master.api.checkpoints.manifest import Manifest
from master.api.identities import DatasetSpec, HistoryId, Lineage, ManifestId, Term
from master.api.positions import EMPTY, PositionSet
from tests.chaos.ledger import Head, Saw, buckets_of_stamps, check_gradients, check_head, program, verdict
from tests.chaos.rows import check_looks, check_rows
from trainer_sdk.record_order import RecordOrder

SIZE, EPOCHS, BUCKETS, BATCH = 8, 2, 2, 4
SUMS = BUCKETS * program.SUMS_PER_BUCKET
DATA = DatasetSpec(name="ledger", size=SIZE, epochs=EPOCHS, batch_size=BATCH, seed=7)
BATCHES = [PositionSet.span(start, start + BATCH) for start in range(0, SIZE * EPOCHS, BATCH)]
NONCES = [11, 13, 17, 19]


def head_of(count, *, nonces=NONCES, seen_at_s=0.0):
    """After the first `count` batches."""
    tables = {
        "counts": np.zeros(SIZE, dtype=np.int64),
        "prints": np.zeros(BUCKETS * program.PRINTS_PER_BUCKET, dtype=np.int64),
        "stamps": np.zeros(SIZE * EPOCHS, dtype=np.int64),
        "sums": np.zeros((SUMS, 2), dtype=np.int64),
        "firsts": np.zeros((SIZE * EPOCHS, 1), dtype=np.int64),
    }
    data = EMPTY
    for batch, nonce in zip(BATCHES[:count], nonces, strict=False):
        np.add.at(tables["counts"], RecordOrder(DATA).records(batch), 1)
        tables["prints"] += program.fingerprint(list(batch))
        tables["stamps"][list(batch)] = nonce
        tables["sums"] += program.sums(list(batch), SUMS)
        tables["firsts"][list(batch)] += 1
        data |= batch
    manifest = Manifest(
        id=ManifestId(f"m{count}"),
        parent=None,
        lineage=Lineage(1),
        term=Term(1),
        data=data,
        quarantine=EMPTY,
        files=(),
        dataset=DATA,
        tables=(),
        bucket_count=BUCKETS,
        step=count,
        created_at_s=0.0,
        history=HistoryId("h1"),
        founded=Lineage(1),
    )
    return Head(manifest=manifest, tables=tables, seen_at_s=seen_at_s)


def diary(*, nonces=NONCES):
    """One trainer that saw each of its pushes at the next pull."""
    lines = []
    for i, (batch, nonce) in enumerate(zip(BATCHES, nonces, strict=True)):
        before = list(BATCHES[i - 1]) if i else []
        lines.append(
            Saw(
                nonce=nonce,
                trainer="trainer-0",
                positions=batch,
                pulled_at_s=float(i),
                changed=np.array(before, dtype=np.int64),
                to=np.full(len(before), nonces[i - 1], dtype=np.int64),
            )
        )
    return lines


def test_a_sound_history_is_in_order():
    """Nothing is accused wrongly."""
    heads = [head_of(1, seen_at_s=0.5), head_of(3, seen_at_s=2.5), head_of(4, seen_at_s=9.0)]
    assert verdict(heads, diary()) == []


@pytest.mark.parametrize("table", ["counts", "prints", "stamps"])
@pytest.mark.parametrize("change", [1, -1])
def test_one_wrong_number_is_found(table, change):
    """In any table, in any bucket, more or less."""
    for at in (0, -1):
        head = head_of(4)
        head.tables[table][at] = 0 if table == "stamps" and change < 0 else head.tables[table][at] + change
        assert verdict([head], diary()) != []


def test_a_data_state_that_says_more_or_less_than_the_files_is_found():
    """The manifest is compared with the numbers, not with itself."""
    head = head_of(2)
    for data in (BATCHES[0], BATCHES[0] | BATCHES[1] | BATCHES[2]):
        assert check_head(replace(head, manifest=replace(head.manifest, data=data))) != []


def test_a_lost_or_retrained_committed_position_is_found():
    """Head never goes back, and what is in it stays as it is."""
    assert any("lacks" in problem for problem in verdict([head_of(3), head_of(2)], diary()))
    retrained = head_of(4, nonces=[11, 23, 17, 19])
    assert any("anew" in problem for problem in verdict([head_of(3), retrained], diary(nonces=[11, 23, 17, 19])))


def test_a_gradient_that_crossed_a_roll_back_is_found():
    """The second batch was lost and trained again (nonce 23); the third was computed on the lost one."""
    lines = diary()
    assert lines[2].to[0] == NONCES[1]
    lines.append(replace(lines[1], nonce=23, trainer="trainer-1", changed=lines[1].changed, to=lines[1].to))
    problems = verdict([head_of(4, nonces=[11, 23, 17, 19])], lines)
    assert any("crossed a roll-back" in problem for problem in problems)


def test_a_pull_without_head_is_found():
    """A server that lost its buckets and serves all the same: head's stamps are missing from what was pulled."""
    lines = diary()
    lines[2] = replace(lines[2], changed=np.array(list(BATCHES[0])), to=np.zeros(BATCH, dtype=np.int64))
    lines[3] = replace(lines[3], changed=np.array(list(BATCHES[0])), to=np.full(BATCH, NONCES[0]))
    problems = verdict([head_of(1, seen_at_s=0.5), head_of(4, seen_at_s=9.0)], lines)
    assert any("which was head" in problem for problem in problems)


def test_missing_positions_at_the_end_are_found():
    """END before everything was trained."""
    assert any("lacks 4 positions" in problem for problem in verdict([head_of(3)], diary()))


def test_rows_that_hold_all_of_the_data_state_once_are_in_order():
    """And those that were pulled had what was head then."""
    saw = [replace(diary()[2], looked=np.array([[0, 5, 9], [1, 1, 0]]))]
    assert check_rows(head_of(3)) == []
    assert check_looks([head_of(2, seen_at_s=1.5)], saw) == []


@pytest.mark.parametrize("table", ["sums", "firsts"])
@pytest.mark.parametrize("change", [1, -1])
def test_a_push_that_one_row_has_twice_or_lacks_is_found(table, change):
    """In any row."""
    for at in (0, -1):
        head = head_of(4)
        head.tables[table][at, -1] += change
        assert check_rows(head) != []


def test_a_row_that_got_the_gradient_of_another_position_is_found():
    """Its count is right, and what was added is not."""
    head = head_of(4)
    wrong = program.fingerprint([0]) - program.fingerprint([3])
    head.tables["sums"][0, 1] += wrong
    assert check_rows(head) != []


@pytest.mark.parametrize(("values", "problem"), [([1, 0], "which was head"), ([1, 2], "written twice")])
def test_a_pull_of_rows_that_lacks_head_or_has_something_twice_is_found(values, problem):
    """Of a server that serves rows which it should not."""
    saw = [replace(diary()[2], looked=np.array([[0, 5], values]))]
    assert any(problem in told for told in check_looks([head_of(2, seen_at_s=1.5)], saw))


WIDE = 2 * program.PRINTS_PER_BUCKET
KEPT, LOST = 3, program.PRINTS_PER_BUCKET + 3  # positions with their stamps in the first and in the second bucket


def wide_head(stamps):
    """A job with a stamp in each of two buckets."""
    table = edl.dense(WIDE, dtype="int64", optimiser=edl.sgd(-1.0)).spec
    manifest = replace(head_of(0).manifest, tables=(replace(table, name="stamps"),))
    values = np.zeros(WIDE, dtype=np.int64)
    for position, nonce in stamps.items():
        values[position] = nonce
    return Head(manifest=manifest, tables={"stamps": values}, seen_at_s=0.0)


def saw(nonce, position, seen):
    changed, to = np.array(list(seen), dtype=np.int64), np.array(list(seen.values()), dtype=np.int64)
    return Saw(
        nonce=nonce,
        trainer=f"trainer-{nonce}",
        positions=PositionSet.of(position),
        pulled_at_s=1.0,
        changed=changed,
        to=to,
    )


def test_where_others_keep_what_they_have_a_gradient_may_have_seen_what_was_lost_elsewhere():
    """The second bucket was lost: 13 was trained again there as 23; what 17 put into the first one stays."""
    last = wide_head({KEPT: 17, KEPT + 1: 11, LOST: 23})
    assert list(np.unique(buckets_of_stamps(last))) == [0, 1]
    lines = [saw(11, KEPT + 1, {}), saw(23, LOST, {}), saw(17, KEPT, {KEPT + 1: 11, LOST: 13})]
    assert check_gradients(last, [], lines, keeps=True) == []
    assert any("crossed a roll-back" in problem for problem in check_gradients(last, [], lines))


def test_a_gradient_that_crossed_a_loss_into_the_bucket_that_was_lost_is_found():
    """17 saw 13, which was lost, and came into the same bucket afterwards."""
    last = wide_head({LOST + 1: 17, LOST: 23})
    lines = [saw(23, LOST, {}), saw(17, LOST + 1, {LOST: 13})]
    assert any("crossed a roll-back" in told for told in check_gradients(last, [], lines, keeps=True))
