"""Aliases, which are Kubernetes Services of type ExternalName. Proxies treat an alias like the service that it refers
to."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.kinds.kubernetes import SERVICE
from pilot.derive import derived, hub
from pilot.mesh.model.service import Resolution, ServiceRef
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh


@hub
def external_names(db: Mesh) -> tuple[ServiceRef, ...]:
    """Return the Kubernetes Services of type ExternalName."""
    keys = SERVICE.keys(db, "external", True)
    return tuple(
        ServiceRef(kubernetes_hostname(key.name, key.namespace, db.settings.registry.domain), key.namespace)
        for key in keys
    )


@hub
def _targets(db: Mesh) -> Mapping[str, str]:
    """Return the target hostname of each alias."""
    services = ((ref.hostname, service(db, ref)) for ref in external_names(db))
    return {
        hostname: alias.external_name
        for hostname, alias in services
        if alias is not None and alias.resolution is Resolution.ALIAS
    }


@hub
def aliases(db: Mesh) -> Mapping[str, tuple[ServiceRef, ...]]:
    """Return the aliases of each hostname that has aliases, sorted by namespace and name.

    Chains of aliases are resolved to the final hostname. Aliases whose chain contains a cycle are omitted.
    """
    targets = _targets(db)
    refs_by_hostname: dict[str, list[ServiceRef]] = {}
    for ref in sorted(external_names(db), key=lambda alias: (alias.namespace, alias.hostname)):
        concrete = _follow(targets, ref.hostname) if ref.hostname in targets else None
        if concrete is not None:
            refs_by_hostname.setdefault(concrete, []).append(ref)
    return {hostname: tuple(refs) for hostname, refs in refs_by_hostname.items()}


def _follow(targets: Mapping[str, str], hostname: str) -> str | None:
    """Return the final hostname that an alias resolves to, or None if its chain of aliases contains a cycle."""
    visited: set[str] = set()
    while hostname in targets:
        if hostname in visited:
            return None
        visited.add(hostname)
        hostname = targets[hostname]
    return hostname


@derived
def is_circular_alias(db: Mesh, hostname: str) -> bool:
    """Return True if the chain of aliases that starts at a hostname contains a cycle."""
    return _follow(_targets(db), hostname) is None


@derived
def service_aliases(db: Mesh, hostname: str) -> tuple[ServiceRef, ...]:
    """Return the aliases of a hostname."""
    return aliases(db).get(hostname, ())
