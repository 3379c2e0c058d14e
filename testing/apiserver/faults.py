"""Faults between a control plane and an API server, injected on demand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Literal

from testing.apiserver.request_info import RequestInfo
from testing.apiserver.status_error import StatusError

WatchEnd = Literal["close", "abort", "half a line", "expired"]
"""End of a watch: closed by the server, lost connection, cut within a line, or an ERROR event with 410 Gone."""
RequestMatch = Callable[[RequestInfo], bool]


def any_request(_: RequestInfo) -> bool:
    return True


class ActiveWatch:
    """An open watch. `end` is the requested end; `wakeup` makes the watch look at it."""

    def __init__(self, info: RequestInfo) -> None:
        self.info, self.wakeup = info, asyncio.Event()
        self.end: WatchEnd | None = None
        self.bookmark = False


class Faults:
    """The faults to inject. Each refusal and delay affects one request; the rest stays in force until it is reset."""

    def __init__(self) -> None:
        self._refusals: list[tuple[RequestMatch, StatusError]] = []
        self._delays: list[tuple[RequestMatch, float]] = []
        self.disorder: random.Random | None = None
        self.no_watch_lists = False
        self.silent = False
        self.watches: set[ActiveWatch] = set()

    def refuse(
        self,
        code: int,
        times: int = 1,
        matching: RequestMatch = any_request,
        retry_after: int | None = None,
        reason: str = "",
    ) -> None:
        """Refuse the next matching requests."""
        self._refusals += [
            (matching, StatusError(code, f"refused by a fault ({code})", reason, retry_after=retry_after))
        ] * times

    def delay(self, seconds: float, times: int = 1, matching: RequestMatch = any_request) -> None:
        """Delay the next matching requests."""
        self._delays += [(matching, seconds)] * times

    def end_watches(self, how: WatchEnd, matching: RequestMatch = any_request) -> int:
        """End the matching open watches, and return their number."""
        watches = [watch for watch in self.watches if matching(watch.info)]
        for watch in watches:
            watch.end = how
            watch.wakeup.set()
        return len(watches)

    def bookmark(self) -> None:
        """Have every open watch that allows bookmarks send one."""
        for watch in self.watches:
            watch.bookmark = True
            watch.wakeup.set()

    def clear(self) -> None:
        """Drop the refusals and delays that no request has met yet."""
        self._refusals.clear()
        self._delays.clear()

    async def apply(self, info: RequestInfo) -> None:
        """Apply the next matching delay and refusal to a request."""
        for index, (matching, seconds) in enumerate(self._delays):
            if matching(info):
                del self._delays[index]
                await asyncio.sleep(seconds)
                break
        for index, (matching, refusal) in enumerate(self._refusals):
            if matching(info):
                del self._refusals[index]
                raise refusal

    def disorder_lines(self, lines: list[bytes]) -> list[bytes]:
        """Return lines that a watch is about to send, shuffled and some of them twice if `disorder` is set."""
        if self.disorder is None:
            return lines
        disordered = [line for line in lines for _ in range(self.disorder.choice((1, 1, 2)))]
        self.disorder.shuffle(disordered)
        return disordered

    @property
    def spent(self) -> bool:
        """Return whether every refusal and delay has been applied."""
        return not self._refusals and not self._delays
