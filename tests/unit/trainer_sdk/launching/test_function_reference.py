"""Which functions can be launched, by what name a trainer finds them, and what is refused."""

import functools
import linecache
import math
import sys
import types

import pytest

import trainer_sdk as edl
from trainer_sdk.launching.function_reference import GUARD, refer_to
from trainer_sdk.launching.json_values import check_json
from trainer_sdk.launching.launched_function import find_function


class Notebook:
    """Cells that are run one after the other as IPython does: in `__main__`, which has no file."""

    def __init__(self, monkeypatch):
        self.main = types.ModuleType("__main__")
        self.main.__spec__ = None
        monkeypatch.setitem(sys.modules, "__main__", self.main)
        self.count = 0

    def run(self, source):
        self.count += 1
        file = f"<cell {self.count}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec"), self.main.__dict__)

    def __getitem__(self, name):
        return self.main.__dict__[name]


@pytest.fixture
def notebook(monkeypatch):
    return Notebook(monkeypatch)


@pytest.fixture(autouse=True)
def no_guard_left(monkeypatch):
    yield
    sys.modules.pop(GUARD, None)


def run_again(reference, folder):
    """What a trainer finds by this reference."""
    (folder / "function.py").write_text(reference.source)
    return find_function({"module": reference.module, "file": reference.file, "qualname": reference.qualname}, folder)


def test_a_function_of_a_module_is_imported(tmp_path):
    found = refer_to(math_like)
    assert (found.module, found.qualname) == (__name__, "math_like")


def math_like(value):
    return math.sqrt(value)


def test_a_function_of_the_started_script_is_taken_from_its_file(monkeypatch, tmp_path):
    """What stands under the usual guard is not run again."""
    script = tmp_path / "script.py"
    script.write_text("def f(x):\n    return [x, __name__]\nif __name__ == '__main__':\n    raise SystemExit(9)\n")
    main = types.ModuleType("__main__")
    main.__spec__, main.__file__ = None, str(script)
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(script.read_text().partition("if ")[0], str(script), "exec"), main.__dict__)
    reference = refer_to(main.f)
    assert reference.file == str(script)
    assert run_again(reference, tmp_path)(3) == [3, GUARD]


def test_a_cell_brings_its_imports_and_functions(notebook, tmp_path):
    notebook.run("import numpy as np\nfrom math import floor as down\nimport os.path\n")
    notebook.run("def twice(x):\n    return [2 * half(x)]\ndef half(x: np.ndarray):\n    return down(x) // 2\n")
    notebook.run("def f(x):\n    inner = lambda y: twice(y)\n    return int(np.sum(inner(x))), os.path.sep\n")
    reference = refer_to(notebook["f"])
    assert reference.source
    assert run_again(reference, tmp_path)(9.5) == (8, "/")


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("rate = 0.1\ndef f():\n    return rate", "f closes over rate"),
        ("data = [1]\ndef g():\n    return data\ndef f():\n    return g()", "g closes over data"),
        ("def make():\n    rate = 1\n    def f():\n        return rate\n    return f\nf = make()", "closes over rate"),
        ("def make():\n    def f():\n        return 1\n    return f\nf = make()", "within a function"),
        ("f = lambda: 1", "a lambda has no name"),
        ("def f():\n    return nowhere", "nowhere, which is not defined"),
        ("class C:\n    def f(self):\n        return 1\nf = C.f", "belongs to a class"),
        ("f = 3", "not a function"),
        ("f = len", "not a function"),
    ],
)
def test_what_a_trainer_could_not_find_is_refused(notebook, cell, told):
    """Each refusal says what to do."""
    notebook.run(cell)
    with pytest.raises(edl.UsageError, match=told):
        refer_to(notebook["f"])


def test_a_function_that_its_module_does_not_have_is_refused():
    def local():
        return 1

    with pytest.raises(edl.UsageError, match="at the top level of its module"):
        refer_to(local)
    with pytest.raises(edl.UsageError, match="not a function"):
        refer_to(functools.partial(math_like, 1))


@pytest.mark.parametrize("value", [None, True, 1, -0.5, "x", [], {"a": [1, {"b": None}]}])
def test_json_values_pass(value):
    check_json(value, "args")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([{"rate": (1, 2)}], r"args\[0\]\['rate'\]: a tuple"),
        ({1: 2}, "the key 1 is not text"),
        (math.nan, "no JSON number"),
        ([b""], r"args\[0\]: a bytes"),
        (math_like, "a function"),
    ],
)
def test_what_json_would_change_is_refused_with_its_place(value, told):
    with pytest.raises(edl.UsageError, match=told):
        check_json(value, "args")


def test_a_value_that_contains_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(edl.UsageError, match="nested more than"):
        check_json(loop, "args")


@pytest.mark.parametrize("trainers", [True, "1:8", (1, 2, 3), 1.5])
def test_a_wrong_range_is_refused_before_anything_starts(trainers):
    with pytest.raises(edl.UsageError, match="write 4, or"):
        edl.launch(math_like, [4], trainers=trainers)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ({"args": "ab"}, "args is 'ab'; write a list or a tuple"),
        ({"args": 5}, "args is 5; write a list or a tuple"),
        ({"kwargs": [1]}, r"kwargs is \[1\]; write arguments by name"),
        ({"args": [4], "sizes": 3}, "sizes is 3; write the numbers"),
        ({"args": [4], "sizes": []}, r"sizes is \[\]; write the numbers"),
        ({"args": [4], "env": ["A"]}, r"env is \['A'\]; write texts by name"),
    ],
)
def test_parameters_of_another_kind_are_refused(call, told):
    """A text as `args` was taken for a list of letters; others failed with words of Python's."""
    with pytest.raises(edl.UsageError, match=told):
        edl.launch(math_like, **call)


async def waits():
    pass


def yields():
    yield


@pytest.mark.parametrize("function", [waits, yields])
def test_function_of_which_a_call_runs_nothing_is_refused(function):
    """Its result would be a coroutine or a generator, and no session would be opened."""
    with pytest.raises(edl.UsageError, match="async or a generator"):
        refer_to(function)


@functools.wraps(waits)
def runs():
    """As a function that runs another one, by asyncio or with arguments of its own."""


def test_decorated_function_is_judged_by_what_is_called(monkeypatch):
    """`functools.wraps` names the one within."""
    monkeypatch.setitem(globals(), "waits", runs)
    assert refer_to(runs).qualname == "waits"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ({}, "missing a required argument: 'value'"),
        ({"args": [1, 2]}, "too many positional arguments"),
        ({"args": [1], "kwargs": {"epoch": 3}}, "keyword argument 'epoch'"),
    ],
)
def test_arguments_that_the_function_does_not_take_are_refused_before_anything_starts(call, told):
    """Its trainers would fail by them one after the other, each after its start."""
    with pytest.raises(edl.UsageError, match=told):
        edl.launch(math_like, **call)


def test_a_launch_within_a_trainer_is_refused(monkeypatch):
    """Otherwise a script without the usual guard would launch itself again in each trainer."""
    monkeypatch.setenv("EDL_MASTER", "unix:/x")
    with pytest.raises(edl.UsageError, match="if __name__ == '__main__'"):
        edl.launch(math_like, [4])
