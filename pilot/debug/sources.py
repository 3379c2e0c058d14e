"""The interfaces that debug pages read. The composition root passes in objects that implement them."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from pilot.debug.answer_slots import AnswerSlots
from pilot.debug.changes import ChangeLog
from pilot.debug.history import History
from pilot.envoy.resource import Resource
from pilot.lib.build_info import BuildInfo, build_info
from pilot.lib.loop_watchdog import Stall
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.settings.process import DebugSettings

if TYPE_CHECKING:
    from pilot.config.problem import ObjectRef, Problem
    from pilot.derive import Node

DeliveryState = Literal["waiting", "sent", "done"]
"""State of a change on a stream: not completely sent, not completely answered, or neither."""


class Finding(NamedTuple):
    """An anomaly. A metric counts each key once. `proxy` is the ID of an affected proxy, or "" if there is none."""

    metric: str
    key: str
    proxy: str = ""
    message: str = ""


class WatchedType(Protocol):
    """A proxy's subscription to one type.

    `names` are the subscribed names, with "*" for a wildcard. `wildcard_names` are the names that were sent for a delta
    wildcard subscription. `sent_at` is the time of the last response in Unix seconds, or 0 before the first one.
    `last_error` is the message of the last NACK, and an ACK clears it. The nonces and `last_error` are "" if not set.
    `rejected_since` is the time of the first of the responses that were rejected in succession.
    """

    @property
    def names(self) -> Collection[str]: ...
    @property
    def wildcard_names(self) -> Collection[str]: ...
    @property
    def nonce_sent(self) -> str: ...
    @property
    def nonce_acked(self) -> str: ...
    @property
    def sent_at(self) -> float: ...
    @property
    def last_error(self) -> str: ...
    @property
    def rejected_since(self) -> float: ...


class ConnectedProxy(Protocol):
    """The stream of a proxy.

    `id` is `<proxy id>-<number>`, and `proxy_key` is the key of the proxy's row in `Mesh.proxies`. `connected_at` is in
    Unix seconds. `subscriptions` is keyed by type URL. `activity` changes whenever something is sent or received.
    """

    @property
    def id(self) -> str: ...
    @property
    def proxy_key(self) -> str: ...
    @property
    def proxy(self) -> Proxy: ...
    @property
    def address(self) -> str: ...
    @property
    def connected_at(self) -> float: ...
    @property
    def subscriptions(self) -> Mapping[str, WatchedType]: ...
    @property
    def activity(self) -> int: ...
    @property
    def last_event(self) -> int:
        """The number of the last change before the stream."""

    @property
    def has_started(self) -> bool:
        """True if the proxy has responded to its first configuration."""

    def delivery(self, event: int) -> DeliveryState:
        """Return the state of a change on this stream. If the event is 0, return that of all changes."""

    def refusal(self, event: int) -> str:
        """Return the reason for which the proxy has refused a change, or "" if it has not refused it."""

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes of all resource groups that the proxy receives."""


class CommittedObject(NamedTuple):
    """An object, and the last change of it.

    exists: Whether a source declares it.
    is_current: Whether the tables have the version of the source.
    is_ignored: Whether the control plane ignores it because of its namespace.
    generation, uid, manager: Its version in the API server, and the last client that wrote it. They are 0 and "" if it
    is not current or from another source.
    event: The number of the last change of it, or 0 if there was none.
    is_new: Whether the last change has added it, so that no proxy has an earlier version.
    is_forgotten: Whether `event` is unknown, because too many other objects have changed since then.
    fingerprint: A digest of what the version in the tables specifies, or "" if there is none.
    """

    exists: bool
    is_current: bool
    is_ignored: bool
    generation: int
    uid: str
    manager: str
    event: int
    is_new: bool
    is_forgotten: bool
    fingerprint: str


class Fleet(Protocol):
    """The connected proxies. `version` is the version of the last push."""

    @property
    def version(self) -> str: ...
    def connections(self) -> Sequence[ConnectedProxy]: ...
    def readers(self, nodes: Iterable[Node]) -> Iterator[tuple[str, Collection[ConnectedProxy]]]:
        """Yield a type URL and the connections whose resources of the type are computed from some of the nodes.

        The type URL is "" for connections of which the nodes determine what resources they receive.
        """

    def push_all(self) -> int:
        """Push everything to all proxies again, and return the number of proxies."""

    def disconnect(self, connection_id: str) -> None:
        """Close a stream."""

    def cached_resources(self) -> Mapping[str, Sequence[Mapping[str, Resource]]]:
        """Return the groups of cached serialized resources for each type URL. A group is keyed by resource name."""

    def clear_cache(self) -> None:
        """Drop cached resources that no connected proxy uses."""


async def nobody(address: str, headers: Mapping[str, str]) -> Sequence[str]:
    """Return no identities."""
    return ()


def _no_health() -> None:
    """Return None. This is the default if health checks are disabled."""


def _no_stall() -> None:
    """Return None. This is the default if the event loop is not watched."""


class ProblemList(Protocol):
    """The current problems. `revision` changes whenever the problems change."""

    @property
    def revision(self) -> int: ...
    def __iter__(self) -> Iterator[Problem]: ...
    def __len__(self) -> int: ...


def _no_object(ref: ObjectRef) -> CommittedObject | None:
    """Return None. This is the default if the changes of objects are not tracked."""
    return None


def _no_document(ref: ObjectRef) -> str:
    """Return "". This is the default if the origins of objects are unknown."""
    return ""


def _no_lines(path: str, fields: Collection[tuple[ObjectRef, str]]) -> Mapping[tuple[ObjectRef, str], int]:
    """Return no lines. This is the default if the origins of objects are unknown."""
    return {}


def _no_text(path: str, ref: ObjectRef) -> tuple[int, str]:
    """Return no text. This is the default if the origins of objects are unknown."""
    return 0, ""


@dataclasses.dataclass(frozen=True)
class Sources:
    """Everything that a page may read.

    `problems` returns the current problems in users' objects. `identify` returns the authenticated SPIFFE identities of
    an HTTP caller. Its arguments are the caller's address and the headers, whose names are in lower case. `pod` is the
    name of this Pod, or "". `templates` returns the injection templates keyed by name, or None if injection is
    disabled. `health` returns the findings of the last health check, keyed by metric and key, or None before the first
    check. `slots` limits concurrent responses. `worst_stall` returns the longest recent stall of the event loop, or
    None if there was none. `changes` and `history` are records of the recent past. `find_object` returns an object with
    its last change, or None if its kind is unknown. `document_of` returns the file that provides an object or the name
    of its other source, or "" if it is unknown. `find_lines` returns the lines of fields of objects in such a file, and
    `read_text` the text of an object and the number of its first line, or (0, ""). Both read the file, so they must be
    called in a thread.
    """

    db: Mesh
    metrics: Metrics
    fleet: Fleet
    problems: Callable[[], ProblemList]
    settings: DebugSettings = dataclasses.field(default_factory=DebugSettings)
    identify: Callable[[str, Mapping[str, str]], Awaitable[Sequence[str]]] = nobody
    pod: str = ""
    build: BuildInfo = dataclasses.field(default_factory=build_info)
    templates: Callable[[], Mapping[str, str] | None] = dict
    health: Callable[[], Mapping[str, Mapping[str, Finding]] | None] = _no_health
    slots: AnswerSlots = dataclasses.field(default_factory=AnswerSlots)
    worst_stall: Callable[[], Stall | None] = _no_stall
    changes: ChangeLog = dataclasses.field(default_factory=ChangeLog)
    history: History = dataclasses.field(default_factory=History)
    find_object: Callable[[ObjectRef], CommittedObject | None] = _no_object
    document_of: Callable[[ObjectRef], str] = _no_document
    find_lines: Callable[[str, Collection[tuple[ObjectRef, str]]], Mapping[tuple[ObjectRef, str], int]] = _no_lines
    read_text: Callable[[str, ObjectRef], tuple[int, str]] = _no_text
