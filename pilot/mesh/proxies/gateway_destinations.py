"""The services that a router needs clusters for, where the mesh is set to send it only these (PILOT_FILTER_GATEWAY_CLUSTER_CONFIG)."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.object import ObjectKey
from pilot.derive import Gather, derived, hub
from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.registry.mesh_services import provider_services
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import ImportKey, find_leads, scope_services
from pilot.mesh.traffic.virtual_service_names import MESH
from pilot.mesh.traffic.virtual_services import bindings_in, virtual_service


@hub
def _bound_anywhere(db: Mesh) -> Mapping[str, tuple[ObjectKey, ...]]:
    """Returns the VirtualServices of every gateway (`namespace/name`), whoever sees them."""
    found: dict[str, list[ObjectKey]] = {}
    for namespace in dict.fromkeys(key.namespace for key in VIRTUAL_SERVICE.all_keys(db)):
        for bound in bindings_in(db, namespace):
            for gateway in bound.gateways:
                if gateway != MESH:
                    found.setdefault(gateway, []).append(bound.key)
    return {gateway: tuple(keys) for gateway, keys in found.items()}


@derived
def _bound_to(db: Mesh, gateway: ObjectKey) -> tuple[ObjectKey, ...]:
    return _bound_anywhere(db).get(f"{gateway.namespace}/{gateway.name}", ())


@derived
def _hosts_of(db: Mesh, key: ObjectKey, gateway: ObjectKey) -> frozenset[str] | None:
    found = virtual_service(db, key)
    if found is None:
        return None
    scoped = db.settings.gateways.scope_to_namespace
    leads = find_leads(found.spec)
    return (
        frozenset(
            lead.host for lead in leads if not (scoped and lead.namespaces) or gateway.namespace in lead.namespaces
        )
        or None
    )


_hosts_by_service: Gather[ObjectKey, [ObjectKey], frozenset[str]] = Gather(
    "destinations of a gateway", _bound_to, _hosts_of
)


@derived
def routed_hosts(db: Mesh, gateways: tuple[ObjectKey, ...]) -> frozenset[str]:
    """Returns every host that a VirtualService leads to which is bound to one of the Gateways."""
    return frozenset().union(*(hosts for gateway in gateways for hosts in _hosts_by_service(db, gateway).values()))


@derived
def routed_services(db: Mesh, scope: ScopeFacet, gateways: tuple[ObjectKey, ...]) -> tuple[ImportKey, ...]:
    """Returns the services of a router's scope that its Gateways' routes lead to, and those that the mesh config names."""
    routed, named = routed_hosts(db, gateways), provider_services(db)
    return tuple(
        i
        for i in scope_services(db, scope).values()
        if i.ref.hostname in routed or i.ref.hostname in named or f"{i.ref.namespace}/{i.ref.hostname}" in named
    )
