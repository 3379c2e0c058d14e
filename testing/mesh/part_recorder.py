"""Stands in for the parts that something is made of, and writes down what is made and done with each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

FOREVER = ("run",)
AWAITED = ("start", "stop", "synced", *FOREVER)


class StandIn:
    """A part: whatever is called is written down. What runs does so until it is cancelled. `elections` returns the locks of a test and what their holders run."""

    def __init__(self, journal: Journal, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.journal, self.name, self.given, self.named = journal, name, given, named
        self.on_change: list[Callable[[], None]] = []
        self.elections: Callable[[], list[Any]] = list

    def __getattr__(self, what: str) -> Any:
        async def work(*given: Any) -> None:
            self.journal.lines.append(f"{self.name}.{what}")
            if what in FOREVER:
                await asyncio.Event().wait()

        def call(*given: Any) -> None:
            self.journal.calls.append((f"{self.name}.{what}", *given))

        return work if what in AWAITED else call


class Journal:
    """What was made, in this order; lines of what began and ended; calls with what they were given."""

    def __init__(self) -> None:
        self.made: list[StandIn] = []
        self.lines: list[str] = []
        self.calls: list[tuple[Any, ...]] = []

    def take_over(self, patch: pytest.MonkeyPatch, module: Any, *names: str) -> None:
        """Has a module make stand-ins of some classes."""
        for name in names:
            patch.setattr(module, name, self._maker(name))

    def spy(self, patch: pytest.MonkeyPatch, module: Any, *names: str) -> None:
        """Notes what a module gives to some classes, which are what they were."""
        for name in names:
            patch.setattr(module, name, self._noting(name, getattr(module, name)))

    def _noting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def make(*given: Any, **named: Any) -> Any:
            self.made.append(StandIn(self, name, given, named))
            return real(*given, **named)

        return make

    def given(self, name: str) -> list[tuple[Any, ...]]:
        """Return what every one of a name was given, in the order in which they were made."""
        return [one.given for one in self.made if one.name == name]

    def _maker(self, name: str) -> Callable[..., StandIn]:
        def make(*given: Any, **named: Any) -> StandIn:
            made = StandIn(self, name, given, named)
            self.made.append(made)
            return made

        return make

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.made]

    def one(self, name: str) -> StandIn:
        [found] = [one for one in self.made if one.name == name]
        return found

    def take_calls(self) -> list[tuple[Any, ...]]:
        """Return the calls since it was asked last."""
        found, self.calls = self.calls, []
        return found
