"""What waypoints are sent, and what sidecars and gateways are sent of tunnels: one thing at a time. The whole: golden case `ambient`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from google.protobuf import any_pb2, json_format

from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import Proxy
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world
from testing.mesh.world import World, proxy

GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
API = "gateway.networking.k8s.io/v1"
OF_WAYPOINT = f"{{{GATEWAY_NAME}: w, gateway.istio.io/managed: istio.io-mesh-controller}}"
WAYPOINT = proxy(
    "waypoint", "w-0", "a", "10.1.0.9", {GATEWAY_NAME: "w", "gateway.istio.io/managed": "istio.io-mesh-controller"}
)
SIDECAR = proxy("sidecar", "client-0", "b", "10.1.0.8", {"app": "client"})
ROUTER = proxy("router", "edge-0", "b", "10.1.0.7", {"app": "edge"})
AMBIENT = {"PILOT_ENABLE_AMBIENT": "true"}
HTTP, TCP = "{name: http, port: 80, targetPort: 8080}", "{name: tcp, port: 90, targetPort: 9090}"
UNKNOWN = "{name: any, port: 91, targetPort: 9191}"
CART = "cart.a.svc.cluster.local"
VIP_HTTP = f"inbound-vip|80|http|{CART}"


def installed(traffic: str = "service") -> tuple[Plain, ...]:
    """The waypoint `w` of namespace a, which runs."""
    spec = "{gatewayClassName: istio-waypoint, listeners: [{name: mesh, port: 15008, protocol: HBONE}]}"
    service = f"{{clusterIP: 10.96.0.9, selector: {{{GATEWAY_NAME}: w}}, ports: [{{name: mesh, port: 15008}}]}}"
    return (
        make("GatewayClass", "istio-waypoint", "{controllerName: istio.io/mesh-controller}", "", apiVersion=API),
        make("Gateway", "w", spec, "a", apiVersion=API, labels=f"{{istio.io/waypoint-for: {traffic}}}"),
        make("Service", "w", service, "a", labels=OF_WAYPOINT),
        pod("w-0", "10.1.0.9", "a", "{serviceAccountName: w}", OF_WAYPOINT),
        endpoint_slice("w", at("10.1.0.9", "w-0"), namespace="a", ports="[{name: mesh, port: 15008}]"),
    )


def cart(port: str = HTTP, labels: str = "istio.io/use-waypoint: w", captured: bool = True) -> tuple[Plain, ...]:
    """A Service with one endpoint, behind the waypoint."""
    redirected = {"ambient.istio.io/redirection": "enabled"} if captured else {}
    served = "[{name: http, port: 8080}, {name: tcp, port: 9090}, {name: any, port: 9191}]"
    spec = f"{{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], selector: {{app: cart}}, ports: [{port}]}}"
    return (
        make("Service", "cart", spec, "a", labels=f"{{{labels}}}"),
        endpoint_slice("cart", at("10.1.0.1", "cart-0"), namespace="a", ports=served),
        pod(
            "cart-0", "10.1.0.1", "a", "{serviceAccountName: cart}", "{app: cart, version: v1}", annotations=redirected
        ),
    )


def sent(
    *objects: Mapping[str, Any], by: Proxy = WAYPOINT, mesh: str = "", **environ: str
) -> dict[str, dict[str, Plain]]:
    """What a proxy is sent, by type and name."""
    made = world(*objects, mesh_config=mesh, **{**AMBIENT, **environ})
    return of_world(made, by)


def of_world(made: World, by: Proxy = WAYPOINT) -> dict[str, dict[str, Plain]]:
    found = made.resources(made.connect(by))
    assert not made.failures
    return {
        url: {name: json_format.MessageToDict(any_pb2.Any.FromString(r.any)) for name, r in found[url].items()}
        for url in (CLUSTER, ENDPOINT, LISTENER)
    }


def main(found: Mapping[str, Mapping[str, Plain]]) -> Plain:
    return found[LISTENER]["main_internal"]


def chain_names(found: Mapping[str, Mapping[str, Plain]]) -> list[str]:
    return [chain["name"] for chain in main(found)["filterChains"]]


def manager(found: Mapping[str, Mapping[str, Plain]], chain: str = VIP_HTTP) -> Plain:
    one: Plain = next(c for c in main(found)["filterChains"] if c["name"] == chain)["filters"][-1]["typedConfig"]
    return one


def routes(found: Mapping[str, Mapping[str, Plain]]) -> list[Plain]:
    listed: list[Plain] = manager(found)["routeConfig"]["virtualHosts"][0]["routes"]
    return listed


def members(load: Plain) -> Iterator[endpoint_components_pb2.LbEndpoint]:
    for group in json_format.ParseDict(
        {k: v for k, v in load.items() if k != "@type"}, endpoint_pb2.ClusterLoadAssignment()
    ).endpoints:
        yield from group.lb_endpoints


def tunnels(load: Plain) -> list[dict[str, str]]:
    """The metadata of tunnels, of each endpoint."""
    found = (json_format.MessageToDict(m.metadata).get("filterMetadata", {}) for m in members(load))
    return [dict(one.get("envoy.filters.listener.original_dst", {})) for one in found]


# -- what a waypoint serves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "chains"),
    [
        (HTTP, [VIP_HTTP]),
        (TCP, [f"inbound-vip|90|tcp|{CART}"]),
        (UNKNOWN, [f"inbound-vip|91|http|{CART}", f"inbound-vip|91|tcp|{CART}"]),
    ],
)
def test_a_port_has_a_chain_and_a_cluster_for_what_is_spoken_on_it(port: str, chains: list[str]) -> None:
    found = sent(*installed(), *cart(port))
    assert sorted(chain_names(found)) == [*sorted(["direct-http", "direct-tcp"]), *chains]
    assert sorted(name for name in found[CLUSTER] if name.startswith("inbound-vip") and CART in name) == chains


@pytest.mark.parametrize(("told_to", "told"), [("'*'", True), ("a", True), ("b", False)])
def test_the_service_of_a_provider_is_told_to_waypoints_that_may_see_it(told_to: str, told: bool) -> None:
    exported = f"{{networking.istio.io/exportTo: {told_to}}}"
    tracer = make(
        "Service", "zipkin", "{clusterIP: 10.96.0.7, ports: [{name: http, port: 9411}]}", "b", annotations=exported
    )
    mesh = "extensionProviders: [{name: z, zipkin: {service: zipkin.b.svc.cluster.local, port: 9411}}]"
    assert (
        "outbound|9411||zipkin.b.svc.cluster.local" in sent(*installed(), *cart(), tracer, mesh=mesh)[CLUSTER]
    ) == told


def test_what_is_not_attached_costs_nothing() -> None:
    other = make("Service", "other", f"{{clusterIP: 10.96.0.5, ports: [{HTTP}]}}", "b")
    alone, others = sent(*installed(), *cart()), sent(*installed(), *cart(), other)
    assert main(alone) == main(others)
    assert [n for n in others[CLUSTER] if "other.b" in n and n.startswith("inbound-vip")] == []


@pytest.mark.parametrize(
    ("label", "served"),
    [("istio.io/use-waypoint: none", False), ("istio.io/use-waypoint: absent", False), ("a: b", True)],
)
def test_a_service_follows_its_namespace_unless_it_says_otherwise(label: str, served: bool) -> None:
    namespace = make("Namespace", "a", labels="{istio.io/use-waypoint: w}")
    assert (VIP_HTTP in chain_names(sent(*installed(), *cart(labels=label), namespace))) == served


@pytest.mark.parametrize(
    ("traffic", "service", "direct"), [("service", 1, 0), ("workload", 0, 1), ("all", 1, 1), ("none", 0, 0)]
)
def test_what_a_waypoint_is_for(traffic: str, service: int, direct: int) -> None:
    objects = (*installed(traffic), *cart(), make("Namespace", "a", labels="{istio.io/use-waypoint: w}"))
    found = sent(*objects)
    assert (VIP_HTTP in chain_names(found), "10.1.0.1" in str(main(found)["filterChainMatcher"])) == (
        bool(service),
        bool(direct),
    )


@pytest.mark.parametrize(
    "declared",
    [
        make("WorkloadEntry", "vm", "{address: 10.9.0.1, labels: {istio.io/use-waypoint: w}}", "a"),
        make("WorkloadEntry", "vm", "{address: 10.9.0.1}", "a", labels="{istio.io/use-waypoint: w}"),
        make(
            "ServiceEntry",
            "vm",
            "{hosts: [vm.com], resolution: STATIC, ports: [{number: 80, name: http}], endpoints: "
            "[{address: 10.9.0.1, labels: {istio.io/use-waypoint: w}}]}",
            "a",
        ),
    ],
)
def test_workloads_that_objects_declare_may_be_behind_a_waypoint(declared: Plain) -> None:
    assert "10.9.0.1" in str(main(sent(*installed("workload"), declared))["filterChainMatcher"])
    assert "10.9.0.1" not in str(main(sent(*installed("service"), declared))["filterChainMatcher"])


def test_a_waypoint_of_nothing_takes_no_connection_further() -> None:
    matcher = main(sent(*installed()))["filterChainMatcher"]["matcherTree"]
    assert list(matcher["exactMatchMap"]["map"]) == ["0"]


@pytest.mark.parametrize("environ", [{"PILOT_ENABLE_AMBIENT": "false"}, {"PILOT_ENABLE_AMBIENT_WAYPOINTS": "false"}])
def test_waypoints_may_be_turned_off(environ: dict[str, str]) -> None:
    assert sent(*installed(), *cart(), **environ) == {CLUSTER: {}, ENDPOINT: {}, LISTENER: {}}


EJECTING = "outlierDetection: {consecutive5xxErrors: 3}"


@pytest.mark.parametrize(
    ("resolution", "of_mesh", "of_service", "priorities"),
    [
        ("STATIC", "", EJECTING, [0, 1]),
        ("STATIC", "", "", [0, 0]),
        ("STATIC", "zoneAwareLbSetting: {enabled: true}", "", [0, 0]),
        ("DNS", f"defaultTrafficPolicy: {{{EJECTING}}}", "", [0, 1]),
        ("DNS", "", "", [0, 0]),
    ],
)
def test_what_is_near_a_waypoint_comes_first_where_endpoints_can_fail(
    resolution: str, of_mesh: str, of_service: str, priorities: list[int]
) -> None:
    places = "[{address: 10.9.0.1, locality: r1/z1}, {address: 10.9.0.2, locality: r2/z2}]"
    spec = f"{{hosts: [far.com], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: {resolution}, endpoints: {places}}}"
    entry = make("ServiceEntry", "far", spec, "a", labels="{istio.io/use-waypoint: w}")
    rule = make("DestinationRule", "far", f"{{host: far.com, trafficPolicy: {{{of_service}}}}}", "a")
    near = msgspec.structs.replace(WAYPOINT, locality=Locality("r1", "z1"))
    found, name = (
        sent(*installed(), entry, *([rule] if of_service else ()), by=near, mesh=of_mesh),
        "inbound-vip|80|http|far.com",
    )
    load = found[ENDPOINT][name] if resolution == "STATIC" else found[CLUSTER][name]["loadAssignment"]
    assert [group.get("priority", 0) for group in load["endpoints"]] == priorities


# -- routes ----------------------------------------------------------------------------------------------------------------


def test_a_virtual_service_leads_to_subsets_here_and_to_services_elsewhere() -> None:
    rule = make("DestinationRule", "cart", f"{{host: {CART}, subsets: [{{name: v1, labels: {{version: v1}}}}]}}", "a")
    other = make("Service", "other", f"{{clusterIP: 10.96.0.5, ports: [{HTTP}]}}", "b")
    spec = "{hosts: [%s], http: [{match: [{uri: {prefix: /b}}], route: [{destination: {host: other.b.svc.cluster.local}}]}, %s]}"
    service = make(
        "VirtualService", "cart", spec % (CART, f"{{route: [{{destination: {{host: {CART}, subset: v1}}}}]}}"), "a"
    )
    found = sent(*installed(), *cart(), rule, other, service)
    led = ["outbound|80||other.b.svc.cluster.local", f"inbound-vip|80|http/v1|{CART}"]
    assert [route["route"]["cluster"] for route in routes(found)] == led
    assert set(led) <= set(found[CLUSTER])


@pytest.mark.parametrize(("weights", "led"), [((99, 1), [("cart", 99), ("other", 1)]), ((100, 0), [("cart", 100)])])
def test_connections_are_split_by_weight_and_what_has_none_gets_nothing(
    weights: tuple[int, int], led: list[tuple[str, int]]
) -> None:
    other = make("Service", "other", f"{{clusterIP: 10.96.0.5, ports: [{TCP}]}}", "b")
    to = "{destination: {host: %s, port: {number: 90}}, weight: %d}"
    targets = ", ".join(to % pair for pair in zip((CART, "other.b.svc.cluster.local"), weights, strict=True))
    split = make("VirtualService", "cart", f"{{hosts: [{CART}], tcp: [{{route: [{targets}]}}]}}", "a")
    clusters = {"cart": f"inbound-vip|90|tcp|{CART}", "other": "outbound|90||other.b.svc.cluster.local"}
    routed = manager(sent(*installed(), *cart(TCP), other, split), f"inbound-vip|90|tcp|{CART}")["weightedClusters"][
        "clusters"
    ]
    assert [(one["name"], one["weight"]) for one in routed] == [(clusters[name], weight) for name, weight in led]


def test_a_route_of_the_service_applies_at_its_waypoint() -> None:
    route = make(
        "HTTPRoute",
        "cart",
        "{parentRefs: [{group: '', kind: Service, name: cart}], rules: [{matches: [{path: {type: Exact, value: /x}}], "
        "backendRefs: [{name: cart, port: 80}]}]}",
        "a",
        apiVersion=API,
    )
    (only,) = routes(sent(*installed(), *cart(), route))
    assert (only["match"]["path"], only["route"]["cluster"]) == ("/x", VIP_HTTP)


def test_labels_of_clients_are_not_known() -> None:
    spec = "{hosts: [%s], http: [{match: [{sourceLabels: {app: x}}], route: [{destination: {host: %s}, headers: {request: {set: {a: b}}}}]}]}"
    found = sent(*installed(), *cart(), make("VirtualService", "cart", spec % (CART, CART), "a"))
    assert [route["name"] for route in routes(found)] == ["default"]


# -- policies --------------------------------------------------------------------------------------------------------------


def rbac_at(found: Mapping[str, Mapping[str, Plain]], chain: str = VIP_HTTP) -> bool:
    return any("rbac" in f["name"] for f in manager(found, chain)["httpFilters"])


@pytest.mark.parametrize(
    ("target", "namespace", "applies", "to_all"),
    [
        (f"{{group: {API.partition('/')[0]}, kind: Gateway, name: w}}", "a", True, True),
        (f"{{group: {API.partition('/')[0]}, kind: Gateway, name: other}}", "a", False, False),
        ("{group: '', kind: Service, name: cart}", "a", True, False),
        ("{group: '', kind: Service, name: cart}", "b", False, False),
        (f"{{group: {API.partition('/')[0]}, kind: GatewayClass, name: istio-waypoint}}", "istio-system", True, True),
        (f"{{group: {API.partition('/')[0]}, kind: GatewayClass, name: istio-waypoint}}", "a", False, False),
    ],
)
def test_a_policy_applies_to_what_it_names(target: str, namespace: str, applies: bool, to_all: bool) -> None:
    policy = make("AuthorizationPolicy", "p", f"{{action: DENY, targetRefs: [{target}], rules: [{{}}]}}", namespace)
    found = sent(*installed(), *cart(), policy)
    assert (rbac_at(found), rbac_at(found, "direct-http")) == (applies, to_all)


@pytest.mark.parametrize("spec", ["rules: [{}]", f"selector: {{matchLabels: {{{GATEWAY_NAME}: w}}}}, rules: [{{}}]"])
def test_a_policy_without_a_target_is_not_for_waypoints(spec: str) -> None:
    policy = make("AuthorizationPolicy", "p", f"{{action: DENY, {spec}}}", "a")
    assert not rbac_at(sent(*installed(), *cart(), policy))


def test_spans_follow_the_service() -> None:
    telemetry = make(
        "Telemetry",
        "t",
        "{targetRefs: [{group: '', kind: Service, name: cart}], tracing: [{disableSpanReporting: true}]}",
        "a",
    )
    for objects, expected in (((), (True, True)), ((telemetry,), (False, True))):
        found = sent(*installed(), *cart(), *objects)
        assert ("tracing" in manager(found), "tracing" in manager(found, "direct-http")) == expected


# -- tunnels ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "name"),
    [(WAYPOINT, VIP_HTTP), (SIDECAR, f"outbound|80||{CART}"), (ROUTER, f"outbound|80||{CART}")],
)
def test_workloads_that_take_tunnels_are_reached_by_them(by: Proxy, name: str) -> None:
    tunnelled, plain = (sent(*installed(), *cart(captured=captured), by=by) for captured in (True, False))
    assert tunnels(tunnelled[ENDPOINT][name]) == [{"local": "10.1.0.1:8080"}]
    (member,) = members(tunnelled[ENDPOINT][name])
    assert member.endpoint.address.envoy_internal_address.server_listener_name == "connect_originate"
    assert "connect_originate" in tunnelled[LISTENER]
    assert tunnels(plain[ENDPOINT][name]) == [{}]


@pytest.mark.parametrize("by", [SIDECAR, ROUTER])
@pytest.mark.parametrize("off", ["metadata", "setting", "build"])
def test_tunnels_are_left_to_those_who_can(by: Proxy, off: str) -> None:
    more = {"DISABLE_HBONE_SEND": "true"} if off == "metadata" else {}
    extensions = frozenset({"envoy.filters.network.tcp_proxy"}) if off == "build" else by.extensions
    client = by.__class__(
        **{f: getattr(by, f) for f in by.__struct_fields__}
        | {"metadata": {**by.metadata, **more}, "extensions": extensions}
    )
    found = sent(*installed(), *cart(), by=client, PILOT_ENABLE_SENDING_HBONE=str(off != "setting").lower())
    assert tunnels(found[ENDPOINT][f"outbound|80||{CART}"]) == [{}]
    assert "connect_originate" not in found[LISTENER]


@pytest.mark.parametrize(("label", "entered"), [("'true'", True), ("'false'", False)])
def test_a_gateway_enters_by_the_waypoint_of_a_service_that_wants_it(label: str, entered: bool) -> None:
    found = sent(
        *installed(), *cart(labels=f"istio.io/use-waypoint: w, istio.io/ingress-use-waypoint: {label}"), by=ROUTER
    )
    (tunnel,) = tunnels(found[ENDPOINT][f"outbound|80||{CART}"])
    assert tunnel["local"] == ("10.96.0.1:80" if entered else "10.1.0.1:8080")
    assert ("waypoint" in tunnel) == entered


@pytest.mark.parametrize(
    ("said", "setting", "listens"), [("true", "true", True), ("true", "false", False), ("", "true", False)]
)
def test_a_sidecar_takes_tunnels_where_it_says_so(said: str, setting: str, listens: bool) -> None:
    server = proxy("sidecar", "cart-0", "a", "10.1.0.1", {"app": "cart"}, **({"ENABLE_HBONE": said} if said else {}))
    found = sent(*installed(), *cart(), by=server, PILOT_ENABLE_SIDECAR_LISTENING_HBONE=setting)
    assert ("connect_terminate" in found[LISTENER]) == listens


def test_a_workload_of_another_network_is_reached_through_a_tunnel_in_a_tunnel() -> None:
    def gateway(network: str) -> Plain:
        spec = "{gatewayClassName: istio-remote, addresses: [{value: 9.9.9.9}], listeners: [{name: h, port: 15008, protocol: HBONE}]}"
        return make(
            "Gateway", "east", spec, "istio-system", apiVersion=API, labels=f"{{topology.istio.io/network: {network}}}"
        )

    objects = [*installed(), *cart(), make("Namespace", "istio-system", labels="{topology.istio.io/network: here}")]
    objects[-2]["metadata"]["labels"]["topology.istio.io/network"] = "there"
    client = proxy("waypoint", "w-0", "a", "10.1.0.9", {GATEWAY_NAME: "w"}, NETWORK="here")
    found = sent(*objects, gateway("there"), by=client, AMBIENT_ENABLE_MULTI_NETWORK="true")
    (member,) = members(found[ENDPOINT][VIP_HTTP])
    assert member.endpoint.address.envoy_internal_address.server_listener_name == "inner_connect_originate"
    assert {"inner_connect_originate", "outer_connect_originate"} <= set(found[LISTENER])
    assert "9.9.9.9:15008" in str(tunnels(found[ENDPOINT][VIP_HTTP]))
    cut_off = sent(*objects, gateway("far"), by=client, AMBIENT_ENABLE_MULTI_NETWORK="true")
    assert list(members(cut_off[ENDPOINT][VIP_HTTP])) == []


@pytest.mark.parametrize(
    ("route", "weighted"),
    [
        ("[{destination: {host: cart}, weight: 0}]", False),
        ("[{destination: {host: cart}, weight: 30}, {destination: {host: cart}, weight: 70}]", True),
    ],
)
def test_connections_are_shared_out_among_several_destinations_alone(route: str, weighted: bool) -> None:
    rule = make("VirtualService", "v", f"{{hosts: [{CART}], tcp: [{{route: {route}}}]}}", "a")
    config = manager(sent(*installed(), *cart(TCP), rule), f"inbound-vip|90|tcp|{CART}")
    assert ("weightedClusters" in config, "cluster" in config) == (weighted, not weighted)


def test_requests_are_upgraded_to_http2_where_a_rule_says_so() -> None:
    rule = make(
        "DestinationRule",
        "two",
        f"{{host: {CART}, trafficPolicy: {{connectionPool: {{http: {{h2UpgradePolicy: UPGRADE}}}}}}}}",
        "a",
    )
    spoken = [
        str(sent(*installed(), *cart(), *more)[CLUSTER][VIP_HTTP].get("typedExtensionProtocolOptions"))
        for more in ((), (rule,))
    ]
    assert ["http2ProtocolOptions" in found for found in spoken] == [False, True]


@pytest.mark.parametrize(
    ("ports", "alone"), [(HTTP, [80]), (TCP, [90]), (UNKNOWN, []), (f"{HTTP}, {TCP}, {UNKNOWN}", [80, 90])]
)
def test_ports_whose_protocol_is_known_are_not_inspected_for_http(ports: str, alone: list[int]) -> None:
    (inspector,) = [
        f for f in main(sent(*installed(), *cart(ports)))["listenerFilters"] if f["name"].endswith("http_inspector")
    ]
    rules = inspector.get("filterDisabled", {})
    found = [
        rule["destinationPortRange"]["start"]
        for rule in rules.get("orMatch", {}).get("rules", [rules] if rules else [])
    ]
    assert found == alone
