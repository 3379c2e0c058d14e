"""Configuration of waypoints, and tunnels of sidecars and gateways. The golden case `ambient` has full output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from google.protobuf import any_pb2, json_format

from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.xds_types import CLUSTER, ENDPOINT, EXTENSION, LISTENER
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import Proxy
from testing.clients.ztunnel import messages
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world
from testing.mesh.world import World, proxy, rows_of

GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
API = "gateway.networking.k8s.io/v1"
WAYPOINT_LABELS = f"{{{GATEWAY_NAME}: w, gateway.istio.io/managed: istio.io-mesh-controller}}"
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


def waypoint(traffic: str = "service") -> tuple[Plain, ...]:
    """Return the objects of a running waypoint `w` in namespace a."""
    spec = "{gatewayClassName: istio-waypoint, listeners: [{name: mesh, port: 15008, protocol: HBONE}]}"
    service = f"{{clusterIP: 10.96.0.9, selector: {{{GATEWAY_NAME}: w}}, ports: [{{name: mesh, port: 15008}}]}}"
    return (
        make("GatewayClass", "istio-waypoint", "{controllerName: istio.io/mesh-controller}", "", apiVersion=API),
        make("Gateway", "w", spec, "a", apiVersion=API, labels=f"{{istio.io/waypoint-for: {traffic}}}"),
        make("Service", "w", service, "a", labels=WAYPOINT_LABELS),
        pod("w-0", "10.1.0.9", "a", "{serviceAccountName: w}", WAYPOINT_LABELS),
        endpoint_slice("w", at("10.1.0.9", "w-0"), namespace="a", ports="[{name: mesh, port: 15008}]"),
    )


def cart(port: str = HTTP, labels: str = "istio.io/use-waypoint: w", captured: bool = True) -> tuple[Plain, ...]:
    """Return the objects of a Service with one endpoint behind the waypoint."""
    annotations = {"ambient.istio.io/redirection": "enabled"} if captured else {}
    slice_ports = "[{name: http, port: 8080}, {name: tcp, port: 9090}, {name: any, port: 9191}]"
    spec = f"{{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], selector: {{app: cart}}, ports: [{port}]}}"
    return (
        make("Service", "cart", spec, "a", labels=f"{{{labels}}}"),
        endpoint_slice("cart", at("10.1.0.1", "cart-0"), namespace="a", ports=slice_ports),
        pod(
            "cart-0", "10.1.0.1", "a", "{serviceAccountName: cart}", "{app: cart, version: v1}", annotations=annotations
        ),
    )


def proxy_resources(
    *objects: Mapping[str, Any], by: Proxy = WAYPOINT, mesh: str = "", **environ: str
) -> dict[str, dict[str, Plain]]:
    """Return the resources of a proxy by type and name."""
    env = world(*objects, mesh_config=mesh, **{**AMBIENT, **environ})
    return world_resources(env, by)


def world_resources(world: World, by: Proxy = WAYPOINT) -> dict[str, dict[str, Plain]]:
    resources = world.resources(world.connect(by))
    assert not world.failures
    return {
        url: {name: json_format.MessageToDict(any_pb2.Any.FromString(r.any)) for name, r in resources[url].items()}
        for url in (CLUSTER, ENDPOINT, LISTENER)
    }


def main_listener(resources: Mapping[str, Mapping[str, Plain]]) -> Plain:
    return resources[LISTENER]["main_internal"]


def chain_names(resources: Mapping[str, Mapping[str, Plain]]) -> list[str]:
    return [chain["name"] for chain in main_listener(resources)["filterChains"]]


def manager(resources: Mapping[str, Mapping[str, Plain]], chain: str = VIP_HTTP) -> Plain:
    config: Plain = next(c for c in main_listener(resources)["filterChains"] if c["name"] == chain)["filters"][-1][
        "typedConfig"
    ]
    return config


def routes(resources: Mapping[str, Mapping[str, Plain]]) -> list[Plain]:
    plain_routes: list[Plain] = manager(resources)["routeConfig"]["virtualHosts"][0]["routes"]
    return plain_routes


def members(load: Plain) -> Iterator[endpoint_components_pb2.LbEndpoint]:
    for group in json_format.ParseDict(
        {k: v for k, v in load.items() if k != "@type"}, endpoint_pb2.ClusterLoadAssignment()
    ).endpoints:
        yield from group.lb_endpoints


def tunnel_metadata(load: Plain) -> list[dict[str, str]]:
    """Return the tunnel metadata of each endpoint."""
    metadata = (json_format.MessageToDict(m.metadata).get("filterMetadata", {}) for m in members(load))
    return [dict(fields.get("envoy.filters.listener.original_dst", {})) for fields in metadata]


# -- services and workloads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "chains"),
    [
        (HTTP, [VIP_HTTP]),
        (TCP, [f"inbound-vip|90|tcp|{CART}"]),
        (UNKNOWN, [f"inbound-vip|91|http|{CART}", f"inbound-vip|91|tcp|{CART}"]),
    ],
)
def test_chain_and_cluster_per_port_protocol(port: str, chains: list[str]) -> None:
    result = proxy_resources(*waypoint(), *cart(port))
    assert sorted(chain_names(result)) == [*sorted(["direct-http", "direct-tcp"]), *chains]
    assert sorted(name for name in result[CLUSTER] if name.startswith("inbound-vip") and CART in name) == chains


@pytest.mark.parametrize(("export_to", "sent_expected"), [("'*'", True), ("a", True), ("b", False)])
def test_provider_service_is_sent_if_exported_to_the_waypoint(export_to: str, sent_expected: bool) -> None:
    annotations = f"{{networking.istio.io/exportTo: {export_to}}}"
    tracer = make(
        "Service", "zipkin", "{clusterIP: 10.96.0.7, ports: [{name: http, port: 9411}]}", "b", annotations=annotations
    )
    mesh = "extensionProviders: [{name: z, zipkin: {service: zipkin.b.svc.cluster.local, port: 9411}}]"
    assert (
        "outbound|9411||zipkin.b.svc.cluster.local" in proxy_resources(*waypoint(), *cart(), tracer, mesh=mesh)[CLUSTER]
    ) == sent_expected


@pytest.mark.parametrize("kind", ["TrafficExtension", "WasmPlugin"])
@pytest.mark.parametrize(
    "target",
    [
        "{kind: Service, name: cart}",
        "{group: networking.istio.io, kind: ServiceEntry, name: store}",
        "{group: gateway.networking.k8s.io, kind: Gateway, name: w}",
    ],
)
def test_extension_that_a_listener_names_is_sent(kind: str, target: str) -> None:
    """Envoy holds the listener back until it has the configuration of every extension in it."""
    module = "wasm: {url: r.example.com/x}" if kind == "TrafficExtension" else "url: r.example.com/x"
    store = make(
        "ServiceEntry",
        "store",
        "{hosts: [store.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}",
        "a",
        labels="{istio.io/use-waypoint: w}",
    )
    objects = *waypoint(), *cart(), store, make(kind, "x", f"{{targetRefs: [{target}], {module}}}", "a")
    env = world(*objects, **AMBIENT)
    client = env.connect(WAYPOINT)
    listeners = [any_pb2.Any.FromString(r.any) for r in env.resources(client)[LISTENER].values()]
    names = frozenset(
        re.findall(r"extensions\.istio\.io/[\w/.~-]+", json.dumps([*map(json_format.MessageToDict, listeners)]))
    )
    groups = proxy_plan(env.mesh, client).groups_of(EXTENSION, names) or ()
    assert names
    assert {r.name for group in groups for r in group.fn(env.mesh, *group.args).values()} == names


def test_waypoint_reports_as_a_gateway_of_servers() -> None:
    objects = (
        *waypoint(),
        *cart(),
        make("Telemetry", "t", "{metrics: [{providers: [{name: prometheus}]}]}", "istio-system"),
    )
    filters = {f["name"]: f["typedConfig"] for f in manager(proxy_resources(*objects))["httpFilters"]}
    assert filters["istio.stats"]["reporter"] == "SERVER_GATEWAY"
    objects = *waypoint(), *cart(TCP), objects[-1]
    (chain,) = (
        c for c in main_listener(proxy_resources(*objects))["filterChains"] if c["name"] == f"inbound-vip|90|tcp|{CART}"
    )
    filters = {f["name"]: f["typedConfig"] for f in chain["filters"]}
    assert filters["istio.stats"]["reporter"] == "SERVER_GATEWAY"


def test_waypoint_selects_the_route_again_once_claims_are_known() -> None:
    rule = make(
        "RequestAuthentication", "r", "{targetRefs: [{kind: Service, name: cart}], jwtRules: [{issuer: i}]}", "a"
    )
    filters = {f["name"]: f["typedConfig"] for f in manager(proxy_resources(*waypoint(), *cart(), rule))["httpFilters"]}
    assert filters["envoy.filters.http.jwt_authn"]["providers"]["origins-0"]["clearRouteCache"] is True


def test_unattached_services_add_no_configuration() -> None:
    other = make("Service", "other", f"{{clusterIP: 10.96.0.5, ports: [{HTTP}]}}", "b")
    baseline, extended = proxy_resources(*waypoint(), *cart()), proxy_resources(*waypoint(), *cart(), other)
    assert main_listener(baseline) == main_listener(extended)
    assert [n for n in extended[CLUSTER] if "other.b" in n and n.startswith("inbound-vip")] == []


@pytest.mark.parametrize(
    ("label", "has_chain"),
    [("istio.io/use-waypoint: none", False), ("istio.io/use-waypoint: absent", False), ("a: b", True)],
)
def test_service_label_overrides_namespace_label(label: str, has_chain: bool) -> None:
    namespace = make("Namespace", "a", labels="{istio.io/use-waypoint: w}")
    assert (VIP_HTTP in chain_names(proxy_resources(*waypoint(), *cart(labels=label), namespace))) == has_chain


@pytest.mark.parametrize(
    ("traffic", "service", "direct"), [("service", 1, 0), ("workload", 0, 1), ("all", 1, 1), ("none", 0, 0)]
)
def test_waypoint_traffic_types(traffic: str, service: int, direct: int) -> None:
    objects = (*waypoint(traffic), *cart(), make("Namespace", "a", labels="{istio.io/use-waypoint: w}"))
    result = proxy_resources(*objects)
    assert (VIP_HTTP in chain_names(result), "10.1.0.1" in str(main_listener(result)["filterChainMatcher"])) == (
        bool(service),
        bool(direct),
    )


@pytest.mark.parametrize(
    "workload",
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
def test_declared_workloads_can_use_a_waypoint(workload: Plain) -> None:
    assert "10.9.0.1" in str(main_listener(proxy_resources(*waypoint("workload"), workload))["filterChainMatcher"])
    assert "10.9.0.1" not in str(main_listener(proxy_resources(*waypoint("service"), workload))["filterChainMatcher"])


@pytest.mark.parametrize(
    ("environ", "network", "serves"),
    [
        ({"AMBIENT_ENABLE_MULTI_NETWORK": "true"}, "here", True),
        ({"AMBIENT_ENABLE_MULTI_NETWORK": "true"}, "there", False),
        ({}, "here", False),
    ],
)
def test_waypoint_serves_the_pods_of_other_clusters_that_ztunnels_reach_through_it(
    environ: dict[str, str], network: str, serves: bool
) -> None:
    def system(network: str) -> Plain:
        return make("Namespace", "istio-system", labels=f"{{topology.istio.io/network: {network}}}")

    env = world(*waypoint("workload"), system("here"), **AMBIENT, **environ)
    remote = pod("far", "10.2.0.1", "a", "{serviceAccountName: far}", "{istio.io/use-waypoint: w}")
    env.set(rows_of([remote, system(network)], "other"))
    assert ("10.2.0.1" in str(main_listener(world_resources(env))["filterChainMatcher"])) == serves
    sent = messages(env).get("other//Pod/a/far")
    assert (sent is not None and sent.waypoint.hostname.hostname == "w.a.svc.cluster.local") == serves
    env.set(dict.fromkeys(rows_of([remote], "other")))
    assert "10.2.0.1" not in str(main_listener(world_resources(env))["filterChainMatcher"])


def test_waypoint_without_services_forwards_nothing() -> None:
    matcher = main_listener(proxy_resources(*waypoint()))["filterChainMatcher"]["matcherTree"]
    assert list(matcher["exactMatchMap"]["map"]) == ["0"]


@pytest.mark.parametrize("environ", [{"PILOT_ENABLE_AMBIENT": "false"}, {"PILOT_ENABLE_AMBIENT_WAYPOINTS": "false"}])
def test_waypoints_can_be_disabled(environ: dict[str, str]) -> None:
    assert proxy_resources(*waypoint(), *cart(), **environ) == {CLUSTER: {}, ENDPOINT: {}, LISTENER: {}}


OUTLIER_DETECTION = "outlierDetection: {consecutive5xxErrors: 3}"


@pytest.mark.parametrize(
    ("resolution", "mesh_settings", "rule_settings", "priorities"),
    [
        ("STATIC", "", OUTLIER_DETECTION, [0, 1]),
        ("STATIC", "", "", [0, 0]),
        ("STATIC", "zoneAwareLbSetting: {enabled: true}", "", [0, 0]),
        ("DNS", f"defaultTrafficPolicy: {{{OUTLIER_DETECTION}}}", "", [0, 1]),
        ("DNS", "", "", [0, 0]),
    ],
)
def test_nearby_endpoints_are_preferred_with_outlier_detection(
    resolution: str, mesh_settings: str, rule_settings: str, priorities: list[int]
) -> None:
    endpoints = "[{address: 10.9.0.1, locality: r1/z1}, {address: 10.9.0.2, locality: r2/z2}]"
    spec = f"{{hosts: [far.com], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: {resolution}, endpoints: {endpoints}}}"
    entry = make("ServiceEntry", "far", spec, "a", labels="{istio.io/use-waypoint: w}")
    rule = make("DestinationRule", "far", f"{{host: far.com, trafficPolicy: {{{rule_settings}}}}}", "a")
    client = msgspec.structs.replace(WAYPOINT, locality=Locality("r1", "z1"))
    result, name = (
        proxy_resources(*waypoint(), entry, *([rule] if rule_settings else ()), by=client, mesh=mesh_settings),
        "inbound-vip|80|http|far.com",
    )
    load = result[ENDPOINT][name] if resolution == "STATIC" else result[CLUSTER][name]["loadAssignment"]
    assert [group.get("priority", 0) for group in load["endpoints"]] == priorities


# -- routes ----------------------------------------------------------------------------------------------------------------


def test_virtual_service_destinations() -> None:
    rule = make("DestinationRule", "cart", f"{{host: {CART}, subsets: [{{name: v1, labels: {{version: v1}}}}]}}", "a")
    other = make("Service", "other", f"{{clusterIP: 10.96.0.5, ports: [{HTTP}]}}", "b")
    spec = "{hosts: [%s], http: [{match: [{uri: {prefix: /b}}], route: [{destination: {host: other.b.svc.cluster.local}}]}, %s]}"
    service = make(
        "VirtualService", "cart", spec % (CART, f"{{route: [{{destination: {{host: {CART}, subset: v1}}}}]}}"), "a"
    )
    result = proxy_resources(*waypoint(), *cart(), rule, other, service)
    clusters = ["outbound|80||other.b.svc.cluster.local", f"inbound-vip|80|http/v1|{CART}"]
    assert [route["route"]["cluster"] for route in routes(result)] == clusters
    assert set(clusters) <= set(result[CLUSTER])


@pytest.mark.parametrize(
    ("weights", "expected"), [((99, 1), [("cart", 99), ("other", 1)]), ((100, 0), [("cart", 100)])]
)
def test_tcp_weights(weights: tuple[int, int], expected: list[tuple[str, int]]) -> None:
    other = make("Service", "other", f"{{clusterIP: 10.96.0.5, ports: [{TCP}]}}", "b")
    destination = "{destination: {host: %s, port: {number: 90}}, weight: %d}"
    targets = ", ".join(destination % pair for pair in zip((CART, "other.b.svc.cluster.local"), weights, strict=True))
    split = make("VirtualService", "cart", f"{{hosts: [{CART}], tcp: [{{route: [{targets}]}}]}}", "a")
    clusters = {"cart": f"inbound-vip|90|tcp|{CART}", "other": "outbound|90||other.b.svc.cluster.local"}
    weighted = manager(proxy_resources(*waypoint(), *cart(TCP), other, split), f"inbound-vip|90|tcp|{CART}")[
        "weightedClusters"
    ]["clusters"]
    assert [(entry["name"], entry["weight"]) for entry in weighted] == [
        (clusters[name], weight) for name, weight in expected
    ]


def test_http_route_of_a_service() -> None:
    route = make(
        "HTTPRoute",
        "cart",
        "{parentRefs: [{group: '', kind: Service, name: cart}], rules: [{matches: [{path: {type: Exact, value: /x}}], "
        "backendRefs: [{name: cart, port: 80}]}]}",
        "a",
        apiVersion=API,
    )
    (entry,) = routes(proxy_resources(*waypoint(), *cart(), route))
    assert (entry["match"]["path"], entry["route"]["cluster"]) == ("/x", VIP_HTTP)


def test_source_label_matches_are_ignored() -> None:
    spec = "{hosts: [%s], http: [{match: [{sourceLabels: {app: x}}], route: [{destination: {host: %s}, headers: {request: {set: {a: b}}}}]}]}"
    result = proxy_resources(*waypoint(), *cart(), make("VirtualService", "cart", spec % (CART, CART), "a"))
    assert [route["name"] for route in routes(result)] == ["default"]


# -- policies --------------------------------------------------------------------------------------------------------------


def has_rbac(resources: Mapping[str, Mapping[str, Plain]], chain: str = VIP_HTTP) -> bool:
    return any("rbac" in f["name"] for f in manager(resources, chain)["httpFilters"])


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
def test_policy_target_refs(target: str, namespace: str, applies: bool, to_all: bool) -> None:
    policy = make("AuthorizationPolicy", "p", f"{{action: DENY, targetRefs: [{target}], rules: [{{}}]}}", namespace)
    result = proxy_resources(*waypoint(), *cart(), policy)
    assert (has_rbac(result), has_rbac(result, "direct-http")) == (applies, to_all)


@pytest.mark.parametrize("spec", ["rules: [{}]", f"selector: {{matchLabels: {{{GATEWAY_NAME}: w}}}}, rules: [{{}}]"])
def test_policy_without_target_ref_is_ignored(spec: str) -> None:
    policy = make("AuthorizationPolicy", "p", f"{{action: DENY, {spec}}}", "a")
    assert not has_rbac(proxy_resources(*waypoint(), *cart(), policy))


def test_telemetry_of_a_service() -> None:
    telemetry = make(
        "Telemetry",
        "t",
        "{targetRefs: [{group: '', kind: Service, name: cart}], tracing: [{disableSpanReporting: true}]}",
        "a",
    )
    for objects, expected in (((), (True, True)), ((telemetry,), (False, True))):
        result = proxy_resources(*waypoint(), *cart(), *objects)
        assert ("tracing" in manager(result), "tracing" in manager(result, "direct-http")) == expected


# -- tunnels ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "name"),
    [(WAYPOINT, VIP_HTTP), (SIDECAR, f"outbound|80||{CART}"), (ROUTER, f"outbound|80||{CART}")],
)
def test_hbone_workloads_are_reached_through_tunnels(client: Proxy, name: str) -> None:
    hbone, plain = (proxy_resources(*waypoint(), *cart(captured=captured), by=client) for captured in (True, False))
    assert tunnel_metadata(hbone[ENDPOINT][name]) == [{"local": "10.1.0.1:8080"}]
    (member,) = members(hbone[ENDPOINT][name])
    assert member.endpoint.address.envoy_internal_address.server_listener_name == "connect_originate"
    assert "connect_originate" in hbone[LISTENER]
    assert tunnel_metadata(plain[ENDPOINT][name]) == [{}]


@pytest.mark.parametrize("base", [SIDECAR, ROUTER])
@pytest.mark.parametrize("disabled_by", ["metadata", "setting", "build"])
def test_clients_without_hbone_send_plaintext(base: Proxy, disabled_by: str) -> None:
    more = {"DISABLE_HBONE_SEND": "true"} if disabled_by == "metadata" else {}
    extensions = frozenset({"envoy.filters.network.tcp_proxy"}) if disabled_by == "build" else base.extensions
    client = base.__class__(
        **{f: getattr(base, f) for f in base.__struct_fields__}
        | {"metadata": {**base.metadata, **more}, "extensions": extensions}
    )
    result = proxy_resources(
        *waypoint(), *cart(), by=client, PILOT_ENABLE_SENDING_HBONE=str(disabled_by != "setting").lower()
    )
    assert tunnel_metadata(result[ENDPOINT][f"outbound|80||{CART}"]) == [{}]
    assert "connect_originate" not in result[LISTENER]


@pytest.mark.parametrize(("label", "uses_waypoint"), [("'true'", True), ("'false'", False)])
def test_ingress_use_waypoint(label: str, uses_waypoint: bool) -> None:
    result = proxy_resources(
        *waypoint(), *cart(labels=f"istio.io/use-waypoint: w, istio.io/ingress-use-waypoint: {label}"), by=ROUTER
    )
    (tunnel,) = tunnel_metadata(result[ENDPOINT][f"outbound|80||{CART}"])
    assert tunnel["local"] == ("10.96.0.1:80" if uses_waypoint else "10.1.0.1:8080")
    assert ("waypoint" in tunnel) == uses_waypoint


@pytest.mark.parametrize(
    ("metadata", "setting", "listens"), [("true", "true", True), ("true", "false", False), ("", "true", False)]
)
def test_sidecar_hbone_listener(metadata: str, setting: str, listens: bool) -> None:
    server = proxy(
        "sidecar", "cart-0", "a", "10.1.0.1", {"app": "cart"}, **({"ENABLE_HBONE": metadata} if metadata else {})
    )
    result = proxy_resources(*waypoint(), *cart(), by=server, PILOT_ENABLE_SIDECAR_LISTENING_HBONE=setting)
    assert ("connect_terminate" in result[LISTENER]) == listens


def test_remote_network_is_reached_by_double_hbone() -> None:
    def gateway(network: str) -> Plain:
        spec = "{gatewayClassName: istio-remote, addresses: [{value: 9.9.9.9}], listeners: [{name: h, port: 15008, protocol: HBONE}]}"
        return make(
            "Gateway", "east", spec, "istio-system", apiVersion=API, labels=f"{{topology.istio.io/network: {network}}}"
        )

    objects = [*waypoint(), *cart(), make("Namespace", "istio-system", labels="{topology.istio.io/network: here}")]
    objects[-2]["metadata"]["labels"]["topology.istio.io/network"] = "there"
    client = proxy("waypoint", "w-0", "a", "10.1.0.9", {GATEWAY_NAME: "w"}, NETWORK="here")
    result = proxy_resources(*objects, gateway("there"), by=client, AMBIENT_ENABLE_MULTI_NETWORK="true")
    (member,) = members(result[ENDPOINT][VIP_HTTP])
    assert member.endpoint.address.envoy_internal_address.server_listener_name == "inner_connect_originate"
    assert {"inner_connect_originate", "outer_connect_originate"} <= set(result[LISTENER])
    assert "9.9.9.9:15008" in str(tunnel_metadata(result[ENDPOINT][VIP_HTTP]))
    unreachable = proxy_resources(*objects, gateway("far"), by=client, AMBIENT_ENABLE_MULTI_NETWORK="true")
    assert list(members(unreachable[ENDPOINT][VIP_HTTP])) == []


@pytest.mark.parametrize(
    ("route", "weighted"),
    [
        ("[{destination: {host: cart}, weight: 0}]", False),
        ("[{destination: {host: cart}, weight: 30}, {destination: {host: cart}, weight: 70}]", True),
    ],
)
def test_weighted_clusters_need_several_destinations(route: str, weighted: bool) -> None:
    rule = make("VirtualService", "v", f"{{hosts: [{CART}], tcp: [{{route: {route}}}]}}", "a")
    config = manager(proxy_resources(*waypoint(), *cart(TCP), rule), f"inbound-vip|90|tcp|{CART}")
    assert ("weightedClusters" in config, "cluster" in config) == (weighted, not weighted)


def test_h2_upgrade_policy() -> None:
    rule = make(
        "DestinationRule",
        "two",
        f"{{host: {CART}, trafficPolicy: {{connectionPool: {{http: {{h2UpgradePolicy: UPGRADE}}}}}}}}",
        "a",
    )
    options = [
        str(proxy_resources(*waypoint(), *cart(), *more)[CLUSTER][VIP_HTTP].get("typedExtensionProtocolOptions"))
        for more in ((), (rule,))
    ]
    assert ["http2ProtocolOptions" in text for text in options] == [False, True]


@pytest.mark.parametrize(
    ("ports", "disabled"), [(HTTP, [80]), (TCP, [90]), (UNKNOWN, []), (f"{HTTP}, {TCP}, {UNKNOWN}", [80, 90])]
)
def test_http_inspector_skips_ports_with_a_declared_protocol(ports: str, disabled: list[int]) -> None:
    (inspector,) = [
        f
        for f in main_listener(proxy_resources(*waypoint(), *cart(ports)))["listenerFilters"]
        if f["name"].endswith("http_inspector")
    ]
    rules = inspector.get("filterDisabled", {})
    actual = [
        rule["destinationPortRange"]["start"]
        for rule in rules.get("orMatch", {}).get("rules", [rules] if rules else [])
    ]
    assert actual == disabled


WILD = make(
    "ServiceEntry",
    "wild",
    "{hosts: ['*.wild.com'], location: MESH_EXTERNAL, resolution: DYNAMIC_DNS, "
    "ports: [{number: 443, name: tls, protocol: TLS}, {number: 80, name: http, protocol: HTTP}]}",
    "a",
    labels="{istio.io/use-waypoint: w}",
)


def test_waypoint_resolves_the_sni_of_wildcard_hosts_if_enabled() -> None:
    """Release note se-wildcard-tls-host."""
    enabled = {"ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS": "true"}
    before, after = (proxy_resources(*waypoint(), WILD, **environ) for environ in ({}, enabled))
    name = "inbound-vip|443|tcp|*.wild.com"
    chains = [{c["name"]: c for c in r[LISTENER]["main_internal"]["filterChains"]} for r in (before, after)]
    assert (name in before[CLUSTER], name in chains[0]) == (False, False)
    cache = after[CLUSTER][name]["clusterType"]["typedConfig"]["dnsCacheConfig"]
    filters = chains[1][name]["filters"]
    position = next(i for i, f in enumerate(filters) if f["name"].endswith("sni_dynamic_forward_proxy"))
    assert filters[position]["typedConfig"]["dnsCacheConfig"] == cache
    assert filters[position]["typedConfig"]["portValue"] == 443
    assert [f["name"] for f in filters[position + 1 :]] == ["envoy.filters.network.tcp_proxy"]
    assert filters[-1]["typedConfig"]["cluster"] == name
    inspectors = {f["name"] for f in after[LISTENER]["main_internal"]["listenerFilters"]}
    assert "envoy.filters.listener.tls_inspector" in inspectors


def _filter_names(listener: Plain) -> list[str]:
    return [f["name"] for f in listener["filterChains"][0]["filters"]]


@pytest.mark.parametrize("enabled", [False, True])
def test_59117_baggage_at_waypoints(enabled: bool) -> None:
    """The ends of tunnels exchange the header `baggage` if AMBIENT_ENABLE_BAGGAGE is set."""
    environ = {"AMBIENT_ENABLE_BAGGAGE": str(enabled).lower(), "AMBIENT_ENABLE_MULTI_NETWORK": "true"}
    resources = proxy_resources(*waypoint(), *cart(), **environ)
    listeners, clusters = resources[LISTENER], resources[CLUSTER]
    peer = ["upstream_hbone_peer_metadata"] if enabled else []
    assert _filter_names(listeners["connect_originate"]) == [*peer, "envoy.filters.network.tcp_proxy"]
    assert [f["name"] for f in clusters[VIP_HTTP].get("filters", ())] == peer
    assert [f["name"] for f in clusters["encap"].get("filters", ())] == peer
    assert ("istio.peer_metadata" in json.dumps(clusters[VIP_HTTP])) == enabled
    assert ("upstream_filter_state" in json.dumps(listeners["main_internal"])) == enabled
    assert ('"downstream_propagation": [{"baggage": {}}]' in json.dumps(listeners["connect_terminate"])) == enabled
    tunnel = listeners["connect_originate"]["filterChains"][0]["filters"][-1]["typedConfig"]["tunnelingConfig"]
    assert tunnel.get("propagateResponseHeaders", False) == enabled
    assert ("%FILTER_STATE(io.istio.baggage:PLAIN)%" in json.dumps(tunnel)) == enabled


@pytest.mark.parametrize(
    ("policy", "disabled"),
    [
        ("{loadBalancer: {simple: RANDOM}}", False),
        ("{tls: {mode: SIMPLE}}", True),
        ("{proxyProtocol: {version: V2}}", True),
    ],
)
def test_59117_baggage_is_not_discovered_with_tls_or_the_proxy_protocol(policy: str, disabled: bool) -> None:
    rule = make("DestinationRule", "cart", f"{{host: {CART}, trafficPolicy: {policy}}}", "a")
    resources = proxy_resources(*waypoint(), *cart(), rule, AMBIENT_ENABLE_BAGGAGE="true")
    filters = resources[CLUSTER][VIP_HTTP]["metadata"]["filterMetadata"]
    assert filters.get("istio.peer_metadata", {}) == ({"disable_baggage_discovery": True} if disabled else {})


def test_59117_baggage_needs_the_filters_of_istio() -> None:
    stock = msgspec.structs.replace(WAYPOINT, extensions=frozenset({"envoy.filters.network.tcp_proxy"}))
    clusters = proxy_resources(*waypoint(), *cart(), by=stock, AMBIENT_ENABLE_BAGGAGE="true")[CLUSTER]
    assert not any("filters" in cluster for cluster in clusters.values())
