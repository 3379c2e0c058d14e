"""A proxy's own workload: its labels, where it runs, and the ServiceEntries that have it among theirs."""

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

TEST_VM_LABEL = "istio.io/test-vm"  # a Pod that stands for a virtual machine in Istio's own tests


# -- what is known of the workload -------------------------------------------------------------------------------------------


@derived
def pod_of(db: Mesh, node_id: str) -> RegistryKey | None:
    """Returns the Pod of a proxy in its cluster: `<pod>.<namespace>` by its id, else, where the setting says so, by its address."""
    proxy = find_proxy(db, node_id)
    name, _, namespace = proxy.id.partition(".")
    cluster = cluster_of(db, proxy)
    key = RegistryKey(cluster, namespace, name)
    if name and namespace == proxy.text("NAMESPACE", proxy.namespace) and pod_workload(db, key) is not None:
        return key
    if not db.settings.registry.find_pod_by_ip:
        return None
    here = (k for k in POD.keys(db, "ip", proxy.ips[0]) if k.cluster == cluster)
    at = [k for k in here if (w := pod_workload(db, k)) is not None and w.ready]
    return at[0] if len(at) == 1 else next((k for k in at if k.namespace == proxy.namespace), None)


@derived
def proxy_labels(db: Mesh, node_id: str) -> Mapping[str, str]:
    """Returns the labels of a proxy's workload and where it runs; those of its node metadata where no registry knows it."""
    proxy = find_proxy(db, node_id)
    labels = _own_labels(db, node_id)
    locality = str(_locality(labels, proxy))
    return label.with_topology(
        labels, cluster_of(db, proxy), locality, proxy.text("NODE_NAME"), proxy_network(db, node_id)
    )


@derived
def proxy_locality(db: Mesh, node_id: str) -> Locality:
    """Returns where a proxy runs: by the registry, else as its node says."""
    return _locality(_own_labels(db, node_id), find_proxy(db, node_id))


def proxy_network(db: Mesh, node_id: str) -> str:
    """Returns the network that a proxy's node names, "" for none: only by its own word endpoints are out of its reach. No node of its own."""
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
    known = pod_workload(db, pod) if pod is not None else None
    if row is not None and known is not None:
        network = find_network(db, known.cluster_id, row.spec.status.pod_ip, row.labels)
        return label.with_topology(row.labels, known.cluster_id, known.locality, proxy.text("NODE_NAME"), network)
    entries = entries_at(db, proxy) if cluster_of(db, proxy) == db.settings.registry.cluster_id else ()
    for _, workload in entries:
        return dict(workload.labels)
    return None


def _locality(labels: Mapping[str, str], proxy: Proxy) -> Locality:
    if not labels.keys().isdisjoint((label.REGION, label.ZONE, label.SUBZONE)):
        return Locality(labels.get(label.REGION, ""), labels.get(label.ZONE, ""), labels.get(label.SUBZONE, ""))
    said = label.locality_label(labels)
    return Locality.parse(said) if said else proxy.locality


def is_test_vm(proxy: Proxy) -> bool:
    return bool(proxy.labels.get(TEST_VM_LABEL))


# -- ServiceEntries that have it among their workloads -----------------------------------------------------------------------


def entries_at(db: Mesh, proxy: Proxy) -> Iterable[tuple[ObjectKey, Workload]]:
    """Yields the ServiceEntries of the proxy's namespace with an endpoint at one of its addresses, each with that endpoint's workload."""
    for ip in proxy.ips:
        listed = SERVICE_ENTRY.keys(db, "address", ip)
        for key in (
            *(k for k in listed if k.namespace == proxy.namespace),
            *selecting_entries(db, proxy.namespace, ip),
        ):
            row = SERVICE_ENTRY.get(db, key)
            for workload in entry_workloads(db, row) if row is not None else ():
                if workload.addresses[0] == ip:
                    yield key, workload


def selecting_entries(db: Mesh, namespace: str, ip: str) -> Iterable[ObjectKey]:
    """Yields the ServiceEntries of a namespace that select a workload at an address."""
    of_pods = (pod_workload(db, k) for k in POD.keys(db, "ip", ip) if k.namespace == namespace)
    of_entries = (entry_workload(db, k) for k in WORKLOAD_ENTRY.keys(db, "address", ip) if k.namespace == namespace)
    here = [w for w in (*of_pods, *of_entries) if w is not None and w.ready]
    if not here:
        return
    for key in SERVICE_ENTRY.keys(db, "selecting", namespace):
        row = SERVICE_ENTRY.get(db, key)
        selector = row.spec.workload_selector if row is not None else None
        if selector is not None and any(w.serves(selector.labels) for w in here):
            yield key
