"""What gRPC's own xDS client and server are sent: the resources that they name, in the fields that they read."""

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


def mesh(*more: dict[str, Any]) -> World:
    return world(
        SERVICE,
        HEADLESS,
        pod("one", "10.1.0.1", labels="{app: echo, version: v1}", spec="{serviceAccountName: echo}"),
        *SLICES,
        *more,
    )


def sent(made: World, type_url: str, *names: str, ip: str = "10.9.0.9", name: str = "client") -> dict[str, Any]:
    """What a gRPC client of namespace `a` gets for some names."""
    key = made.connect(proxy("sidecar", name, "a", ip, GENERATOR="grpc"))
    groups = proxy_plan(made.mesh, key).groups_of(type_url, frozenset(names)) or ()
    found = [r for group in groups for r in group.fn(made.mesh, *group.args).values()]
    return {r.name: MESSAGES[type_url].FromString(any_pb2.Any.FromString(r.any).value) for r in found}


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
def test_a_target_is_a_listener_of_its_name_with_the_routes_of_the_service(target: str) -> None:
    [listener] = sent(mesh(), LISTENER, target).values()
    assert listener.name == target
    assert manager(listener).rds.route_config_name == NAME
    assert [f.name for f in manager(listener).http_filters] == ["envoy.filters.http.fault", "envoy.filters.http.router"]


@pytest.mark.parametrize("target", ["echo", "echo:71", "else:70", "echo.b:70", ":70", "echo:x", "[::1]:70", ""])
def test_a_target_that_there_is_not_has_no_listener(target: str) -> None:
    assert sent(mesh(), LISTENER, target) == {}


def test_only_what_is_named_is_sent() -> None:
    assert sent(mesh(), CLUSTER) == sent(mesh(), LISTENER) == {}
    assert list(
        sent(mesh(), CLUSTER, NAME, "outbound|70||else", "x", f"outbound|70|v9|{HOST}", f"inbound|70||{HOST}")
    ) == [NAME]


def test_routes_are_of_one_service_for_any_authority() -> None:
    [routes] = sent(mesh(), ROUTE, NAME).values()
    [host] = routes.virtual_hosts
    assert (routes.name, list(host.domains), host.routes[0].route.cluster) == (NAME, ["*"], NAME)
    assert sent(mesh(), ROUTE, f"outbound|70|v1|{HOST}", "70", "outbound|70||else") == {}


def test_a_timeout_is_the_longest_life_of_a_stream() -> None:
    route = "{hosts: [echo], http: [{timeout: 1.5s, route: [{destination: {host: echo}}]}]}"
    made = mesh(make("VirtualService", "echo", route))
    [routes] = sent(made, ROUTE, NAME).values()
    longest = routes.virtual_hosts[0].routes[0].route.max_stream_duration.max_stream_duration
    assert (longest.seconds, longest.nanos) == (1, 500_000_000)
    [plain] = sent(mesh(), ROUTE, NAME).values()
    assert not plain.virtual_hosts[0].routes[0].route.HasField("max_stream_duration")


@pytest.mark.parametrize("host", [HOST, "head.a.svc.cluster.local"])
def test_endpoints_come_by_eds_for_headless_services_too(host: str) -> None:
    name = f"outbound|70||{host}"
    [cluster] = sent(mesh(), CLUSTER, name).values()
    assert (cluster.type, cluster.lb_policy) == (cluster_pb2.Cluster.EDS, cluster_pb2.Cluster.ROUND_ROBIN)
    assert cluster.eds_cluster_config.service_name == name
    assert not cluster.HasField("transport_socket")
    [assignment] = sent(mesh(), ENDPOINT, name).values()
    assert [
        e.endpoint.address.socket_address.address for group in assignment.endpoints for e in group.lb_endpoints
    ] == ["10.1.0.1"]
    assert all(group.load_balancing_weight.value for group in assignment.endpoints)


def test_a_subset_has_its_own_policy_and_endpoints() -> None:
    hashing = "{name: v1, labels: {version: v1}, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: user, minimumRingSize: 64}}}}"
    limits = "{connectionPool: {http: {http2MaxRequests: 7}}, loadBalancer: {simple: LEAST_REQUEST}}"
    made = mesh(
        rule(f"{{host: echo, trafficPolicy: {limits}, subsets: [{hashing}, {{name: v2, labels: {{version: v2}}}}]}}")
    )
    one, two = f"outbound|70|v1|{HOST}", f"outbound|70|v2|{HOST}"
    found = sent(made, CLUSTER, NAME, one, two)
    assert (found[one].lb_policy, found[one].ring_hash_lb_config.minimum_ring_size.value) == (
        cluster_pb2.Cluster.RING_HASH,
        64,
    )
    assert found[NAME].lb_policy == found[two].lb_policy == cluster_pb2.Cluster.LEAST_REQUEST
    assert [c.circuit_breakers.thresholds[0].max_requests.value for c in found.values()] == [7, 7, 7]
    endpoints = sent(made, ENDPOINT, one, two)
    assert (len(endpoints[one].endpoints), len(endpoints[two].endpoints)) == (1, 0)


def test_mutual_tls_is_by_the_instances_of_the_bootstrap() -> None:
    [cluster] = sent(mesh(rule("{host: echo, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}")), CLUSTER, NAME).values()
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

LISTENS = f"{SERVER}10.1.0.1:7070"


def server(*more: dict[str, Any], name: str = LISTENS) -> Any:
    return next(iter(sent(mesh(*more), LISTENER, name, ip="10.1.0.1", name="one").values()), None)


def test_a_server_takes_plain_text_unless_mutual_tls_is_asked_for() -> None:
    plain = server()
    assert (plain.address.socket_address.address, plain.address.socket_address.port_value) == ("10.1.0.1", 7070)
    assert not plain.filter_chains[0].HasField("transport_socket")
    strict = server(make("PeerAuthentication", "p", "{mtls: {mode: STRICT}}"))
    context = tls_pb2.DownstreamTlsContext.FromString(strict.filter_chains[0].transport_socket.typed_config.value)
    assert context.require_client_certificate.value
    assert manager(strict).route_config.virtual_hosts[0].routes[0].HasField("non_forwarding_action")


@pytest.mark.parametrize("name", [f"{SERVER}10.1.0.1:7071", f"{SERVER}10.1.0.1", f"{SERVER}:7070", "10.1.0.1:7070"])
def test_a_server_that_no_service_leads_to_has_no_listener(name: str) -> None:
    assert server(name=name) is None


def test_policies_are_filters_and_what_would_be_asked_is_denied() -> None:
    def policy(name: str, spec: str) -> dict[str, Any]:
        return make("AuthorizationPolicy", name, spec)

    allow = policy("a", "{rules: [{from: [{source: {principals: [cluster.local/ns/a/sa/x]}}]}]}")
    ask = policy("b", "{action: CUSTOM, provider: {name: p}, rules: [{to: [{operation: {paths: [/admin]}}]}]}")
    filters = {
        f.name: rbac_pb2.RBAC.FromString(f.typed_config.value).rules
        for f in manager(server(allow, ask)).http_filters[:-1]
    }
    assert [(name.rpartition(".")[2], rules.action, len(rules.policies)) for name, rules in filters.items()] == [
        ("deny", 1, 1),
        ("allow", 0, 1),
    ]
    nobody = server(policy("c", "{}"))
    [rules] = [rbac_pb2.RBAC.FromString(f.typed_config.value).rules for f in manager(nobody).http_filters[:-1]]
    assert (rules.action, len(rules.policies)) == (0, 1)


def test_addresses_are_taken_apart() -> None:
    assert parse_server(f"{SERVER}[::]:50051") == HostPort("::", 50051)
    assert parse_host_port("a:1") == HostPort("a", 1)
    assert [parse_host_port(text) for text in ("", "a", "a:", "a:0", "a:65536", "::1:80", "[]:1")] == [None] * 7
