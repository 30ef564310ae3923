"""Format versions of the documents that outlive the process that wrote them: manifests, and indexes of data files.

Each format begins at version 1 with EDL 0.1.0 (ADR 0228).  A reader takes the version that it writes and refuses any
other, since a guess would risk a sample.  Whoever changes a field of a released format raises its version and adds the
step that brings documents of the version before up to date.

Durable records in the store carry no version: their keys do (`store.job_keys`), and they are read strictly.
"""

from __future__ import annotations

from master.api.errors import DocumentError


def check_version(kind: str, version: object, *, known: int) -> None:
    """Check a document's version.  Raises DocumentError with advice."""
    if type(version) is not int or version < 1:
        raise DocumentError("version", f"is {version!r}, not a version number")
    if version != known:
        raise DocumentError("version", f"is {version}; this EDL reads a {kind} up to version {known}. Upgrade EDL")
