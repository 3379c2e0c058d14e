"""Endpoints that Kubernetes lists: the EndpointSlices of a Service, merged."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD
from pilot.config.kubernetes.endpoint_slice import EndpointConditions, EndpointSlice, SliceEndpoint
from pilot.config.object import Object, RegistryKey
from pilot.lib import labels as label
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth
from pilot.mesh.model.service import Port, Service
from pilot.mesh.model.workload import Workload
from pilot.mesh.registry.networks import find_network
from pilot.mesh.registry.pods import pod_workload
from pilot.mesh.tables.database import Mesh

MULTICLUSTER_LABEL = "multicluster.kubernetes.io/service-name"


def slice_endpoints(db: Mesh, found: Service, port: Port) -> Iterable[Endpoint]:
    """Yields the endpoints of a port in every cluster; of an address that several slices of a cluster hold, one. Endpoints whose Pod has not
    arrived are skipped."""
    seen: set[tuple[str, str]] = set()
    for key in ENDPOINT_SLICE.keys(db, "service", found.source):
        row = ENDPOINT_SLICE.get(db, key)
        if row is None or row.spec.address_type == "FQDN" or MULTICLUSTER_LABEL in row.labels:
            continue
        for number in (p.port for p in row.spec.ports if p.name == port.name and p.port):
            for endpoint in _endpoints(db, found, key.cluster, row, number, port.name):
                if (place := (key.cluster, endpoint.addresses[0])) not in seen:
                    seen.add(place)
                    yield endpoint


def unmatched_accounts(db: Mesh, found: Service) -> Iterable[str]:
    """Yields who runs the service behind slices none of whose ports it has. Clients of it expect them too, as istiod's do."""
    names = {port.name for port in found.ports}
    for key in ENDPOINT_SLICE.keys(db, "service", found.source):
        row = ENDPOINT_SLICE.get(db, key)
        if row is None or row.spec.address_type == "FQDN" or MULTICLUSTER_LABEL in row.labels:
            continue
        listed = [p for p in row.spec.ports if p.port]
        if listed and not any(p.name in names for p in listed):
            yield from (e.service_account for e in _endpoints(db, found, key.cluster, row, 0, "") if e.service_account)


def _endpoints(
    db: Mesh, found: Service, cluster: str, row: Object[EndpointSlice], number: int, port_name: str
) -> Iterable[Endpoint]:
    both_families = db.settings.registry.dual_stack and len(found.addresses_in(cluster)) > 1
    draining = bool(found.session_label or found.session_header_label)
    for e in row.spec.endpoints:
        pod = _pod_of(e, cluster, row.namespace)
        for address in e.addresses:
            if pod is None:
                workload = _workload_at(db, address, cluster, row.namespace)
            elif (known := pod_workload(db, pod)) is None:
                continue
            elif not (both_families and len(known.addresses) > 1):
                workload = known.at((address,))
            elif row.spec.address_type == "IPv6":
                continue  # the IPv4 slice has the Pod with all of its addresses
            else:
                workload = known
            yield workload.endpoint(number, port_name, health_of(e.conditions, draining))


def health_of(conditions: EndpointConditions, sessions: bool) -> EndpointHealth:
    """Returns the health of an endpoint by its conditions; one that ends drains where its service has sessions that stick to it."""
    if conditions.ready is not False:
        return EndpointHealth.HEALTHY
    if conditions.terminating is not False:
        return EndpointHealth.DRAINING if sessions and conditions.serving is not False else EndpointHealth.TERMINATING
    return EndpointHealth.UNHEALTHY


def _pod_of(e: SliceEndpoint, cluster: str, namespace: str) -> RegistryKey | None:
    ref = e.target_ref
    return RegistryKey(cluster, ref.namespace or namespace, ref.name) if ref is not None and ref.kind == "Pod" else None


def _workload_at(db: Mesh, address: str, cluster: str, namespace: str) -> Workload:
    """Returns the workload at an address that names no Pod: that of a Pod which has the address all the same, else one without a name."""
    for key in POD.keys(db, "ip", address):
        known = pod_workload(db, key) if (key.cluster, key.namespace) == (cluster, namespace) else None
        if known is not None and known.ready and known.addresses[0] == address:
            return known.at((address,))
    network = find_network(db, cluster, address, {})
    labels = label.with_topology({}, cluster, "", "", network)
    return Workload(
        name="",
        namespace="",
        addresses=(address,),
        labels=frozenset(labels.items()),
        network=network,
        cluster_id=cluster,
    )
