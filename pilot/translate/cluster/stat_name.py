"""How a cluster is called in metrics. https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig"""
from __future__ import annotations

from pilot.model.service import Port, Registry, Service
from pilot.translate.cluster.draft import STAT_DELIMITER


def delimited(name: str) -> str:
    """A name as metrics need it."""
    return name + STAT_DELIMITER


def build_stat_name(pattern: str, service: Service, port: Port, subset: str = "", target_port: int = 0) -> str:
    """A pattern of the mesh config (outboundClusterStatName, inboundClusterStatName) with its variables filled in."""
    ours = service.registry is Registry.KUBERNETES
    values = (
        ("%SERVICE%", f"{service.name}.{service.namespace}" if ours else service.hostname),
        ("%SERVICE_NAME%", service.name if ours else service.hostname),
        ("%SERVICE_FQDN%", service.hostname),
        ("%SUBSET_NAME%", subset),
        ("%TARGET_PORT%", str(target_port)),
        ("%SERVICE_PORT%", str(port.number)),
        ("%SERVICE_PORT_NAME%", port.name),
    )
    for variable, value in values:
        pattern = pattern.replace(variable, value)
    return pattern
