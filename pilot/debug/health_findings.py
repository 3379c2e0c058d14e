"""Checks for anomalies that are not errors in objects. They are named after istiod's health metrics."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pilot.config.kinds.istio import VIRTUAL_SERVICE
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD
from pilot.config.kubernetes.endpoint_slice import EndpointSlice
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.problem import Problem
from pilot.debug.sources import ConnectedProxy, Finding
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
"""There are never findings for this metric, because the names of clusters are unique."""
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


def show_findings(by_metric: Mapping[str, Mapping[str, Finding]]) -> dict[str, dict[str, dict[str, str]]]:
    """Return findings in the format of push_status.

    The format maps metrics to keys, and keys to a proxy and a message if they are known.
    """
    return {
        metric: {key: _finding_fields(finding) for key, finding in by_key.items()}
        for metric, by_key in by_metric.items()
        if by_key
    }


def _finding_fields(finding: Finding) -> dict[str, str]:
    shown = {"proxy": finding.proxy, "message": finding.message}
    return {name: value for name, value in shown.items() if value}


def find_anomalies(
    db: Mesh, connections: Sequence[ConnectedProxy], problems: Iterable[Problem]
) -> Iterator[Iterable[Finding]]:
    """Yield the findings of one object at a time, so that the caller can yield to the event loop in between."""
    listening: dict[tuple[str, int], ServiceRef] = {}
    ports: dict[str, tuple[int, ...]] = {}
    for ref in service_refs(db):
        entry = service(db, ref)
        if entry is not None:
            ports[entry.hostname] = tuple(port.number for port in entry.ports)
            yield [*_unserved(db, entry), *_outbound_conflicts(entry, listening)]
    by_pod = {(connection.proxy.cluster_id, connection.proxy.id): connection.proxy.id for connection in connections}
    for key, row in list(ENDPOINT_SLICE.table(db).rows()):
        yield _endpoint_slice_findings(db, key, row, by_pod)
    for connection in connections:
        if db.proxies.peek(connection.proxy_key) is not None:  # it may have disconnected in the meantime
            yield _proxy_findings(db, connection)
    sidecars = [connection for connection in connections if connection.proxy.type is NodeType.SIDECAR]
    for problem in problems:
        yield _problem_findings(db, problem, ports, sidecars)


def _unserved(db: Mesh, entry: Service) -> Iterator[Finding]:
    """Yield a finding for each service port without endpoints."""
    for port in entry.ports:
        if entry.resolution is not Resolution.CLIENT_SIDE_LB and entry.resolution not in _BY_DNS:
            continue
        if endpoints(db, entry.ref, port.number):
            continue
        name = outbound_cluster(port.number, "", entry.hostname)
        if entry.resolution in _BY_DNS:
            yield Finding(DNS_WITHOUT_ENDPOINTS, name, message=f"{entry.hostname} has no endpoints to resolve")
        else:
            yield Finding(EDS_WITHOUT_ENDPOINTS, name)


def _outbound_conflicts(entry: Service, listening: dict[tuple[str, int], ServiceRef]) -> Iterator[Finding]:
    """Yield a finding for each TCP address that two services share.

    `listening` maps addresses to services. The addresses of `entry` are added to it.
    """
    if entry.resolution in (Resolution.PASSTHROUGH, Resolution.ALIAS):
        return
    for port in entry.ports:
        for address in entry.addresses or (_ANYWHERE,):
            if port.protocol.is_tcp and (first := listening.setdefault((address, port.number), entry.ref)) != entry.ref:
                message = f"{entry.hostname} and {first.hostname} have the same address"
                yield Finding(OUTBOUND_CONFLICT, f"{address}:{port.number}", message=message)


def _endpoint_slice_findings(
    db: Mesh, key: RegistryKey, row: Object[EndpointSlice], by_pod: Mapping[tuple[str, str], str]
) -> Iterator[Finding]:
    """Yield a finding for each endpoint whose Pod does not exist, and for each connected proxy whose endpoint is not
    ready."""
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


def _proxy_findings(db: Mesh, connection: ConnectedProxy) -> Iterator[Finding]:
    """Yield a finding if a proxy has no services, and for each port for which services specify different protocols."""
    targets, proxy = service_targets(db, connection.proxy_key), connection.proxy.id
    if not targets and connection.proxy.type is not NodeType.ZTUNNEL:
        yield Finding(NO_SERVICE, proxy, proxy)
    protocols_by_port: dict[int, set[str]] = defaultdict(set)
    for target in targets:
        protocols_by_port[target.target_port].add(str(target.port.protocol))
    for port, protocols in protocols_by_port.items():
        if len(protocols) > 1:
            yield Finding(
                INBOUND_CONFLICT,
                f"{proxy}:{port}",
                proxy,
                f"services disagree about the protocol: {', '.join(sorted(protocols))}",
            )


def _problem_findings(
    db: Mesh, problem: Problem, ports: Mapping[str, tuple[int, ...]], sidecars: Sequence[ConnectedProxy]
) -> Iterator[Finding]:
    """Yield findings for a problem in a user's object if istiod has a metric for it.

    `ports` maps hostnames to service ports.
    """
    kind, namespace, name = problem.object
    if problem.code == "host-claimed" and kind.name == "VirtualService":
        row, index = VIRTUAL_SERVICE.table(db).peek(ObjectKey(namespace, name)), _INDEX.search(problem.path)
        if row is not None and index is not None and int(index[1]) < len(row.spec.hosts):
            host = full_name(row.spec.hosts[int(index[1])], namespace, db.settings.registry.domain)
            proxy_id = _first_importer(db, sidecars, host)
            yield from (
                Finding(DUPLICATE_DOMAINS, f"{host}:{port}", proxy_id, problem.message) for port in ports.get(host, ())
            )
    elif problem.code == "subset-shadowed":
        yield Finding(DUPLICATE_SUBSETS, f"{namespace}/{name} {problem.path}", message=problem.message)


def _first_importer(db: Mesh, sidecars: Sequence[ConnectedProxy], host: str) -> str:
    """Return the ID of the first proxy that imports a hostname, or "" if there is none."""
    for connection in sidecars:
        if (
            db.proxies.peek(connection.proxy_key) is not None
            and imported(db, scope_of(db, connection.proxy_key), host) is not None
        ):
            return connection.proxy.id
    return ""
