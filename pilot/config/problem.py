"""Mistakes in what users wrote. A mistake is a value and is never raised."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from pilot.config.group_kind import GroupKind

T = TypeVar("T")


class Severity(enum.StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


class ObjectRef(NamedTuple):
    """A reference to an object of any kind. `namespace` is "" for cluster-scoped kinds; everything is "" for a file as a whole."""

    kind: GroupKind = GroupKind("", "")
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return " ".join(
            part for part in (str(self.kind), f"{self.namespace}/{self.name}" if self.namespace else self.name) if part
        )


class Problem(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One mistake.

    `code`: its rule, in kebab case, stable. `path`: where in the object, like `spec.http[0].match[1].uri.regex`, "" for the whole.
    An ERROR refuses the object as a whole (its last good version stays); a WARNING does not. Of a NOTICE nobody is to blame: what the object
    asks for is left out where a proxy's build does not have it. `file` and `line` (from 1) where it
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


Problems = Iterator[Problem]


def plain_problem(p: Problem) -> dict[str, Any]:
    """Returns what is known of a problem, for pages and programs."""
    group, kind = p.object.kind
    subject = {"group": group, "kind": kind, "namespace": p.object.namespace, "name": p.object.name}
    fields = {
        "severity": str(p.severity),
        "code": p.code,
        **subject,
        "path": p.path,
        "file": p.file,
        "line": p.line,
        "message": p.message,
    }
    return {name: value for name, value in fields.items() if value}


def error(code: str, path: str, message: str) -> Problem:
    """Returns a mistake that refuses the object; `path` is relative to what is looked at, `below` and `each` complete it."""
    return Problem(code=code, path=path, message=message)


def warning(code: str, path: str, message: str) -> Problem:
    """Returns a mistake that does not refuse the object."""
    return Problem(code=code, path=path, message=message, severity=Severity.WARNING)


def below(field: str, found: Iterable[Problem]) -> Problems:
    """Yields the problems of a part as problems of the whole that has the part at `field`."""
    for problem in found:
        path = problem.path
        joined = field if not path else field + path if path[0] == "[" else f"{field}.{path}"
        yield msgspec.structs.replace(problem, path=joined)


def each(field: str, items: Iterable[T], check: Callable[[T], Iterable[Problem]]) -> Problems:
    """Yields the problems of every item of a list at `field`."""
    for index, item in enumerate(items):
        yield from below(f"{field}[{index}]", check(item))
