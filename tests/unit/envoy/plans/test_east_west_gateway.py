"""Configuration of ambient east-west gateways. The golden case `east-west` has full output."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.envoy.names import BLACK_HOLE_CLUSTER, FORWARD_INNER_CONNECT, MAIN_INTERNAL
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, proxy, rows_of
from tests.unit.envoy.plans.test_waypoint_plan import waypoint, world_resources

GATEWAY = proxy(
    "waypoint",
    "passage-0",
    "istio-system",
    "10.1.0.5",
    {"gateway.networking.k8s.io/gateway-name": "passage", "gateway.istio.io/managed": "istio.io-eastwest-controller"},
    NETWORK="here",
)
ENVIRON = {"PILOT_ENABLE_AMBIENT": "true", "AMBIENT_ENABLE_MULTI_NETWORK": "true"}
MESH = "serviceScopeConfigs: [{servicesSelector: {matchExpressions: [{key: istio.io/global, operator: In, values: ['true']}]}, scope: GLOBAL}]"
GLOBAL = "istio.io/global: 'true'"
CART, WAYPOINT = "inbound-vip|80|tcp|cart.a.svc.cluster.local", "inbound-vip|15008|tcp|w.a.svc.cluster.local"


def cart(labels: str = GLOBAL) -> tuple[Plain, ...]:
    annotations = {"ambient.istio.io/redirection": "enabled"}
    remote_labels = "{app: cart, topology.istio.io/network: there}"
    spec = "{clusterIP: 10.96.0.1, selector: {app: cart}, ports: [{name: http, port: 80, targetPort: 8080}]}"
    return (
        make("Service", "cart", spec, "a", labels=f"{{{labels}}}"),
        endpoint_slice(
            "cart",
            at("10.1.0.1", "cart-0"),
            at("10.2.0.1", "cart-1"),
            namespace="a",
            ports="[{name: http, port: 8080}]",
        ),
        pod("cart-0", "10.1.0.1", "a", "{serviceAccountName: cart}", "{app: cart}", annotations=annotations),
        pod("cart-1", "10.2.0.1", "a", "{serviceAccountName: cart}", remote_labels, annotations=annotations),
    )


def east_west_mesh(*objects: Plain, **environ: str) -> World:
    world = World(MESH, environ={**ENVIRON, **environ})
    listener = {"name": "mesh", "port": 15008, "protocol": "HBONE"}
    spec = {"gatewayClassName": "istio-remote", "addresses": [{"value": "9.9.9.9"}], "listeners": [listener]}
    remote_gateway = make(
        "Gateway",
        "there",
        "{}",
        "istio-system",
        labels="{topology.istio.io/network: there}",
        apiVersion="gateway.networking.k8s.io/v1",
    )
    world.set(
        rows_of(
            (
                make("Namespace", "istio-system", labels="{topology.istio.io/network: here}"),
                remote_gateway | {"spec": spec},
                *objects,
            )
        )
    )
    return world


def matcher_for(listener: Plain, name: str) -> Any:
    """Return the filter chain match of a service."""
    return listener["filterChainMatcher"]["matcherTree"]["exactMatchMap"]["map"][name]


def test_global_service_is_forwarded_to_local_workloads() -> None:
    resources = world_resources(east_west_mesh(*cart()), GATEWAY)
    assert [name for name in resources[CLUSTER] if name.startswith("inbound-vip")] == [CART]
    assert [c["name"] for c in resources[LISTENER][MAIN_INTERNAL]["filterChains"]] == [CART]
    ((endpoint,),) = [group["lbEndpoints"] for group in resources[ENDPOINT][CART]["endpoints"]]
    assert endpoint["endpoint"]["address"]["envoyInternalAddress"] == {
        "serverListenerName": FORWARD_INNER_CONNECT,
        "endpointId": "10.1.0.1:8080",
    }
    assert endpoint["metadata"]["filterMetadata"]["envoy.filters.listener.original_dst"] == {"local": "10.1.0.1:8080"}
    assert matcher_for(resources[LISTENER][MAIN_INTERNAL], "cart.a.svc.cluster.local:80")["action"]["name"] == CART
    assert "tunnelingConfig" not in str(resources[LISTENER][FORWARD_INNER_CONNECT])
    assert "transportSocket" not in resources[CLUSTER][FORWARD_INNER_CONNECT]
    assert "x-istio-source" in str(resources[LISTENER]["connect_terminate"])


@pytest.mark.parametrize(
    ("labels", "gateway_action"), [("", CART), ("istio.io/ingress-use-waypoint: 'true', ", WAYPOINT)]
)
def test_traffic_without_waypoint_is_sent_to_the_service_waypoint(labels: str, gateway_action: str) -> None:
    resources = world_resources(
        east_west_mesh(*waypoint(), *cart(f"{labels}{GLOBAL}, istio.io/use-waypoint: w")), GATEWAY
    )
    assert {CART, WAYPOINT} <= resources[CLUSTER].keys()
    matcher = matcher_for(resources[LISTENER][MAIN_INTERNAL], "cart.a.svc.cluster.local:80")["matcher"]
    by_source = matcher["matcherTree"]["exactMatchMap"]["map"]
    assert {source: case["action"]["name"] for source, case in by_source.items()} == {
        "waypoint": CART,
        "gateway": gateway_action,
    }
    assert matcher["onNoMatch"]["action"]["name"] == WAYPOINT
    (endpoint,) = resources[ENDPOINT][WAYPOINT]["endpoints"][0]["lbEndpoints"]
    assert endpoint["endpoint"]["address"]["envoyInternalAddress"]["endpointId"] == "10.1.0.9:15008"


def test_without_global_services_traffic_is_black_holed() -> None:
    resources = world_resources(east_west_mesh(*waypoint(), *cart("istio.io/use-waypoint: w")), GATEWAY)
    assert not [name for name in resources[CLUSTER] if name.startswith("inbound-vip")]
    (chain,) = resources[LISTENER][MAIN_INTERNAL]["filterChains"]
    assert BLACK_HOLE_CLUSTER in str(chain)
    assert BLACK_HOLE_CLUSTER in resources[CLUSTER]


def test_scope_change_adds_and_removes_a_service() -> None:
    world = east_west_mesh(*cart(""))
    assert CART not in world_resources(world, GATEWAY)[CLUSTER]
    world.set(rows_of(cart()))
    assert CART in world_resources(world, GATEWAY)[CLUSTER]
    world.set(rows_of(cart("")))
    assert CART not in world_resources(world, GATEWAY)[CLUSTER]


def test_single_network_mesh_exposes_nothing() -> None:
    assert CART not in world_resources(east_west_mesh(*cart(), AMBIENT_ENABLE_MULTI_NETWORK="false"), GATEWAY)[CLUSTER]


def passthrough(*listeners: str) -> tuple[Plain, ...]:
    """Return the Gateway of the east-west gateway, its Service and Pod, and a TLSRoute to the API server."""
    api = "gateway.networking.k8s.io/v1"
    tunnel = "{name: mesh, port: 15008, protocol: HBONE, tls: {mode: Terminate}}"
    spec = f"{{gatewayClassName: istio-east-west, listeners: [{', '.join((tunnel, *listeners))}]}}"
    labels = "{gateway.networking.k8s.io/gateway-name: passage, gateway.istio.io/managed: istio.io-eastwest-controller}"
    ports = "[{name: mesh, port: 15008}, {name: tls, port: 6443}]"
    route = "{parentRefs: [{name: passage, sectionName: tls}], hostnames: [api.example.com], rules: [{backendRefs: [{name: kubernetes, port: 443}]}]}"
    return (
        make("Gateway", "passage", spec, "istio-system", apiVersion=api),
        make("TLSRoute", "api", route, "istio-system", apiVersion=api),
        make(
            "Service",
            "passage",
            f"{{clusterIP: 10.96.0.5, selector: {{gateway.networking.k8s.io/gateway-name: passage}}, ports: {ports}}}",
            "istio-system",
            labels=labels,
        ),
        pod("passage-0", "10.1.0.5", "istio-system", "{serviceAccountName: passage}", labels),
        make("Service", "kubernetes", "{clusterIP: 10.96.0.6, ports: [{name: https, port: 443}]}", "istio-system"),
        make("Service", "other", "{clusterIP: 10.96.0.7, ports: [{name: https, port: 443}]}", "istio-system"),
        endpoint_slice(
            "kubernetes",
            at("10.1.0.6", "api-0", namespace="istio-system"),
            namespace="istio-system",
            ports="[{name: https, port: 6443}]",
        ),
        pod("api-0", "10.1.0.6", "istio-system", annotations={"ambient.istio.io/redirection": "enabled"}),
    )


TLS_LISTENER = "{name: tls, port: 6443, protocol: TLS, tls: {mode: Passthrough}}"


def test_listeners_that_pass_tls_through_forward_by_sni() -> None:
    """Release note ewgw-tls-passthrough."""
    resources = world_resources(east_west_mesh(*cart(), *passthrough(TLS_LISTENER)), GATEWAY)
    cluster = "outbound|443||kubernetes.istio-system.svc.cluster.local"
    (name,) = [name for name in resources[LISTENER] if "6443" in name]
    (chain,) = resources[LISTENER][name]["filterChains"]
    assert chain["filterChainMatch"]["serverNames"] == ["api.example.com"]
    assert chain["filters"][-1]["typedConfig"]["cluster"] == cluster
    assert "transportSocket" not in chain
    assert [name for name in resources[CLUSTER] if name.startswith("outbound|")] == [cluster]
    ((endpoint,),) = [group["lbEndpoints"] for group in resources[ENDPOINT][cluster]["endpoints"]]
    assert endpoint["endpoint"]["address"]["socketAddress"] == {"address": "10.1.0.6", "portValue": 6443}
    assert CART in resources[CLUSTER]


def test_tunnels_alone_need_no_listeners_of_gateways() -> None:
    with_tunnel, with_tls = (
        world_resources(east_west_mesh(*cart(), *passthrough(*more)), GATEWAY) for more in ((), (TLS_LISTENER,))
    )
    assert set(with_tls[LISTENER]) - with_tunnel[LISTENER].keys() == {"0.0.0.0_6443"}
    assert not [name for name in with_tunnel[CLUSTER] if name.startswith("outbound|")]


def test_gateways_that_select_every_router_do_not_apply_to_east_west_gateways() -> None:
    servers = "{servers: [{port: {number: 8443, name: tls, protocol: TLS}, tls: {mode: PASSTHROUGH}, hosts: ['*']}]}"
    objects = (*passthrough(TLS_LISTENER), make("Gateway", "all", servers, "istio-system"))
    resources = world_resources(east_west_mesh(*cart(), *objects), GATEWAY)
    assert not [name for name in resources[LISTENER] if "8443" in name]
