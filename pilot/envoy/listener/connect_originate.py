"""Derives the listeners inside of a proxy where tunnels begin: what comes to them is sent on by HTTP CONNECT."""

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
from pilot.envoy.listener.listener_head import Frame, build_frame
from pilot.envoy.network_filter.set_filter_state import build_endpoint_metadata
from pilot.envoy.network_filter.tcp_proxy import ProxyTunnel, TcpRoute, TcpSettings, build_tcp_proxy
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import LISTENER
from pilot.mesh.model.facets import FeaturesFacet, ListeningFacet
from pilot.mesh.tables.database import Mesh

_DESTINATION = "%DOWNSTREAM_LOCAL_ADDRESS%"
_TARGET = f"%FILTER_STATE({HBONE_TARGET}:PLAIN)%"
_SOURCES = {"waypoint": "waypoint", "gateway": "gateway"}
"""What the gateway of a network is told of who asks: whether the policies of a service were applied already depends on that."""


class Originator(NamedTuple):
    """Describes such a listener, which is called as the cluster that connects. `first`: filters before the one that sends on; `redirected`: the
    client tells it where a connection leads. Without a `tunnel` it sends on what it is given."""

    name: str
    tunnel: ProxyTunnel | None
    first: tuple[listener_components_pb2.Filter, ...] = ()
    redirected: bool = True


def _build(db: Mesh, one: Originator, listening: ListeningFacet) -> Resource:
    logs = access_logs(db, listening)
    filters = (ORIGINAL_DST,) if one.redirected else ()
    listener = build_frame(
        Frame(
            one.name, (), 0, inbound=None, filters=filters, access_logs=build_listener_access_logs(logs), internal=True
        )
    )
    listener.use_original_dst.value = False
    route = TcpRoute(one.name, ((one.name, 0),), settings=TcpSettings(tunnel=one.tunnel))
    listener.filter_chains.add().filters.extend(
        (*one.first, build_tcp_proxy(route, build_origination_access_logs(logs)))
    )
    return Resource.of(LISTENER, listener)


def originator_key(listening: ListeningFacet) -> ListeningFacet:
    """Returns the part of how a side listens that tunnels depend on, so that more proxies share the listeners where they begin."""
    features = FeaturesFacet(hashable_string=listening.features.hashable_string)
    return ListeningFacet(side=listening.side, telemetry=listening.telemetry, features=features, lacks=listening.lacks)


@derived
def originating_listeners(db: Mesh, listening: ListeningFacet) -> Mapping[str, Resource]:
    """Returns the listener where tunnels to workloads and waypoints begin."""
    return {
        names.CONNECT_ORIGINATE: _build(db, Originator(names.CONNECT_ORIGINATE, ProxyTunnel(_DESTINATION)), listening)
    }


@derived
def forwarding_listeners(db: Mesh, listening: ListeningFacet) -> Mapping[str, Resource]:
    """Returns the listener of a gateway between networks that hands on, as it is, the tunnel that came inside of another."""
    return {names.FORWARD_INNER_CONNECT: _build(db, Originator(names.FORWARD_INNER_CONNECT, None), listening)}


@derived
def crossing_listeners(db: Mesh, listening: ListeningFacet, network: str) -> Mapping[str, Resource]:
    """Returns the listeners where tunnels to gateways of other networks begin, and the tunnels in these. `network`: of the proxy itself."""
    source = _SOURCES.get(listening.side, "")
    inner = Originator(
        names.INNER_CONNECT_ORIGINATE,
        ProxyTunnel(_TARGET, headers=(("x-forwarded-network", network),)),
        (build_endpoint_metadata(listening.features.hashable_string),),
        redirected=False,
    )
    outer = Originator(
        names.OUTER_CONNECT_ORIGINATE, ProxyTunnel(_TARGET, headers=((SOURCE_HEADER, source),) if source else ())
    )
    return {one.name: _build(db, one, listening) for one in (inner, outer)}
