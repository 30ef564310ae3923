"""Loading of scenario files: YAML to a `Scenario`, or an error that names the file and the field's path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from experiments.errors import RefusedInputError
from experiments.scenarios.schema import Scenario

FOLDER: Final = Path(__file__).parent


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML loader that refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key.value} is a duplicate key", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def list_scenarios(folder: Path = FOLDER) -> tuple[Scenario, ...]:
    """Return all scenarios by name.  Raises RefusedInputError for the first file that is wrong."""
    found = tuple(read_scenario(file) for file in sorted(folder.glob("*.yaml")))
    return tuple(sorted(found, key=lambda scenario: scenario.name))


def find_scenario(name: str, folder: Path = FOLDER) -> Scenario:
    """Return one scenario by name, or by the path of its file."""
    if name.endswith((".yaml", ".yml", ".json")):
        return read_scenario(Path(name))
    file = folder / f"{name}.yaml"
    if not file.exists():
        known = ", ".join(sorted(path.stem for path in folder.glob("*.yaml")))
        raise RefusedInputError(name, "", "there is no such experiment", f"known: {known}")
    return read_scenario(file)


def read_scenario(file: Path) -> Scenario:
    """Return the scenario in a file (YAML, or JSON, which is YAML).

    Raises:
        RefusedInputError: it cannot be read, has an unknown field, lacks one, or one has no valid value.
    """
    try:
        document = yaml.load(file.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RefusedInputError(file, "", f"cannot be read: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise RefusedInputError(file, "", "is nested too deeply") from error
    if not isinstance(document, dict):
        raise RefusedInputError(file, "", "holds no scenario", "write fields, name: and title: first")
    try:
        scenario = Scenario.model_validate(document)
    except ValidationError as error:
        raise _refusal(file, error) from error
    if scenario.name != file.stem:
        raise RefusedInputError(file, "name", f"is {scenario.name}", f"the file is named {file.stem}")
    return scenario


def _refusal(file: Path, error: ValidationError) -> RefusedInputError:
    """The first error, and the number of others."""
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")  # a typo's cause first
    first: Any = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    match first["type"]:
        case "extra_forbidden":
            problem = "is not known"
        case "missing":
            problem = "is missing"
        case _:
            problem = str(first["msg"]).removeprefix("Value error, ")
    return RefusedInputError(file, field_path(first["loc"]), problem + more)


def field_path(parts: Sequence[str | int]) -> str:
    """`("jobs", 2, "trainer", "cpu")` as `jobs[2].trainer.cpu`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
