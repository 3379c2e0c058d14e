"""The services that Sidecars hide from proxies.

A service is hidden from a proxy if it is exported to the proxy's namespace, but the Sidecar that applies to the proxy
does not import it. All pages and commands that say what a Sidecar hides use this module.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from pilot.config.kinds.istio import SIDECAR
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef, plain_ref
from pilot.debug.slices import collect_all, collect_present
from pilot.debug.sources import Sources
from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.proxies.classify import scope_of
from pilot.mesh.registry.services import refs_by_hostname, service_summary, visible_refs
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import scope_services

MAX_SCOPES = 20
"""Maximum number of Sidecars of a service, and of namespaces of a Sidecar, that are listed."""


class SidecarEffect(NamedTuple):
    """The number of connected proxies in a namespace to which a Sidecar applies, and of the services that they may use
    and that are hidden from them."""

    sidecar: ObjectKey
    namespace: str
    proxies: int
    services: int
    hidden: int

    def plain(self) -> dict[str, Any]:
        """Return the effect as a JSON object."""
        return self._asdict() | {"sidecar": plain_ref(ObjectRef(SIDECAR.id, *self.sidecar))}


def limiting_scope(db: Mesh, key: str) -> ScopeFacet | None:
    """Return the scope of a connected proxy to which a Sidecar applies, or None for other proxies."""
    proxy = db.proxies.peek(key)
    scope = scope_of(db, key) if proxy is not None and proxy.type is NodeType.SIDECAR else None
    return scope if scope is not None and scope.sidecar is not None else None


def effect_on_proxy(db: Mesh, key: str) -> SidecarEffect | None:
    """Return the effect of the Sidecar on a connected proxy, or None if none applies to it."""
    scope = limiting_scope(db, key)
    return _effect(db, scope, 1) if scope is not None else None


def hiding_sidecar(db: Mesh, key: str, host: str) -> ObjectKey | None:
    """Return the Sidecar that hides the services with a host name from a connected proxy, or None if none does."""
    scope = limiting_scope(db, key)
    is_hidden = scope is not None and any(_hides(db, scope, ref) for ref in refs_by_hostname(db, host))
    return scope.sidecar if scope is not None and is_hidden else None


class HidingSidecar(NamedTuple):
    """A Sidecar that hides a service from proxies of a namespace, and their number."""

    sidecar: ObjectRef
    namespace: str
    proxies: int


async def effects_on_service(sources: Sources, ref: ServiceRef) -> list[HidingSidecar]:
    """Return the Sidecars that hide a service."""
    scopes = await _scopes(sources)
    hiding = await collect_present(
        (scope, count) if _hides(sources.db, scope, ref) else None for scope, count in scopes.items()
    )
    return [
        HidingSidecar(ObjectRef(SIDECAR.id, *scope.sidecar), scope.namespace, count)
        for scope, count in hiding[:MAX_SCOPES]
        if scope.sidecar is not None
    ]


async def effects_of_sidecar(sources: Sources, key: ObjectKey) -> list[SidecarEffect]:
    """Return the effects of a Sidecar on the connected proxies of each namespace."""
    scopes = {scope: count for scope, count in (await _scopes(sources)).items() if scope.sidecar == key}
    return (await collect_all(_effect(sources.db, scope, count) for scope, count in scopes.items()))[:MAX_SCOPES]


async def _scopes(sources: Sources) -> Counter[ScopeFacet]:
    """Return the scopes with a Sidecar, and the number of connected proxies of each."""
    keys = (connection.proxy_key for connection in sources.fleet.connections())
    return Counter(await collect_present(limiting_scope(sources.db, key) for key in keys))


def _effect(db: Mesh, scope: ScopeFacet, proxies: int) -> SidecarEffect:
    hosts = {ref.hostname for ref in visible_refs(db, scope.namespace)}
    hidden = len(hosts - scope_services(db, scope).keys())
    return SidecarEffect(scope.sidecar or ObjectKey("", ""), scope.namespace, proxies, len(hosts) - hidden, hidden)


def _hides(db: Mesh, scope: ScopeFacet, ref: ServiceRef) -> bool:
    summary = service_summary(db, ref)
    is_exported = summary is not None and summary.is_visible_from(scope.namespace)
    return is_exported and ref.hostname not in scope_services(db, scope)
