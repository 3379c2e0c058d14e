"""The services that a proxy's own workload serves, and the endpoints that are replicas of the proxy."""

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
from pilot.derive import derived, run_steps
from pilot.lib import labels as label
from pilot.mesh.model.facets import LocationFacet, ServiceTarget, SiblingsKey
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.model.service import Port, Resolution, Service, ServiceRef
from pilot.mesh.model.workload import Workload
from pilot.mesh.registry.endpoint_slices import slice_endpoints
from pilot.mesh.registry.endpoints import entry_endpoint, target_port
from pilot.mesh.registry.excess_services import used_ports, used_service
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.registry.pods import named_ports
from pilot.mesh.registry.services import cluster_service, service
from pilot.mesh.registry.workload_entries import entry_workload
from pilot.mesh.registry.workloads import entries_at, is_test_vm, pod_of, proxy_labels, proxy_locality, proxy_network
from pilot.mesh.tables.clusters import cluster_of, service_clusters
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy

SELF_DISCOVERY = "ENABLE_SELF_DISCOVERY"  # node metadata: the proxy requests the endpoints of its own service


@derived
def service_targets(db: Mesh, node_id: str) -> tuple[ServiceTarget, ...]:
    """Return the service ports that target a proxy's workload, ordered by the age of the service, oldest first.

    If several ports of a Kubernetes Service have the same target port and protocol, only the first is returned.
    """
    proxy = find_proxy(db, node_id)
    targets = [*_kubernetes_targets(db, proxy, node_id), *_entry_targets(db, proxy)]
    return tuple(target for _, target in sorted(targets, key=lambda item: item[0]))


AgedTarget = tuple[tuple[str, str], ServiceTarget]  # sort key (creation time and hostname of the service), target


def _kubernetes_targets(db: Mesh, proxy: Proxy, node_id: str) -> Iterable[AgedTarget]:
    cluster = cluster_of(db, proxy)
    if (entry := _workload_entry(db, proxy)) is not None:
        return _targets_of_entry(db, entry)
    pod = pod_of(db, node_id)
    row = POD.get(db, pod) if pod is not None else None
    if pod is not None and row is not None and not is_test_vm(proxy):
        keys = _selecting_services(db, cluster, row.namespace, row.labels)
        if not keys:
            return _listed_targets(db, proxy)
        return [target for key in keys for target in _targets(db, key, lambda port: _pod_port(row.spec, port)) or ()]
    labels = proxy_labels(db, node_id)
    announced: list[AgedTarget] = []
    for key in _selecting_services(db, cluster, proxy.namespace, labels):
        targets = _targets(db, key, lambda port: _announced_port(proxy, port), strict=True)
        if targets is None:
            return []
        announced += targets
    return announced


def _selecting_services(db: Mesh, cluster: str, namespace: str, labels: Mapping[str, str]) -> list[RegistryKey]:
    """Return the Kubernetes Services in a cluster and namespace whose selectors match the labels."""
    keys = []
    for name, value in labels.items():
        for key in SERVICE.keys(db, "selected", (cluster, namespace, name, value)):
            row = used_service(db, key)
            if row is not None and row.spec.selector.items() <= labels.items():
                keys.append(key)
    return keys


@derived
def selecting_ports(db: Mesh, namespace: str, labels: frozenset[tuple[str, str]]) -> frozenset[int]:
    """Return the ports and numeric target ports of the Kubernetes Services that select workloads with the labels."""
    ports = selecting_targets(db, namespace, labels)
    return frozenset(number for pair in ports for number in pair if isinstance(number, int) and number)


@derived
def selecting_targets(
    db: Mesh, namespace: str, labels: frozenset[tuple[str, str]]
) -> frozenset[tuple[int, int | str | None]]:
    """Return the ports of the Kubernetes Services that select workloads with the labels, each with its target port."""
    rows = (
        (key, used_service(db, key))
        for cluster in service_clusters(db)
        for key in _selecting_services(db, cluster, namespace, dict(labels))
    )
    return frozenset(
        (port.port, port.target_port) for key, row in rows if row is not None for port in used_ports(db, key, row)
    )


@derived
def selecting_services(db: Mesh, namespace: str, labels: frozenset[tuple[str, str]]) -> tuple[Service, ...]:
    """Return the services of the Kubernetes Services that select workloads with the labels, in each cluster."""
    keys = (
        key for cluster in service_clusters(db) for key in _selecting_services(db, cluster, namespace, dict(labels))
    )
    return tuple(dict.fromkeys(one for key in keys if (one := cluster_service(db, key)) is not None))


def _targets(
    db: Mesh, key: RegistryKey, find: Callable[[ServicePort], int | None], strict: bool = False
) -> list[AgedTarget] | None:
    """Return the targets of a Service, with the ports that it declares in its own cluster.

    `find` returns the workload's port for a Service port, or None if there is none. A port without a result is omitted
    or, if `strict`, the result for the whole Service is None.
    """
    row = used_service(db, key)
    listed_service = cluster_service(db, key) if row is not None else None
    if row is None or listed_service is None:
        return []
    targets: dict[tuple[int, Protocol], AgedTarget] = {}
    for service_port, port in zip(used_ports(db, key, row), listed_service.ports, strict=True):
        number = find(service_port)
        if number is None:
            if strict:
                return None
            continue
        targets.setdefault((number, port.protocol), _aged_target(listed_service, port, number))
    return list(targets.values())


def _pod_port(pod: Pod, port: ServicePort) -> int | None:
    if isinstance(port.target_port, str):
        return dict(named_ports(pod, port.protocol)).get(port.target_port)
    return port.target_port or port.port


def _announced_port(proxy: Proxy, port: ServicePort) -> int | None:
    """Return the target port of a Service port. Named ports are resolved with the container ports in the node metadata.

    For a named port, return 0 if the metadata lists no ports at all, or None if it lists ports but not this one.
    """
    if not isinstance(port.target_port, str):
        return port.target_port or port.port
    pod_ports: Any = proxy.metadata.get("POD_PORTS")
    if not pod_ports or not isinstance(pod_ports, list):
        return 0
    matching = (
        item
        for item in pod_ports
        if item.get("name") == port.target_port and item.get("protocol", "TCP") == port.protocol
    )
    return next((int(item.get("containerPort", 0)) for item in matching), None)


def _listed_targets(db: Mesh, proxy: Proxy) -> list[AgedTarget]:
    """Return the targets of a Pod that no Service selects, but that EndpointSlices in its namespace list."""
    targets: dict[ServiceTarget, AgedTarget] = {}
    for key in ENDPOINT_SLICE.keys(db, "address", proxy.ips[0]):
        row: Object[Any] | None = ENDPOINT_SLICE.get(db, key)
        is_local = (key.cluster, key.namespace) == (cluster_of(db, proxy), proxy.namespace)
        name = row.labels.get(SERVICE_NAME_LABEL) if row is not None and is_local else None
        slice_service = service(db, _ref(db, key._replace(name=name))) if name else None
        for port in slice_service.ports if slice_service is not None else ():
            assert slice_service is not None
            for endpoint in run_steps(slice_endpoints(db, slice_service, port)):
                if (endpoint.cluster_id, endpoint.addresses[0]) == (key.cluster, proxy.ips[0]):
                    aged = _aged_target(slice_service, port, endpoint.port)
                    targets.setdefault(aged[1], aged)
    return list(targets.values())


def _ref(db: Mesh, key: RegistryKey) -> ServiceRef:
    return ServiceRef(kubernetes_hostname(key.name, key.namespace, db.settings.registry.domain), key.namespace)


def _aged_target(target_service: Service, port: Port, number: int) -> AgedTarget:
    return (target_service.created, target_service.hostname), ServiceTarget(target_service.ref, port, number)


def siblings_key(db: Mesh, node_id: str) -> SiblingsKey | None:
    """Return the key of the endpoints that are replicas of a proxy. Not memoised.

    Return None if the proxy's node does not request them (ENABLE_SELF_DISCOVERY).
    """
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
        location=LocationFacet(
            cluster_id=cluster_of(db, proxy),
            locality=proxy_locality(db, node_id),
            network=proxy_network(db, node_id),
            node=proxy.text("NODE_NAME"),
        ),
    )


# -- WorkloadEntries and ServiceEntries --------------------------------------------------------------------------------


def _workload_entry(db: Mesh, proxy: Proxy) -> Workload | None:
    """Return the WorkloadEntry with a proxy's address in the proxy's cluster, or None if there is none.

    If there are several, one with the proxy's name takes precedence, followed by one in its namespace.
    """
    keys = (key for key in WORKLOAD_ENTRY.keys(db, "address", proxy.ips[0]) if key.cluster == cluster_of(db, proxy))
    workloads = [workload for key in keys if (workload := entry_workload(db, key)) is not None]
    if len(workloads) < 2:
        return workloads[0] if workloads else None
    same_name = next(
        (
            workload
            for workload in workloads
            if f"{workload.name}.{workload.namespace}" == proxy.id and workload.namespace == proxy.namespace
        ),
        None,
    )
    return same_name or next(
        (workload for workload in workloads if workload.namespace == proxy.namespace), workloads[0]
    )


def _targets_of_entry(db: Mesh, workload: Workload) -> list[AgedTarget]:
    targets = []
    for key in _selecting_services(db, workload.cluster_id, workload.namespace, dict(workload.labels)):
        selecting_service = service(db, _ref(db, key))
        if selecting_service is not None and selecting_service.resolution is Resolution.CLIENT_SIDE_LB:
            ports = (port for port in selecting_service.ports if port.protocol is not Protocol.UDP)
            targets += [
                _aged_target(selecting_service, port, number)
                for port in ports
                if (number := target_port(workload, port))
            ]
    return targets


def _entry_targets(db: Mesh, proxy: Proxy) -> list[AgedTarget]:
    """Return the targets for ServiceEntries in the proxy's namespace that include its workload."""
    targets = []
    for key, workload in entries_at(db, proxy):
        row = SERVICE_ENTRY.get(db, key)
        if row is None:
            continue
        numbers = {port.number: entry_endpoint(workload, port).port for port in row.spec.ports}
        for host in row.spec.hosts:
            entry_service = service(db, ServiceRef(host, key.namespace))
            if entry_service is None:
                continue
            ports = {port.number: port for port in reversed(entry_service.ports)}  # the first with a number
            targets += [
                _aged_target(entry_service, ports[port], number) for port, number in numbers.items() if port in ports
            ]
    return targets
