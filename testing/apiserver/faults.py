"""Everything that goes wrong between a control plane and an API server, when a test asks for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Literal

from testing.apiserver.request_info import Asked
from testing.apiserver.status_error import Refusal

End = Literal["close", "abort", "half a line", "expired"]
"""How a watch ends: by the server, by a lost connection, within a line, or with an event that says 410."""
Concerns = Callable[[Asked], bool]


def everything(_: Asked) -> bool:
    return True


class OpenWatch:
    """A watch that somebody reads now. `end` says how it is to end, `woken` wakes it."""

    def __init__(self, asked: Asked) -> None:
        self.asked, self.woken = asked, asyncio.Event()
        self.end: End | None = None
        self.bookmark = False


class Faults:
    """What is to go wrong. Refusals and delays are used up, each by one request; the rest holds until it is set back."""

    def __init__(self) -> None:
        self._refusals: list[tuple[Concerns, Refusal]] = []
        self._delays: list[tuple[Concerns, float]] = []
        self.disorder: random.Random | None = None
        self.no_watch_lists = False
        self.silent = False
        self.watches: set[OpenWatch] = set()

    def refuse(
        self,
        code: int,
        times: int = 1,
        concerns: Concerns = everything,
        retry_after: int | None = None,
        reason: str = "",
    ) -> None:
        """Refuse the next requests that it concerns."""
        self._refusals += [
            (concerns, Refusal(code, f"refused by a fault ({code})", reason, retry_after=retry_after))
        ] * times

    def delay(self, seconds: float, times: int = 1, concerns: Concerns = everything) -> None:
        """Has the next requests that it concerns wait."""
        self._delays += [(concerns, seconds)] * times

    def end_watches(self, how: End, concerns: Concerns = everything) -> int:
        """End the open watches that it concerns; returns how many they are."""
        ended = [watch for watch in self.watches if concerns(watch.asked)]
        for watch in ended:
            watch.end = how
            watch.woken.set()
        return len(ended)

    def bookmark(self) -> None:
        """Has every open watch send a bookmark that takes them."""
        for watch in self.watches:
            watch.bookmark = True
            watch.woken.set()

    def forget(self) -> None:
        """Take back the refusals and delays that nobody has met."""
        self._refusals.clear()
        self._delays.clear()

    async def meet(self, asked: Asked) -> None:
        """Lets a request meet what is to happen to it."""
        for index, (concerns, seconds) in enumerate(self._delays):
            if concerns(asked):
                del self._delays[index]
                await asyncio.sleep(seconds)
                break
        for index, (concerns, refusal) in enumerate(self._refusals):
            if concerns(asked):
                del self._refusals[index]
                raise refusal

    def disturb(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines of a watch that are told together, some of them twice and in another order where there is disorder."""
        if self.disorder is None:
            return lines
        told = [line for line in lines for _ in range(self.disorder.choice((1, 1, 2)))]
        self.disorder.shuffle(told)
        return told

    @property
    def spent(self) -> bool:
        """Return whether every refusal and delay has been met."""
        return not self._refusals and not self._delays
