"""Kubernetes Services of type ExternalName: other names of services. A proxy answers to an alias as it does to the service."""
from __future__ import annotations

from collections.abc import Mapping

from pilot.derive import derived, hub
from pilot.model.inputs import Mesh
from pilot.model.service import Resolution, ServiceRef
from pilot.model.views.kinds.services import services
from pilot.model.views.kubernetes_services import kubernetes_hostname
from pilot.model.views.services import service


@hub
def external_names(db: Mesh) -> tuple[ServiceRef, ...]:
    """Returns the Kubernetes Services whose type is ExternalName."""
    keys = services.keys(db, "external", True)
    return tuple(ServiceRef(kubernetes_hostname(key.name, key.namespace, db.settings.registry.domain), key.namespace) for key in keys)


@hub
def aliases(db: Mesh) -> Mapping[str, tuple[ServiceRef, ...]]:
    """Returns the aliases of every host name that has any, by namespace and name. An alias of an alias is one of what that leads to; one that leads
    back to itself leads nowhere."""
    leads: dict[ServiceRef, str] = {}
    for ref in external_names(db):
        found = service(db, ref)
        if found is not None and found.resolution is Resolution.ALIAS:
            leads[ref] = found.external_name
    by_hostname = {ref.hostname: target for ref, target in leads.items()}
    out: dict[str, list[ServiceRef]] = {}
    for ref in sorted(leads, key=lambda r: (r.namespace, r.hostname)):
        concrete = _follow(by_hostname, ref.hostname)
        if concrete is not None:
            out.setdefault(concrete, []).append(ref)
    return {hostname: tuple(refs) for hostname, refs in out.items()}


def _follow(leads: Mapping[str, str], hostname: str) -> str | None:
    seen: set[str] = set()
    while hostname in leads:
        if hostname in seen:
            return None
        seen.add(hostname)
        hostname = leads[hostname]
    return hostname


@derived
def aliases_of(db: Mesh, hostname: str) -> tuple[ServiceRef, ...]:
    """Returns the aliases of a host name."""
    return aliases(db).get(hostname, ())
