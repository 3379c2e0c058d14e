"""Derives the table of names that a proxy's companion answers DNS questions from: the hosts that the proxy sees, and the pods of headless ones.

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
from pilot.mesh.tables.trust_bundle import trust_bundle
from pilot.mesh.traffic.imports import ImportKey, scope_services
from protos import nds_pb2
from protos.istio import mesh_proxy_config_pb2

CLUSTER_SET = ".svc.clusterset.local"
_ANSWERED = (EndpointHealth.HEALTHY, EndpointHealth.UNKNOWN)


class NameTableEntry(NamedTuple):
    """The entry of one host, serialized as a field of the table. `own`: it is of the proxy's own cluster, or of no cluster."""

    host: str
    entry: bytes
    own: bool = True


@derived
def _imports(db: Mesh, scope: ScopeFacet, _: ResolverFacet) -> tuple[ImportKey, ...]:
    return tuple(scope_services(db, scope).values())


@derived
def _answers(db: Mesh, item: ImportKey, by: ResolverFacet) -> tuple[NameTableEntry, ...] | None:
    """Returns the entries of a service, that of the service itself last; None where it has no address to answer with."""
    found = service(db, item.ref)
    if found is None or found.resolution is Resolution.ALIAS:
        return None
    given = bound_addresses(found, by.families)
    if [first for first, *_ in given] != [ANY_IPV4]:
        addresses = [a for bound in given for a in bound if is_ip(a)]
        return (_answer(found, found.hostname, addresses, found.name),) if addresses else None
    ports = item.visible_ports(found)
    if found.resolution is not Resolution.PASSTHROUGH or not ports:
        return None
    every: dict[str, Endpoint] = {}
    for port in ports:
        for e in endpoints(db, found.ref, port.number):
            every.setdefault(e.addresses[0], e)
    members = [e for e in every.values() if e.health in _ANSWERED and by.reaches(e) and all(map(is_ip, e.addresses))]
    near = [e for e in members if by.all_clusters or e.cluster_id == by.cluster_id]
    addresses = [a for e in near for a in e.addresses]
    own = (_answer(found, found.hostname, addresses, found.name),) if addresses else ()
    return (*_pods(found, members, by.cluster_id), *own) or None


def _pods(found: Service, members: list[Endpoint], cluster_id: str) -> Iterator[NameTableEntry]:
    """Yields an entry for each pod that has a name below its service's, `pod.service.namespace.svc.domain`, with its addresses of both families;
    those of the proxy's own cluster first."""
    _, dot, domain = found.hostname.partition(".")
    addresses: dict[tuple[bool, str], list[str]] = {}
    for endpoint in members if dot else ():
        if endpoint.subdomain:
            at = endpoint.cluster_id != cluster_id, f"{endpoint.hostname}.{endpoint.subdomain}"
            addresses.setdefault(at, []).extend(endpoint.addresses)
    for (away, short), found_at in sorted(addresses.items(), key=lambda item: item[0][0]):
        yield _answer(found, f"{short}.{domain}", found_at, short)._replace(own=not away)


def _answer(found: Service, host: str, addresses: tuple[str, ...] | list[str], short: str) -> NameTableEntry:
    info = nds_pb2.NameTable.NameInfo(ips=addresses, registry=found.registry.value)
    if found.registry is Registry.KUBERNETES and not host.endswith(CLUSTER_SET):
        info.namespace, info.shortname = found.namespace, short
    pair = length_delimited(1, host.encode()) + length_delimited(2, info.SerializeToString(deterministic=True))
    return NameTableEntry(host, length_delimited(1, pair))


_by_service: Gather[ImportKey, [ScopeFacet, ResolverFacet], tuple[NameTableEntry, ...]] = Gather(
    "names of services", _imports, _answers, passed=lambda scope, by: (by,)
)
"""The entries of each service, which proxies of many scopes share."""


@derived
def name_table(db: Mesh, scope: ScopeFacet, by: ResolverFacet) -> Mapping[str, Resource]:
    """Returns the one table, which has no name. Of two pods of one name that of the proxy's own cluster counts, else the first."""
    entries: dict[str, NameTableEntry] = {}
    for answers in _by_service(db, scope, by).values():
        for answer in answers:
            if answer.host not in entries or (answer.own and not entries[answer.host].own):
                entries[answer.host] = answer
    return {"": Resource("", NAME_TABLE, b"".join(answer.entry for answer in entries.values()))}


@derived
def trusted_roots(db: Mesh) -> Mapping[str, Resource]:
    """Returns the one resource, which has no name."""
    config = mesh_proxy_config_pb2.ProxyConfig(ca_certificates_pem=trust_bundle(db))
    return {"": Resource.of(PROXY_CONFIG, config, name="")}
