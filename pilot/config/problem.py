"""Problems in configuration. A problem is a value and is never raised."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.lib.text import cut

T = TypeVar("T")
LONGEST_FIELD = 320
"""The maximum number of characters in one field of a path. It is sufficient for the longest label keys.

The keys of a mapping are fields too. Without a limit, the paths of all problems below a long key would contain the
whole key.
"""
MAX_PROBLEMS = 100
"""Maximum number of errors to report for an object. The same limit applies to its other problems.

An object of 1 MB can have 100,000 problems. They would be stored and shown on debug pages for as long as the object
exists.
"""
LONGEST_MESSAGE = 2000
"""The maximum number of characters of a message, and of the path of a problem before `below` and `each` prepend to it.

Messages quote the values of fields, and paths contain keys. Both can have a megabyte.
"""


_FAILURES_IN_FORCE = frozenset(
    {"certificate-expired", "destination-not-found", "no-ready-endpoint", "refused", "subset-not-found"}
)
"""Codes of errors about objects that take effect, although requests or proxies fail because of them."""


class Severity(enum.StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class ObjectRef(NamedTuple):
    """A reference to an object of any kind.

    `namespace` is "" for cluster-scoped kinds. All fields are "" if the reference is to a whole file.
    """

    kind: GroupKind = GroupKind("", "")
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return " ".join(
            part for part in (str(self.kind), f"{self.namespace}/{self.name}" if self.namespace else self.name) if part
        )


class Problem(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A problem in an object.

    `code` is the stable identifier of the rule, in kebab case. `path` is the location in the object, such as
    `spec.http[0].match[1].uri.regex`, or "" for the whole object. `file` and `line` (from 1) are set for objects in
    files.

    An object with an ERROR is rejected, and its last valid version stays in force. If `is_rejection` is false, the
    object takes effect, and requests or proxies fail because of it. An object with only WARNINGs takes effect. An INFO
    is not a user error, but something that the user may not expect: for example, the object uses a feature that is not
    compiled into a proxy, so the feature is omitted.
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

    @property
    def is_rejection(self) -> bool:
        """True if the object is rejected because of the problem."""
        return self.severity is Severity.ERROR and self.code not in _FAILURES_IN_FORCE


Problems = Iterator[Problem]


def plain_ref(ref: ObjectRef) -> dict[str, str]:
    """Return a reference to an object as a JSON object."""
    return {"group": ref.kind.group, "kind": ref.kind.name, "namespace": ref.namespace, "name": ref.name}


def plain_problem(p: Problem) -> dict[str, Any]:
    """Return a problem as a JSON object for debug pages and command output."""
    fields = {
        "severity": str(p.severity),
        "code": p.code,
        **plain_ref(p.object),
        "path": p.path,
        "file": p.file,
        "line": p.line,
        "message": p.message,
    }
    return {name: value for name, value in fields.items() if value}


def error(code: str, path: str, message: str) -> Problem:
    """Return an error. `path` is relative to the checked value. `below` and `each` prepend to it."""
    return Problem(code=code, path=cut(path, LONGEST_MESSAGE), message=cut(message, LONGEST_MESSAGE))


def warning(code: str, path: str, message: str) -> Problem:
    """Return a warning. `path` is as in `error`."""
    return Problem(
        code=code, path=cut(path, LONGEST_MESSAGE), message=cut(message, LONGEST_MESSAGE), severity=Severity.WARNING
    )


def info(code: str, path: str, message: str) -> Problem:
    """Return information that is not a mistake. `path` is as in `error`."""
    return Problem(
        code=code, path=cut(path, LONGEST_MESSAGE), message=cut(message, LONGEST_MESSAGE), severity=Severity.INFO
    )


def below(field: str, problems: Iterable[Problem]) -> Problems:
    """Yield the problems of the value in `field`, with `field` prepended to their paths."""
    if len(field) > LONGEST_FIELD:
        field = cut(field, LONGEST_FIELD)
    for problem in problems:
        path = problem.path
        joined = field if not path else field + path if path[0] == "[" else f"{field}.{path}"
        yield msgspec.structs.replace(problem, path=joined)


def has_errors(problems: Collection[Problem]) -> bool:
    """Return whether one of the problems is an error."""
    return bool(problems) and any(problem.severity is Severity.ERROR for problem in problems)


def about(subject: ObjectRef, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems of an object: at most `MAX_PROBLEMS` errors and at most as many others.

    If there are more, the last one is a warning that says so. After one error more, the remaining problems are not
    computed.
    """
    listed: list[Problem] = []
    errors = others = 0
    for problem in problems:
        if is_error := problem.severity is Severity.ERROR:
            errors += 1
        else:
            others += 1
        if (errors if is_error else others) <= MAX_PROBLEMS:
            listed.append(msgspec.structs.replace(problem, object=subject))
        elif is_error:
            break
    if errors + others > len(listed):
        more = warning("more-problems", "", f"only the first {MAX_PROBLEMS} are listed")
        listed.append(msgspec.structs.replace(more, object=subject))
    return listed


def each(field: str, items: Iterable[T], check: Callable[[T], Iterable[Problem]]) -> Problems:
    """Yield the problems that `check` returns for each item of the list in `field`."""
    for index, item in enumerate(items):
        for problem in check(item):
            yield from below(f"{field}[{index}]", (problem,))
