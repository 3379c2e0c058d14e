"""ClusterLoadAssignments: which endpoints a client gets, and how they are arranged for it."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.endpoint.v3 import endpoint_components_pb2
from google.protobuf import json_format

from pilot.config.networking.destination_rule import (
    ClientTLSSettings,
    DestinationRule,
    Distribute,
    Failover,
    LocalityLoadBalancerSetting,
    PortTrafficPolicy,
    Subset,
    TrafficPolicy,
    ZoneAwareLoadBalancerSetting,
)
from pilot.config.networking.virtual_service import PortSelector
from pilot.envoy.endpoint.assignment_builder import AssignmentOptions, build_cluster_load_assignment, build_groups
from pilot.envoy.endpoint.client_location import ClientLocationKey, build_client_location, label_distance
from pilot.envoy.endpoint.endpoint_inputs import lb_endpoint_options
from pilot.envoy.endpoint.endpoint_policy import EndpointPolicy, LocalityBalancing, _mtls, build_locality_balancing
from pilot.envoy.endpoint.lb_endpoint import LbEndpointOptions, LocalityMember, fill_lb_endpoint
from pilot.lib.labels import HOSTNAME, NETWORK, REGION, ZONE
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth, Locality
from pilot.mesh.model.facets import LocationFacet, OutboundFacet, ScopeFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.clusterset import EndpointVisibility
from pilot.mesh.registry.networks import NetworkGateway, NetworkGateways, build_network_gateways
from pilot.mesh.registry.services import service
from pilot.mesh.traffic.locality_lb import SAME_NODE, SAME_ZONE, EffectiveLocality, effective_locality
from testing.mesh.objects import make
from testing.mesh.world import World

NO_GATEWAYS = NetworkGateways()
SHOW = LbEndpointOptions(draining_label="istio.io/draining")


def endpoint(address: str, locality: str = "", labels: dict[str, str] | None = None, **more: Any) -> Endpoint:
    made = {
        "port": 80,
        "port_name": "http",
        "namespace": "a",
        "workload": "w",
        "cluster_id": "K",
        "tls_mode": "istio",
        **more,
    }
    return Endpoint(
        addresses=(address,),
        locality=Locality.parse(locality),
        locality_text=locality,
        labels=frozenset((labels or {}).items()),
        **made,
    )


Arranged = list[tuple[int, int | None, list[str]]]


def arrange(
    *endpoints: Endpoint,
    balancing: LocalityBalancing | None = None,
    client_location: ClientLocationKey | None = None,
    **more: Any,
) -> Arranged:
    """Priority, weight and addresses of each group."""
    gateways, sni, inline = more.pop("gateways", NO_GATEWAYS), more.pop("sni", False), more.pop("inline", False)
    rules = AssignmentOptions(
        EndpointPolicy(balancing=balancing, **more),
        client_location or ClientLocationKey(cluster_id="K"),
        gateways,
        SHOW,
        sni,
        inline,
    )
    groups = build_groups(endpoints, rules, lambda e: e.tls_mode == "istio")
    return [(g.priority, g.weight, [m.endpoint.addresses[0] for m in g.members]) for g in groups]


# -- one endpoint ------------------------------------------------------------------------------------------------------------


def shown(e: Endpoint, mtls: bool = True, **show: Any) -> dict[str, Any]:
    message = endpoint_components_pb2.LbEndpoint()
    fill_lb_endpoint(
        message,
        LocalityMember(e, mtls, e.weight or 1),
        LbEndpointOptions(**{"draining_label": "istio.io/draining", **show}),
    )
    found: dict[str, Any] = json_format.MessageToDict(message)
    return found


def test_an_endpoint_in_full() -> None:
    e = endpoint("10.0.0.1", labels={"app": "x", "version": "v2"}, weight=3, health=EndpointHealth.HEALTHY)
    assert shown(e) == {
        "endpoint": {"address": {"socketAddress": {"address": "10.0.0.1", "portValue": 80}}},
        "healthStatus": "HEALTHY",
        "loadBalancingWeight": 3,
        "metadata": {
            "filterMetadata": {
                "envoy.transport_socket_match": {"tlsMode": "istio"},
                "istio": {"workload": "w;a;x;v2;K"},
            }
        },
    }


@pytest.mark.parametrize(
    ("mtls", "mode", "expected"),
    [(True, "istio", True), (False, "istio", False), (True, "disabled", False), (True, "", False)],
)
def test_mesh_tls_only_where_both_sides_do_it(mtls: bool, mode: str, expected: bool) -> None:
    metadata = shown(endpoint("10.0.0.1", tls_mode=mode), mtls)["metadata"]["filterMetadata"]
    assert ("envoy.transport_socket_match" in metadata) is expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, "w;a;w;;K"),
        ({"app": "x", "app.kubernetes.io/name": "y"}, "w;a;y;;K"),
        ({"service.istio.io/canonical-name": "c", "app": "x", "version": "latest"}, "w;a;c;;K"),
        ({"service.istio.io/canonical-revision": "r", "version": "v"}, "w;a;w;r;K"),
    ],
)
def test_telemetry_of_a_workload(labels: dict[str, str], expected: str) -> None:
    assert shown(endpoint("10.0.0.1", labels=labels))["metadata"]["filterMetadata"]["istio"]["workload"] == expected


def test_what_settings_change() -> None:
    assert shown(endpoint("10.0.0.1", tls_mode=""), telemetry=False)["metadata"] == {}
    external = shown(endpoint("10.0.0.1"), canonical=("ext", "v9"), namespace="b")["metadata"]["filterMetadata"][
        "istio"
    ]["workload"]
    assert external == "w;b;ext;v9;K"
    both = Endpoint(addresses=("10.0.0.1", "fd00::1"), port=80, port_name="http")
    other = {"address": {"socketAddress": {"address": "fd00::1", "portValue": 80}}}
    assert shown(both, dual_stack=True)["endpoint"]["additionalAddresses"] == [other]
    assert "additionalAddresses" not in shown(both)["endpoint"]


@pytest.mark.parametrize(("asked", "canonical", "namespace"), [("true", ("ext", "v3"), "a"), ("false", ("", ""), "")])
def test_endpoints_of_a_service_outside_have_its_name_where_asked_for(
    asked: str, canonical: tuple[str, str], namespace: str
) -> None:
    made = World(environ={"LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES": asked})
    spec = "{hosts: [x.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}"
    made.apply_objects(
        make("ServiceEntry", "ext", spec, labels="{version: v3}"),
        make(
            "ServiceEntry",
            "int",
            spec.replace("x.", "y.").replace("{hosts", "{location: MESH_INTERNAL, hosts"),
            labels="{version: v3}",
        ),
    )
    for host, expected in (("x.example.com", (canonical, namespace)), ("y.example.com", (("", ""), ""))):
        found = service(made.mesh, ServiceRef(host, "a"))
        assert found is not None
        assert (
            lb_endpoint_options(made.mesh, found).canonical,
            lb_endpoint_options(made.mesh, found).namespace,
        ) == expected


@pytest.mark.parametrize(
    ("flag", "telemetry"),
    [("", True), ("PILOT_ENABLE_TELEMETRY_LABEL", False), ("PILOT_ENDPOINT_TELEMETRY_LABEL", False)],
)
def test_settings_say_what_is_shown_of_endpoints(flag: str, telemetry: bool) -> None:
    made = World(environ={flag: "false"} if flag else {})
    made.apply_objects(
        make(
            "ServiceEntry",
            "ext",
            "{hosts: [x.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}",
        )
    )
    found = service(made.mesh, ServiceRef("x.example.com", "a"))
    assert found is not None
    assert (lb_endpoint_options(made.mesh, found).telemetry, lb_endpoint_options(made.mesh, found).dual_stack) == (
        telemetry,
        False,
    )


def test_a_socket_and_a_status_that_nobody_knows() -> None:
    made = shown(endpoint("/run/x", port=0, health=EndpointHealth.UNKNOWN))
    assert made["endpoint"] == {"address": {"pipe": {"path": "/run/x"}}}
    assert "healthStatus" not in made
    assert shown(endpoint("10.0.0.1", labels={"istio.io/draining": "yes"}))["healthStatus"] == "DRAINING"


# -- which endpoints ---------------------------------------------------------------------------------------------------------


def sent(*endpoints: Endpoint, **more: Any) -> list[str]:
    return [address for _, _, addresses in arrange(*endpoints, **more) for address in addresses]


def test_health() -> None:
    every = [endpoint(f"10.0.0.{i}", health=h) for i, h in enumerate(EndpointHealth)]
    assert sent(*every) == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]  # unknown, healthy, unhealthy
    assert sent(*every, send_unhealthy=False) == ["10.0.0.0", "10.0.0.1"]
    assert sent(*every, send_draining=True) == ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_the_labels_of_a_subset() -> None:
    one, two = endpoint("10.0.0.1", labels={"v": "1", "x": "y"}), endpoint("10.0.0.2", labels={"v": "2"})
    assert sent(one, two, labels=frozenset({("v", "1")})) == ["10.0.0.1"]


def test_node_cluster_and_network() -> None:
    one, two = (
        endpoint("10.0.0.1", node="n1", network="net1"),
        endpoint("10.0.0.2", node="n2", network="net2", cluster_id="L"),
    )
    assert sent(one, two, node_local=True, client_location=ClientLocationKey(node="n1", cluster_id="K")) == ["10.0.0.1"]
    assert sent(one, two, node_local=True, client_location=ClientLocationKey(node="n2", cluster_id="K")) == []
    assert sent(
        one,
        two,
        endpoint_visibility=EndpointVisibility(cluster_local=True),
        client_location=ClientLocationKey(cluster_id="L"),
    ) == ["10.0.0.2"]
    assert sent(one, two, endpoint("10.0.0.3"), client_location=ClientLocationKey(networks=frozenset({"net2"}))) == [
        "10.0.0.2",
        "10.0.0.3",
    ]


def test_addresses_that_envoy_can_use() -> None:
    every = endpoint("x.example.com"), endpoint("/run/x", port=0), endpoint(""), endpoint("fd00::1")
    assert sent(*every) == ["/run/x", "fd00::1"]
    assert sent(*every, inline=True) == ["x.example.com", "/run/x", "fd00::1"]


def test_localities_in_their_order_with_their_weights() -> None:
    found = arrange(
        endpoint("10.0.0.1", "r2/z"),
        endpoint("10.0.0.2", "r1/z/", weight=4),
        endpoint("10.0.0.3", "r1/z"),
        endpoint("10.0.0.4", "r2/z"),
    )
    assert found == [(0, 1, ["10.0.0.3"]), (0, 4, ["10.0.0.2"]), (0, 2, ["10.0.0.1", "10.0.0.4"])]


def test_an_assignment_without_endpoints_has_its_name() -> None:
    rules = AssignmentOptions(EndpointPolicy(), ClientLocationKey(), NO_GATEWAYS, SHOW)
    assert json_format.MessageToDict(build_cluster_load_assignment("c", (), rules, lambda _: True)) == {
        "clusterName": "c"
    }
    made = json_format.MessageToDict(build_cluster_load_assignment("c", (endpoint("10.0.0.1"),), rules, lambda _: True))
    assert made["endpoints"][0]["locality"] == {}


# -- priorities and weights --------------------------------------------------------------------------------------------------

NEAR = ClientLocationKey(locality=Locality("r1", "z1", "s1"))
EVERYWHERE = [
    endpoint(f"10.0.0.{i}", place) for i, place in enumerate(["r1/z1/s1", "r1/z1/s2", "r1/z2", "r2/z1", "r3"])
]


def test_failover_by_locality() -> None:
    found = arrange(*EVERYWHERE, balancing=LocalityBalancing(by_locality=True), client_location=NEAR)
    assert [(p, a) for p, _, a in found] == [
        (0, ["10.0.0.0"]),
        (1, ["10.0.0.1"]),
        (2, ["10.0.0.2"]),
        (3, ["10.0.0.3"]),
        (3, ["10.0.0.4"]),
    ]


def test_failover_to_a_region() -> None:
    found = arrange(
        *EVERYWHERE,
        balancing=LocalityBalancing(by_locality=True, failover=(Failover("r9", "r2"), Failover("r1", "r3"))),
        client_location=NEAR,
    )
    assert [p for p, _, _ in found] == [0, 1, 2, 4, 3]


def test_priorities_have_no_gaps() -> None:
    assert [
        p
        for p, _, _ in arrange(
            EVERYWHERE[2], EVERYWHERE[4], balancing=LocalityBalancing(by_locality=True), client_location=NEAR
        )
    ] == [0, 1]


def test_zones_of_a_region_are_one_priority_where_envoy_balances_them() -> None:
    found = arrange(
        *EVERYWHERE, balancing=LocalityBalancing(by_region=True, failover=(Failover("r1", "r3"),)), client_location=NEAR
    )
    assert [p for p, _, _ in found] == [0, 0, 0, 2, 1]


def test_failover_by_labels_splits_localities() -> None:
    one, two, three = (
        endpoint(f"10.0.0.{i}", "r/z", {"v": v, "t": t})
        for i, (v, t) in enumerate([("1", "a"), ("1", "b"), ("2", "a")])
    )
    found = arrange(
        one,
        two,
        three,
        balancing=LocalityBalancing(failover_priority=("v", "t")),
        client_location=ClientLocationKey(label_values=("1", "a")),
    )
    assert found == [(0, 1, ["10.0.0.0"]), (1, 1, ["10.0.0.1"]), (2, 1, ["10.0.0.2"])]


def test_labels_before_localities() -> None:
    one, two = endpoint("10.0.0.1", "r1/z1/s1", {"v": "2"}), endpoint("10.0.0.2", "r2", {"v": "1"})
    three = endpoint("10.0.0.3", "r3", {"v": "1"})
    balancing = LocalityBalancing(failover_priority=("v",), failover=(Failover("r1", "r2"),), by_locality=True)
    found = arrange(
        one,
        two,
        three,
        balancing=balancing,
        client_location=ClientLocationKey(label_values=("1",), locality=NEAR.locality),
    )
    assert sorted((p, a) for p, _, a in found) == [(0, ["10.0.0.2"]), (1, ["10.0.0.3"]), (2, ["10.0.0.1"])]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({NETWORK: "n", REGION: "r", ZONE: "z"}, 0),
        ({NETWORK: "n", REGION: "r", ZONE: "y"}, 1),
        ({NETWORK: "n", REGION: "q", ZONE: "z"}, 2),
        ({NETWORK: "m", REGION: "r", ZONE: "z"}, 3),
        ({NETWORK: "m", REGION: "r"}, 4),
        ({}, 5),
    ],
)
def test_another_network_is_farther_than_anything_in_the_same(labels: dict[str, str], expected: int) -> None:
    assert label_distance(endpoint("10.0.0.1", labels=labels), (NETWORK, REGION, ZONE), ("n", "r", "z")) == expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((Distribute("r1/*", {"r1/*": 80, "r2/*": 20}),), [80, 20, 0]),
        ((Distribute("r1/z1/s1", {"r1/z1/s1": 10, "r1/z1/s2": 20, "r1/z2": 0, "*": 70}),), [10, 20, 1, 35, 35]),
        ((Distribute("r9", {"*": 100}),), [1, 1, 1, 1, 1]),
        ((Distribute("*", {"*": 100}), Distribute("r1/*", {"r1/*": 100})), [20, 20, 20, 20, 20]),
    ],
)
def test_distribution(rules: tuple[Distribute, ...], expected: list[int]) -> None:
    if len(expected) == 3:
        regions = [endpoint(f"10.0.0.{i}", f"r{i}/z") for i in (1, 2, 3)]
        found = arrange(*regions, balancing=LocalityBalancing(rules), client_location=NEAR)
        assert found == [(0, 80, ["10.0.0.1"]), (0, 20, ["10.0.0.2"]), (0, 1, [])]
    else:
        assert [
            w for _, w, _ in arrange(*EVERYWHERE, balancing=LocalityBalancing(rules), client_location=NEAR)
        ] == expected


@pytest.mark.parametrize(("enabled", "forced"), [(None, True), (True, True), (False, False)])
def test_awareness_of_zones_needs_no_ejection_unless_it_is_off(enabled: bool | None, forced: bool) -> None:
    setting = ZoneAwareLoadBalancerSetting(enabled=enabled)
    assert effective_locality(None, None, None, setting) == EffectiveLocality(setting, forced)


@pytest.mark.parametrize(("enabled", "counts"), [(None, True), (True, True), (False, False)])
def test_localities_of_the_mesh_count_unless_they_are_off(enabled: bool | None, counts: bool) -> None:
    setting = LocalityLoadBalancerSetting(enabled=enabled)
    assert effective_locality(None, None, setting, None) == EffectiveLocality(setting if counts else None)


def test_which_settings_take_effect() -> None:
    plain = EffectiveLocality(LocalityLoadBalancerSetting())
    assert build_locality_balancing(EffectiveLocality(), True) is None
    assert build_locality_balancing(plain, False) is None
    assert build_locality_balancing(plain, True) == LocalityBalancing(by_locality=True)
    assert build_locality_balancing(SAME_ZONE, False) == LocalityBalancing(
        failover_priority=SAME_ZONE.setting.failover_priority
    )  # type: ignore[union-attr]
    labels = EffectiveLocality(LocalityLoadBalancerSetting(failover_priority=("x",), failover=(Failover("a", "b"),)))
    assert build_locality_balancing(labels, True) == LocalityBalancing(
        failover_priority=("x",), failover=(Failover("a", "b"),), by_locality=True
    )
    weights = EffectiveLocality(LocalityLoadBalancerSetting(distribute=(Distribute("a", {"b": 100}),)))
    assert build_locality_balancing(weights, False) == LocalityBalancing((Distribute("a", {"b": 100}),))
    assert build_locality_balancing(EffectiveLocality(ZoneAwareLoadBalancerSetting(enabled=False)), True) is None
    assert build_locality_balancing(EffectiveLocality(ZoneAwareLoadBalancerSetting()), False) == LocalityBalancing(
        by_region=True
    )


# -- from where --------------------------------------------------------------------------------------------------------------


def client(**reach: Any) -> OutboundFacet:
    return OutboundFacet(
        type=NodeType.SIDECAR, scope=ScopeFacet("a"), location=LocationFacet(**reach), labels=frozenset({("v", "1")})
    )


def test_only_what_matters_of_a_client_tells_it_from_others() -> None:
    here = client(locality=Locality("r", "z"), node="n", network="net")
    assert build_client_location(EndpointPolicy(), here, False) == build_client_location(
        EndpointPolicy(), client(), False
    )
    by_place = EndpointPolicy(balancing=LocalityBalancing(by_locality=True))
    assert build_client_location(by_place, here, False) == ClientLocationKey(
        locality=Locality("r", "z"), cluster_id="Kubernetes"
    )
    assert build_client_location(EndpointPolicy(node_local=True), here, False).node == "n"
    assert build_client_location(EndpointPolicy(), here, True).network == "net"


def test_what_decides_who_is_near() -> None:
    asked = ("v", "v=9", "other", REGION, HOSTNAME)
    made = build_client_location(
        EndpointPolicy(balancing=LocalityBalancing(failover_priority=asked)),
        client(locality=Locality("r"), node="n"),
        False,
    )
    assert made.label_values == ("1", "9", "", "r", "n")
    assert SAME_NODE.setting is not None


# -- networks ----------------------------------------------------------------------------------------------------------------

GATEWAYS = build_network_gateways(
    [
        NetworkGateway("1.1.1.1", 15443, "far", "K"),
        NetworkGateway("1.1.1.2", 15443, "far", "K"),
        NetworkGateway("2.2.2.2", 15443, "home", "K"),
    ]
)
HOME = ClientLocationKey(network="home", ipv6=False)


def test_other_networks_are_reached_through_their_gateways() -> None:
    found = arrange(
        endpoint("10.0.0.1", network="home"),
        endpoint("10.0.0.2", network="far", weight=3),
        endpoint("10.0.0.3", network="far"),
        endpoint("10.0.0.4", network="far", tls_mode="disabled"),
        endpoint("10.0.0.5", network="island"),
        endpoint("10.0.0.6"),
        endpoint("", network="far"),
        endpoint("", network="home"),
        gateways=GATEWAYS,
        client_location=HOME,
    )
    assert found == [(0, 16, ["10.0.0.1", "10.0.0.5", "10.0.0.6", "1.1.1.1", "1.1.1.2"])]


def test_a_client_without_a_network_goes_through_gateways_too() -> None:
    assert sent(
        endpoint("10.0.0.1", network="home"),
        endpoint("10.0.0.2"),
        gateways=GATEWAYS,
        client_location=ClientLocationKey(),
    ) == ["10.0.0.2", "2.2.2.2"]


def test_gateways_that_a_client_cannot_reach() -> None:
    assert (
        sent(
            endpoint("10.0.0.2", network="far"),
            gateways=GATEWAYS,
            client_location=ClientLocationKey(network="home", ipv4=False),
        )
        == []
    )
    silent = build_network_gateways([NetworkGateway("1.1.1.1", 0, "far", "K", 15008)])
    assert sent(endpoint("10.0.0.2", network="far"), gateways=silent, client_location=HOME) == ["10.0.0.2"]


def test_by_sni_only_mesh_tls_is_reached() -> None:
    assert arrange(
        endpoint("10.0.0.1"),
        endpoint("10.0.0.2", tls_mode="disabled"),
        endpoint("10.0.0.3", "r", tls_mode=""),
        sni=True,
    ) == [
        (0, 1, ["10.0.0.1"]),
        (0, None, []),
    ]


# -- the policy of a cluster -------------------------------------------------------------------------------------------------


def tls(mode: str, port: int = 0) -> TrafficPolicy | None:
    if not mode:
        return None
    settings = ClientTLSSettings(mode=mode)
    if not port:
        return TrafficPolicy(tls=settings)
    return TrafficPolicy(port_level_settings=(PortTrafficPolicy(port=PortSelector(number=port), tls=settings),))


@pytest.mark.parametrize(
    ("of_rule", "of_subset", "mtls"),
    [
        (None, None, None),
        (tls("ISTIO_MUTUAL"), None, True),
        (tls("SIMPLE"), None, False),
        (tls("ISTIO_MUTUAL", 80), None, True),
        (tls("ISTIO_MUTUAL", 81), None, None),
        (None, tls("ISTIO_MUTUAL"), True),
        (tls("SIMPLE"), tls("ISTIO_MUTUAL"), True),
        (tls("ISTIO_MUTUAL"), tls("DISABLE"), False),
        (tls("ISTIO_MUTUAL"), tls("DISABLE", 81), True),
        (None, tls("DISABLE", 80), False),
    ],
)
def test_the_rule_says_whether_endpoints_are_reached_over_mesh_tls(
    of_rule: Any, of_subset: Any, mtls: bool | None
) -> None:
    rule = DestinationRule(host="x", traffic_policy=of_rule)
    subset = Subset(name="v1", traffic_policy=of_subset)
    assert _mtls(rule, subset, 80) is mtls
    if of_subset is None:
        assert _mtls(rule, None, 80) is mtls
