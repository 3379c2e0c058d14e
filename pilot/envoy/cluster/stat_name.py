"""Decides how a cluster is called in metrics. https:

istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig
"""

from __future__ import annotations

from pilot.mesh.model.service import Port, Registry, Service


def with_stat_delimiter(name: str) -> str:
    """Returns a name as metrics need it, with a delimiter at its end."""
    return name + STAT_DELIMITER


def build_stat_name(
    pattern: str, service: Service | None, port: Port, subset: str = "", target_port: int | None = 0
) -> str:
    """Returns a pattern of the mesh config (outboundClusterStatName, inboundClusterStatName) with its variables filled in.

    `service`: None where no service has the port. `target_port`: None leaves its variable as it is, as inbound TCP statistics have it.
    """
    hostname = service.hostname if service is not None else ""
    short, name = hostname, hostname
    if service is not None and service.registry is Registry.KUBERNETES:
        short, name = f"{service.name}.{service.namespace}", service.name
    values = (
        ("%SERVICE%", short),
        ("%SERVICE_NAME%", name),
        ("%SERVICE_FQDN%", hostname),
        ("%SUBSET_NAME%", subset),
        ("%TARGET_PORT%", "%TARGET_PORT%" if target_port is None else str(target_port)),
        ("%SERVICE_PORT%", str(port.number)),
        ("%SERVICE_PORT_NAME%", port.name),
    )
    for variable, value in values:
        pattern = pattern.replace(variable, value)
    return pattern


STAT_DELIMITER = ";"  # ends a name in metrics, so that names with dots can be told apart


# DOC """Holds a cluster while it is built: the message, and its HTTP options, which become an Any at the end."""
