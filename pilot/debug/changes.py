"""The last changes of the configuration, and how far each of them has been delivered to the proxies."""

from __future__ import annotations

import dataclasses
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol

KEPT, KEPT_ENDPOINTS = 200, 50
"""Maximum number of changes that are kept, and of changes that only affect endpoints."""
LISTED = 20
"""Maximum number of objects that are listed for a change."""


class ChangedObject(NamedTuple):
    """An object that a change added, updated or deleted.

    `source` is the file or the other source that provides the object, or "" if it was deleted.
    """

    action: Literal["add", "update", "delete", "change"]
    group: str
    kind: str
    namespace: str
    name: str
    source: str = ""


class Delivery(Protocol):
    """The delivery of a change to proxies: the numbers of affected proxies and of each response, and the seconds since
    the commit until the last of them, and until 99 percent of them, had responded."""

    @property
    def proxies(self) -> int: ...
    @property
    def acknowledged(self) -> int: ...
    @property
    def nacked(self) -> int: ...
    @property
    def disconnected(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def seconds_99(self) -> float: ...


@dataclasses.dataclass
class Change:
    """A committed change. `objects` are at most `LISTED` of `total` objects.

    `delivery` is None if no proxy is affected, or before the delivery has ended. `shown` is the JSON object after that.
    """

    number: int
    time: float
    objects: Sequence[ChangedObject]
    total: int
    endpoints: int
    proxies: int
    delivery: Delivery | None = None
    shown: dict[str, Any] | None = None


def _nothing(number: int) -> None:
    """Return None. This is the default if deliveries are not tracked."""


class ChangeLog:
    """The last changes, newest first. `progress` returns the delivery of a change that has not ended."""

    def __init__(
        self, progress: Callable[[int], Delivery | None] = _nothing, now: Callable[[], float] = time.time
    ) -> None:
        self._progress, self._now = progress, now
        self._changes: OrderedDict[int, Change] = OrderedDict()
        self._endpoint_changes: OrderedDict[int, Change] = OrderedDict()
        self.number = 0
        """The number of the last change."""

    def record(self, number: int, objects: Sequence[ChangedObject], total: int, endpoints: int, proxies: int) -> None:
        """Record a change of `total` objects and `endpoints` Pods and EndpointSlices that affects some proxies."""
        changes, limit = (self._changes, KEPT) if total else (self._endpoint_changes, KEPT_ENDPOINTS)
        changes[number] = Change(number, self._now(), objects, total, endpoints, proxies)
        self.number = number
        if len(changes) > limit:
            changes.popitem(last=False)

    def finish(self, number: int, delivery: Delivery) -> None:
        """Record that the delivery of a change has ended."""
        change = self._changes.get(number) or self._endpoint_changes.get(number)
        if change is not None:
            change.delivery = delivery

    def __iter__(self) -> Iterator[Change]:
        return iter(sorted((*self._changes.values(), *self._endpoint_changes.values()), key=lambda c: -c.number))

    def plain(self, change: Change) -> dict[str, Any]:
        """Return a change as a JSON object."""
        if change.shown is not None:
            return change.shown
        delivery = change.delivery or self._progress(change.number)
        shown: dict[str, Any] = {
            "number": change.number,
            "time": change.time,
            "objects": [o._asdict() for o in change.objects],
            "total": change.total,
            "endpoints": change.endpoints,
            "proxies": change.proxies,
            "done": change.delivery is not None or not change.proxies,
        }
        if delivery is not None:
            shown |= {
                "acknowledged": delivery.acknowledged,
                "refused": delivery.nacked,
                "gone": delivery.disconnected,
                "seconds": delivery.seconds,
                "p99": delivery.seconds_99,
            }
        if shown["done"]:
            change.shown = shown
        return shown
