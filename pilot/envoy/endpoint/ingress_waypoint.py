"""Waypoints that replace a service's endpoints at gateways, as the label istio.io/ingress-use-waypoint requests."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pilot.config.object import ObjectKey
from pilot.envoy.cluster.cluster_keys import ClusterKey
from pilot.lib.addresses import joined
from pilot.mesh.ambient.attachments import service_attachment
from pilot.mesh.ambient.waypoints import waypoint
from pilot.mesh.model.ambient_features import ingress_enters_waypoints
from pilot.mesh.model.endpoint import Endpoint
from pilot.mesh.model.service import Registry, Service, ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.tables.database import Mesh

_SCALE = 10_000  # keeps the shares of waypoints precise when they are divided among pods


class IngressWaypoint(msgspec.Struct, frozen=True):
    """The endpoints of a service's waypoints, and the port of the service to request from them."""

    service: Service
    port: int
    endpoints: tuple[Endpoint, ...]

    def address(self, waypoint_endpoint: Endpoint) -> str:
        """Return the "host:port" to request from a waypoint.

        The host is the service's address in the waypoint's Kubernetes cluster.
        """
        return joined(_addresses(self.service, waypoint_endpoint.cluster_id)[0], self.port)


def ingress_waypoint(db: Mesh, key: ClusterKey, service: Service) -> IngressWaypoint | None:
    """Return the waypoints of a service, or None if gateways send requests directly to its endpoints. Not memoised.

    If there is a canary waypoint, each of the two waypoints receives its share. If no waypoint has endpoints, traffic
    fails instead of bypassing the waypoint.
    """
    if not ingress_enters_waypoints(db.settings.ambient) or not _addresses(service, ""):
        return None
    attachment = service_attachment(db, key.ref)
    if attachment.waypoint is None or not attachment.ingress:
        return None
    if attachment.canary is None:
        return IngressWaypoint(service, key.port, _endpoints(db, attachment.waypoint))
    shares = ((attachment.waypoint, 100 - attachment.weight), (attachment.canary, attachment.weight))
    return IngressWaypoint(
        service, key.port, tuple(e for name, share in shares for e in _with_share(_endpoints(db, name), share))
    )


def _endpoints(db: Mesh, key: ObjectKey) -> tuple[Endpoint, ...]:
    row = waypoint(db, key)
    address = row.address if row is not None else None
    return (
        endpoints(db, ServiceRef(address.hostname, address.namespace), address.port)
        if address is not None and address.hostname
        else ()
    )


def _with_share(endpoints: tuple[Endpoint, ...], share: int) -> Iterator[Endpoint]:
    """Yield the endpoints with weights for a share of the traffic, in percent. Yield nothing if the share is 0."""
    for e in endpoints if share else ():
        yield msgspec.structs.replace(e, weight=max(1, share * _SCALE // len(endpoints)))


def _addresses(service: Service, cluster: str) -> tuple[str, ...]:
    if service.registry is Registry.KUBERNETES:
        return service.addresses_in(cluster)
    return service.addresses[-1:] or service.auto_addresses[:1]
