"""The ledger's verdict can fail: each kind of damage is found, and a sound history is not accused."""

from dataclasses import replace

import numpy as np
import pytest

from master.api.identities import DatasetSpec, Lineage, ManifestId, Term
from master.api.manifest import Manifest
from master.api.positions import EMPTY, PositionSet
from tests.chaos.ledger import Head, Saw, check_head, program, verdict
from trainer_sdk.order import RecordOrder

SIZE, EPOCHS, BUCKETS, BATCH = 8, 2, 2, 4
DATA = DatasetSpec(name="ledger", size=SIZE, epochs=EPOCHS, batch_size=BATCH, seed=7)
BATCHES = [PositionSet.span(start, start + BATCH) for start in range(0, SIZE * EPOCHS, BATCH)]
NONCES = [11, 13, 17, 19]


def head_of(count, *, nonces=NONCES, seen_at_s=0.0):
    """After the first `count` batches."""
    tables = {
        "counts": np.zeros(SIZE, dtype=np.int64),
        "prints": np.zeros(BUCKETS * program.PRINTS_PER_BUCKET, dtype=np.int64),
        "stamps": np.zeros(SIZE * EPOCHS, dtype=np.int64),
    }
    data = EMPTY
    for batch, nonce in zip(BATCHES[:count], nonces, strict=False):
        np.add.at(tables["counts"], RecordOrder(DATA).records(batch), 1)
        tables["prints"] += program.fingerprint(list(batch))
        tables["stamps"][list(batch)] = nonce
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
