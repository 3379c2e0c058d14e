"""What the pages show, as they need to see it: the composition root hands in the objects of the layers beside this one."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from pilot.envoy.resource import Resource
from pilot.lib.build_info import BuildInfo, build_info
from pilot.lib.metrics import Metrics
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.tables.database import Mesh
from pilot.settings.process import DebugSettings

if TYPE_CHECKING:
    from pilot.config.problem import Problem
    from pilot.debug.health_findings import Finding


class WatchedType(Protocol):
    """Says what a proxy subscribes to of one type. `names` is as the proxy asked, with "*" where it wants all; `known` are the names
    of what it has of all of them, in the variant that sends changes alone; `sent_at` is
    Unix seconds, 0 before the first response; nonces and `last_error` (of the last NACK, cleared by an ACK) are "" where there is none."""

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
    """One stream. `id` is `<proxy id>-<number>`, `proxy_key` the key of its row in `Mesh.proxies`, `connected_at` Unix seconds,
    `watches` by type URL. `activity` is another number whenever something was sent or received since."""

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
    """The connected proxies. `version` is that of the last push."""

    @property
    def version(self) -> str: ...
    def connections(self) -> Sequence[ConnectedProxy]: ...
    def push_all(self) -> int:
        """Sends everything to everybody again; returns the number of proxies."""

    def disconnect(self, connection_id: str) -> None:
        """Ends one stream."""

    def cached_resources(self) -> Mapping[str, Sequence[Mapping[str, Resource]]]:
        """Returns the serialized resources that are kept for the connected proxies: by type URL groups of them, by name."""

    def clear_cache(self) -> None:
        """Gives up what is kept for proxies that are gone."""


async def nobody(address: str, headers: Mapping[str, str]) -> Sequence[str]:
    """Returns no identities: nobody is known."""
    return ()


def _not_looked() -> None:
    """Returns None: nobody looks at the health of the mesh."""


@dataclasses.dataclass(frozen=True)
class Sources:
    """Everything that a page may read. `problems` gives the current ones of users' objects. `identify` returns the SPIFFE identities that a caller
    over HTTP has proved, by its address and its headers, whose names are in lower case. `pod` is this pod's name, "" where it has none.
    `templates` returns the texts of injection by their names, None where there is no injection. `health` returns what was found by metric and
    key when the mesh was looked at last, None before the first time."""

    db: Mesh
    metrics: Metrics
    fleet: Fleet
    problems: Callable[[], Iterable[Problem]]
    settings: DebugSettings = dataclasses.field(default_factory=DebugSettings)
    identify: Callable[[str, Mapping[str, str]], Awaitable[Sequence[str]]] = nobody
    pod: str = ""
    build: BuildInfo = dataclasses.field(default_factory=build_info)
    templates: Callable[[], Mapping[str, str] | None] = dict
    health: Callable[[], Mapping[str, Mapping[str, Finding]] | None] = _not_looked
