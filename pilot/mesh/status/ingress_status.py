"""The status of Ingresses: the addresses through which they are reachable."""

from __future__ import annotations

from collections.abc import Iterator

from pilot.config.kinds.kubernetes import NODE, POD, SERVICE
from pilot.config.object import ObjectKey, RegistryKey
from pilot.derive import derived, hub
from pilot.mesh.lowering.ingress.supported_ingresses import ingress_mode, supported_ingress
from pilot.mesh.registry.external_addresses import declared_external_addresses
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


@hub
def _addresses(db: Mesh) -> tuple[str, ...]:
    """Return the addresses of the Service that the mesh config names.

    If it names none, return the addresses of the nodes that run ingress routers.
    """
    cluster, namespace, service = (
        db.settings.registry.cluster_id,
        db.settings.gateway_api.ingress_namespace,
        mesh_config(db).ingress_service,
    )
    if not service:
        return tuple(sorted(set(_of_nodes(db, cluster, namespace))))
    row = SERVICE.get(db, RegistryKey(cluster, namespace, service))
    if row is None:
        return ()
    if row.spec.type == "ExternalName":
        return (row.spec.external_name,) if row.spec.external_name else ()
    return tuple(sorted(set(declared_external_addresses(row.spec))))


def _of_nodes(db: Mesh, cluster: str, namespace: str) -> Iterator[str]:
    """Yield the external IPs of the nodes on which ingress routers are running."""
    selector = ingress_mode(db).selector
    for key in POD.keys(db, "namespace", namespace):
        row = POD.get(db, key)
        if (
            key.cluster != cluster
            or row is None
            or row.spec.status.phase != "Running"
            or row.labels.get("istio") != selector
        ):
            continue
        node = NODE.get(db, RegistryKey(cluster, "", row.spec.node_name))
        yield from (
            (
                address.address
                for address in node.spec.status.addresses
                if address.type == "ExternalIP" and address.address
            )
            if node is not None
            else ()
        )


@derived
def ingress_status(db: Mesh, key: ObjectKey) -> tuple[str, ...] | None:
    """Return the addresses of an Ingress, or None if the Ingress belongs to another controller."""
    return _addresses(db) if supported_ingress(db, key) is not None else None
