"""Network gateways that are declared as Gateways of the Gateway API, in the local cluster or a remote one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pilot.config.gateway_api.gateway import Gateway
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY
from pilot.config.object import Object
from pilot.lib.labels import NETWORK
from pilot.mesh.gateway_api.gateway_classes import REMOTE_CLASS
from pilot.mesh.gateway_api.listener_tls import is_auto_passthrough
from pilot.mesh.tables.database import Mesh


class ListenerNetworkGateway(NamedTuple):
    """A listener through which traffic enters a network. `hbone_port` is 0 if the listener does not accept HBONE."""

    address: str
    port: int
    network: str
    hbone_port: int = 0


def listener_network_gateways(db: Mesh) -> Iterator[ListenerNetworkGateway]:
    """Yield the listeners through which traffic enters a network. Not memoised."""
    if not db.settings.gateway_api.enabled:
        return
    for key in KUBERNETES_GATEWAY.keys(db, "network", True):
        row = KUBERNETES_GATEWAY.get(db, key)
        if row is not None and (db.settings.gateway_api.remote_gateways or row.spec.gateway_class_name != REMOTE_CLASS):
            yield from _listener_gateways(row)


def _listener_gateways(row: Object[Gateway]) -> Iterator[ListenerNetworkGateway]:
    for address in (a.value for a in row.spec.addresses if a.type in ("IPAddress", "Hostname")):
        for listener in row.spec.listeners:
            if is_auto_passthrough(row.labels, listener):
                yield ListenerNetworkGateway(address, listener.port, row.labels[NETWORK])
            elif listener.protocol == "HBONE":
                yield ListenerNetworkGateway(address, listener.port, row.labels[NETWORK], listener.port)
