"""Gateways through which HBONE traffic enters other networks."""

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


class TunnelGateway(NamedTuple):
    """A gateway through which HBONE traffic enters a network: its address, its port, the Gateway that declares it, and
    its service account.

    `address` is an IP address or a host name.
    """

    network: str
    address: str
    port: int
    source: ObjectKey
    account: str = ""

    @property
    def location(self) -> WaypointAddress:
        """The address on which the gateway accepts HBONE."""
        if is_ip(self.address):
            return WaypointAddress(network=self.network, ip=self.address, port=self.port)
        return WaypointAddress(hostname=self.address, namespace=self.source.namespace, port=self.port)


@hub
def tunnel_gateways(db: Mesh) -> Mapping[str, tuple[TunnelGateway, ...]]:
    """Return the gateways through which HBONE traffic enters other networks, keyed by network.

    They are Gateways of class istio-remote with an HBONE listener.
    """
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
        addresses = (a.value for a in row.spec.addresses if a.type in ("IPAddress", "Hostname"))
        gateways = (TunnelGateway(network, address, port, key, account) for address in addresses)
        out[network] = (*out.get(network, ()), *gateways)
    return out


@derived
def gateway_into(db: Mesh, network: str) -> WaypointAddress | None:
    """Return the address of the first gateway through which HBONE traffic enters a network.

    Return None if the network has no gateway.
    """
    gateways = tunnel_gateways(db).get(network, ())
    return gateways[0].location if gateways else None
