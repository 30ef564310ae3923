"""What README and docs tell people to type is what the programs take: parsed, and run where that starts nothing."""

import re
import subprocess
import sys

import click
import pytest

from autoscaler.cli.exit_codes import Exit
from autoscaler.cli.main import HELP, edl, run_command
from autoscaler.manifests import parse_files
from tests.documentation.shown import ROOT, parse_line, shown_commands, shown_options

COMMANDS = shown_commands()
OPTIONS = shown_options()
_TARGET = re.compile(r"^([a-z][a-z0-9-]*):", re.MULTILINE)


def of(*programs):
    return [command for command in COMMANDS if command.program in programs]


def words_of_edl(command):
    return command.words[1:]


def deepest(words):
    """(the command that these words name, its context, the words left)."""
    command, context, left = edl, click.Context(edl, info_name="edl"), list(words)
    while isinstance(command, click.Group) and left and not left[0].startswith("-"):
        name, command, left = command.resolve_command(context, left)
        context = click.Context(command, info_name=name, parent=context)
    return command, context, left


def paths_of(command, above=()):
    """The words of each command below this one."""
    for name, inner in sorted(command.commands.items()):
        yield (*above, name)
        if isinstance(inner, click.Group):
            yield from paths_of(inner, (*above, name))


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A folder with no runs and with the files that commands name, and no cluster."""
    for name in ("examples", "charts"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name, source in {"job.yaml": "kubernetes/digits.yaml", "web.yaml": "web.yaml"}.items():
        (tmp_path / name).write_bytes((ROOT / "examples" / source).read_bytes())
    monkeypatch.chdir(tmp_path)
    for name in ("EDL_RUN", "EDL_ON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_pages_show_commands_of_every_kind():
    """What looks for commands finds them: a changed fence must not empty these tests."""
    assert len(of("edl")) >= 50
    assert len(of("make")) >= 15
    assert len(of("kubectl")) >= 12
    assert len(of("helm")) >= 5


@pytest.mark.parametrize("command", of("edl"), ids=str)
def test_edl_takes_what_is_shown(command, nowhere, monkeypatch, capsys):
    """Each line comes as far as looking for a run, a cluster or its files; of `edl run` the files are parsed, of
    `edl launch` the job is printed."""
    words = words_of_edl(command)
    found, context, left = deepest(words)
    if found.name == "run":
        params = found.make_context("run", left, parent=context, resilient_parsing=command.is_mention).params
        assert command.is_mention or parse_files(params["files"])
        return
    try:
        if not isinstance(found, click.Group):
            found.make_context(found.name, list(left), parent=context)
    except click.MissingParameter:
        assert command.is_mention  # `edl describe`, in a sentence
        return
    except click.exceptions.Exit:  # --help
        return
    if found.name == "agent":  # it would watch the GPUs of this machine, for a while or for ever
        return
    if found.name == "launch":  # it would start the script
        words = ["launch", "--dry-run", *words[1:]]
    monkeypatch.setattr(sys, "argv", ["edl", *words])
    code = run_command("edl")
    said = capsys.readouterr()
    if found.name == "validate":  # its example is a job file
        assert code == Exit.OK, said.err
    assert code in {Exit.OK, Exit.NOT_FOUND} or (command.is_mention and code == Exit.USAGE), said.err


@pytest.mark.parametrize(
    ("page", "words"), OPTIONS, ids=lambda value: " ".join(value) if isinstance(value, tuple) else value
)
def test_an_option_in_a_sentence_is_one(page, words, nowhere):
    """And it takes the value that stands beside it: `--on kubernetes`."""
    name, _, value = words[0].partition("=")
    value = value or " ".join(words[1:])
    options = [option for option in options_of(edl) if name in {*option.opts, *option.secondary_opts}]
    if (
        not options
    ):  # of pytest and the campaigns of tests/, or of helm and kubectl: tests/cluster/test_commands_shown.py
        assert page in {"docs/testing.md", "docs/kubernetes.md", "charts/edl/README.md"}, (
            f"no command of edl has {name}"
        )
    elif value and value not in {"FILE", "DIR"}:
        assert any(_takes(option, value) for option in options), f"{name} does not take {value!r}"


def test_the_help_shows_what_works(nowhere, monkeypatch):
    """Its own lines, and its remark on --on."""
    lines = re.findall(r"^ +(edl .*?)(?:  +.*)?$", HELP, re.MULTILINE)
    assert len(lines) > 10
    for line in lines:
        (command,) = parse_line(line, page="--help")
        found, context, left = deepest(words_of_edl(command))
        found.make_context(found.name, left, parent=context)
    sides = re.findall(r"--on (\w+)", HELP)
    assert sides
    (on,) = {option.name: option for option in options_of(edl) if "--on" in option.opts}.values()
    assert all(_takes(on, side) for side in sides)


@pytest.mark.parametrize("path", list(paths_of(edl)), ids=" ".join)
def test_the_examples_of_each_help_parse(path, nowhere):
    """The command of a line is that of the help, and takes its options."""
    shown, _, _ = deepest(path)
    lines = re.findall(r"^ *(edl .*?)(?: +\| .*)?(?:   +.*)?$", (shown.help or "").partition("\b")[2], re.MULTILINE)
    for line in lines:
        (command,) = parse_line(line, page=" ".join(path))
        found, context, left = deepest(words_of_edl(command))
        assert found is shown or isinstance(shown, click.Group)
        found.make_context(found.name, left, parent=context)


def test_a_choice_is_typed_as_it_is_shown():
    """click takes the names of an enumeration's members, in capitals, for its values: none is handed to it."""
    choices = [option for option in options_of(edl) if isinstance(option.type, click.Choice)]
    assert len(choices) >= 3
    for option in choices:
        assert all(type(choice) is str for choice in option.type.choices), option.opts


@pytest.mark.parametrize("command", of("make"), ids=str)
def test_make_knows_the_target(command):
    """And what it would do can be told."""
    goals = [word for word in command.words[1:] if "=" not in word]
    known = set(_TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    assert set(goals) <= known
    told = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *command.words[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("command", of("python"), ids=str)
def test_python_finds_the_module(command):
    if command.words[1] == "-m":
        path = ROOT / command.words[2].replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
    else:
        assert command.words[1] in ("script.py", "train.py") or (ROOT / command.words[1]).is_file()


@pytest.mark.parametrize("command", of("docker"), ids=str)
def test_docker_builds_from_a_file_that_is_there(command):
    if "-f" in command.words:
        assert (ROOT / command.words[command.words.index("-f") + 1]).is_file()


def test_the_extra_that_pip_installs_exists():
    extras = [extra for command in of("pip") for extra in re.findall(r"\[(\w+)\]", " ".join(command.words))]
    assert extras
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f"\n{extra} = [" in project for extra in extras)


def options_of(command):
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from options_of(inner)
    yield from (param for param in command.params if isinstance(param, click.Option))


def _takes(option, value):
    try:
        option.type.convert(value, option, click.Context(edl))
    except click.UsageError:
        return False
    return True
