"""The services for which a router needs clusters if PILOT_FILTER_GATEWAY_CLUSTER_CONFIG is set."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.object import ObjectKey
from pilot.derive import Gather, derived, hub
from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.registry.mesh_services import provider_services
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import ImportKey, find_route_targets, scope_services
from pilot.mesh.traffic.virtual_service_names import MESH
from pilot.mesh.traffic.virtual_services import bindings_in, virtual_service


@hub
def _bound_anywhere(db: Mesh) -> Mapping[str, tuple[ObjectKey, ...]]:
    """Return the VirtualServices that are bound to each gateway (`namespace/name`), regardless of their visibility."""
    by_gateway: dict[str, list[ObjectKey]] = {}
    for namespace in dict.fromkeys(key.namespace for key in VIRTUAL_SERVICE.all_keys(db)):
        for bound in bindings_in(db, namespace):
            for gateway in bound.gateways:
                if gateway != MESH:
                    by_gateway.setdefault(gateway, []).append(bound.key)
    return {gateway: tuple(keys) for gateway, keys in by_gateway.items()}


@derived
def _bound_to(db: Mesh, gateway: ObjectKey) -> tuple[ObjectKey, ...]:
    return _bound_anywhere(db).get(f"{gateway.namespace}/{gateway.name}", ())


@derived
def _hosts_of(db: Mesh, key: ObjectKey, gateway: ObjectKey) -> frozenset[str] | None:
    row = virtual_service(db, key)
    if row is None:
        return None
    scoped = db.settings.gateways.scope_to_namespace
    hosts = (
        target.host
        for target in find_route_targets(row.spec)
        if not (scoped and target.namespaces) or gateway.namespace in target.namespaces
    )
    return frozenset(hosts) or None


_hosts_by_service: Gather[ObjectKey, [ObjectKey], frozenset[str]] = Gather(
    "destinations of a gateway", _bound_to, _hosts_of
)


@derived
def routed_hosts(db: Mesh, gateways: tuple[ObjectKey, ...]) -> frozenset[str]:
    """Return the hosts that the VirtualServices of the Gateways route to."""
    return frozenset().union(*(hosts for gateway in gateways for hosts in _hosts_by_service(db, gateway).values()))


@derived
def routed_services(db: Mesh, scope: ScopeFacet, gateways: tuple[ObjectKey, ...]) -> tuple[ImportKey, ...]:
    """Return the services in a router's scope that its Gateways route to, and the services that extension providers
    use."""
    routed, provided = routed_hosts(db, gateways), provider_services(db)
    return tuple(
        i
        for i in scope_services(db, scope).values()
        if i.ref.hostname in routed or not provided.isdisjoint((i.ref.hostname, f"{i.ref.namespace}/{i.ref.hostname}"))
    )
