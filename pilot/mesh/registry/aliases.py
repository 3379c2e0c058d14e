"""Kubernetes Services of type ExternalName: other names of services. A proxy answers to an alias as it does to the service."""

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
    """Returns the Kubernetes Services whose type is ExternalName."""
    keys = SERVICE.keys(db, "external", True)
    return tuple(
        ServiceRef(kubernetes_hostname(key.name, key.namespace, db.settings.registry.domain), key.namespace)
        for key in keys
    )


@hub
def _targets(db: Mesh) -> Mapping[str, str]:
    """Returns what each alias names: host name by host name."""
    found = ((ref.hostname, service(db, ref)) for ref in external_names(db))
    return {hostname: s.external_name for hostname, s in found if s is not None and s.resolution is Resolution.ALIAS}


@hub
def aliases(db: Mesh) -> Mapping[str, tuple[ServiceRef, ...]]:
    """Returns the aliases of every host name that has any, by namespace and name. An alias of an alias is one of what that leads to; one that leads
    back to itself leads nowhere."""
    targets = _targets(db)
    out: dict[str, list[ServiceRef]] = {}
    for ref in sorted(external_names(db), key=lambda r: (r.namespace, r.hostname)):
        concrete = _follow(targets, ref.hostname) if ref.hostname in targets else None
        if concrete is not None:
            out.setdefault(concrete, []).append(ref)
    return {hostname: tuple(refs) for hostname, refs in out.items()}


def _follow(targets: Mapping[str, str], hostname: str) -> str | None:
    """Returns what a host name leads to in the end, None if it leads to itself, or into a circle."""
    seen: set[str] = set()
    while hostname in targets:
        if hostname in seen:
            return None
        seen.add(hostname)
        hostname = targets[hostname]
    return hostname


@derived
def leads_back(db: Mesh, hostname: str) -> bool:
    """Returns whether an alias leads to itself, or into a circle of others."""
    return _follow(_targets(db), hostname) is None


@derived
def aliases_of(db: Mesh, hostname: str) -> tuple[ServiceRef, ...]:
    """Returns the aliases of a host name."""
    return aliases(db).get(hostname, ())
