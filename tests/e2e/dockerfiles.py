"""Reads a Dockerfile: what `images/` uses of the language, and no more.  Pure.

An instruction that is not known here is refused: to pass over it would be to test another image than the user builds.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Final

from tests.harness.errors import ImageBuildError

SETTINGS: Final = ("CMD", "ENTRYPOINT", "ENV", "LABEL", "USER", "WORKDIR")
KNOWN: Final = ("ARG", "COPY", "RUN", *SETTINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    word: str
    text: str

    def list(self) -> tuple[str, ...]:
        """The words of an instruction in brackets, such as `CMD ["edl", "operator"]`."""
        return tuple(json.loads(self.text))

    def variables(self) -> dict[str, str]:
        """Names and values that an ENV or a LABEL sets."""
        return dict(part.split("=", 1) for part in shlex.split(self.text))

    def copied(self) -> tuple[str, tuple[str, ...], str]:
        """Parts of COPY: the stage that it copies from (else ""), sources, and target."""
        words = shlex.split(self.text)
        stage = ""
        if words[0].startswith("--from="):
            stage = words.pop(0).removeprefix("--from=")
        return stage, tuple(words[:-1]), words[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """From one FROM to the next."""

    name: str
    base: str  # without its digest
    instructions: tuple[Instruction, ...]

    def last(self, word: str) -> Instruction | None:
        return next((instruction for instruction in reversed(self.instructions) if instruction.word == word), None)


def parse(text: str) -> tuple[Stage, ...]:
    """Raises ImageBuildError at what it does not know."""
    stages: list[Stage] = []
    for instruction in _instructions(text):
        if instruction.word == "FROM":
            base, _, name = re.split(r"(\s+AS\s+|$)", instruction.text, maxsplit=1)
            stages.append(Stage(name=name.strip(), base=base.split("@")[0], instructions=()))
        elif instruction.word not in KNOWN:
            raise ImageBuildError(f"{instruction.word}: the builder of the tests does not know this instruction yet")
        elif stages:
            last = stages[-1]
            added = (*last.instructions, instruction)
            stages[-1] = Stage(name=last.name, base=last.base, instructions=added)
        elif instruction.word != "ARG":
            raise ImageBuildError(f"{instruction.word} stands before FROM")
    if not stages:
        raise ImageBuildError("there is no FROM")
    return tuple(stages)


def _instructions(text: str) -> list[Instruction]:
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n", " ", kept)
    lines = [line.strip() for line in joined.splitlines() if line.strip()]
    parts = [line.split(None, 1) for line in lines]
    return [Instruction(word=part[0].upper(), text=part[1] if len(part) > 1 else "") for part in parts]
