"""The interfaces that debug pages read. The composition root passes in objects that implement them."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pilot.debug.answer_slots import AnswerSlots
from pilot.envoy.resource import Resource
from pilot.lib.build_info import BuildInfo, build_info
from pilot.lib.loop_watchdog import Stall
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.settings.process import DebugSettings

if TYPE_CHECKING:
    from pilot.config.problem import Problem


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


class Fleet(Protocol):
    """The connected proxies. `version` is the version of the last push."""

    @property
    def version(self) -> str: ...
    def connections(self) -> Sequence[ConnectedProxy]: ...
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


@dataclasses.dataclass(frozen=True)
class Sources:
    """Everything that a page may read.

    `problems` returns the current problems in users' objects. `identify` returns the authenticated SPIFFE identities of
    an HTTP caller. Its arguments are the caller's address and the headers, whose names are in lower case. `pod` is the
    name of this Pod, or "". `templates` returns the injection templates keyed by name, or None if injection is
    disabled. `health` returns the findings of the last health check, keyed by metric and key, or None before the first
    check. `slots` limits concurrent responses. `worst_stall` returns the longest recent stall of the event loop, or
    None if there was none.
    """

    db: Mesh
    metrics: Metrics
    fleet: Fleet
    problems: Callable[[], Iterable[Problem]]
    settings: DebugSettings = dataclasses.field(default_factory=DebugSettings)
    identify: Callable[[str, Mapping[str, str]], Awaitable[Sequence[str]]] = nobody
    pod: str = ""
    build: BuildInfo = dataclasses.field(default_factory=build_info)
    templates: Callable[[], Mapping[str, str] | None] = dict
    health: Callable[[], Mapping[str, Mapping[str, Finding]] | None] = _no_health
    slots: AnswerSlots = dataclasses.field(default_factory=AnswerSlots)
    worst_stall: Callable[[], Stall | None] = _no_stall
