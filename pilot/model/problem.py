"""What is wrong with something that a user wrote: a value, never raised."""
from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec


class Severity(enum.StrEnum):
    ERROR = "error"
    WARNING = "warning"


class ObjectRef(NamedTuple):
    """What names an object of any kind in a message; `namespace` is "" for cluster-scoped kinds, all of it for a file as a whole."""

    kind: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.kind, f"{self.namespace}/{self.name}" if self.namespace else self.name) if part)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake.

    `code`: its rule, in kebab case, stable. `path`: where in the object, like `spec.http[0].match[1].uri.regex`, "" for the whole.
    An ERROR refuses the object as a whole (its last good version stays); a WARNING does not. `file` and `line` (from 1) where it
    came from a file.
    """

    code: str
    object: ObjectRef = ObjectRef()
    path: str = ""
    message: str
    severity: Severity = Severity.ERROR
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        subject = " ".join(part for part in (str(self.object), self.path) if part)
        return f"{place}{self.severity} {self.code}: {subject + ': ' if subject else ''}{self.message}"
