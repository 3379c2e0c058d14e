"""The last changes of the configuration, and how far each of them has been delivered to the proxies."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef, Problem, plain_problem
from pilot.debug.field_changes import FieldChange
from pilot.lib.xds_types import short_name

KEPT, KEPT_ENDPOINTS = 200, 50
"""Maximum number of changes that are kept, and of changes that only affect endpoints."""
LISTED = 20
"""Maximum number of objects that are listed for a change."""


class ChangedObject(NamedTuple):
    """An object that a change added, updated or deleted.

    `source` is the file or the other source that provides the object, or "" if it was deleted. `generation` and
    `manager` are those of the API server: the last client that wrote the specification. They are 0 and "" if unknown.
    `fields` are the first fields whose values differ, if the change has updated the object.
    """

    action: Literal["add", "update", "delete", "change"]
    group: str
    kind: str
    namespace: str
    name: str
    source: str = ""
    generation: int = 0
    manager: str = ""
    fields: tuple[FieldChange, ...] = ()

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(GroupKind(self.group, self.kind), self.namespace, self.name)


class Delivery(Protocol):
    """The delivery of a change to proxies: the numbers of proxies whose configuration was computed again, of those
    among them for which it came out equal, and of each response, and the seconds since the commit until all, 99 percent
    and half of the affected ones had responded."""

    @property
    def proxies(self) -> int: ...
    @property
    def unchanged(self) -> int: ...
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
    @property
    def seconds_50(self) -> float: ...


@dataclasses.dataclass(slots=True)
class Cost:
    """Derivations that ran, messages that were written, and their bytes by type URL."""

    derivations: int = 0
    messages: int = 0
    bytes: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, other: Cost) -> None:
        self.derivations += other.derivations
        self.messages += other.messages
        for type_url, size in other.bytes.items():
            self.bytes[type_url] = self.bytes.get(type_url, 0) + size

    def plain(self) -> dict[str, Any]:
        """Return the cost as a JSON object, in which types have short names."""
        sizes: dict[str, int] = {}
        for type_url, size in self.bytes.items():
            name = short_name(type_url)
            sizes[name] = sizes.get(name, 0) + size
        return {"derivations": self.derivations, "messages": self.messages, "bytes": sizes}


@dataclasses.dataclass
class Change:
    """A committed change. `objects` are at most `LISTED` of `total` objects and `endpoints` Pods and EndpointSlices,
    which come last.

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
    cost: Cost = dataclasses.field(default_factory=Cost)


def _nothing(number: int) -> None:
    """Return None. This is the default if deliveries are not tracked."""


class ChangeLog:
    """The last changes, newest first, and what they made the control plane compute and write.

    `progress` returns the delivery of a change that has not ended. `requests` is the cost of what proxies requested,
    such as their first configuration. `others` is that of changes that are not kept. The sum of all costs is that of
    everything that was written. A response that several changes caused belongs to the last of them.
    """

    def __init__(
        self, progress: Callable[[int], Delivery | None] = _nothing, now: Callable[[], float] = time.time
    ) -> None:
        self._progress, self._now = progress, now
        self._changes: OrderedDict[int, Change] = OrderedDict()
        self._endpoint_changes: OrderedDict[int, Change] = OrderedDict()
        self.requests, self.others = Cost(), Cost()
        self._costs = {0: self.requests}
        self.number = 0
        """The number of the last change."""

    def record(
        self,
        number: int,
        objects: Sequence[ChangedObject],
        total: int,
        endpoints: int,
        proxies: int,
        derivations: int = 0,
    ) -> None:
        """Record a change of `total` objects and `endpoints` Pods and EndpointSlices that affects some proxies."""
        changes, limit = (self._changes, KEPT) if total else (self._endpoint_changes, KEPT_ENDPOINTS)
        cost = self._costs[number] = Cost(derivations)
        changes[number] = Change(number, self._now(), objects, total, endpoints, proxies, cost=cost)
        self.number = number
        if len(changes) > limit:
            oldest, _ = changes.popitem(last=False)
            self.others.add(self._costs.pop(oldest))

    def on_written(self, event: int, type_url: str, size: int) -> None:
        """Record a message that was written for a change, or for a request if `event` is 0."""
        cost = self._costs.get(event, self.others)
        cost.messages += 1
        cost.bytes[type_url] = cost.bytes.get(type_url, 0) + size

    def on_derivations(self, event: int, count: int) -> None:
        """Record derivations that ran for a change, or for a request if `event` is 0."""
        self._costs.get(event, self.others).derivations += count

    def total(self) -> Cost:
        """Return the sum of all costs."""
        total = Cost()
        for cost in (self.requests, self.others, *(change.cost for change in self)):
            total.add(cost)
        return total

    def finish(self, number: int, delivery: Delivery) -> None:
        """Record that the delivery of a change has ended."""
        change = self._changes.get(number) or self._endpoint_changes.get(number)
        if change is not None:
            change.delivery = delivery

    def outcome(self, change: Change) -> Delivery | None:
        """Return the delivery of a change so far, or None if it affects no proxy."""
        return change.delivery or self._progress(change.number)

    def __iter__(self) -> Iterator[Change]:
        return iter(sorted((*self._changes.values(), *self._endpoint_changes.values()), key=lambda c: -c.number))

    def list_plain(self, errors: Iterable[Problem], most: int | None = None) -> list[dict[str, Any]]:
        """Return the last changes as JSON objects, newest first. `errors` are current errors in objects.

        Each change has the errors of its objects that were not changed again.
        """
        by_object: dict[ObjectRef, list[Problem]] = {}
        for problem in errors:
            by_object.setdefault(problem.object, []).append(problem)
        names = {(ref.namespace, ref.name) for ref in by_object}
        shown = []
        for change in itertools.islice(self, most):
            refs = [o.ref for o in change.objects if (o.namespace, o.name) in names]
            of_change = [plain_problem(problem) for ref in refs for problem in by_object.pop(ref, ())]
            shown.append(self.plain(change) | {"errors": of_change[:LISTED]})
        return shown

    def plain(self, change: Change) -> dict[str, Any]:
        """Return a change as a JSON object."""
        return self._plain_delivery(change) | change.cost.plain()

    def _plain_delivery(self, change: Change) -> dict[str, Any]:
        if change.shown is not None:
            return change.shown
        delivery = self.outcome(change)
        shown: dict[str, Any] = {
            "number": change.number,
            "time": change.time,
            "objects": [o._asdict() | {"fields": [field._asdict() for field in o.fields]} for o in change.objects],
            "total": change.total,
            "endpoints": change.endpoints,
            "proxies": change.proxies,
            "done": change.delivery is not None or not change.proxies,
        }
        if delivery is not None:
            shown |= {
                "unchanged": delivery.unchanged,
                "acknowledged": delivery.acknowledged,
                "refused": delivery.nacked,
                "gone": delivery.disconnected,
                "seconds": delivery.seconds,
                "p50": delivery.seconds_50,
                "p99": delivery.seconds_99,
            }
        if shown["done"]:
            change.shown = shown
        return shown
