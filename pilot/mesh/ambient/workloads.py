"""The workloads that ztunnels receive for Pods and WorkloadEntries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.config.kinds.istio import WORKLOAD_ENTRY
from pilot.config.kinds.kubernetes import POD
from pilot.config.networking.workload_entry import REGISTRATION_GROUP, WorkloadEntry
from pilot.config.object import ObjectKey, RegistryKey
from pilot.derive import derived, hub
from pilot.lib import labels as label
from pilot.lib.addresses import is_ip
from pilot.mesh.ambient.attachments import instance_of, service_attachment, subject_of, workload_attachment
from pilot.mesh.ambient.policies import waypoint_policies, workload_policies
from pilot.mesh.ambient.served_services import (
    entry_port,
    selecting_entries,
    selecting_services,
    served,
    services_of_pod,
)
from pilot.mesh.ambient.tunnel_gateways import gateway_into
from pilot.mesh.ambient.waypoints import waypoint
from pilot.mesh.model.address import AddressKey, ServedService, WorkloadAddress
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.networks import cluster_network
from pilot.mesh.registry.pods import locality_of_node, workload_name
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.tables.clusters import is_included
from pilot.mesh.tables.database import Mesh


@derived
def pod_address(db: Mesh, key: RegistryKey) -> WorkloadAddress | None:
    """Return the workload of a Pod, or None if the Pod has terminated or has no valid IP address."""
    row = POD.get(db, key) if is_included(db, key.cluster) else None
    if row is None or row.spec.status.phase in ("Failed", "Succeeded"):
        return None
    pod, status = row.spec, row.spec.status
    ips = tuple(one.ip for one in status.pod_ips) or ((status.pod_ip,) if status.pod_ip else ())
    if not ips or not all(map(is_ip, ips)):
        return None
    name, network = workload_name(row), cluster_network(db, key.cluster)
    ready = any(c.type == "Ready" and c.status == "True" for c in status.conditions)
    workload = WorkloadAddress(
        uid=AddressKey("Pod", *key).uid,
        name=row.name,
        namespace=row.namespace,
        addresses=ips,
        network=network,
        gateway=gateway_into(db, network),
        cluster=key.cluster,
        trust_domain=workload_trust_domain(db),
        service_account=pod.service_account_name,
        node=pod.node_name,
        workload=name,
        canonical=label.canonical_service(row.labels, name),
        locality=Locality.parse(
            locality_of_node(db, RegistryKey(key.cluster, "", pod.node_name)) if pod.node_name else ""
        ),
        services=services_of_pod(db, key),
        healthy=ready and not pod.deletion_timestamp,
        host_network=pod.host_network,
    )
    return with_attachments(db, workload, row.labels, row.annotations)


@derived
def entry_address(db: Mesh, key: RegistryKey) -> WorkloadAddress | None:
    """Return the workload of a WorkloadEntry in the local cluster."""
    row = (
        WORKLOAD_ENTRY.get(db, key)
        if db.settings.ambient.enabled and key.cluster == db.settings.registry.cluster_id
        else None
    )
    if row is None:
        return None
    labels = {**row.spec.labels, **row.labels}
    name = row.annotations.get(REGISTRATION_GROUP) or row.labels.get(label.WORKLOAD_NAME) or row.name
    base = WorkloadAddress(
        uid=AddressKey("WorkloadEntry", *key).uid,
        name=row.name,
        namespace=row.namespace,
        workload=name,
        canonical=label.canonical_service(labels, name),
        services=_services_of_entry(db, key, row.spec, frozenset(labels.items())),
    )
    return with_attachments(db, of_entry(db, base, row.spec), labels, row.annotations)


def _services_of_entry(
    db: Mesh, key: RegistryKey, entry: WorkloadEntry, labels: frozenset[tuple[str, str]]
) -> tuple[ServedService, ...]:
    services = (
        selecting_services(db, key.cluster, key.namespace, labels)
        if db.settings.registry.services_select_entries
        else ()
    )
    return served((*services, *selecting_entries(db, key.namespace, labels)), entry_port(entry))


def of_entry(db: Mesh, base: WorkloadAddress, entry: WorkloadEntry) -> WorkloadAddress:
    """Return a copy of a workload with its fields set from a workload entry. Not memoised."""
    cluster = db.settings.registry.cluster_id
    network = entry.network or cluster_network(db, cluster)
    return msgspec.structs.replace(
        base,
        addresses=(entry.address,) if is_ip(entry.address) else (),
        hostname="" if is_ip(entry.address) else entry.address,
        network=network,
        gateway=gateway_into(db, network),
        cluster=cluster,
        trust_domain=workload_trust_domain(db),
        service_account=entry.service_account,
        locality=Locality.parse(entry.locality),
        capacity=entry.weight,
    )


def with_attachments(
    db: Mesh, workload: WorkloadAddress, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> WorkloadAddress:
    """Return a copy of a workload with the waypoint, tunnel and policies that its labels and annotations determine. Not
    memoised."""
    subject = subject_of(workload.namespace, labels)
    own, attached = instance_of(db, subject), workload_attachment(db, subject)
    main = waypoint(db, attached.waypoint) if attached.waypoint is not None else None
    itself = waypoint(db, own) if own is not None else None
    policies = workload_policies(db, workload.namespace, labels)
    return msgspec.structs.replace(
        workload,
        waypoint=main.address if main is not None else None,
        tunnel=itself.tunnel if itself is not None else None,
        policies=(*policies, *waypoint_policies(db, used_waypoints(db, workload.services, attached.waypoint))),
        **tunnels(labels, annotations),
    )


def used_waypoints(db: Mesh, services: tuple[ServedService, ...], own: ObjectKey | None) -> tuple[ObjectKey, ...]:
    """Return the waypoints of a workload's services and the workload's own waypoint. Not memoised."""
    if not db.settings.ambient.allow_waypoints:
        return ()
    refs = (ServiceRef(hostname, namespace) for namespace, hostname in (s.service.split("/", 1) for s in services))
    of_services = (service_attachment(db, ref).waypoint for ref in refs)
    return tuple(dict.fromkeys(key for key in (*of_services, own) if key is not None))


def tunnels(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Mapping[str, Any]:
    """Return whether a workload accepts HBONE, and whether it does so natively, that is, without a ztunnel."""
    native = "http" in labels.get(label.TUNNEL, "").split(",")
    return {"tunnels": native or annotations.get(label.REDIRECTION) == "enabled", "native": native}


@hub
def workload_trust_domain(db: Mesh) -> str:
    """Return the mesh's trust domain, or "" if it is ztunnel's default."""
    domain = service_rules(db).trust_domain
    return "" if domain == "cluster.local" else domain
