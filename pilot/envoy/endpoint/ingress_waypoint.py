"""Finds the waypoints that gateways send to in the place of a service's endpoints, where the service is labelled istio.io/ingress-use-waypoint."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pilot.config.object import ObjectKey
from pilot.envoy.cluster.cluster_keys import ClusterKey
from pilot.lib.addresses import joined
from pilot.mesh.ambient.attachments import service_attachment
from pilot.mesh.ambient.waypoints import waypoint
from pilot.mesh.model.ambient import enters_waypoints
from pilot.mesh.model.endpoint import Endpoint
from pilot.mesh.model.service import Registry, Service, ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.tables.database import Mesh

_SCALE = 10_000  # so that the shares of waypoints stay precise when they are divided among their pods


class IngressWaypoint(msgspec.Struct, frozen=True):
    """The endpoints of the waypoints of a service, and what they are asked for: a port of its address."""

    service: Service
    port: int
    endpoints: tuple[Endpoint, ...]

    def address(self, waypoint_endpoint: Endpoint) -> str:
        """Returns what a waypoint is asked for: the service's address in the cluster of the waypoint."""
        return joined(_addresses(self.service, waypoint_endpoint.cluster_id)[0], self.port)


def ingress_waypoint(db: Mesh, key: ClusterKey, found: Service) -> IngressWaypoint | None:
    """Returns the waypoints of a service; None where gateways are to send to its endpoints. A canary takes its share; one that is not there leaves
    nothing to send to, rather than a way around it. No node of its own."""
    if not enters_waypoints(db.settings.ambient) or not _addresses(found, ""):
        return None
    attached = service_attachment(db, key.ref)
    if attached.waypoint is None or not attached.ingress:
        return None
    if attached.canary is None:
        return IngressWaypoint(found, key.port, _endpoints(db, attached.waypoint))
    shares = ((attached.waypoint, 100 - attached.weight), (attached.canary, attached.weight))
    return IngressWaypoint(
        found, key.port, tuple(e for name, share in shares for e in _shared(_endpoints(db, name), share))
    )


def _endpoints(db: Mesh, key: ObjectKey) -> tuple[Endpoint, ...]:
    found = waypoint(db, key)
    at = found.address if found is not None else None
    return endpoints(db, ServiceRef(at.hostname, at.namespace), at.port) if at is not None and at.hostname else ()


def _shared(found: tuple[Endpoint, ...], share: int) -> Iterator[Endpoint]:
    """Yields endpoints with a share of the traffic, in percent."""
    for e in found if share else ():
        yield msgspec.structs.replace(e, weight=max(1, share * _SCALE // len(found)))


def _addresses(found: Service, cluster: str) -> tuple[str, ...]:
    if found.registry is Registry.KUBERNETES:
        return found.addresses_in(cluster)
    return found.addresses[-1:] or found.auto_addresses[:1]
