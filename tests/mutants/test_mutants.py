"""The driver of planted faults: which there are, which are drawn, and who notices (ADR 0501)."""

import os
import subprocess

import pytest

from tests.mutants import trial
from tests.mutants.imports import files_of_tests, importers, nearest
from tests.mutants.operators import mutants_of
from tests.mutants.reach import Reach, measure, read, with_imports
from tests.mutants.report import Reason, document, merged, outcomes_of, page, read_reasons, score
from tests.mutants.targets import sample
from tests.mutants.trial import Outcome, Verdict, Workshop
from tests.mutants.warm import exchange

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


@pytest.mark.parametrize(
    ("first", "second", "swaps"),
    [
        ("box.a = 1", "box.b = Box()", False),
        ("box.a = dict[str, int]()", "box.b = other.b", True),
        ("box.a = a", "box.b = box.c", False),
        ("box.a = a", "box.b = box.a", True),
        ("box.a = a", "box.b = box", True),
        ("box.a = a", "box.b = make()", True),
        ("box.a = a", "other.b = b", True),
        ("box.a = a", "box.a = b", True),
        ("box.a = a", "box[0] = b", True),
    ],
)
def test_the_order_of_two_assignments_matters_where_one_may_see_the_other(first, second, swaps):
    """Two of one object, of values at hand or newly made, are the same either way."""
    source = f"def f(box, other, a, b):\n    {first}\n    {second}\n".encode()
    found = {one.operator for one in mutants_of("product.py", source)}
    assert ("statements swapped" in found) is swaps


def test_a_check_of_lengths_is_an_assertion():
    source = b"def f(a, b):\n    return list(zip(a, b, strict=True))\n"
    assert {one.operator for one in mutants_of("product.py", source)} == {"nothing returned"}


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


def test_a_draw_outlives_changes_elsewhere():
    """What other functions and files hold changes nothing of what is drawn here, but for how many there are."""
    here = [(one, SOURCE) for one in mutants_of("product.py", SOURCE)]
    other = [(one, SOURCE) for one in mutants_of("other.py", SOURCE)]
    keys = {one.key for one in sample(here, size=6, seed=1)}
    together = sample([*other, *here], size=12, seed=1)
    assert {one.key for one in together if one.path == "product.py"} <= {
        one.key for one in sample(here, size=12, seed=1)
    }
    assert {one.key for one in sample(here[:-1], size=6, seed=1)} >= keys - {here[-1][0].key}


@pytest.fixture(params=[(), ("test_product.py",)], ids=["cold", "warm"])
def tree(tmp_path, request, monkeypatch):
    monkeypatch.setattr(trial, "START_S", 300.0)  # however slow the machine is, no process is cut short
    root = tmp_path / "root"
    root.mkdir()
    (root / "product.py").write_bytes(SOURCE)
    (root / "test_product.py").write_text(TESTS, encoding="utf-8")
    subprocess.run(("git", "init", "-q"), cwd=root, check=True)
    shop = Workshop(root, tmp_path / "copy", request.param)
    yield shop, {"test_product.py::test_larger": 0.01}
    shop.close()


def test_a_workshop_tells_who_notices(tree):
    """A turned condition fails the test; a fault in what no test runs has nobody to notice it."""
    shop, took_s = tree
    mutants = {(one.function, one.operator, one.after): one for one in mutants_of("product.py", SOURCE)}
    negated = mutants["larger", "condition negated", "not (a < b and not b > 100)"]
    missed = mutants["larger", "number raised", "101"]
    killed = shop.try_out(negated, list(took_s), took_s, 600.0)
    assert (killed.verdict, killed.by) == (Verdict.KILLED, "test_product.py::test_larger")
    assert shop.try_out(missed, list(took_s), took_s, 600.0).verdict is Verdict.SURVIVED
    assert shop.try_out(missed, [], took_s, 600.0).verdict is Verdict.UNREACHED


def test_a_test_that_is_gone_has_noticed_nothing(tree):
    """It was measured and renamed since: pytest refuses its name, and that is no word on the fault."""
    shop, took_s = tree
    mutants = {(one.function, one.operator, one.after): one for one in mutants_of("product.py", SOURCE)}
    missed = mutants["larger", "number raised", "101"]
    took_s = {"test_product.py::test_gone": 0.001, **took_s}
    assert shop.try_out(missed, list(took_s), took_s, 600.0).verdict is Verdict.SURVIVED


BODIES = b"""class Box:
    sides = 6

    def edges(self):
        return sum(1 for _ in range(self.sides)) * 2

    def faces(self):
        return self.sides
"""


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (b"* 2", b"* 3", (True, 18, 6)),
        (b"sum(1", b"sum(2", (True, 24, 6)),
        (b"return self.sides", b"return 7", (True, 12, 7)),
        (b"sides = 6", b"sides = 5", (False, 12, 6)),
        (b"def faces(self)", b"def faces(self, more=1)", (False, 12, 6)),
    ],
)
def test_a_living_function_gets_other_code(before, after, told):
    """That of its own or of what stands within; what a class's body does is not to be had so, and nothing changes."""
    namespace = {}
    exec(compile(BODIES, "boxes.py", "exec"), namespace)
    box = namespace["Box"]
    exchanged = exchange([box.edges, box.faces], BODIES, BODIES.replace(before, after))
    assert (exchanged, box().edges(), box().faces()) == told


def test_tests_are_chosen_by_function_and_the_quickest_first():
    """A function that nobody measured has the tests of its file."""
    reach = Reach(tests_of={"product.py": {"larger": ("slow", "quick", "failed")}}, took_s={"slow": 2.0, "quick": 0.1})
    mutants = {one.function: one for one in mutants_of("product.py", SOURCE)}
    assert reach.tests_for(mutants["larger"]) == ["quick", "slow"]
    assert reach.tests_for(mutants["note"]) == ["quick", "slow"]


def test_what_a_file_of_tests_reaches_is_measured_once(tmp_path):
    """By function, and again when the file has changed; a file that imports nothing of it does not matter."""
    (tmp_path / "autoscaler").mkdir()
    (tmp_path / "autoscaler" / "product.py").write_bytes(SOURCE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_other.py").write_text("import logging\n", encoding="utf-8")
    file = tmp_path / "tests" / "test_product.py"
    file.write_text(TESTS.replace("from product", "from autoscaler.product"), encoding="utf-8")
    files = importers(files_of_tests(["tests"], tmp_path), {"autoscaler/product.py"}, tmp_path)
    assert files == ["tests/test_product.py"]
    measure(tmp_path / "reach", files, tmp_path)
    reach = read(tmp_path / "reach", files)
    assert reach.tests_of == {"autoscaler/product.py": {"larger": ("tests/test_product.py::test_larger",)}}
    assert set(reach.took_s) == {"tests/test_product.py::test_larger"}
    file.write_text("broken = 1 / 0\n", encoding="utf-8")
    os.utime(file, (0, 0))
    measure(tmp_path / "reach", files, tmp_path)
    assert read(tmp_path / "reach", files) == reach
    os.utime(file)
    assert measure(tmp_path / "reach", files, tmp_path, until_s=0.0) == [], "there is no time to measure it again"


def test_the_nearest_files_of_tests_come_over_the_fewest_modules(tmp_path):
    """Those of the tests left out; who names the module most is first, and class bodies have all of them."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "product.py").write_bytes(SOURCE)
    for name, text in {
        "shell.py": "import product",
        "tests/stage.py": "from product import larger",
        "tests/test_by_stage.py": "from tests.stage import larger",
        "tests/test_product.py": "import product",
        "tests/test_by_shell.py": "import shell",
        "tests/test_other.py": "import logging",
    }.items():
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    files = files_of_tests(["tests"], tmp_path)
    assert set(importers(files, {"product.py"}, tmp_path)) == {"tests/test_by_stage.py", "tests/test_product.py"}
    assert nearest(files, "product.py", tmp_path) == ["tests/test_product.py", "tests/test_by_stage.py"]
    assert nearest(files, "shell.py", tmp_path) == ["tests/test_by_shell.py"]
    measured = Reach(tests_of={"product.py": {"larger": ("t::slow",)}}, took_s={"tests/test_by_stage.py::a": 1.0})
    mutant = next(one for one in mutants_of("product.py", SOURCE) if one.function == "note")
    assert measured.tests_for(mutant) == []
    completed = with_imports(measured, files, ["product.py"], tmp_path)
    assert completed.tests_for(mutant) == ["tests/test_by_stage.py::a"], "of what nobody measured"


def test_an_equivalent_mutant_counts_for_nothing_and_a_tolerated_one_against():
    """Two killed of three that could be; the document holds all that the page is made of."""
    first, second, third, fourth = mutants_of("product.py", SOURCE)[:4]
    outcomes = [
        Outcome(mutant=first, verdict=Verdict.KILLED, by="a", commit="abc"),
        Outcome(mutant=second, verdict=Verdict.KILLED, by="a", commit="abd"),
        Outcome(mutant=third, verdict=Verdict.SURVIVED, commit="abc"),
        Outcome(mutant=fourth, verdict=Verdict.UNREACHED, commit="abc"),
    ]
    reasons = {
        third.key: Reason(reason="the same", is_equivalent=True),
        fourth.key: Reason(reason="nobody asks", is_equivalent=False),
    }
    assert score(outcomes, reasons) == pytest.approx(2 / 3)
    assert outcomes_of(document(outcomes, seed=1, drawn=9)) == outcomes
    told = page(outcomes, reasons, seed=1, drawn=9, total=90)
    assert "66.7%" in told
    assert "equivalent: the same" in told
    assert "abc, abd" in told


def test_runs_are_merged_by_mutant():
    """A later verdict stands, one that says less than the kept one does not, and what is not drawn falls out."""
    first, second, third = mutants_of("product.py", SOURCE)[:3]
    kept = [Outcome(mutant=one, verdict=Verdict.SURVIVED) for one in (first, second, third)]
    tried = [
        Outcome(mutant=first, verdict=Verdict.KILLED, by="a"),
        Outcome(mutant=second, verdict=Verdict.OUT_OF_TIME),
    ]
    assert merged(kept, tried, [first, second]) == [tried[0], kept[1]]
    again = Outcome(mutant=first, verdict=Verdict.OUT_OF_TIME)
    assert merged(merged(kept, tried, [first]), [again], [first]) == [again]


def test_the_reasons_can_be_read():
    """Each survivor that was looked at says why."""
    assert all(reason.reason for reason in read_reasons().values())
