"""The context for the routes of a VirtualService."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pilot.config.networking.destination_rule import ConsistentHashLB
from pilot.config.networking.virtual_service import HTTPRetry
from pilot.derive import derived
from pilot.envoy.route.route_destination import DestinationKey, DestinationService
from pilot.mesh.model.facets import Labels
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


class RouteContext(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of the proxy and listener that affect the routes of a VirtualService.

    - `port`: the listener port, or 0 for a listener that serves all ports (an HTTP proxy or a Unix socket).
    - `gateways`: the gateway names that matches may select. For a sidecar it is {"mesh"}.
    - `namespace`, `labels`: properties of the proxy.
    - `destinations`: visible services, keyed by host.
    - `consistent_hashes`: hash settings, keyed by destination.
    - `retries`: the mesh's default policy.
    - `forwarded_host`: set X-Forwarded-Host if the host is rewritten.
    - `tls`: the listener terminates TLS.
    - `alt_svc`: advertise HTTP/3.
    - `shadow_suffix`: append "-shadow" to the host of mirrored requests.
    - `waypoint`: the routes belong to a waypoint.
    """

    port: int
    gateways: frozenset[str] = frozenset(("mesh",))
    namespace: str = ""
    labels: Labels = frozenset()
    destinations: Mapping[str, DestinationService] = {}
    consistent_hashes: Mapping[DestinationKey, ConsistentHashLB] = {}
    retries: HTTPRetry | None = None
    forwarded_host: bool = False
    tls: bool = False
    alt_svc: bool = False
    shadow_suffix: bool = False
    waypoint: bool = False


@derived
def default_retry_policy(db: Mesh) -> HTTPRetry | None:
    """Return the mesh's default retry policy."""
    return mesh_config(db).default_http_retry_policy
