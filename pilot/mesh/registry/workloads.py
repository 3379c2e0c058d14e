"""The workload of a proxy: its Pod, labels, locality and network, and the ServiceEntries that include it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pilot.config.kinds.istio import SERVICE_ENTRY, WORKLOAD_ENTRY
from pilot.config.kinds.kubernetes import POD
from pilot.config.object import ObjectKey, RegistryKey
from pilot.derive import derived
from pilot.lib import labels as label
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.model.workload import Workload
from pilot.mesh.registry.endpoints import entry_workloads
from pilot.mesh.registry.networks import find_network
from pilot.mesh.registry.pods import pod_workload
from pilot.mesh.registry.workload_entries import entry_workload
from pilot.mesh.tables.clusters import cluster_of
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy

TEST_VM_LABEL = "istio.io/test-vm"  # marks a Pod that simulates a virtual machine in Istio's tests


# -- the workload ------------------------------------------------------------------------------------------------------


@derived
def pod_of(db: Mesh, node_id: str) -> RegistryKey | None:
    """Return the Pod of a proxy in its cluster, or None if it has none.

    The proxy's id (`<pod>.<namespace>`) identifies the Pod. If there is no such Pod and a setting allows it, the Pod is
    found by its address.
    """
    proxy = find_proxy(db, node_id)
    name, _, namespace = proxy.id.partition(".")
    cluster = cluster_of(db, proxy)
    key = RegistryKey(cluster, namespace, name)
    if name and namespace == proxy.text("NAMESPACE", proxy.namespace) and pod_workload(db, key) is not None:
        return key
    if not db.settings.registry.find_pod_by_ip:
        return None
    candidates = (key for key in POD.keys(db, "ip", proxy.ips[0]) if key.cluster == cluster)
    ready = [key for key in candidates if (workload := pod_workload(db, key)) is not None and workload.ready]
    return ready[0] if len(ready) == 1 else next((key for key in ready if key.namespace == proxy.namespace), None)


@derived
def proxy_labels(db: Mesh, node_id: str) -> Mapping[str, str]:
    """Return the labels and topology labels of a proxy's workload. If no registry has the workload, use the node
    metadata."""
    proxy = find_proxy(db, node_id)
    labels = _own_labels(db, node_id)
    locality = str(_locality(labels, proxy))
    return label.with_topology(
        labels, cluster_of(db, proxy), locality, proxy.text("NODE_NAME"), proxy_network(db, node_id)
    )


@derived
def proxy_locality(db: Mesh, node_id: str) -> Locality:
    """Return the locality of a proxy. The registry takes precedence over the proxy's node."""
    return _locality(_own_labels(db, node_id), find_proxy(db, node_id))


def proxy_network(db: Mesh, node_id: str) -> str:
    """Return the network in a proxy's node metadata, or "" if it is not set. Not memoised.

    Whether endpoints are reachable depends on this network only.
    """
    return find_proxy(db, node_id).text("NETWORK")


@derived
def _own_labels(db: Mesh, node_id: str) -> Mapping[str, str]:
    metadata = find_proxy(db, node_id).metadata
    labels = _registry_labels(db, node_id)
    if labels is None:
        return metadata.get("LABELS") or {}
    return {**(metadata.get("STATIC_LABELS") or {}), **labels}


def _registry_labels(db: Mesh, node_id: str) -> Mapping[str, str] | None:
    proxy = find_proxy(db, node_id)
    if is_test_vm(proxy):
        return None
    pod = pod_of(db, node_id)
    row = POD.get(db, pod) if pod is not None else None
    workload = pod_workload(db, pod) if pod is not None else None
    if row is not None and workload is not None:
        network = find_network(db, workload.cluster_id, row.spec.status.pod_ip, row.labels)
        return label.with_topology(row.labels, workload.cluster_id, workload.locality, proxy.text("NODE_NAME"), network)
    entries = entries_at(db, proxy) if cluster_of(db, proxy) == db.settings.registry.cluster_id else ()
    for _, entry in entries:
        return dict(entry.labels)
    return None


def _locality(labels: Mapping[str, str], proxy: Proxy) -> Locality:
    if not labels.keys().isdisjoint((label.REGION, label.ZONE, label.SUBZONE)):
        return Locality(labels.get(label.REGION, ""), labels.get(label.ZONE, ""), labels.get(label.SUBZONE, ""))
    text = label.locality_label(labels)
    return Locality.parse(text) if text else proxy.locality


def is_test_vm(proxy: Proxy) -> bool:
    return bool(proxy.labels.get(TEST_VM_LABEL))


# -- ServiceEntries that include the workload --------------------------------------------------------------------------


def entries_at(db: Mesh, proxy: Proxy) -> Iterable[tuple[ObjectKey, Workload]]:
    """Yield each ServiceEntry in the proxy's namespace that has an endpoint at an address of the proxy, with the
    workload of this endpoint."""
    for ip in proxy.ips:
        keys = SERVICE_ENTRY.keys(db, "address", ip)
        for key in (
            *(key for key in keys if key.namespace == proxy.namespace),
            *selecting_entries(db, proxy.namespace, ip),
        ):
            row = SERVICE_ENTRY.get(db, key)
            for workload in entry_workloads(db, row) if row is not None else ():
                if workload.addresses[0] == ip:
                    yield key, workload


def selecting_entries(db: Mesh, namespace: str, ip: str) -> Iterable[ObjectKey]:
    """Yield the ServiceEntries in a namespace that select a workload with this address."""
    pods = (pod_workload(db, key) for key in POD.keys(db, "ip", ip) if key.namespace == namespace)
    entries = (entry_workload(db, key) for key in WORKLOAD_ENTRY.keys(db, "address", ip) if key.namespace == namespace)
    workloads = [workload for workload in (*pods, *entries) if workload is not None and workload.ready]
    if not workloads:
        return
    for key in SERVICE_ENTRY.keys(db, "selecting", namespace):
        row = SERVICE_ENTRY.get(db, key)
        selector = row.spec.workload_selector if row is not None else None
        if selector is not None and any(workload.serves(selector.labels) for workload in workloads):
            yield key
