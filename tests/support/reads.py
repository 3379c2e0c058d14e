"""Tracked reads, found where they are made, and taken away one at a time: an untracked read is a bug that only edits can find."""
from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from pilot.derive import Collection, Table
from pilot.derive.graph import Derivation
from tests.support.mesh_edits import FLAGS, Course, first_wrong, lived_course

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORE = str(ROOT / "pilot" / "derive")
PLACES = (str(ROOT / "pilot" / "model"), str(ROOT / "pilot" / "translate"))
READERS: tuple[tuple[type[Any], str], ...] = (
    *((Table, name) for name in ("get", "keys", "buckets", "all_keys")),
    *((Collection, name) for name in ("get", "keys", "buckets", "all_keys")),
)


class Site(NamedTuple):
    """An instruction that reads: a table or the collection of a kind, or another derived value. Two calls on one line are two sites."""

    code: CodeType
    instruction: int
    read: str

    def __str__(self) -> str:
        line = next((line for start, end, line in self.code.co_lines() if start <= self.instruction < end), 0)
        return f"{pathlib.Path(self.code.co_filename).relative_to(ROOT)}:{line} {self.read}"

    @property
    def of_table(self) -> bool:
        return self.read.startswith("table ")


@contextlib.contextmanager
def intercepted(around: Callable[[Site, Any, Callable[[], Any]], Any]) -> Iterator[None]:
    """Every read by a derivation of model or translate goes through `around(site, database, read)`."""
    originals = {(kind, name): getattr(kind, name) for kind, name in READERS}
    call = Derivation.__call__

    def site_of(frame: FrameType, read: str) -> Site | None:
        return Site(frame.f_code, frame.f_lasti, read) if frame.f_code.co_filename.startswith(PLACES) else None

    def wrapped_reader(kind: type[Any], name: str) -> Callable[..., Any]:
        original = originals[kind, name]

        def read(self: Any, *args: Any) -> Any:
            db = self._db if kind is Table else args[0]
            site = site_of(sys._getframe(1), f"table {self.name}.{name}")
            if site is None or db._reads is None:
                return original(self, *args)
            return around(site, db, lambda: original(self, *args))

        return read

    def wrapped_call(self: Any, db: Any, *args: Any) -> Any:
        site = site_of(sys._getframe(1), self.__name__)
        if site is None or db._reads is None:
            return call(self, db, *args)
        return around(site, db, lambda: call(self, db, *args))

    for kind, name in READERS:
        setattr(kind, name, wrapped_reader(kind, name))
    Derivation.__call__ = wrapped_call  # type: ignore[method-assign]
    try:
        yield
    finally:
        for (kind, name), original in originals.items():
            setattr(kind, name, original)
        Derivation.__call__ = call  # type: ignore[method-assign]


@contextlib.contextmanager
def recorded(found: set[Site]) -> Iterator[None]:
    """Add every site that is passed."""

    def around(site: Site, db: Any, read: Callable[[], Any]) -> Any:
        found.add(site)
        return read()

    with intercepted(around):
        yield


@contextlib.contextmanager
def untracked(wrong: Site) -> Iterator[None]:
    """The reads of one site leave no trace, as if they went past the database."""

    def around(site: Site, db: Any, read: Callable[[], Any]) -> Any:
        if site != wrong:
            return read()
        tracked, db._reads = db._reads, {}
        try:
            return read()
        finally:
            db._reads = tracked

    with intercepted(around):
        yield


def read_courses(count: int, steps: int) -> list[Course]:
    """Random edits of fixed seeds, half of them under settings that make more of the mesh matter."""
    return [lived_course(f"reads {number}", steps, FLAGS if number % 2 else {}) for number in range(count)]


def sites_of(courses: Iterable[Course]) -> set[Site]:
    """The reads of tables that are made in these courses."""
    found: set[Site] = set()
    with recorded(found):
        for course in courses:
            assert first_wrong(course) is None
    return {site for site in found if site.of_table}


def noticed(site: Site, courses: Iterable[Course]) -> bool:
    """Whether some course comes out wrong when the reads of the site are not tracked."""
    with untracked(site):
        return any(first_wrong(course) is not None for course in courses)
