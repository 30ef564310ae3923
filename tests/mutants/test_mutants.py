"""The driver of planted faults: which there are, which are drawn, and who notices (ADR 0501)."""

import subprocess

import pytest

from tests.mutants.operators import mutants_of
from tests.mutants.reach import Reach
from tests.mutants.report import Reason, outcomes_of, page, read_reasons, score
from tests.mutants.report import document as document_of
from tests.mutants.targets import sample
from tests.mutants.trial import Outcome, Verdict, Workshop

SOURCE = b'''"""Of two numbers."""
import logging


def larger(a, b):
    """The larger one."""
    logging.debug("asked for %d", a)
    assert a != 13
    if a < b and not b > 100:
        return b
    return a + 0


def note(box, a):
    box.seen = a
    box.count += 1
    box.tell(a)
'''
TESTS = """from product import larger

def test_larger():
    assert larger(1, 2) == 2
    assert larger(2, 1) == 2
"""


def changes(source=SOURCE):
    return {(one.function, one.operator, one.before, one.after) for one in mutants_of("product.py", source)}


@pytest.mark.parametrize(
    "change",
    [
        ("larger", "comparison turned", " < ", " <= "),
        ("larger", "comparison turned", " > ", " >= "),
        ("larger", "and for or", " and ", " or "),
        ("larger", "not left out", "not b > 100", "(b > 100)"),
        ("larger", "condition negated", "a < b and not b > 100", "not (a < b and not b > 100)"),
        ("larger", "number raised", "100", "101"),
        ("larger", "arithmetic turned", " + ", " - "),
        ("larger", "nothing returned", "b", "None"),
        ("note", "assignment left out", "box.seen = a", "pass"),
        ("note", "statement left out", "box.count += 1", "pass"),
        ("note", "statement left out", "box.tell(a)", "pass"),
        ("note", "statements swapped", "box.count += 1\n    box.tell(a)", "box.tell(a)\n    box.count += 1"),
    ],
)
def test_a_fault_is_found(change):
    """Each operator, where it applies."""
    assert change in changes()


def test_texts_assertions_and_logging_are_left_alone():
    """A program without them is the same program."""
    texts = {before for _, _, before, _ in changes()}
    assert not any("logging" in text or "13" in text or '"""' in text for text in texts)


def test_a_mutant_changes_its_own_place_alone():
    """And is named so that it is found again when lines above it change."""
    before = mutants_of("product.py", SOURCE)
    after = mutants_of("product.py", b"# a line more\n" + SOURCE)
    assert [one.key for one in before] == [one.key for one in after]
    assert len({one.key for one in before}) == len(before)
    for one in before:
        mutated = one.apply(SOURCE)
        assert mutated != SOURCE
        assert mutated.startswith(SOURCE[: one.begin])
        assert mutated.endswith(SOURCE[one.end :])


def test_the_same_seed_draws_the_same_sample():
    """And another one another."""
    pairs = [(one, SOURCE) for one in mutants_of("product.py", SOURCE)]
    drawn = sample(pairs, size=6, seed=1)
    assert drawn == sample(pairs, size=6, seed=1)
    assert drawn != sample(pairs, size=6, seed=2)
    assert len(sample(pairs, size=10_000, seed=1)) <= len(pairs)


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "product.py").write_bytes(SOURCE)
    (root / "test_product.py").write_text(TESTS, encoding="utf-8")
    subprocess.run(("git", "init", "-q"), cwd=root, check=True)
    return Workshop(root, tmp_path / "copy"), {"test_product.py::test_larger": 0.01}


def test_a_workshop_tells_who_notices(tree):
    """A turned condition fails the test; a fault in what no test runs has nobody to notice it."""
    shop, took_s = tree
    mutants = {(one.function, one.operator, one.after): one for one in mutants_of("product.py", SOURCE)}
    negated = mutants["larger", "condition negated", "not (a < b and not b > 100)"]
    missed = mutants["larger", "number raised", "101"]
    killed = shop.try_out(negated, list(took_s), took_s, 60.0)
    assert (killed.verdict, killed.by) == (Verdict.KILLED, "test_product.py::test_larger")
    assert shop.try_out(missed, list(took_s), took_s, 60.0).verdict is Verdict.SURVIVED
    assert shop.try_out(missed, [], took_s, 60.0).verdict is Verdict.UNREACHED


def test_tests_are_chosen_by_function_and_the_quickest_first():
    """A function that nobody measured has the tests of its file."""
    reach = Reach(tests_of={"product.py": {"larger": ("slow", "quick", "failed")}}, took_s={"slow": 2.0, "quick": 0.1})
    mutants = {one.function: one for one in mutants_of("product.py", SOURCE)}
    assert reach.tests_for(mutants["larger"]) == ["quick", "slow"]
    assert reach.tests_for(mutants["note"]) == ["quick", "slow"]


def test_an_equivalent_mutant_counts_for_nothing_and_a_tolerated_one_against():
    """Two killed of three that could be; the document holds all that the page is made of."""
    first, second, third, fourth = mutants_of("product.py", SOURCE)[:4]
    outcomes = [
        Outcome(mutant=first, verdict=Verdict.KILLED, by="a"),
        Outcome(mutant=second, verdict=Verdict.KILLED, by="a"),
        Outcome(mutant=third, verdict=Verdict.SURVIVED),
        Outcome(mutant=fourth, verdict=Verdict.UNREACHED),
    ]
    reasons = {
        third.key: Reason(reason="the same", is_equivalent=True),
        fourth.key: Reason(reason="nobody asks", is_equivalent=False),
    }
    assert score(outcomes, reasons) == pytest.approx(2 / 3)
    kept = document_of(outcomes, commit="abc", seed=1, total=9)
    assert outcomes_of(kept) == outcomes
    told = page(outcomes, reasons, commit="abc", seed=1, total=9)
    assert "66.7%" in told
    assert "equivalent: the same" in told


def test_the_reasons_can_be_read():
    """Each survivor that was looked at says why."""
    assert all(reason.reason for reason in read_reasons().values())
