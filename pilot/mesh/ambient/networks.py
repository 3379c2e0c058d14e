"""Networks in ambient mode: that of a cluster, and the gateways that take HBONE into others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY
from pilot.config.object import ObjectKey
from pilot.derive import derived, hub
from pilot.lib.addresses import is_ip
from pilot.lib.labels import NETWORK
from pilot.mesh.gateway_api.gateway_classes import REMOTE_CLASS
from pilot.mesh.gateway_api.gateways import SERVICE_ACCOUNT
from pilot.mesh.model.waypoint import HBONE, WaypointAddress
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.namespaces import namespace_labels


@derived
def cluster_network(db: Mesh, cluster: str) -> str:
    """Returns the network of a cluster, which the label of the control plane's namespace there says; "" where it has none."""
    return namespace_labels(db, cluster, db.settings.registry.namespace).get(NETWORK, "")


class TunnelGateway(NamedTuple):
    """A way into a network for HBONE: an IP address or a host name, by the Gateway that declares it. `account` is what its proxies run as."""

    network: str
    address: str
    port: int
    source: ObjectKey
    account: str = ""

    @property
    def location(self) -> WaypointAddress:
        """Returns where it takes HBONE."""
        if is_ip(self.address):
            return WaypointAddress(network=self.network, ip=self.address, port=self.port)
        return WaypointAddress(hostname=self.address, namespace=self.source.namespace, port=self.port)


@hub
def tunnel_gateways(db: Mesh) -> Mapping[str, tuple[TunnelGateway, ...]]:
    """Returns the ways into other networks, by network: Gateways of class istio-remote with a listener for HBONE."""
    out: dict[str, tuple[TunnelGateway, ...]] = {}
    if not (db.settings.gateway_api.enabled and db.settings.gateway_api.remote_gateways):
        return out
    for key in KUBERNETES_GATEWAY.keys(db, "network", True):
        row = KUBERNETES_GATEWAY.get(db, key)
        port = next((one.port for one in row.spec.listeners if one.protocol == HBONE), 0) if row is not None else 0
        if row is None or row.spec.gateway_class_name != REMOTE_CLASS or not port:
            continue
        account = row.annotations.get(SERVICE_ACCOUNT) or f"{row.name}-{REMOTE_CLASS}"
        network = row.labels[NETWORK]
        found = (a.value for a in row.spec.addresses if a.type in ("IPAddress", "Hostname"))
        out[network] = (*out.get(network, ()), *(TunnelGateway(network, value, port, key, account) for value in found))
    return out


@derived
def way_into(db: Mesh, network: str) -> WaypointAddress | None:
    """Returns where HBONE for a network goes in, None where no gateway is known."""
    found = tunnel_gateways(db).get(network, ())
    return found[0].location if found else None
