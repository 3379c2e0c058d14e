"""Holds what the mesh config and the settings say to every listener."""

from __future__ import annotations

import ipaddress

import msgspec

from pilot.derive import hub
from pilot.lib.duration import Duration
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config, mesh_networks


class ListenerDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the part of the mesh config that listeners are made by, so that any other edit of it leaves them alone."""

    outbound_port: int
    inbound_port: int
    http_proxy_port: int
    detection_timeout: Duration
    normalization: str
    inbound_stat_name: str = ""
    outbound_stat_name: str = ""


@hub
def listener_defaults(db: Mesh) -> ListenerDefaults:
    """Returns the defaults of this mesh."""
    mesh = mesh_config(db)
    return ListenerDefaults(
        outbound_port=mesh.proxy_listen_port,
        inbound_port=mesh.proxy_inbound_listen_port,
        http_proxy_port=mesh.proxy_http_port,
        detection_timeout=mesh.protocol_detection_timeout,
        normalization=mesh.path_normalization.normalization if mesh.path_normalization is not None else "DEFAULT",
        inbound_stat_name=mesh.inbound_cluster_stat_name,
        outbound_stat_name=mesh.outbound_cluster_stat_name,
    )


@hub
def internal_networks(db: Mesh) -> tuple[str, ...]:
    """Returns the address ranges of the mesh networks, sorted."""
    found = set()
    for network in mesh_networks(db).networks.values():
        for endpoints in network.endpoints:
            try:
                found.add(ipaddress.ip_interface(endpoints.from_cidr or ""))
            except ValueError:
                continue
    return tuple(i.with_prefixlen for i in sorted(found, key=lambda i: (i.version, i.ip.packed, i.network.prefixlen)))
