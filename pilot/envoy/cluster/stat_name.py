"""Names of clusters and listeners in metrics.

https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig
"""

from __future__ import annotations

from pilot.mesh.model.service import Port, Registry, Service


def with_stat_delimiter(name: str) -> str:
    """Return a name followed by the delimiter that separates it from the rest of a metric's name."""
    return name + STAT_DELIMITER


def build_stat_name(
    pattern: str, service: Service | None, port: Port, subset: str = "", target_port: int | None = 0
) -> str:
    """Return a stat name pattern from the mesh config, with its variables expanded.

    `service` is None if no service has the port. If `target_port` is None, %TARGET_PORT% is not expanded. This is the
    case for inbound TCP statistics.
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


STAT_DELIMITER = ";"  # marks the end of a name, because names contain dots
