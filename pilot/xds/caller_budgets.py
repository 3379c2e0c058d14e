"""Limits for what the open streams of a caller hold, so that no caller uses the memory of the others."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pilot.settings.process import ServeSettings
from pilot.xds.session.name_sets import Names
from pilot.xds.session.session import Session


class CallerLimits(NamedTuple):
    """Limits for all open streams of one caller.

    streams: Maximum number of streams.
    held_bytes: Maximum size of their nodes and requested names. A set of names counts once, regardless of the number of
        streams that request it.
    """

    streams: int = 2_000
    held_bytes: int = 32 << 20


DEFAULT_CALLER_LIMITS = CallerLimits()


def caller_limits(settings: ServeSettings) -> CallerLimits:
    """Return the limits in the settings."""
    return CallerLimits(settings.max_caller_streams, settings.max_caller_bytes)


def caller_key(identities: Sequence[str], host: str) -> str:
    """Return the key under which a caller is counted: its verified identity and its address, or only its address.

    The address is part of the key because any number of Pods can have the same identity.
    """
    return f"{identities[0]} {host}" if identities else host


class OverBudget(Exception):
    """A caller exceeds a limit. `args` are the name of the limit in metrics and the message for the caller."""


class CallerStream:
    """A stream's part of what its caller holds."""

    def __init__(self, holdings: _Holdings, limits: CallerLimits) -> None:
        self._holdings, self._limits = holdings, limits
        self._own_bytes = self._node_bytes = 0
        self._names: tuple[Names, ...] = ()

    def hold_node(self, size: int) -> None:
        """Count the stream's node. Raise OverBudget if the caller exceeds its limit."""
        self._node_bytes = size
        self._set_own_bytes(size)
        self._check()

    def hold_names(self, session: Session) -> None:
        """Count the names that the stream requests now. Raise OverBudget if the caller exceeds its limit."""
        subscriptions = session.subscriptions.values()
        self._set_own_bytes(self._node_bytes + sum(subscription.retained_size for subscription in subscriptions))
        names = tuple(subscription.requested for subscription in subscriptions)
        if names != self._names:
            self._holdings.add(names)
            self._holdings.remove(self._names)
            self._names = names
        self._check()

    def _set_own_bytes(self, size: int) -> None:
        """Set the size of what this stream shares with no other."""
        self._holdings.size += size - self._own_bytes
        self._own_bytes = size

    def _check(self) -> None:
        if (size := self._holdings.size) > self._limits.held_bytes:
            raise OverBudget(
                "held_bytes",
                f"the nodes and resource names of all streams of this caller have {size} bytes; at most"
                f" {self._limits.held_bytes} are allowed (PILOT_XDS_MAX_CALLER_BYTES)",
            )

    def close(self) -> None:
        self._set_own_bytes(0)
        self._holdings.remove(self._names)


class _Holdings:
    """The number of open streams of a caller, and the size of what they hold."""

    def __init__(self) -> None:
        self.streams = self.size = 0
        self._uses: Counter[Names] = Counter()

    def add(self, sets: Sequence[Names]) -> None:
        for names in sets:
            if not self._uses[names]:
                self.size += names.size
            self._uses[names] += 1

    def remove(self, sets: Sequence[Names]) -> None:
        for names in sets:
            self._uses[names] -= 1
            if not self._uses[names]:
                del self._uses[names]
                self.size -= names.size


class CallerBudgets:
    """The streams, nodes and names of each caller with open streams. All ports share them."""

    def __init__(self, limits: CallerLimits = DEFAULT_CALLER_LIMITS) -> None:
        self._limits = limits
        self._holdings: dict[str, _Holdings] = {}

    @contextlib.contextmanager
    def stream(self, caller: str) -> Iterator[CallerStream]:
        """Count a stream of a caller while the context is open. Raise OverBudget if the caller has too many streams."""
        holdings = self._holdings.setdefault(caller, _Holdings())
        if holdings.streams >= self._limits.streams:
            raise OverBudget(
                "streams",
                f"this caller has {holdings.streams} open streams; at most {self._limits.streams} are allowed"
                " (PILOT_XDS_MAX_CALLER_STREAMS)",
            )
        holdings.streams += 1
        stream = CallerStream(holdings, self._limits)
        try:
            yield stream
        finally:
            stream.close()
            holdings.streams -= 1
            if not holdings.streams:
                del self._holdings[caller]
