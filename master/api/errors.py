"""Errors about bytes, files and folders written by others, in one tree.

ContractError
├── MessageError                 a message on a stream; `field` names the part
├── DocumentError             a JSON document; `field` names the part
│   └── ManifestError             a checkpoint's manifest
└── StorageError              the checkpoint folder; `name` is the file
    ├── StorageMissingError       no such file or folder
    ├── StorageFullError          no room, quota or file-size limit reached
    ├── StorageReadOnlyError      writing is not allowed here
    ├── StorageAlteredError       the bytes are not those that were written
    └── UnreadableCheckpointError the checkpoint to resume from cannot be read: a user has to decide
        └── NoFallbackError           ... even if the job may fall back
(`positions.PositionsError` is the same for one position set; it arrives wrapped in these.)
"""

from __future__ import annotations

from typing import Self


class ContractError(Exception):
    """Everything that `master.api` raises on purpose."""


class _FieldError(ContractError):
    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem

    def within(self, outer: str) -> Self:
        """The same error, seen from the value that contains the field."""
        inner = self.field if self.field.startswith("[") or not self.field else f".{self.field}"
        return type(self)(f"{outer}{inner}", self.problem)


class MessageError(_FieldError):
    """A message that this version cannot take; nothing of its envelope is used."""


class DocumentError(_FieldError):
    """A JSON document that this version cannot take."""


class ManifestError(DocumentError):
    """No manifest that this version can use.  Never fatal to a job: another manifest, or none, is used instead."""


class StorageError(ContractError):
    """An operation on the checkpoint folder failed and changed nothing."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


class StorageMissingError(StorageError):
    """No such file or folder."""


class StorageFullError(StorageError):
    """No space left.  Training continues; the next checkpoint is attempted."""


class StorageReadOnlyError(StorageError):
    """Writing is not allowed here.  Training continues; the next checkpoint is attempted."""


class StorageAlteredError(StorageError):
    """The bytes are not those that were written: cut short or altered."""


class UnreadableCheckpointError(StorageError):
    """The checkpoint to resume from exists and cannot be read completely; the job does not start (M11)."""


class NoFallbackError(UnreadableCheckpointError):
    """A fallback would override a newer checkpoint or a requested start (ADR 0189)."""
