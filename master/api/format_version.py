"""Documents through their versions: what an older EDL wrote is brought up to date step by step (ADR 0403).

The problem: a manifest, a durable record and a file's index outlive the EDL that wrote them, and they share values
(`OptimiserSpec` stands in all three).  A reader that only takes its own fields would refuse every older document as
soon as one field is added; one that guesses would risk a sample.  So each kind of document has a `Form`: its version
is the number of its steps + 1, and step i turns the plain form (`json`) of version i + 1 into that of version i + 2.

    adding a field:   1. add it to the dataclass   2. append a step that says what older documents mean by its absence
                      3. keep a file of the version before under tests/kept, which a test reads

A step is never changed once it is released.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from master.api.errors import DocumentError

Step: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One kind of document.  `name` is for messages."""

    name: str
    steps: tuple[Step, ...] = ()

    @property
    def version(self) -> int:
        """That this EDL writes."""
        return len(self.steps) + 1

    def checked(self, version: object) -> int:
        """The version of a document, if this EDL reads it.  Raises DocumentError with the way out."""
        if type(version) is not int or version < 1:
            raise DocumentError("version", f"is {version!r}, no version number")
        if version > self.version:
            story = f"is {version}; this EDL reads a {self.name} up to version {self.version}. Upgrade EDL"
            raise DocumentError("version", story)
        return version

    def upgraded(self, plain: Any, version: object) -> Any:
        """The document as this EDL would have written it.  Raises DocumentError for a version that it does not know."""
        first = self.checked(version)
        for step in self.steps[first - 1 :]:
            if not isinstance(plain, dict):
                raise DocumentError("", f"is no {self.name}")
            try:
                plain = step(dict(plain))
            except (KeyError, TypeError, ValueError) as error:
                raise DocumentError("", f"is no {self.name} of version {first} ({error!r})") from error
        return plain


VERSION_FIELD: Final = "form_version"  # no field of a value is called so: a route has versions of its own


def with_version(form: Form, plain: dict[str, Any]) -> dict[str, Any]:
    """A record with its version beside its fields; of version 1 the absence of one tells."""
    return plain if form.version == 1 else {VERSION_FIELD: form.version, **plain}


def without_version(form: Form, plain: Any) -> Any:
    """The inverse of `with_version`, upgraded.  Raises DocumentError."""
    if not isinstance(plain, dict):
        raise DocumentError("", f"is no {form.name}")
    fields = {name: value for name, value in plain.items() if name != VERSION_FIELD}
    return form.upgraded(fields, plain.get(VERSION_FIELD, 1))
