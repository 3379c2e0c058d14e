"""Holds what the routes of a VirtualService depend on besides itself."""

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
    """Says for whom routes are built.

    `port`: of the listener, 0 for one that serves all ports (an HTTP proxy, a Unix socket). `gateways`: names that conditions may
    ask for, {"mesh"} for a sidecar. `namespace`, `labels`: of the proxy. `destinations`: by host, the services that destinations name
    and that the listener sees. `hashes`: what destinations are hashed by. `retries`: the mesh's default policy.
    `forwarded_host`: a rewritten request names its first host in X-Forwarded-Host. `tls`: the listener ends TLS. `alt_svc`:
    answers tell that there is HTTP/3. `shadow_suffix`: the host of mirrored requests ends in "-shadow".
    `waypoint`: the routes are a waypoint's.
    """

    port: int
    gateways: frozenset[str] = frozenset(("mesh",))
    namespace: str = ""
    labels: Labels = frozenset()
    destinations: Mapping[str, DestinationService] = {}
    hashes: Mapping[DestinationKey, ConsistentHashLB] = {}
    retries: HTTPRetry | None = None
    forwarded_host: bool = False
    tls: bool = False
    alt_svc: bool = False
    shadow_suffix: bool = False
    waypoint: bool = False


@derived
def default_retry_policy(db: Mesh) -> HTTPRetry | None:
    """Returns the mesh's default retry policy."""
    return mesh_config(db).default_http_retry_policy
