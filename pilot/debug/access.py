"""Access control for remote callers of debug pages.

Callers from the control plane's namespace can access all pages. Other callers can only access pages about proxies in
their own namespace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pilot.debug.page import Refused
from pilot.debug.sources import ConnectedProxy, Fleet, Sources
from pilot.derive import Node
from pilot.envoy.resource import Resource
from pilot.lib.spiffe import parse_identity

NAMESPACED_PAGES = frozenset({"/debug/config_dump", "/debug/ndsz", "/debug/edsz"})


class _OwnFleet(NamedTuple):
    """The connected proxies of one namespace. Proxies of other namespaces are hidden."""

    fleet: Fleet
    namespace: str

    @property
    def version(self) -> str:
        return self.fleet.version

    def connections(self) -> Sequence[ConnectedProxy]:
        return [connection for connection in self.fleet.connections() if connection.proxy.namespace == self.namespace]

    def readers(self, nodes: Iterable[Node]) -> Iterator[tuple[str, Collection[ConnectedProxy]]]:
        raise Refused(403, "")

    def push_all(self) -> int:
        raise Refused(403, "")

    def disconnect(self, connection_id: str) -> None:
        raise Refused(403, "")

    def cached_resources(self) -> Mapping[str, Sequence[Mapping[str, Resource]]]:
        raise Refused(403, "")

    def clear_cache(self) -> None:
        raise Refused(403, "")


def is_trusted(sources: Sources, identities: Sequence[str]) -> bool:
    """Return whether a caller with these identities may access everything.

    Callers in the control plane's namespace, and in the namespaces that the settings allow, are trusted. If the
    settings do not restrict access, every authenticated caller is trusted.
    """
    settings = sources.settings
    namespaces = {sources.db.settings.registry.namespace, *settings.allowed_namespaces}
    return bool(identities) and (not settings.endpoint_auth or not namespaces.isdisjoint(_namespaces(identities)))


def tenant_of(sources: Sources, identities: Sequence[str]) -> str | None:
    """Return the namespace of a caller with limited access, or "" if it has none. Return None for a trusted caller."""
    return None if is_trusted(sources, identities) else next(iter(_namespaces(identities)), "")


def visible_sources(sources: Sources, identities: Sequence[str]) -> Sources:
    """Return the sources that are visible to a caller with these identities.

    Raise Refused with status 401 if there are no identities, or 403 if none of them has a namespace.
    """
    if not identities:
        raise Refused(401, "")
    if is_trusted(sources, identities):
        return sources
    namespaces = _namespaces(identities)
    if not namespaces:
        raise Refused(403, "")
    return dataclasses.replace(sources, fleet=_OwnFleet(sources.fleet, namespaces[0]))


def sources_for(sources: Sources, path: str, identities: Sequence[str]) -> Sources:
    """Return the sources of a page that are visible to a caller with these identities.

    Raise Refused with status 401 if there are no identities, or 403 if the caller may not access the page.
    """
    visible = visible_sources(sources, identities)
    if visible is not sources and path not in NAMESPACED_PAGES:
        raise Refused(403, "")
    return visible


def _namespaces(identities: Sequence[str]) -> list[str]:
    return [parsed.namespace for identity in identities if (parsed := parse_identity(identity)) is not None]
