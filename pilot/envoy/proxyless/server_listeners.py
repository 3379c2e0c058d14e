"""The listeners that gRPC servers request by address. They configure mutual TLS and authorization."""

from __future__ import annotations

from collections.abc import Iterator

from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.config.kinds.istio import AUTHORIZATION_POLICY, PEER_AUTHENTICATION
from pilot.derive import Lookup, derived, run_steps
from pilot.envoy.http_filter.prebuilt_http_filters import build_router
from pilot.envoy.listener.authorization_filters import compiled_policies
from pilot.envoy.proxyless.grpc_names import HostPort, parse_server
from pilot.envoy.proxyless.grpc_tls import build_server_socket
from pilot.envoy.rbac.rbac_rules import CompiledPolicy, build_rbac
from pilot.envoy.resource import Resource
from pilot.envoy.well_known_types import pack
from pilot.lib.xds_types import LISTENER
from pilot.mesh.model.facets import InboundFacet
from pilot.mesh.security.mtls import accepted
from pilot.mesh.tables.database import Mesh

_EVERYTHING = route_components_pb2.Route(
    match=route_components_pb2.RouteMatch(prefix="/"), non_forwarding_action=route_components_pb2.NonForwardingAction()
)


@derived
def _server_listener(db: Mesh, name: str, inbound: InboundFacet) -> Resource | None:
    """Return the listener of a server, or None if no service targets its port."""
    address = parse_server(name)
    if address is None or all(target.target_port != address.port for target in inbound.targets):
        return None
    mode = accepted(db, inbound.policies.of(PEER_AUTHENTICATION.id.name)).at(address.port)
    filters = list(
        authorization_filters(compiled_policies(db, inbound.listening.policies.of(AUTHORIZATION_POLICY.id.name)))
    )
    return Resource.of(LISTENER, build_server_listener(name, address, mode == "STRICT", filters))


server_listeners: Lookup[str, [InboundFacet], Resource] = Lookup("proxyless server listeners", _server_listener)


def build_server_listener(
    name: str, address: HostPort, mutual_tls: bool, filters: list[hcm_pb2.HttpFilter]
) -> listener_pb2.Listener:
    """Return the listener of a server.

    gRPC does not support TLS and plaintext on the same port. If both are allowed, the listener uses plaintext.
    """
    host = route_components_pb2.VirtualHost(domains=["*"], routes=[_EVERYTHING])
    manager = hcm_pb2.HttpConnectionManager(
        route_config=route_pb2.RouteConfiguration(name="inbound", virtual_hosts=[host]),
        http_filters=[*filters, build_router()],
    )
    chain = listener_components_pb2.FilterChain(name="inbound-mtls" if mutual_tls else "inbound-plaintext")
    chain.filters.add(name="inbound-hcm", typed_config=pack(manager))
    if mutual_tls:
        chain.transport_socket.CopyFrom(build_server_socket())
    listener = listener_pb2.Listener(name=name, filter_chains=[chain])
    listener.address.socket_address.address = address.host
    listener.address.socket_address.port_value = address.port
    return listener


def authorization_filters(policies: list[CompiledPolicy]) -> Iterator[hcm_pb2.HttpFilter]:
    """Yield the filters that deny and allow requests.

    Requests that match a CUSTOM policy are denied, because gRPC cannot call authorizers.
    """
    enforced = [policy for policy in policies if not policy.dry_run]
    denying = [policy for policy in enforced if policy.action in ("DENY", "CUSTOM")]
    allowing = [policy for policy in enforced if policy.action == "ALLOW"]
    if denying:
        yield _rbac("deny", run_steps(build_rbac("DENY", denying)))
    if allowing:
        yield _rbac("allow", run_steps(build_rbac("ALLOW", allowing)))


def _rbac(name: str, rules: rbac_pb2.RBAC) -> hcm_pb2.HttpFilter:
    return hcm_pb2.HttpFilter(
        name=f"envoy.filters.http.rbac.{name}", typed_config=pack(http_rbac_pb2.RBAC(rules=rules))
    )
