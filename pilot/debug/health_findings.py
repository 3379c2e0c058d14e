"""What is odd about the mesh without being anybody's mistake, by the names of istiod's health metrics. It is looked at in the background."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD
from pilot.config.kubernetes.endpoint_slice import EndpointSlice
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.problem import Problem
from pilot.debug.sources import ConnectedProxy
from pilot.envoy.names import outbound_cluster
from pilot.lib.hosts import full_name
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import Resolution, Service, ServiceRef
from pilot.mesh.proxies.classify import scope_of
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.registry.service_targets import service_targets
from pilot.mesh.registry.services import service, service_refs
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import imported

NO_POD, NO_SERVICE, NOT_READY = "endpoint_no_pod", "pilot_no_ip", "pilot_endpoint_not_ready"
OUTBOUND_CONFLICT, INBOUND_CONFLICT = (
    "pilot_conflict_outbound_listener_tcp_over_current_tcp",
    "pilot_conflict_inbound_listener",
)
DUPLICATE_CLUSTERS = "pilot_duplicate_envoy_clusters"
"""Nothing is ever found of this: clusters are kept by their names."""
DNS_WITHOUT_ENDPOINTS, EDS_WITHOUT_ENDPOINTS = "pilot_dns_cluster_without_endpoints", "pilot_eds_no_instances"
DUPLICATE_DOMAINS, DUPLICATE_SUBSETS = "pilot_vservice_dup_domain", "pilot_destrule_subsets"
METRICS = (
    NO_POD,
    NO_SERVICE,
    NOT_READY,
    OUTBOUND_CONFLICT,
    INBOUND_CONFLICT,
    DUPLICATE_CLUSTERS,
    DNS_WITHOUT_ENDPOINTS,
    EDS_WITHOUT_ENDPOINTS,
    DUPLICATE_DOMAINS,
    DUPLICATE_SUBSETS,
)
_BY_DNS = (Resolution.DNS_LB, Resolution.DNS_ROUND_ROBIN_LB)
_ANYWHERE = "0.0.0.0"
_INDEX = re.compile(r"\[(\d+)\]$")
_SERVICE_NAME = "kubernetes.io/service-name"


class Finding(NamedTuple):
    """One thing that is odd. Findings of a metric with the same key count once; `proxy` is the id of a proxy that it was seen at, or ""."""

    metric: str
    key: str
    proxy: str = ""
    message: str = ""


def show_findings(found: Mapping[str, Mapping[str, Finding]]) -> dict[str, dict[str, dict[str, str]]]:
    """Returns findings as push_status shows them: metric → key → proxy and message, as far as they are known."""
    return {
        metric: {key: _shown(finding) for key, finding in by_key.items()} for metric, by_key in found.items() if by_key
    }


def _shown(finding: Finding) -> dict[str, str]:
    shown = {"proxy": finding.proxy, "message": finding.message}
    return {name: value for name, value in shown.items() if value}


def look(db: Mesh, connections: Sequence[ConnectedProxy], problems: Iterable[Problem]) -> Iterator[Iterable[Finding]]:
    """Yields what is found, object by object, so that whoever asks can let others go first between two of them."""
    listening: dict[tuple[str, int], ServiceRef] = {}
    ports: dict[str, tuple[int, ...]] = {}
    for ref in service_refs(db):
        found = service(db, ref)
        if found is not None:
            ports[found.hostname] = tuple(port.number for port in found.ports)
            yield [*_unserved(db, found), *_outbound_conflicts(found, listening)]
    by_pod = {(connection.proxy.cluster_id, connection.proxy.id): connection.proxy.id for connection in connections}
    for key, row in list(ENDPOINT_SLICE.table(db).rows()):
        yield _of_slice(db, key, row, by_pod)
    for connection in connections:
        if db.proxies.peek(connection.proxy_key) is not None:  # it may have gone while others were looked at
            yield _of_proxy(db, connection)
    sidecars = [connection for connection in connections if connection.proxy.type is NodeType.SIDECAR]
    for problem in problems:
        yield _of_problem(db, problem, ports, sidecars)


def _unserved(db: Mesh, found: Service) -> Iterator[Finding]:
    """Yields the ports of a service that nothing serves."""
    for port in found.ports:
        if found.resolution is not Resolution.CLIENT_SIDE_LB and found.resolution not in _BY_DNS:
            continue
        if endpoints(db, found.ref, port.number):
            continue
        name = outbound_cluster(port.number, "", found.hostname)
        if found.resolution in _BY_DNS:
            yield Finding(DNS_WITHOUT_ENDPOINTS, name, message=f"{found.hostname} has no endpoints to resolve")
        else:
            yield Finding(EDS_WITHOUT_ENDPOINTS, name)


def _outbound_conflicts(found: Service, listening: dict[tuple[str, int], ServiceRef]) -> Iterator[Finding]:
    """Yields where sidecars would have to listen for two services of TCP at one address. `listening`: who has each so far; it is added to."""
    if found.resolution in (Resolution.PASSTHROUGH, Resolution.ALIAS):
        return
    for port in found.ports:
        for address in found.addresses or (_ANYWHERE,):
            if port.protocol.is_tcp and (first := listening.setdefault((address, port.number), found.ref)) != found.ref:
                message = f"{found.hostname} and {first.hostname} are reached at the same address"
                yield Finding(OUTBOUND_CONFLICT, f"{address}:{port.number}", message=message)


def _of_slice(
    db: Mesh, key: RegistryKey, row: Object[EndpointSlice], by_pod: Mapping[tuple[str, str], str]
) -> Iterator[Finding]:
    """Yields endpoints that name a Pod which is not there, and connected proxies whose endpoint is not ready."""
    host = kubernetes_hostname(row.labels.get(_SERVICE_NAME, row.name), row.namespace, db.settings.registry.domain)
    for endpoint in row.spec.endpoints:
        pod = endpoint.target_ref
        if pod is None or pod.kind != "Pod":
            continue
        namespace = pod.namespace or row.namespace
        if POD.table(db).peek(RegistryKey(key.cluster, namespace, pod.name)) is None:
            yield Finding(NO_POD, host, message=", ".join(endpoint.addresses))
        proxy = by_pod.get((key.cluster, f"{pod.name}.{namespace}"))
        if proxy is not None and endpoint.conditions.ready is False:
            yield Finding(NOT_READY, proxy, proxy)


def _of_proxy(db: Mesh, connection: ConnectedProxy) -> Iterator[Finding]:
    """Yields whether no service selects a proxy, and the ports of its workload that services speak different protocols with."""
    targets, proxy = service_targets(db, connection.proxy_key), connection.proxy.id
    if not targets:
        yield Finding(NO_SERVICE, proxy, proxy)
    spoken: dict[int, set[str]] = defaultdict(set)
    for target in targets:
        spoken[target.target_port].add(str(target.port.protocol))
    for port, protocols in spoken.items():
        if len(protocols) > 1:
            yield Finding(
                INBOUND_CONFLICT,
                f"{proxy}:{port}",
                proxy,
                f"services disagree about the protocol: {', '.join(sorted(protocols))}",
            )


def _of_problem(
    db: Mesh, problem: Problem, ports: Mapping[str, tuple[int, ...]], sidecars: Sequence[ConnectedProxy]
) -> Iterator[Finding]:
    """Yields what problems of users' objects say that istiod counts. `ports`: of services, by host name."""
    kind, namespace, name = problem.object
    if problem.code == "host-claimed" and kind.name == "VirtualService":
        row, index = VIRTUAL_SERVICE.table(db).peek(ObjectKey(namespace, name)), _INDEX.search(problem.path)
        if row is not None and index is not None and int(index[1]) < len(row.spec.hosts):
            host = full_name(row.spec.hosts[int(index[1])], namespace, db.settings.registry.domain)
            seen_at = _first_that_sees(db, sidecars, host)
            yield from (
                Finding(DUPLICATE_DOMAINS, f"{host}:{port}", seen_at, problem.message) for port in ports.get(host, ())
            )
    elif problem.code == "subset-shadowed":
        yield Finding(DUPLICATE_SUBSETS, f"{namespace}/{name} {problem.path}", message=problem.message)


def _first_that_sees(db: Mesh, sidecars: Sequence[ConnectedProxy], host: str) -> str:
    """Returns the id of the first proxy whose services have a host name among them; "" where there is none."""
    for connection in sidecars:
        if (
            db.proxies.peek(connection.proxy_key) is not None
            and imported(db, scope_of(db, connection.proxy_key), host) is not None
        ):
            return connection.proxy.id
    return ""
