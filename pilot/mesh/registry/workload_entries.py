"""Workloads of WorkloadEntries. They are objects of their own, or inline endpoints of ServiceEntries."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pilot.config.kinds.istio import WORKLOAD_ENTRY
from pilot.config.networking.workload_entry import REGISTRATION_GROUP, WorkloadEntry, WorkloadEntryObject
from pilot.config.object import Object, RegistryKey
from pilot.derive import Gather, derived, hub
from pilot.lib import labels as label
from pilot.lib import spiffe
from pilot.mesh.model.workload import Workload
from pilot.mesh.registry.networks import find_network
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.tables.database import Mesh

HEALTH_CHECKS = "proxy.istio.io/health-checks-enabled"


@derived
def entry_workload(db: Mesh, key: RegistryKey) -> Workload | None:
    """Return the workload of a WorkloadEntry object, or None if it does not exist or its health checks fail.

    Labels in the object's metadata override those in its spec.
    """
    row = WORKLOAD_ENTRY.get(db, key)
    if row is None or (db.settings.registry.entry_health_checks and not is_healthy(row)):
        return None
    labels = {**row.spec.labels, **row.labels}
    name = row.annotations.get(REGISTRATION_GROUP) or row.labels.get(label.WORKLOAD_NAME) or row.name
    return make_workload(db, key, row.spec, labels, name)


def is_healthy(entry: Object[WorkloadEntryObject]) -> bool:
    """Return True if a WorkloadEntry's health checks pass or are disabled."""
    if entry.annotations.get(HEALTH_CHECKS, "").lower() not in ("1", "t", "true"):
        return True
    return any(condition.type == "Healthy" and condition.status == "True" for condition in entry.spec.status.conditions)


@derived
def _selectable(db: Mesh, key: RegistryKey, _: str) -> Workload | None:
    return entry_workload(db, key)


@derived
def _entries_in(db: Mesh, namespace: str) -> tuple[RegistryKey, ...]:
    return WORKLOAD_ENTRY.keys(db, "namespace", namespace)


selectable_entries: Gather[RegistryKey, [str], Workload] = Gather("selectable_entries", _entries_in, _selectable)


def make_workload(db: Mesh, key: RegistryKey, entry: WorkloadEntry, labels: Mapping[str, str], name: str) -> Workload:
    """Return the workload of a WorkloadEntry with these labels. Not memoised. It reads only inputs that all
    WorkloadEntries share."""
    network = entry.network or find_network(db, key.cluster, entry.address, labels)
    workload = build_entry_workload(key, entry, labels, name, network, service_rules(db).trust_domain)
    return (
        msgspec.structs.replace(workload, hbone=True)
        if db.settings.ambient.enabled and label.accepts_hbone(labels, {})
        else workload
    )


def build_entry_workload(
    key: RegistryKey, entry: WorkloadEntry, labels: Mapping[str, str], name: str, network: str, trust_domain: str
) -> Workload:
    """Return the workload of a WorkloadEntry.

    It has a network only if the WorkloadEntry sets one. `network`, which may be derived, is used only for the label.
    """
    locality = entry.locality or label.locality_label(labels)
    return Workload(
        name=key.name,
        namespace=key.namespace,
        addresses=(entry.address,),
        labels=frozenset(label.with_topology(labels, key.cluster, locality, "", network).items()),
        ports=tuple(entry.ports.items()),
        service_account=spiffe.identity(trust_domain, key.namespace, entry.service_account)
        if entry.service_account
        else "",
        workload=name,
        network=entry.network,
        cluster_id=key.cluster,
        locality=locality,
        weight=entry.weight,
        tls_mode=labels.get(label.TLS_MODE, "istio" if entry.service_account else "disabled"),
    )


@derived
def _labels_of(db: Mesh, key: RegistryKey, _: str) -> frozenset[tuple[str, str]] | None:
    row = WORKLOAD_ENTRY.get(db, key)
    return frozenset({**row.spec.labels, **row.labels}.items()) if row is not None else None


entry_labels: Gather[RegistryKey, [str], frozenset[tuple[str, str]]] = Gather("entry_labels", _entries_in, _labels_of)


@hub
def entry_namespaces(db: Mesh) -> tuple[str, ...]:
    """Return the namespaces that have WorkloadEntries."""
    return tuple(dict.fromkeys(key.namespace for key in WORKLOAD_ENTRY.all_keys(db)))
