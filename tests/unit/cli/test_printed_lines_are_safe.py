"""What `edl` prints comes from checkpoints, snapshots, clusters and folders of others, and moves no terminal."""

import ast
from pathlib import Path

import autoscaler.cli

SAFE = {"escape_controls", "json.dumps"}


def test_every_line_that_is_printed_is_escaped():
    """A job of the plan, a data set's name, a folder's: whoever chose it wrote to the terminal of whoever looked."""
    files = sorted(Path(autoscaler.cli.__file__).parent.rglob("*.py"))
    found = [
        f"{file.name}:{call.lineno} {ast.unparse(call)[:80]}"
        for file in files
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "print" and not all(map(is_safe, call.args))
    ]
    assert found == [], "print(escape_controls(...)), or json.dumps(...)"


def is_safe(shown):
    """Whether the expression holds no character that moves a terminal, as far as its form tells."""
    match shown:
        case ast.Constant():
            return True
        case ast.Call():
            return ast.unparse(shown.func) in SAFE
        case ast.IfExp():
            return is_safe(shown.body) and is_safe(shown.orelse)
    return False
