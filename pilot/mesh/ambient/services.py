"""The services that ztunnels receive."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.kubernetes import service as kubernetes_service
from pilot.config.mesh.mesh_config import ServiceScopeConfigs
from pilot.config.object import RegistryKey
from pilot.derive import derived, hub
from pilot.lib.addresses import is_ip, is_ipv4
from pilot.mesh.ambient.attachments import service_attachment
from pilot.mesh.ambient.waypoints import waypoint
from pilot.mesh.model.address import (
    AddressPort,
    IPFamilies,
    LoadBalancing,
    NetworkAddress,
    ServiceAddress,
    WeightedWaypoint,
)
from pilot.mesh.model.service import Port, Resolution, Service, ServiceRef
from pilot.mesh.model.visibility import NAMESPACE_NAME_LABEL, entry_visibility, selects
from pilot.mesh.registry.excess_services import used_service
from pilot.mesh.registry.networks import cluster_network
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.registry.services import cluster_service, entry_services, kubernetes_key, refs_by_hostname
from pilot.mesh.tables.clusters import is_included, service_clusters
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.mesh.tables.namespaces import namespace_labels

_SCOPES = {
    "PreferSameZone": ("NETWORK", "REGION", "ZONE"),
    "PreferSameNode": ("NETWORK", "REGION", "ZONE", "SUBZONE", "NODE"),
}
_PASSTHROUGH = LoadBalancing("PASSTHROUGH", all_healths=True)
_FAMILIES: Mapping[frozenset[str], IPFamilies] = {
    frozenset(("IPv4",)): "IPV4_ONLY",
    frozenset(("IPv6",)): "IPV6_ONLY",
    frozenset(("IPv4", "IPv6")): "DUAL",
}


@derived
def service_address(db: Mesh, ref: ServiceRef) -> ServiceAddress | None:
    """Return a service as ztunnels receive it, or None if they do not receive it.

    The addresses of a global service in all clusters are merged. Other services must be in the local cluster.
    """
    declared = list(_of_clusters(db, ref))
    if not declared:
        return _of_entry(db, ref)
    (key, first), *others = declared
    if others and is_global(db, key):
        addresses = {str(a): a for _, one in declared for a in one.addresses}
        first = msgspec.structs.replace(first, addresses=tuple(addresses[text] for text in sorted(addresses)))
    return _with_waypoint(db, ref, first)


def _of_clusters(db: Mesh, ref: ServiceRef) -> Iterator[tuple[RegistryKey, ServiceAddress]]:
    name, local = kubernetes_key(ref, db.settings.registry.domain), db.settings.registry.cluster_id
    for cluster in service_clusters(db) if name is not None else ():
        key = RegistryKey(cluster, *name) if name is not None and is_included(db, cluster) else None
        if key is None or not (cluster == local or is_global(db, key)):
            continue
        if (address := _of_cluster(db, key)) is not None:
            yield key, address


@derived
def _of_cluster(db: Mesh, key: RegistryKey) -> ServiceAddress | None:
    row = used_service(db, key)
    declared = cluster_service(db, key) if row is not None else None
    if row is None or declared is None or declared.resolution is Resolution.ALIAS:
        return None
    network = cluster_network(db, key.cluster)
    return ServiceAddress(
        name=row.name,
        namespace=row.namespace,
        hostname=declared.hostname,
        addresses=tuple(NetworkAddress(network, ip) for ip in declared.addresses_in(key.cluster)),
        ports=tuple(map(_port, declared.ports)),
        balancing=_balancing(declared),
        families=_families(row.spec),
        canonical=True,
    )


def _families(spec: kubernetes_service.Service) -> IPFamilies:
    """Return the IP families of a Service. In files, the API server's default may be missing, which follows from the
    addresses."""
    addresses = spec.cluster_ips or (spec.cluster_ip,)
    from_addresses = {"IPv4" if is_ipv4(a) else "IPv6" for a in addresses if is_ip(a)}
    families = frozenset(spec.ip_families or from_addresses)
    return _FAMILIES.get(families, "AUTOMATIC")


def _of_entry(db: Mesh, ref: ServiceRef) -> ServiceAddress | None:
    """Return the service that the oldest ServiceEntry with its name declares, or None if it is not visible anywhere."""
    declared = entry_services(db, ref) if db.settings.ambient.enabled else ()
    visible = visibility_in(db, ref.namespace)
    if not declared or visible == "NONE":
        return None
    first, network = declared[0], cluster_network(db, db.settings.registry.cluster_id)
    passthrough = first.resolution is Resolution.PASSTHROUGH
    return _with_waypoint(
        db,
        ref,
        ServiceAddress(
            name=first.source.name,
            namespace=first.namespace,
            hostname=first.hostname,
            addresses=tuple(_ranges(network, first.addresses or (() if passthrough else first.auto_addresses))),
            ports=tuple(map(_port, first.ports)),
            subject_alt_names=first.service_accounts,
            balancing=_PASSTHROUGH if passthrough else _balancing(first),
            canonical=_is_canonical(db, ref),
            private=visible == "NAMESPACE",
        ),
    )


def _with_waypoint(db: Mesh, ref: ServiceRef, address: ServiceAddress) -> ServiceAddress:
    attached = service_attachment(db, ref)
    main = waypoint(db, attached.waypoint) if attached.waypoint is not None else None
    if main is None:
        return address
    other = waypoint(db, attached.canary) if attached.canary is not None else None
    shares = (
        (WeightedWaypoint(main.address, 100 - attached.weight), WeightedWaypoint(other.address, attached.weight))
        if other is not None
        else ()
    )
    return msgspec.structs.replace(address, waypoint=main.address, weighted=shares, ingress=bool(attached.ingress))


def _port(p: Port) -> AddressPort:
    if isinstance(p.target, str):
        return AddressPort(p.number, 0, p.target, p.name, p.protocol)
    return AddressPort(p.number, p.target, "", p.name, p.protocol)


def _balancing(of: Service) -> LoadBalancing | None:
    if of.node_local:
        return LoadBalancing("STRICT", ("NODE",), of.publish_not_ready)
    scopes = _SCOPES.get(of.traffic_distribution, ())
    if not scopes and not of.publish_not_ready:
        return None
    return LoadBalancing("FAILOVER" if scopes else "UNSPECIFIED_MODE", scopes, of.publish_not_ready)  # type: ignore[arg-type]


def _ranges(network: str, addresses: Iterable[str]) -> Iterator[NetworkAddress]:
    for text in addresses:
        block = ipaddress.ip_network(text, strict=False)
        single = block.prefixlen == block.max_prefixlen
        yield NetworkAddress(network, str(block.network_address), None if single else block.prefixlen)


@derived
def visibility_in(db: Mesh, namespace: str) -> str:
    """Return the visibility of ServiceEntries in a namespace: PUBLIC, NAMESPACE or NONE."""
    visibility = service_rules(db).entry_visibility
    if visibility is None:
        return "PUBLIC"
    labels = namespace_labels(db, db.settings.registry.cluster_id, namespace)
    return entry_visibility(visibility, {NAMESPACE_NAME_LABEL: namespace, **labels})


@derived
def _canonical_entry(db: Mesh, hostname: str) -> ServiceRef | None:
    """Return the service that other namespaces use for a host name.

    Return None if a Kubernetes Service has the host name, or if no ServiceEntry for it is visible to other namespaces.
    """
    refs = refs_by_hostname(db, hostname)
    if any(True for ref in refs for _ in _of_clusters(db, ref)):
        return None
    return next((ref for ref in refs if visibility_in(db, ref.namespace) not in ("NAMESPACE", "NONE")), None)


def _is_canonical(db: Mesh, ref: ServiceRef) -> bool:
    return _canonical_entry(db, ref.hostname) == ref


# -- services in several clusters --------------------------------------------------------------------------------------


@hub
def _scopes(db: Mesh) -> tuple[ServiceScopeConfigs, ...]:
    return mesh_config(db).service_scope_configs if db.settings.ambient.multi_network else ()


@derived
def is_global(db: Mesh, key: RegistryKey) -> bool:
    """Return whether the mesh's `serviceScopeConfigs` make a Service global.

    Clusters share a global Service as one service.
    """
    row = SERVICE.get(db, key)
    scopes = _scopes(db)
    if row is None or not scopes:
        return False
    labels = namespace_labels(db, key.cluster, key.namespace)
    return any(
        one.scope == "GLOBAL"
        and (one.namespace_selector is None or selects(one.namespace_selector, labels))
        and (one.services_selector is None or selects(one.services_selector, row.labels))
        for one in scopes
    )
