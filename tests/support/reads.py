"""Tracked reads, found where they are made, and taken away one at a time: an untracked read is a bug that only edits can find."""
from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from pilot.derive import Table
from pilot.derive.graph import Derivation

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORE = str(ROOT / "pilot" / "derive")
PLACES = (str(ROOT / "pilot" / "model"), str(ROOT / "pilot" / "translate"))


class Site(NamedTuple):
    """An instruction that reads: a table, or another derived value. Two calls on one line are two sites."""

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
    originals = {name: getattr(Table, name) for name in ("get", "keys", "all_keys")}
    call = Derivation.__call__

    def site_of(frame: FrameType, read: str) -> Site | None:
        return Site(frame.f_code, frame.f_lasti, read) if frame.f_code.co_filename.startswith(PLACES) else None

    def wrapped_table(name: str) -> Callable[..., Any]:
        original = originals[name]

        def read(self: Any, *args: Any) -> Any:
            site = site_of(sys._getframe(1), f"table {self.name}.{name}")
            if site is None or not self._db._frames:
                return original(self, *args)
            return around(site, self._db, lambda: original(self, *args))

        return read

    def wrapped_call(self: Any, db: Any, *args: Any) -> Any:
        site = site_of(sys._getframe(1), self.__name__)
        if site is None or not db._frames:
            return call(self, db, *args)
        return around(site, db, lambda: call(self, db, *args))

    for name in originals:
        setattr(Table, name, wrapped_table(name))
    Derivation.__call__ = wrapped_call  # type: ignore[method-assign]
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(Table, name, original)
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
        db._frames.append({})
        try:
            return read()
        finally:
            db._frames.pop()

    with intercepted(around):
        yield
