"""Endpoints from the EndpointSlices of a Service."""

from __future__ import annotations

from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, POD
from pilot.config.kubernetes.endpoint_slice import EndpointConditions, EndpointSlice, SliceEndpoint
from pilot.config.object import Object, RegistryKey
from pilot.derive import Steps
from pilot.lib import labels as label
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth
from pilot.mesh.model.service import Port, Service
from pilot.mesh.model.workload import Workload
from pilot.mesh.registry.networks import find_network
from pilot.mesh.registry.pods import pod_workload
from pilot.mesh.tables.database import Mesh

MULTICLUSTER_LABEL = "multicluster.kubernetes.io/service-name"


def slice_endpoints(db: Mesh, service: Service, port: Port) -> Steps[list[Endpoint]]:
    """Return the endpoints of a port in all clusters. Addresses are unique within a cluster.

    An endpoint is skipped while its Pod is unknown.
    """
    by_place: dict[tuple[str, str], Endpoint] = {}
    for key in ENDPOINT_SLICE.keys(db, "service", service.source):
        row = ENDPOINT_SLICE.get(db, key)
        if row is None or row.spec.address_type == "FQDN" or MULTICLUSTER_LABEL in row.labels:
            continue
        for number in (
            slice_port.port for slice_port in row.spec.ports if slice_port.name == port.name and slice_port.port
        ):
            for endpoint in (yield from _endpoints(db, service, key.cluster, row, number, port.name)):
                by_place.setdefault((key.cluster, endpoint.addresses[0]), endpoint)
    return list(by_place.values())


def unmatched_accounts(db: Mesh, service: Service) -> Steps[set[str]]:
    """Return the service accounts of the endpoints in EndpointSlices that have ports, but none of the service's ports.

    As in istiod, clients accept these service accounts too.
    """
    accounts: set[str] = set()
    names = {port.name for port in service.ports}
    for key in ENDPOINT_SLICE.keys(db, "service", service.source):
        row = ENDPOINT_SLICE.get(db, key)
        if row is None or row.spec.address_type == "FQDN" or MULTICLUSTER_LABEL in row.labels:
            continue
        slice_ports = [slice_port for slice_port in row.spec.ports if slice_port.port]
        if slice_ports and not any(slice_port.name in names for slice_port in slice_ports):
            unmatched = yield from _endpoints(db, service, key.cluster, row, 0, "")
            accounts.update(endpoint.service_account for endpoint in unmatched)
    return accounts


def _endpoints(
    db: Mesh, service: Service, cluster: str, row: Object[EndpointSlice], number: int, port_name: str
) -> Steps[list[Endpoint]]:
    listed: list[Endpoint] = []
    both_families = db.settings.registry.dual_stack and len(service.addresses_in(cluster)) > 1
    draining = bool(service.session_label or service.session_header_label)
    for endpoint in row.spec.endpoints:
        pod = _pod_of(endpoint, cluster, row.namespace)
        yield pod_workload.step(pod) if pod is not None and endpoint.addresses else None
        for address in endpoint.addresses:
            if pod is None:
                workload = _workload_at(db, address, cluster, row.namespace)
            elif (of_pod := pod_workload(db, pod)) is None:
                continue
            elif not (both_families and len(of_pod.addresses) > 1):
                workload = of_pod.at((address,))
            elif row.spec.address_type == "IPv6":
                continue  # the IPv4 slice yields the Pod with all of its addresses
            else:
                workload = of_pod
            listed.append(workload.endpoint(number, port_name, endpoint_health(endpoint.conditions, draining)))
    return listed


def endpoint_health(conditions: EndpointConditions, sessions: bool) -> EndpointHealth:
    """Return the health of an endpoint. A terminating endpoint drains if its service has persistent sessions."""
    if conditions.ready is not False:
        return EndpointHealth.HEALTHY
    if conditions.terminating is not False:
        return EndpointHealth.DRAINING if sessions and conditions.serving is not False else EndpointHealth.TERMINATING
    return EndpointHealth.UNHEALTHY


def _pod_of(endpoint: SliceEndpoint, cluster: str, namespace: str) -> RegistryKey | None:
    ref = endpoint.target_ref
    return RegistryKey(cluster, ref.namespace or namespace, ref.name) if ref is not None and ref.kind == "Pod" else None


def _workload_at(db: Mesh, address: str, cluster: str, namespace: str) -> Workload:
    """Return the workload at the address of an endpoint that does not refer to a Pod.

    It is a Pod that has the address or, if there is none, an unnamed workload.
    """
    for key in POD.keys(db, "ip", address):
        of_pod = pod_workload(db, key) if (key.cluster, key.namespace) == (cluster, namespace) else None
        if of_pod is not None and of_pod.ready and of_pod.addresses[0] == address:
            return of_pod.at((address,))
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
