"""Fakes for the parts that a component creates, which record how they are created and called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

BLOCKING = ("run",)
AWAITED = ("start", "stop", "synced", *BLOCKING)


class FakePart:
    """A fake part that records calls.

    Methods in BLOCKING run until cancelled. `elections` returns a test's locks and the work of their holders.
    """

    def __init__(self, journal: PartRecorder, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.journal, self.name, self.args, self.kwargs = journal, name, args, kwargs
        self.on_change: list[Callable[[], None]] = []
        self.elections: Callable[[], list[Any]] = list

    def __getattr__(self, method: str) -> Any:
        async def work(*args: Any) -> None:
            self.journal.lines.append(f"{self.name}.{method}")
            if method in BLOCKING:
                await asyncio.Event().wait()

        def call(*args: Any) -> None:
            self.journal.calls.append((f"{self.name}.{method}", *args))

        return work if method in AWAITED else call


class PartRecorder:
    """Records created parts in order, lines for starts and stops, and calls with their arguments."""

    def __init__(self) -> None:
        self.parts: list[FakePart] = []
        self.lines: list[str] = []
        self.calls: list[tuple[Any, ...]] = []

    def replace_classes(self, patch: pytest.MonkeyPatch, module: Any, *names: str) -> None:
        """Replace classes of a module by fakes."""
        for name in names:
            patch.setattr(module, name, self._fake_factory(name))

    def spy(self, patch: pytest.MonkeyPatch, module: Any, *names: str) -> None:
        """Record the arguments that a module passes to real classes."""
        for name in names:
            patch.setattr(module, name, self._recording_factory(name, getattr(module, name)))

    def _recording_factory(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def create(*args: Any, **kwargs: Any) -> Any:
            self.parts.append(FakePart(self, name, args, kwargs))
            return real(*args, **kwargs)

        return create

    def args_of(self, name: str) -> list[tuple[Any, ...]]:
        """Return the arguments of every part with this name, in order of creation."""
        return [part.args for part in self.parts if part.name == name]

    def _fake_factory(self, name: str) -> Callable[..., FakePart]:
        def create(*args: Any, **kwargs: Any) -> FakePart:
            part = FakePart(self, name, args, kwargs)
            self.parts.append(part)
            return part

        return create

    @property
    def names(self) -> list[str]:
        return [part.name for part in self.parts]

    def part(self, name: str) -> FakePart:
        """Return the only part with this name."""
        [match] = [part for part in self.parts if part.name == name]
        return match

    def pop_calls(self) -> list[tuple[Any, ...]]:
        """Return, and forget, the recorded calls."""
        calls, self.calls = self.calls, []
        return calls
