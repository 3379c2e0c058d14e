"""Pods as workloads."""

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
    """Returns the workload of a Pod, None if the Pod is not there or failed."""
    row = POD.get(db, key)
    if row is None or row.spec.status.phase == "Failed":
        return None
    network = find_network(db, key.cluster, row.spec.status.pod_ip, row.labels)
    locality = label.locality_label(row.labels) or locality_of_node(
        db, RegistryKey(key.cluster, "", row.spec.node_name)
    )
    built = build_pod_workload(
        row, locality, network, key.cluster, service_rules(db).trust_domain, db.settings.registry.dual_stack
    )
    tunnelled = db.settings.ambient.enabled and label.takes_hbone(row.labels, row.annotations)
    return msgspec.structs.replace(built, hbone=True) if tunnelled else built


@derived
def locality_of_node(db: Mesh, key: RegistryKey) -> str:
    """Returns the locality of a node as "region/zone/subzone", "" where it is unknown."""
    row = NODE.get(db, key)
    return label.node_locality(row.labels) if row is not None else ""


@derived
def _selectable(db: Mesh, key: RegistryKey, _: str) -> Workload | None:
    found = pod_workload(db, key)
    return found if found is not None and found.ready else None


@derived
def _pods_in(db: Mesh, namespace: str) -> tuple[RegistryKey, ...]:
    return POD.keys(db, "namespace", namespace)


selectable_pods: Gather[RegistryKey, [str], Workload] = Gather("selectable_pods", _pods_in, _selectable)


def build_pod_workload(
    o: Object[Pod], locality: str, network: str, cluster: str, trust_domain: str, dual_stack: bool
) -> Workload:
    """Returns the workload of a Pod of a cluster at a locality ("region/zone/subzone") and in a network."""
    pod, status = o.spec, o.spec.status
    ips = tuple(i.ip for i in status.pod_ips)
    labels = label.with_topology(o.labels, cluster, locality, pod.node_name, network)
    return Workload(
        name=o.name,
        namespace=o.namespace,
        addresses=ips if dual_stack and len(ips) > 1 else (status.pod_ip,),
        labels=frozenset(labels.items()),
        ports=tuple(named_ports(pod)),
        service_account=spiffe.identity(trust_domain, o.namespace, pod.service_account_name),
        workload=workload_name(o),
        hostname=(pod.hostname or o.name) if pod.subdomain else "",
        subdomain=pod.subdomain,
        network=labels.get(label.NETWORK, ""),
        cluster_id=cluster,
        locality=locality,
        node=pod.node_name,
        tls_mode=o.labels.get(label.TLS_MODE, "disabled"),
        ready=is_ready(pod),
        is_pod=True,
    )


def is_ready(pod: Pod) -> bool:
    """Returns whether a Pod belongs to what selects it: it runs, has an address, is ready, and is not being deleted."""
    status = pod.status
    if status.phase in ("Failed", "Succeeded") or not status.pod_ip or pod.deletion_timestamp:
        return False
    return any(c.type == "Ready" and c.status == "True" for c in status.conditions)


def named_ports(pod: Pod, protocol: str = "TCP") -> Iterable[tuple[str, int]]:
    """Returns the named ports of a Pod's containers and sidecars (init containers that keep running); of one name, the first."""
    sidecars = (c for c in pod.init_containers if c.restart_policy == "Always")
    containers: Iterable[Container] = (*pod.containers, *sidecars)
    found: dict[str, int] = {}
    for port in (p for c in containers for p in c.ports):
        if port.name and port.protocol == protocol:
            found.setdefault(port.name, port.container_port)
    return found.items()


def workload_name(o: Object[Pod]) -> str:
    """Returns the workload's name in telemetry: its label, else the controller that the Pod was generated for, else the Pod.

    The Deployment of a ReplicaSet and the CronJob of a Job are told by how they name them.
    """
    if name := o.labels.get(label.WORKLOAD_NAME):
        return name
    owner = next((r for r in o.spec.owner_references if r.controller), None)
    if owner is None or not o.spec.generate_name:
        return o.name
    if owner.kind == "ReplicaSet":
        for key in (label.POD_TEMPLATE_HASH, label.ROLLOUT_TEMPLATE_HASH):
            if (suffix := o.labels.get(key)) and owner.name.endswith(suffix):
                return owner.name.removesuffix(f"-{suffix}")
    if owner.kind == "ReplicationController" and (config := o.labels.get("deploymentconfig")):
        return config
    if owner.kind == "Job" and (job := _CRON_JOB.match(owner.name)):
        return job[1]
    return owner.name or o.name


@derived
def service_account_of(db: Mesh, key: RegistryKey) -> str:
    """Returns the name of the service account that a Pod runs as, "" where there is no such Pod."""
    row = POD.get(db, key)
    return row.spec.service_account_name if row is not None else ""


# -- labels, whether ready or not ------------------------------------------------------------------------------------------


@derived
def _labels_of(db: Mesh, key: RegistryKey, _: str) -> frozenset[tuple[str, str]] | None:
    row = POD.get(db, key)
    return frozenset(row.labels.items()) if row is not None else None


pod_labels: Gather[RegistryKey, [str], frozenset[tuple[str, str]]] = Gather("pod_labels", _pods_in, _labels_of)


@hub
def pod_namespaces(db: Mesh) -> tuple[str, ...]:
    """Returns the namespaces that have Pods."""
    return tuple(dict.fromkeys(key.namespace for key in POD.all_keys(db)))
