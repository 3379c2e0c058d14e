"""What gateways between networks are sent: of global services and their waypoints alone. The whole: golden case `east-west`."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.envoy.names import BLACK_HOLE_CLUSTER, FORWARD_INNER_CONNECT, MAIN_INTERNAL
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, proxy, rows_of
from tests.unit.envoy.plans.test_waypoint import installed, of_world

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
    redirected = {"ambient.istio.io/redirection": "enabled"}
    far = "{app: cart, topology.istio.io/network: there}"
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
        pod("cart-0", "10.1.0.1", "a", "{serviceAccountName: cart}", "{app: cart}", annotations=redirected),
        pod("cart-1", "10.2.0.1", "a", "{serviceAccountName: cart}", far, annotations=redirected),
    )


def world(*objects: Plain, **environ: str) -> World:
    made = World(MESH, environ={**ENVIRON, **environ})
    listener = {"name": "mesh", "port": 15008, "protocol": "HBONE"}
    remote = {"gatewayClassName": "istio-remote", "addresses": [{"value": "9.9.9.9"}], "listeners": [listener]}
    way = make(
        "Gateway",
        "there",
        "{}",
        "istio-system",
        labels="{topology.istio.io/network: there}",
        apiVersion="gateway.networking.k8s.io/v1",
    )
    made.set(
        rows_of(
            (
                make("Namespace", "istio-system", labels="{topology.istio.io/network: here}"),
                way | {"spec": remote},
                *objects,
            )
        )
    )
    return made


def chosen(listener: Plain, name: str) -> Any:
    """What the listener chooses for a service by name."""
    return listener["filterChainMatcher"]["matcherTree"]["exactMatchMap"]["map"][name]


def test_a_global_service_is_reached_at_the_workloads_of_the_network_by_the_tunnel_that_came() -> None:
    found = of_world(world(*cart()), GATEWAY)
    assert [name for name in found[CLUSTER] if name.startswith("inbound-vip")] == [CART]
    assert [c["name"] for c in found[LISTENER][MAIN_INTERNAL]["filterChains"]] == [CART]
    ((endpoint,),) = [group["lbEndpoints"] for group in found[ENDPOINT][CART]["endpoints"]]
    assert endpoint["endpoint"]["address"]["envoyInternalAddress"] == {
        "serverListenerName": FORWARD_INNER_CONNECT,
        "endpointId": "10.1.0.1:8080",
    }
    assert endpoint["metadata"]["filterMetadata"]["envoy.filters.listener.original_dst"] == {"local": "10.1.0.1:8080"}
    assert chosen(found[LISTENER][MAIN_INTERNAL], "cart.a.svc.cluster.local:80")["action"]["name"] == CART
    assert "tunnelingConfig" not in str(found[LISTENER][FORWARD_INNER_CONNECT])
    assert "transportSocket" not in found[CLUSTER][FORWARD_INNER_CONNECT]
    assert "x-istio-source" in str(found[LISTENER]["connect_terminate"])


@pytest.mark.parametrize(("labels", "gateways"), [("", CART), ("istio.io/ingress-use-waypoint: 'true', ", WAYPOINT)])
def test_who_has_not_come_by_a_waypoint_is_sent_to_that_of_the_service(labels: str, gateways: str) -> None:
    found = of_world(world(*installed(), *cart(f"{labels}{GLOBAL}, istio.io/use-waypoint: w")), GATEWAY)
    assert {CART, WAYPOINT} <= found[CLUSTER].keys()
    matcher = chosen(found[LISTENER][MAIN_INTERNAL], "cart.a.svc.cluster.local:80")["matcher"]
    by_source = matcher["matcherTree"]["exactMatchMap"]["map"]
    assert {source: case["action"]["name"] for source, case in by_source.items()} == {
        "waypoint": CART,
        "gateway": gateways,
    }
    assert matcher["onNoMatch"]["action"]["name"] == WAYPOINT
    (endpoint,) = found[ENDPOINT][WAYPOINT]["endpoints"][0]["lbEndpoints"]
    assert endpoint["endpoint"]["address"]["envoyInternalAddress"]["endpointId"] == "10.1.0.9:15008"


def test_without_global_services_nothing_gets_in() -> None:
    found = of_world(world(*installed(), *cart("istio.io/use-waypoint: w")), GATEWAY)
    assert not [name for name in found[CLUSTER] if name.startswith("inbound-vip")]
    (chain,) = found[LISTENER][MAIN_INTERNAL]["filterChains"]
    assert BLACK_HOLE_CLUSTER in str(chain)
    assert BLACK_HOLE_CLUSTER in found[CLUSTER]


def test_a_service_that_becomes_global_is_let_in_and_one_that_is_no_more_is_not() -> None:
    made = world(*cart(""))
    assert CART not in of_world(made, GATEWAY)[CLUSTER]
    made.set(rows_of(cart()))
    assert CART in of_world(made, GATEWAY)[CLUSTER]
    made.set(rows_of(cart("")))
    assert CART not in of_world(made, GATEWAY)[CLUSTER]


def test_in_a_mesh_of_one_network_nobody_is_let_in() -> None:
    assert CART not in of_world(world(*cart(), AMBIENT_ENABLE_MULTI_NETWORK="false"), GATEWAY)[CLUSTER]
