"""The services that a proxy's own workload serves, and the endpoints that are like it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pilot.config.indexes import SERVICE_NAME_LABEL
from pilot.config.kinds.istio import SERVICE_ENTRY, WORKLOAD_ENTRY
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD, SERVICE
from pilot.config.kubernetes.pod import Pod
from pilot.config.kubernetes.service import ServicePort
from pilot.config.object import Object, RegistryKey
from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.lib import labels as label
from pilot.mesh.model.facets import ReachFacet, ServiceTarget, SiblingsKey
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.model.service import Port, Resolution, Service, ServiceRef
from pilot.mesh.model.workload import Workload
from pilot.mesh.registry.endpoint_slices import slice_endpoints
from pilot.mesh.registry.endpoints import entry_endpoint, target_port
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.registry.pods import named_ports
from pilot.mesh.registry.services import cluster_service, service
from pilot.mesh.registry.workload_entries import entry_workload
from pilot.mesh.registry.workloads import entries_at, is_test_vm, pod_of, proxy_labels, proxy_locality, proxy_network
from pilot.mesh.tables.clusters import cluster_of, service_clusters
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy

SELF_DISCOVERY = "ENABLE_SELF_DISCOVERY"  # node metadata: the proxy wants to know the endpoints of its own service


@derived
def service_targets(db: Mesh, node_id: str) -> tuple[ServiceTarget, ...]:
    """Returns the ports of services that lead to a proxy's workload, by the services' age; of the ports of one service that lead to the same port
    by the same protocol, the first."""
    proxy = find_proxy(db, node_id)
    found = [*_kubernetes_targets(db, proxy, node_id), *_entry_targets(db, proxy)]
    return tuple(target for _, target in sorted(found, key=lambda item: item[0]))


Aged = tuple[tuple[str, str], ServiceTarget]  # creation and host name of the service, by which they are sorted


def _kubernetes_targets(db: Mesh, proxy: Proxy, node_id: str) -> Iterable[Aged]:
    cluster = cluster_of(db, proxy)
    if (entry := _workload_entry(db, proxy)) is not None:
        return _targets_of_entry(db, entry)
    pod = pod_of(db, node_id)
    row = POD.get(db, pod) if pod is not None else None
    if pod is not None and row is not None and not is_test_vm(proxy):
        keys = _selecting_services(db, cluster, row.namespace, row.labels)
        if not keys:
            return _listed_targets(db, proxy)
        return [t for key in keys for t in _targets(db, key, lambda p: _pod_port(row.spec, p)) or ()]
    labels = proxy_labels(db, node_id)
    found: list[Aged] = []
    for key in _selecting_services(db, cluster, proxy.namespace, labels):
        targets = _targets(db, key, lambda p: _announced_port(proxy, p), strict=True)
        if targets is None:
            return []
        found += targets
    return found


def _selecting_services(db: Mesh, cluster: str, namespace: str, labels: Mapping[str, str]) -> list[RegistryKey]:
    """Returns the Kubernetes Services of a cluster's namespace that select these labels."""
    found = []
    for name, value in labels.items():
        for key in SERVICE.keys(db, "selected", (cluster, namespace, name, value)):
            row = SERVICE.get(db, key)
            if row is not None and row.spec.selector.items() <= labels.items():
                found.append(key)
    return found


@derived
def selecting_ports(db: Mesh, namespace: str, labels: frozenset[tuple[str, str]]) -> frozenset[int]:
    """Returns the numbers and target numbers of the ports of the Kubernetes Services that select workloads with these labels."""
    rows = (
        SERVICE.get(db, key)
        for cluster in service_clusters(db)
        for key in _selecting_services(db, cluster, namespace, dict(labels))
    )
    ports = [p for row in rows if row is not None for p in row.spec.ports]
    return frozenset(n for p in ports for n in (p.port, p.target_port) if isinstance(n, int) and n)


def _targets(
    db: Mesh, key: RegistryKey, find: Callable[[ServicePort], int | None], strict: bool = False
) -> list[Aged] | None:
    """Returns the targets of a Service, by the ports that its own cluster gives it; `find` tells the port that a port of it leads to.

    `strict`: None where one is unknown.
    """
    row = SERVICE.get(db, key)
    found = cluster_service(db, key) if row is not None else None
    if row is None or found is None:
        return []
    out: dict[tuple[int, Protocol], Aged] = {}
    for declared, port in zip(row.spec.ports, found.ports, strict=True):
        number = find(declared)
        if number is None:
            if strict:
                return None
            continue
        out.setdefault((number, port.protocol), _aged(found, port, number))
    return list(out.values())


def _pod_port(pod: Pod, port: ServicePort) -> int | None:
    if isinstance(port.target_port, str):
        return dict(named_ports(pod, port.protocol)).get(port.target_port)
    return port.target_port or port.port


def _announced_port(proxy: Proxy, port: ServicePort) -> int | None:
    """Returns the port by the container ports that the proxy's node lists; where it lists none, a named port cannot be told and is 0."""
    if not isinstance(port.target_port, str):
        return port.target_port or port.port
    listed: Any = proxy.metadata.get("POD_PORTS")
    if not listed or not isinstance(listed, list):
        return 0
    matching = (p for p in listed if p.get("name") == port.target_port and p.get("protocol", "TCP") == port.protocol)
    return next((int(p.get("containerPort", 0)) for p in matching), None)


def _listed_targets(db: Mesh, proxy: Proxy) -> list[Aged]:
    """Returns the targets of a Pod that no Service selects: of the services of its namespace whose EndpointSlices list it."""
    out: dict[ServiceTarget, Aged] = {}
    for key in ENDPOINT_SLICE.keys(db, "address", proxy.ips[0]):
        row: Object[Any] | None = ENDPOINT_SLICE.get(db, key)
        here = (key.cluster, key.namespace) == (cluster_of(db, proxy), proxy.namespace)
        name = row.labels.get(SERVICE_NAME_LABEL) if row is not None and here else None
        found = service(db, _ref(db, key._replace(name=name))) if name else None
        for port in found.ports if found is not None else ():
            assert found is not None
            for e in slice_endpoints(db, found, port):
                if (e.cluster_id, e.addresses[0]) == (key.cluster, proxy.ips[0]):
                    aged = _aged(found, port, e.port)
                    out.setdefault(aged[1], aged)
    return list(out.values())


def _ref(db: Mesh, key: RegistryKey) -> ServiceRef:
    return ServiceRef(kubernetes_hostname(key.name, key.namespace, db.settings.registry.domain), key.namespace)


def _aged(found: Service, port: Port, number: int) -> Aged:
    return (found.created, found.hostname), ServiceTarget(found.ref, port, number)


def siblings_key(db: Mesh, node_id: str) -> SiblingsKey | None:
    """Returns the endpoints like a proxy's own, None unless its node asks for them (ENABLE_SELF_DISCOVERY). No node of its own."""
    proxy = find_proxy(db, node_id)
    if not proxy.flag(SELF_DISCOVERY):
        return None
    first = next(iter(service_targets(db, node_id)), None)
    labels = proxy_labels(db, node_id)
    return SiblingsKey(
        ref=first.ref if first is not None else None,
        port=first.port.number if first is not None else 0,
        workload=proxy.text("WORKLOAD_NAME"),
        templates=(labels.get(label.POD_TEMPLATE_HASH, ""), labels.get(label.ROLLOUT_TEMPLATE_HASH, "")),
        reach=ReachFacet(
            cluster_id=cluster_of(db, proxy),
            locality=proxy_locality(db, node_id),
            network=proxy_network(db, node_id),
            node=proxy.text("NODE_NAME"),
        ),
    )


# -- by WorkloadEntries and ServiceEntries -----------------------------------------------------------------------------------


def _workload_entry(db: Mesh, proxy: Proxy) -> Workload | None:
    """Returns the WorkloadEntry of a proxy's cluster at its address; of several that of its name, else of its namespace, else the first."""
    keys = (k for k in WORKLOAD_ENTRY.keys(db, "address", proxy.ips[0]) if k.cluster == cluster_of(db, proxy))
    found = [w for k in keys if (w := entry_workload(db, k)) is not None]
    if len(found) < 2:
        return found[0] if found else None
    named = next((w for w in found if f"{w.name}.{w.namespace}" == proxy.id and w.namespace == proxy.namespace), None)
    return named or next((w for w in found if w.namespace == proxy.namespace), found[0])


def _targets_of_entry(db: Mesh, workload: Workload) -> list[Aged]:
    out = []
    for key in _selecting_services(db, workload.cluster_id, workload.namespace, dict(workload.labels)):
        found = service(db, _ref(db, key))
        if found is not None and found.resolution is Resolution.CLIENT_SIDE_LB:
            usable = (p for p in found.ports if p.protocol is not Protocol.UDP)
            out += [_aged(found, p, number) for p in usable if (number := target_port(workload, p))]
    return out


def _entry_targets(db: Mesh, proxy: Proxy) -> list[Aged]:
    """Returns the ports of ServiceEntries of the proxy's namespace that have its workload among theirs."""
    out = []
    for key, workload in entries_at(db, proxy):
        row = SERVICE_ENTRY.get(db, key)
        for host in row.spec.hosts if row is not None else ():
            found = service(db, ServiceRef(host, key.namespace))
            for declared in row.spec.ports if row is not None else ():
                port = found.port(declared.number) if found is not None else None
                if found is not None and port is not None:
                    out.append(_aged(found, port, entry_endpoint(workload, declared).port))
    return out
