"""Resources for a proxy's agent, not for Envoy: the DNS name table and the trusted CA certificates.

https://istio.io/latest/docs/ops/configuration/traffic-management/dns-proxy/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pilot.derive import Gather, derived
from pilot.envoy.resource import Resource, length_delimited
from pilot.lib.addresses import is_ip
from pilot.lib.xds_types import NAME_TABLE, PROXY_CONFIG
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth
from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.model.service import Registry, Resolution, Service
from pilot.mesh.model.virtual_addresses import ANY_IPV4, bound_addresses
from pilot.mesh.proxies.resolver import ResolverFacet
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.trust import trust_bundle
from pilot.mesh.traffic.imports import ImportKey, scope_services
from protos import nds_pb2
from protos.istio import mesh_proxy_config_pb2

CLUSTER_SET = ".svc.clusterset.local"
_RESOLVABLE = (EndpointHealth.HEALTHY, EndpointHealth.UNKNOWN)


class NameTableEntry(NamedTuple):
    """The entry for one host, serialized as a field of the name table.

    `local` is False if all endpoints of the host are in other clusters.
    """

    host: str
    entry: bytes
    local: bool = True


@derived
def _imports(db: Mesh, scope: ScopeFacet, _: ResolverFacet) -> tuple[ImportKey, ...]:
    return tuple(scope_services(db, scope).values())


@derived
def _answers(db: Mesh, import_key: ImportKey, resolver: ResolverFacet) -> tuple[NameTableEntry, ...] | None:
    """Return the entries of a service, or None if it has none. The entry for the service's hostname comes last."""
    row = service(db, import_key.ref)
    if row is None or row.resolution is Resolution.ALIAS:
        return None
    bound = bound_addresses(row, resolver.families)
    if [first for first, *_ in bound] != [ANY_IPV4]:
        addresses = [ip for group in bound for ip in group if is_ip(ip)]
        return (_answer(row, row.hostname, addresses, row.name),) if addresses else None
    ports = import_key.visible_ports(row)
    if row.resolution is not Resolution.PASSTHROUGH or not ports:
        return None
    every: dict[str, Endpoint] = {}
    for port in ports:
        for e in endpoints(db, row.ref, port.number):
            every.setdefault(e.addresses[0], e)
    members = [
        e for e in every.values() if e.health in _RESOLVABLE and resolver.reaches(e) and all(map(is_ip, e.addresses))
    ]
    near = [e for e in members if resolver.all_clusters or e.cluster_id == resolver.cluster_id]
    addresses = [a for e in near for a in e.addresses]
    service_entry = (_answer(row, row.hostname, addresses, row.name),) if addresses else ()
    return (*_pods(row, members, resolver.cluster_id), *service_entry) or None


def _pods(service: Service, members: list[Endpoint], cluster_id: str) -> Iterator[NameTableEntry]:
    """Yield an entry for each pod hostname of a headless service. Pods of the local cluster come first.

    The host of an entry is `pod.service.namespace.svc.domain`.
    """
    _, dot, domain = service.hostname.partition(".")
    addresses: dict[tuple[bool, str], list[str]] = {}
    for endpoint in members if dot else ():
        if endpoint.subdomain:
            key = endpoint.cluster_id != cluster_id, f"{endpoint.hostname}.{endpoint.subdomain}"
            addresses.setdefault(key, []).extend(endpoint.addresses)
    for (remote, short), ips in sorted(addresses.items(), key=lambda item: item[0][0]):
        yield _answer(service, f"{short}.{domain}", ips, short)._replace(local=not remote)


def _answer(service: Service, host: str, addresses: tuple[str, ...] | list[str], short: str) -> NameTableEntry:
    info = nds_pb2.NameTable.NameInfo(ips=addresses, registry=service.registry.value)
    if service.registry is Registry.KUBERNETES and not host.endswith(CLUSTER_SET):
        info.namespace, info.shortname = service.namespace, short
    pair = length_delimited(1, host.encode()) + length_delimited(2, info.SerializeToString(deterministic=True))
    return NameTableEntry(host, length_delimited(1, pair))


_by_service: Gather[ImportKey, [ScopeFacet, ResolverFacet], tuple[NameTableEntry, ...]] = Gather(
    "names of services", _imports, _answers, passed=lambda key, scope, resolver: (resolver,)
)
"""The entries of each service, shared by proxies with different scopes."""


@derived
def name_table(db: Mesh, scope: ScopeFacet, resolver: ResolverFacet) -> Mapping[str, Resource]:
    """Return the DNS name table as a single resource without a name.

    If pods in several clusters have the same name, a pod in the local cluster takes precedence, then the first pod.
    """
    entries: dict[str, NameTableEntry] = {}
    for answers in _by_service(db, scope, resolver).values():
        for answer in answers:
            if answer.host not in entries or (answer.local and not entries[answer.host].local):
                entries[answer.host] = answer
    return {"": Resource("", NAME_TABLE, b"".join(answer.entry for answer in entries.values()))}


@derived
def trusted_roots(db: Mesh) -> Mapping[str, Resource]:
    """Return the trusted CA certificates in a ProxyConfig, as a single resource without a name."""
    config = mesh_proxy_config_pb2.ProxyConfig(ca_certificates_pem=trust_bundle(db))
    return {"": Resource.of(PROXY_CONFIG, config, name="")}
