"""Resources for gRPC's built-in xDS clients and servers."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from google.protobuf import any_pb2

from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.envoy.proxyless.grpc_names import SERVER, HostPort, parse_host_port, parse_server
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, ROUTE
from testing.mesh.objects import at, endpoint_slice, make, pod, world
from testing.mesh.world import World, proxy

HOST = "echo.a.svc.cluster.local"
NAME = f"outbound|70||{HOST}"
MESSAGES: dict[str, Any] = {
    CLUSTER: cluster_pb2.Cluster,
    ENDPOINT: endpoint_pb2.ClusterLoadAssignment,
    LISTENER: listener_pb2.Listener,
    ROUTE: route_pb2.RouteConfiguration,
}
SERVICE = make(
    "Service",
    "echo",
    "{clusterIP: 10.96.0.1, selector: {app: echo}, ports: [{name: grpc, port: 70, targetPort: 7070}]}",
)
HEADLESS = make(
    "Service", "head", "{clusterIP: None, selector: {app: echo}, ports: [{name: grpc, port: 70, targetPort: 7070}]}"
)
SLICES = [endpoint_slice(name, at("10.1.0.1", "one"), ports="[{name: grpc, port: 7070}]") for name in ("echo", "head")]


def echo_world(*more: dict[str, Any]) -> World:
    return world(
        SERVICE,
        HEADLESS,
        pod("one", "10.1.0.1", labels="{app: echo, version: v1}", spec="{serviceAccountName: echo}"),
        *SLICES,
        *more,
    )


def grpc_resources(
    world: World, type_url: str, *names: str, ip: str = "10.9.0.9", name: str = "client"
) -> dict[str, Any]:
    """Return the resources with these names as sent to a gRPC client in namespace `a`."""
    key = world.connect(proxy("sidecar", name, "a", ip, GENERATOR="grpc"))
    groups = proxy_plan(world.mesh, key).groups_of(type_url, frozenset(names)) or ()
    resources = [r for group in groups for r in group.fn(world.mesh, *group.args).values()]
    return {r.name: MESSAGES[type_url].FromString(any_pb2.Any.FromString(r.any).value) for r in resources}


def manager(listener: Any) -> Any:
    config = (
        listener.api_listener.api_listener
        if listener.HasField("api_listener")
        else listener.filter_chains[0].filters[0].typed_config
    )
    return hcm_pb2.HttpConnectionManager.FromString(config.value)


def rule(spec: str) -> dict[str, Any]:
    return make("DestinationRule", "echo", spec)


@pytest.mark.parametrize("target", [f"{HOST}:70", "echo:70", "echo.a:70", "echo.a.svc:70", f"{HOST}.:70", "ECHO:70"])
def test_target_is_a_listener_with_the_routes_of_the_service(target: str) -> None:
    [listener] = grpc_resources(echo_world(), LISTENER, target).values()
    assert listener.name == target
    assert manager(listener).rds.route_config_name == NAME
    assert [f.name for f in manager(listener).http_filters] == ["envoy.filters.http.fault", "envoy.filters.http.router"]


@pytest.mark.parametrize("target", ["echo", "echo:71", "else:70", "echo.b:70", ":70", "echo:x", "[::1]:70", ""])
def test_unknown_target_has_no_listener(target: str) -> None:
    assert grpc_resources(echo_world(), LISTENER, target) == {}


def test_only_requested_resources_are_sent() -> None:
    assert grpc_resources(echo_world(), CLUSTER) == grpc_resources(echo_world(), LISTENER) == {}
    assert list(
        grpc_resources(
            echo_world(), CLUSTER, NAME, "outbound|70||else", "x", f"outbound|70|v9|{HOST}", f"inbound|70||{HOST}"
        )
    ) == [NAME]


def test_routes_match_any_authority() -> None:
    [routes] = grpc_resources(echo_world(), ROUTE, NAME).values()
    [host] = routes.virtual_hosts
    assert (routes.name, list(host.domains), host.routes[0].route.cluster) == (NAME, ["*"], NAME)
    assert grpc_resources(echo_world(), ROUTE, f"outbound|70|v1|{HOST}", "70", "outbound|70||else") == {}


def test_timeout_becomes_max_stream_duration() -> None:
    route = "{hosts: [echo], http: [{timeout: 1.5s, route: [{destination: {host: echo}}]}]}"
    world = echo_world(make("VirtualService", "echo", route))
    [routes] = grpc_resources(world, ROUTE, NAME).values()
    duration = routes.virtual_hosts[0].routes[0].route.max_stream_duration.max_stream_duration
    assert (duration.seconds, duration.nanos) == (1, 500_000_000)
    [plain] = grpc_resources(echo_world(), ROUTE, NAME).values()
    assert not plain.virtual_hosts[0].routes[0].route.HasField("max_stream_duration")


@pytest.mark.parametrize("host", [HOST, "head.a.svc.cluster.local"])
def test_headless_services_use_eds(host: str) -> None:
    name = f"outbound|70||{host}"
    [cluster] = grpc_resources(echo_world(), CLUSTER, name).values()
    assert (cluster.type, cluster.lb_policy) == (cluster_pb2.Cluster.EDS, cluster_pb2.Cluster.ROUND_ROBIN)
    assert cluster.eds_cluster_config.service_name == name
    assert not cluster.HasField("transport_socket")
    [assignment] = grpc_resources(echo_world(), ENDPOINT, name).values()
    assert [
        e.endpoint.address.socket_address.address for group in assignment.endpoints for e in group.lb_endpoints
    ] == ["10.1.0.1"]
    assert all(group.load_balancing_weight.value for group in assignment.endpoints)


def test_subset_policy_and_endpoints() -> None:
    ring_hash_subset = "{name: v1, labels: {version: v1}, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: user, minimumRingSize: 64}}}}"
    limits = "{connectionPool: {http: {http2MaxRequests: 7}}, loadBalancer: {simple: LEAST_REQUEST}}"
    world = echo_world(
        rule(
            f"{{host: echo, trafficPolicy: {limits}, subsets: [{ring_hash_subset}, {{name: v2, labels: {{version: v2}}}}]}}"
        )
    )
    v1, v2 = f"outbound|70|v1|{HOST}", f"outbound|70|v2|{HOST}"
    clusters = grpc_resources(world, CLUSTER, NAME, v1, v2)
    assert (clusters[v1].lb_policy, clusters[v1].ring_hash_lb_config.minimum_ring_size.value) == (
        cluster_pb2.Cluster.RING_HASH,
        64,
    )
    assert clusters[NAME].lb_policy == clusters[v2].lb_policy == cluster_pb2.Cluster.LEAST_REQUEST
    assert [c.circuit_breakers.thresholds[0].max_requests.value for c in clusters.values()] == [7, 7, 7]
    endpoints = grpc_resources(world, ENDPOINT, v1, v2)
    assert (len(endpoints[v1].endpoints), len(endpoints[v2].endpoints)) == (1, 0)


def test_mutual_tls_uses_certificate_provider_instances() -> None:
    [cluster] = grpc_resources(
        echo_world(rule("{host: echo, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}")), CLUSTER, NAME
    ).values()
    assert cluster.transport_socket.name == "envoy.transport_sockets.tls"
    common = tls_pb2.UpstreamTlsContext.FromString(cluster.transport_socket.typed_config.value).common_tls_context
    validation = common.combined_validation_context
    assert (
        common.tls_certificate_provider_instance.instance_name
        == common.tls_certificate_certificate_provider_instance.instance_name
        == "default"
    )
    assert validation.default_validation_context.ca_certificate_provider_instance.certificate_name == "ROOTCA"
    assert validation.validation_context_certificate_provider_instance.certificate_name == "ROOTCA"
    assert [m.exact for m in validation.default_validation_context.match_subject_alt_names] == [
        "spiffe://cluster.local/ns/a/sa/echo"
    ]


# -- servers ---------------------------------------------------------------------------------------------------------------

SERVER_LISTENER = f"{SERVER}10.1.0.1:7070"


def server(*more: dict[str, Any], name: str = SERVER_LISTENER) -> Any:
    return next(iter(grpc_resources(echo_world(*more), LISTENER, name, ip="10.1.0.1", name="one").values()), None)


def test_server_accepts_plaintext_unless_mtls_is_strict() -> None:
    plain = server()
    assert (plain.address.socket_address.address, plain.address.socket_address.port_value) == ("10.1.0.1", 7070)
    assert not plain.filter_chains[0].HasField("transport_socket")
    strict = server(make("PeerAuthentication", "p", "{mtls: {mode: STRICT}}"))
    context = tls_pb2.DownstreamTlsContext.FromString(strict.filter_chains[0].transport_socket.typed_config.value)
    assert context.require_client_certificate.value
    assert manager(strict).route_config.virtual_hosts[0].routes[0].HasField("non_forwarding_action")


@pytest.mark.parametrize("name", [f"{SERVER}10.1.0.1:7071", f"{SERVER}10.1.0.1", f"{SERVER}:7070", "10.1.0.1:7070"])
def test_server_without_service_has_no_listener(name: str) -> None:
    assert server(name=name) is None


def test_authorization_policies_become_rbac_filters() -> None:
    def policy(name: str, spec: str) -> dict[str, Any]:
        return make("AuthorizationPolicy", name, spec)

    allow = policy("a", "{rules: [{from: [{source: {principals: [cluster.local/ns/a/sa/x]}}]}]}")
    custom = policy("b", "{action: CUSTOM, provider: {name: p}, rules: [{to: [{operation: {paths: [/admin]}}]}]}")
    filters = {
        f.name: rbac_pb2.RBAC.FromString(f.typed_config.value).rules
        for f in manager(server(allow, custom)).http_filters[:-1]
    }
    assert [(name.rpartition(".")[2], rules.action, len(rules.policies)) for name, rules in filters.items()] == [
        ("deny", 1, 1),
        ("allow", 0, 1),
    ]
    deny_all = server(policy("c", "{}"))
    [rules] = [rbac_pb2.RBAC.FromString(f.typed_config.value).rules for f in manager(deny_all).http_filters[:-1]]
    assert (rules.action, len(rules.policies)) == (0, 1)


def test_address_parsing() -> None:
    assert parse_server(f"{SERVER}[::]:50051") == HostPort("::", 50051)
    assert parse_host_port("a:1") == HostPort("a", 1)
    assert [parse_host_port(text) for text in ("", "a", "a:", "a:0", "a:65536", "::1:80", "[]:1")] == [None] * 7
