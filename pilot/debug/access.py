"""Which debug pages a caller gets that is not on this machine: all of them from the control plane's own namespace, else those of its own proxies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pilot.debug.page import Refused
from pilot.debug.sources import ConnectedProxy, Fleet, Sources
from pilot.envoy.resource import Resource
from pilot.lib.spiffe import parse_identity

OF_OWN_PROXIES = frozenset({"/debug/config_dump", "/debug/ndsz", "/debug/edsz"})


class _OwnFleet(NamedTuple):
    """The proxies of one namespace. Those of others look as if they were not connected."""

    fleet: Fleet
    namespace: str

    @property
    def version(self) -> str:
        return self.fleet.version

    def connections(self) -> Sequence[ConnectedProxy]:
        return [connection for connection in self.fleet.connections() if connection.proxy.namespace == self.namespace]

    def push_all(self) -> int:
        raise Refused(403, "")

    def disconnect(self, connection_id: str) -> None:
        raise Refused(403, "")

    def cached_resources(self) -> Mapping[str, Sequence[Mapping[str, Resource]]]:
        raise Refused(403, "")

    def clear_cache(self) -> None:
        raise Refused(403, "")


def is_trusted(sources: Sources, identities: Sequence[str]) -> bool:
    """Returns whether somebody with these identities may see everything: who is of the control plane's namespace, or of one that the settings
    allow; everybody who is identified where the settings do not restrict it."""
    settings = sources.settings
    namespaces = {sources.db.settings.registry.namespace, *settings.allowed_namespaces}
    return bool(identities) and (not settings.endpoint_auth or not namespaces.isdisjoint(_namespaces(identities)))


def seen_by(sources: Sources, identities: Sequence[str]) -> Sources:
    """Returns what somebody with these identities may see of the proxies. Refused 401 for nobody, and 403 for who is of no namespace."""
    if not identities:
        raise Refused(401, "")
    if is_trusted(sources, identities):
        return sources
    namespaces = _namespaces(identities)
    if not namespaces:
        raise Refused(403, "")
    return dataclasses.replace(sources, fleet=_OwnFleet(sources.fleet, namespaces[0]))


def sources_for(sources: Sources, path: str, identities: Sequence[str]) -> Sources:
    """Returns what a page may show to somebody with these identities. Refused 401 for nobody, and 403 where the page is not for them."""
    seen = seen_by(sources, identities)
    if seen is not sources and path not in OF_OWN_PROXIES:
        raise Refused(403, "")
    return seen


def _namespaces(identities: Sequence[str]) -> list[str]:
    return [parsed.namespace for identity in identities if (parsed := parse_identity(identity)) is not None]
