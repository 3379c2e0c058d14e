"""Internal listeners that open HBONE tunnels, by sending a CONNECT request for each connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envoy.config.listener.v3 import listener_components_pb2

from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import build_listener_access_logs, build_origination_access_logs
from pilot.envoy.filter_state import HBONE_TARGET
from pilot.envoy.http_filter.connect_authority import SOURCE_HEADER
from pilot.envoy.listener.access_logging import access_logs
from pilot.envoy.listener.listener_filters import ORIGINAL_DST
from pilot.envoy.listener.listener_head import ListenerHead, build_listener_head
from pilot.envoy.network_filter.set_filter_state import build_endpoint_metadata
from pilot.envoy.network_filter.simple_network_filters import BAGGAGE, TUNNEL_PEER
from pilot.envoy.network_filter.tcp_proxy import ProxyTunnel, TcpRoute, TcpSettings, build_tcp_proxy
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import LISTENER
from pilot.mesh.model.ambient_features import exchanges_baggage
from pilot.mesh.model.facets import FeaturesFacet, ListeningFacet
from pilot.mesh.tables.database import Mesh

_DESTINATION = "%DOWNSTREAM_LOCAL_ADDRESS%"
_TARGET = f"%FILTER_STATE({HBONE_TARGET}:PLAIN)%"
_SOURCES = {"waypoint": "waypoint", "gateway": "gateway"}
"""Mapping from side to a header value, from which another network's gateway learns the type of this proxy.

A waypoint has already applied the service's policies.
"""


class TunnelOriginator(NamedTuple):
    """A listener that opens tunnels. Its name is also the name of the cluster that it uses.

    The filters in `first` precede the TCP proxy. `redirected` is set if the client passes the original destination to
    the listener. If `tunnel` is None, connections are forwarded unchanged.
    """

    name: str
    tunnel: ProxyTunnel | None
    first: tuple[listener_components_pb2.Filter, ...] = ()
    redirected: bool = True


def _build(db: Mesh, originator: TunnelOriginator, listening: ListeningFacet) -> Resource:
    logs = access_logs(db, listening)
    filters = (ORIGINAL_DST,) if originator.redirected else ()
    listener = build_listener_head(
        ListenerHead(
            originator.name,
            (),
            0,
            inbound=None,
            filters=filters,
            access_logs=build_listener_access_logs(logs),
            internal=True,
        )
    )
    listener.use_original_dst.value = False
    route = TcpRoute(originator.name, ((originator.name, 0),), settings=TcpSettings(tunnel=originator.tunnel))
    listener.filter_chains.add().filters.extend(
        (*originator.first, build_tcp_proxy(route, build_origination_access_logs(logs)))
    )
    return Resource.of(LISTENER, listener)


def originator_key(listening: ListeningFacet) -> ListeningFacet:
    """Return the part of a ListeningFacet that affects tunnel listeners, so that more proxies share the listeners."""
    features = FeaturesFacet(
        hashable_string=listening.features.hashable_string, tunnel_metadata=listening.features.tunnel_metadata
    )
    return ListeningFacet(
        side=listening.side,
        telemetry=listening.telemetry,
        features=features,
        unsupported_telemetry=listening.unsupported_telemetry,
    )


def _with_baggage(db: Mesh, originator: TunnelOriginator, listening: ListeningFacet) -> TunnelOriginator:
    """Return the listener that also exchanges the header `baggage` with the end of the tunnel, if this is enabled."""
    tunnel = originator.tunnel
    if tunnel is None or not (exchanges_baggage(db.settings.ambient) and listening.features.tunnel_metadata):
        return originator
    headers = (*tunnel.headers, ("baggage", f"%FILTER_STATE({BAGGAGE}:PLAIN)%"))
    return originator._replace(
        tunnel=tunnel._replace(headers=headers, keeps_response=True), first=(*originator.first, TUNNEL_PEER)
    )


@derived
def originating_listeners(db: Mesh, listening: ListeningFacet) -> Mapping[str, Resource]:
    """Return the listener that opens tunnels to workloads and waypoints."""
    originator = TunnelOriginator(names.CONNECT_ORIGINATE, ProxyTunnel(_DESTINATION))
    return {names.CONNECT_ORIGINATE: _build(db, _with_baggage(db, originator, listening), listening)}


@derived
def forwarding_listeners(db: Mesh, listening: ListeningFacet) -> Mapping[str, Resource]:
    """Return the listener through which an east-west gateway forwards an inner tunnel unchanged."""
    return {names.FORWARD_INNER_CONNECT: _build(db, TunnelOriginator(names.FORWARD_INNER_CONNECT, None), listening)}


@derived
def crossing_listeners(db: Mesh, listening: ListeningFacet, network: str) -> Mapping[str, Resource]:
    """Return the listeners that open a tunnel to the gateway of another network, and a tunnel inside that tunnel.

    `network` is the proxy's own network.
    """
    source = _SOURCES.get(listening.side, "")
    inner = _with_baggage(
        db,
        TunnelOriginator(
            names.INNER_CONNECT_ORIGINATE,
            ProxyTunnel(_TARGET, headers=(("x-forwarded-network", network),)),
            (build_endpoint_metadata(listening.features.hashable_string),),
            redirected=False,
        ),
        listening,
    )
    outer = TunnelOriginator(
        names.OUTER_CONNECT_ORIGINATE, ProxyTunnel(_TARGET, headers=((SOURCE_HEADER, source),) if source else ())
    )
    return {originator.name: _build(db, originator, listening) for originator in (inner, outer)}
