"""Workloads that are Pods."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from pilot.config.kinds.kubernetes import NODE, POD
from pilot.config.kubernetes.pod import Container, Pod
from pilot.config.object import Object, RegistryKey
from pilot.derive import Gather, derived, hub
from pilot.lib import labels as label
from pilot.lib import spiffe
from pilot.mesh.model.workload import Workload
from pilot.mesh.registry.networks import find_network
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.tables.database import Mesh

_CRON_JOB = re.compile(r"(.+)-\d{8,10}$")


@derived
def pod_workload(db: Mesh, key: RegistryKey) -> Workload | None:
    """Return the workload of a Pod, or None if the Pod does not exist or has failed."""
    row = POD.get(db, key)
    if row is None or row.spec.status.phase == "Failed":
        return None
    network = find_network(db, key.cluster, row.spec.status.pod_ip, row.labels)
    locality = label.locality_label(row.labels) or locality_of_node(
        db, RegistryKey(key.cluster, "", row.spec.node_name)
    )
    workload = build_pod_workload(
        row, locality, network, key.cluster, service_rules(db).trust_domain, db.settings.registry.dual_stack
    )
    accepts_hbone = db.settings.ambient.enabled and label.accepts_hbone(row.labels, row.annotations)
    return msgspec.structs.replace(workload, hbone=True) if accepts_hbone else workload


@derived
def locality_of_node(db: Mesh, key: RegistryKey) -> str:
    """Return the locality of a node as "region/zone/subzone", or "" if it is unknown."""
    row = NODE.get(db, key)
    return label.node_locality(row.labels) if row is not None else ""


@derived
def _selectable(db: Mesh, key: RegistryKey, _: str) -> Workload | None:
    workload = pod_workload(db, key)
    return workload if workload is not None and workload.ready else None


@derived
def pods_in(db: Mesh, namespace: str) -> tuple[RegistryKey, ...]:
    """Return the keys of the Pods in a namespace."""
    return POD.keys(db, "namespace", namespace)


selectable_pods: Gather[RegistryKey, [str], Workload] = Gather("selectable_pods", pods_in, _selectable)


def build_pod_workload(
    row: Object[Pod], locality: str, network: str, cluster: str, trust_domain: str, dual_stack: bool
) -> Workload:
    """Return the workload of a Pod. `locality` is a "region/zone/subzone"."""
    pod, status = row.spec, row.spec.status
    ips = tuple(item.ip for item in status.pod_ips)
    labels = label.with_topology(row.labels, cluster, locality, pod.node_name, network)
    return Workload(
        name=row.name,
        namespace=row.namespace,
        addresses=ips if dual_stack and len(ips) > 1 else (status.pod_ip,),
        labels=frozenset(labels.items()),
        ports=tuple(named_ports(pod)),
        service_account=spiffe.identity(trust_domain, row.namespace, pod.service_account_name),
        workload=workload_name(row),
        hostname=(pod.hostname or row.name) if pod.subdomain else "",
        subdomain=pod.subdomain,
        network=labels.get(label.NETWORK, ""),
        cluster_id=cluster,
        locality=locality,
        node=pod.node_name,
        tls_mode=row.labels.get(label.TLS_MODE, "disabled"),
        ready=is_ready(pod),
        is_pod=True,
    )


def is_ready(pod: Pod) -> bool:
    """Return True if service selectors may match a Pod. It must have an address, be ready, and not be terminated or
    deleted."""
    status = pod.status
    if status.phase in ("Failed", "Succeeded") or not status.pod_ip or pod.deletion_timestamp:
        return False
    return any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions)


def running_containers(pod: Pod) -> Iterable[Container]:
    """Return the containers and sidecar containers (init containers that keep running) of a Pod."""
    sidecars = (container for container in pod.init_containers if container.restart_policy == "Always")
    return (*pod.containers, *sidecars)


def named_ports(pod: Pod, protocol: str = "TCP") -> Iterable[tuple[str, int]]:
    """Return the named ports of a Pod's running containers.

    If several ports have the same name, the first takes precedence.
    """
    ports: dict[str, int] = {}
    for port in (item for container in running_containers(pod) for item in container.ports):
        if port.name and port.protocol == protocol:
            ports.setdefault(port.name, port.container_port)
    return ports.items()


def workload_name(row: Object[Pod]) -> str:
    """Return the name of a Pod's workload in telemetry.

    It is the name in the Pod's label, or else that of the Pod's controller, or else that of the Pod. For a ReplicaSet
    or Job, the name of its Deployment or CronJob is derived from the naming pattern.
    """
    if name := row.labels.get(label.WORKLOAD_NAME):
        return name
    owner = next((reference for reference in row.spec.owner_references if reference.controller), None)
    if owner is None or not row.spec.generate_name:
        return row.name
    if owner.kind == "ReplicaSet":
        for key in (label.POD_TEMPLATE_HASH, label.ROLLOUT_TEMPLATE_HASH):
            if (suffix := row.labels.get(key)) and owner.name.endswith(suffix):
                return owner.name.removesuffix(f"-{suffix}")
    if owner.kind == "ReplicationController" and (config := row.labels.get("deploymentconfig")):
        return config
    if owner.kind == "Job" and (job := _CRON_JOB.match(owner.name)):
        return job[1]
    return owner.name or row.name


@derived
def service_account_of(db: Mesh, key: RegistryKey) -> str:
    """Return the service account of a Pod, or "" if the Pod does not exist."""
    row = POD.get(db, key)
    return row.spec.service_account_name if row is not None else ""


# -- labels of all Pods, ready or not ----------------------------------------------------------------------------------


@derived
def _labels_of(db: Mesh, key: RegistryKey, _: str) -> frozenset[tuple[str, str]] | None:
    row = POD.get(db, key)
    return frozenset(row.labels.items()) if row is not None else None


pod_labels: Gather[RegistryKey, [str], frozenset[tuple[str, str]]] = Gather("pod_labels", pods_in, _labels_of)


@hub
def pod_namespaces(db: Mesh) -> tuple[str, ...]:
    """Return the namespaces that have Pods."""
    return tuple(dict.fromkeys(key.namespace for key in POD.all_keys(db)))
