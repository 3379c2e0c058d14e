"""The listeners that gRPC clients request, one for each target `host:port`. A listener names the target's routes."""

from __future__ import annotations

from envoy.config.core.v3 import config_source_pb2
from envoy.config.listener.v3 import api_listener_pb2, listener_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.derive import Lookup, derived
from pilot.envoy.cluster.cluster_keys import cluster_port
from pilot.envoy.http_filter.prebuilt_http_filters import FAULT, build_router
from pilot.envoy.names import outbound_cluster
from pilot.envoy.proxyless.grpc_names import parse_host_port
from pilot.envoy.resource import Resource
from pilot.envoy.well_known_types import pack
from pilot.lib.xds_types import LISTENER
from pilot.mesh.model.service import Service
from pilot.mesh.proxies.proxyless import ProxylessFacet, find_service_named
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh

ADS = config_source_pb2.ConfigSource(ads=config_source_pb2.AggregatedConfigSource())


@derived
def _client_listener(db: Mesh, name: str, client: ProxylessFacet) -> Resource | None:
    """Return the listener of a target, or None if the client cannot see the service or port."""
    target = parse_host_port(name)
    import_key = find_service_named(db, target.host, client) if target is not None else None
    row = service(db, import_key.ref) if import_key is not None else None
    if target is None or row is None or cluster_port(row, target.port) is None:
        return None
    return Resource.of(LISTENER, build_client_listener(name, row, target.port))


client_listeners: Lookup[str, [ProxylessFacet], Resource] = Lookup("proxyless listeners", _client_listener)


def build_client_listener(name: str, service: Service, port: int) -> listener_pb2.Listener:
    """Return the listener of a service port."""
    manager = hcm_pb2.HttpConnectionManager(
        rds=hcm_pb2.Rds(config_source=ADS, route_config_name=outbound_cluster(port, "", service.hostname)),
        http_filters=[FAULT, build_router()],
    )
    listener = listener_pb2.Listener(name=name, api_listener=api_listener_pb2.ApiListener(api_listener=pack(manager)))
    if service.addresses:
        listener.address.socket_address.address = service.addresses[0]
        listener.address.socket_address.port_value = port
    return listener
