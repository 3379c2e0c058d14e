"""Where Ingresses are reached: what the status of each of them says."""

from __future__ import annotations

from collections.abc import Iterator

from pilot.config.kinds.kubernetes import NODE, POD, SERVICE
from pilot.config.object import ObjectKey, RegistryKey
from pilot.derive import derived, hub
from pilot.mesh.lowering.ingress.supported import ingress_mode, supported_ingress
from pilot.mesh.registry.external_addresses import own_addresses
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


@hub
def _addresses(db: Mesh) -> tuple[str, ...]:
    """Returns the addresses of the Service that the mesh config names; without one those of the nodes that the routers of Ingresses run on."""
    own, namespace, named = (
        db.settings.registry.cluster_id,
        db.settings.gateway_api.ingress_namespace,
        mesh_config(db).ingress_service,
    )
    if not named:
        return tuple(sorted(set(_of_nodes(db, own, namespace))))
    row = SERVICE.get(db, RegistryKey(own, namespace, named))
    if row is None:
        return ()
    if row.spec.type == "ExternalName":
        return (row.spec.external_name,) if row.spec.external_name else ()
    return tuple(sorted(set(own_addresses(row.spec))))


def _of_nodes(db: Mesh, cluster: str, namespace: str) -> Iterator[str]:
    """Yields the external IPs of the nodes of routers that run."""
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
            (a.address for a in node.spec.status.addresses if a.type == "ExternalIP" and a.address)
            if node is not None
            else ()
        )


@derived
def ingress_status(db: Mesh, key: ObjectKey) -> tuple[str, ...] | None:
    """Returns the addresses of an Ingress; None for one that is not this control plane's."""
    return _addresses(db) if supported_ingress(db, key) is not None else None
