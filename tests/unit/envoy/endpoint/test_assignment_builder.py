"""Selection and grouping of endpoints in ClusterLoadAssignments."""

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
from pilot.derive import run_steps
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
    fields = {
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
        **fields,
    )


Groups = list[tuple[int, int | None, list[str]]]


def locality_groups(
    *endpoints: Endpoint,
    balancing: LocalityBalancing | None = None,
    client_location: ClientLocationKey | None = None,
    **more: Any,
) -> Groups:
    """Return the priority, weight and addresses of each group."""
    gateways, sni, inline = more.pop("gateways", NO_GATEWAYS), more.pop("sni", False), more.pop("inline", False)
    options = AssignmentOptions(
        EndpointPolicy(balancing=balancing, **more),
        client_location or ClientLocationKey(cluster_id="K"),
        gateways,
        SHOW,
        sni,
        inline,
    )
    groups = run_steps(build_groups(endpoints, options, lambda e: e.tls_mode == "istio"))
    return [(g.priority, g.weight, [m.endpoint.addresses[0] for m in g.members]) for g in groups]


# -- single endpoints --------------------------------------------------------------------------------------------------------


def endpoint_fields(item: Endpoint, mtls: bool = True, **show: Any) -> dict[str, Any]:
    message = endpoint_components_pb2.LbEndpoint()
    fill_lb_endpoint(
        message,
        LocalityMember(item, mtls, item.weight or 1),
        LbEndpointOptions(**{"draining_label": "istio.io/draining", **show}),
    )
    fields: dict[str, Any] = json_format.MessageToDict(message)
    return fields


def test_endpoint_fields() -> None:
    item = endpoint("10.0.0.1", labels={"app": "x", "version": "v2"}, weight=3, health=EndpointHealth.HEALTHY)
    assert endpoint_fields(item) == {
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
def test_mesh_tls_needs_both_sides(mtls: bool, mode: str, expected: bool) -> None:
    metadata = endpoint_fields(endpoint("10.0.0.1", tls_mode=mode), mtls)["metadata"]["filterMetadata"]
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
def test_workload_telemetry_metadata(labels: dict[str, str], expected: str) -> None:
    assert (
        endpoint_fields(endpoint("10.0.0.1", labels=labels))["metadata"]["filterMetadata"]["istio"]["workload"]
        == expected
    )


def test_lb_endpoint_options() -> None:
    assert endpoint_fields(endpoint("10.0.0.1", tls_mode=""), telemetry=False)["metadata"] == {}
    external = endpoint_fields(endpoint("10.0.0.1"), canonical=("ext", "v9"), namespace="b")["metadata"][
        "filterMetadata"
    ]["istio"]["workload"]
    assert external == "w;b;ext;v9;K"
    both = Endpoint(addresses=("10.0.0.1", "fd00::1"), port=80, port_name="http")
    other = {"address": {"socketAddress": {"address": "fd00::1", "portValue": 80}}}
    assert endpoint_fields(both, dual_stack=True)["endpoint"]["additionalAddresses"] == [other]
    assert "additionalAddresses" not in endpoint_fields(both)["endpoint"]


@pytest.mark.parametrize(("flag", "canonical", "namespace"), [("true", ("ext", "v3"), "a"), ("false", ("", ""), "")])
def test_canonical_service_of_external_endpoints(flag: str, canonical: tuple[str, str], namespace: str) -> None:
    world = World(environ={"LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES": flag})
    spec = "{hosts: [x.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}"
    world.apply_objects(
        make("ServiceEntry", "ext", spec, labels="{version: v3}"),
        make(
            "ServiceEntry",
            "int",
            spec.replace("x.", "y.").replace("{hosts", "{location: MESH_INTERNAL, hosts"),
            labels="{version: v3}",
        ),
    )
    for host, expected in (("x.example.com", (canonical, namespace)), ("y.example.com", (("", ""), ""))):
        external = service(world.mesh, ServiceRef(host, "a"))
        assert external is not None
        assert (
            lb_endpoint_options(world.mesh, external).canonical,
            lb_endpoint_options(world.mesh, external).namespace,
        ) == expected


@pytest.mark.parametrize(
    ("flag", "telemetry"),
    [("", True), ("PILOT_ENABLE_TELEMETRY_LABEL", False), ("PILOT_ENDPOINT_TELEMETRY_LABEL", False)],
)
def test_telemetry_label_can_be_disabled(flag: str, telemetry: bool) -> None:
    world = World(environ={flag: "false"} if flag else {})
    world.apply_objects(
        make(
            "ServiceEntry",
            "ext",
            "{hosts: [x.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}",
        )
    )
    external = service(world.mesh, ServiceRef("x.example.com", "a"))
    assert external is not None
    assert (
        lb_endpoint_options(world.mesh, external).telemetry,
        lb_endpoint_options(world.mesh, external).dual_stack,
    ) == (
        telemetry,
        False,
    )


def test_unix_socket_and_health_status() -> None:
    fields = endpoint_fields(endpoint("/run/x", port=0, health=EndpointHealth.UNKNOWN))
    assert fields["endpoint"] == {"address": {"pipe": {"path": "/run/x"}}}
    assert "healthStatus" not in fields
    assert endpoint_fields(endpoint("10.0.0.1", labels={"istio.io/draining": "yes"}))["healthStatus"] == "DRAINING"


# -- endpoint selection ------------------------------------------------------------------------------------------------------


def addresses(*endpoints: Endpoint, **more: Any) -> list[str]:
    return [address for _, _, group_addresses in locality_groups(*endpoints, **more) for address in group_addresses]


def test_health() -> None:
    endpoints = [endpoint(f"10.0.0.{i}", health=h) for i, h in enumerate(EndpointHealth)]
    assert addresses(*endpoints) == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]  # unknown, healthy, unhealthy
    assert addresses(*endpoints, send_unhealthy=False) == ["10.0.0.0", "10.0.0.1"]
    assert addresses(*endpoints, send_draining=True) == ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_subset_labels_select_endpoints() -> None:
    one, two = endpoint("10.0.0.1", labels={"v": "1", "x": "y"}), endpoint("10.0.0.2", labels={"v": "2"})
    assert addresses(one, two, labels=frozenset({("v", "1")})) == ["10.0.0.1"]


def test_node_cluster_and_network_select_endpoints() -> None:
    one, two = (
        endpoint("10.0.0.1", node="n1", network="net1"),
        endpoint("10.0.0.2", node="n2", network="net2", cluster_id="L"),
    )
    assert addresses(one, two, node_local=True, client_location=ClientLocationKey(node="n1", cluster_id="K")) == [
        "10.0.0.1"
    ]
    assert addresses(one, two, node_local=True, client_location=ClientLocationKey(node="n2", cluster_id="K")) == []
    assert addresses(
        one,
        two,
        endpoint_visibility=EndpointVisibility(cluster_local=True),
        client_location=ClientLocationKey(cluster_id="L"),
    ) == ["10.0.0.2"]
    assert addresses(
        one, two, endpoint("10.0.0.3"), client_location=ClientLocationKey(networks=frozenset({"net2"}))
    ) == [
        "10.0.0.2",
        "10.0.0.3",
    ]


def test_unusable_addresses_are_omitted() -> None:
    endpoints = endpoint("x.example.com"), endpoint("/run/x", port=0), endpoint(""), endpoint("fd00::1")
    assert addresses(*endpoints) == ["/run/x", "fd00::1"]
    assert addresses(*endpoints, inline=True) == ["x.example.com", "/run/x", "fd00::1"]


def test_localities_are_sorted_and_weighted() -> None:
    groups = locality_groups(
        endpoint("10.0.0.1", "r2/z"),
        endpoint("10.0.0.2", "r1/z/", weight=4),
        endpoint("10.0.0.3", "r1/z"),
        endpoint("10.0.0.4", "r2/z"),
    )
    assert groups == [(0, 1, ["10.0.0.3"]), (0, 4, ["10.0.0.2"]), (0, 2, ["10.0.0.1", "10.0.0.4"])]


def test_assignment_without_endpoints() -> None:
    options = AssignmentOptions(EndpointPolicy(), ClientLocationKey(), NO_GATEWAYS, SHOW)
    assert json_format.MessageToDict(build_cluster_load_assignment("c", (), options, lambda _: True)) == {
        "clusterName": "c"
    }
    assignment = json_format.MessageToDict(
        build_cluster_load_assignment("c", (endpoint("10.0.0.1"),), options, lambda _: True)
    )
    assert assignment["endpoints"][0]["locality"] == {}


# -- priorities and weights --------------------------------------------------------------------------------------------------

NEAR = ClientLocationKey(locality=Locality("r1", "z1", "s1"))
EVERYWHERE = [
    endpoint(f"10.0.0.{i}", place) for i, place in enumerate(["r1/z1/s1", "r1/z1/s2", "r1/z2", "r2/z1", "r3"])
]


def test_failover_by_locality() -> None:
    groups = locality_groups(*EVERYWHERE, balancing=LocalityBalancing(by_locality=True), client_location=NEAR)
    assert [(p, a) for p, _, a in groups] == [
        (0, ["10.0.0.0"]),
        (1, ["10.0.0.1"]),
        (2, ["10.0.0.2"]),
        (3, ["10.0.0.3"]),
        (3, ["10.0.0.4"]),
    ]


def test_failover_to_a_region() -> None:
    groups = locality_groups(
        *EVERYWHERE,
        balancing=LocalityBalancing(by_locality=True, failover=(Failover("r9", "r2"), Failover("r1", "r3"))),
        client_location=NEAR,
    )
    assert [p for p, _, _ in groups] == [0, 1, 2, 4, 3]


def test_priorities_have_no_gaps() -> None:
    assert [
        p
        for p, _, _ in locality_groups(
            EVERYWHERE[2], EVERYWHERE[4], balancing=LocalityBalancing(by_locality=True), client_location=NEAR
        )
    ] == [0, 1]


def test_zone_awareness_merges_the_zones_of_a_region() -> None:
    groups = locality_groups(
        *EVERYWHERE, balancing=LocalityBalancing(by_region=True, failover=(Failover("r1", "r3"),)), client_location=NEAR
    )
    assert [p for p, _, _ in groups] == [0, 0, 0, 2, 1]


def test_failover_by_labels_splits_localities() -> None:
    one, two, three = (
        endpoint(f"10.0.0.{i}", "r/z", {"v": v, "t": t})
        for i, (v, t) in enumerate([("1", "a"), ("1", "b"), ("2", "a")])
    )
    groups = locality_groups(
        one,
        two,
        three,
        balancing=LocalityBalancing(failover_priority=("v", "t")),
        client_location=ClientLocationKey(label_values=("1", "a")),
    )
    assert groups == [(0, 1, ["10.0.0.0"]), (1, 1, ["10.0.0.1"]), (2, 1, ["10.0.0.2"])]


def test_failover_labels_precede_localities() -> None:
    one, two = endpoint("10.0.0.1", "r1/z1/s1", {"v": "2"}), endpoint("10.0.0.2", "r2", {"v": "1"})
    three = endpoint("10.0.0.3", "r3", {"v": "1"})
    balancing = LocalityBalancing(failover_priority=("v",), failover=(Failover("r1", "r2"),), by_locality=True)
    groups = locality_groups(
        one,
        two,
        three,
        balancing=balancing,
        client_location=ClientLocationKey(label_values=("1",), locality=NEAR.locality),
    )
    assert sorted((p, a) for p, _, a in groups) == [(0, ["10.0.0.2"]), (1, ["10.0.0.3"]), (2, ["10.0.0.1"])]


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
def test_label_distance_ranks_networks_first(labels: dict[str, str], expected: int) -> None:
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
def test_locality_distribution(rules: tuple[Distribute, ...], expected: list[int]) -> None:
    if len(expected) == 3:
        regions = [endpoint(f"10.0.0.{i}", f"r{i}/z") for i in (1, 2, 3)]
        groups = locality_groups(*regions, balancing=LocalityBalancing(rules), client_location=NEAR)
        assert groups == [(0, 80, ["10.0.0.1"]), (0, 20, ["10.0.0.2"]), (0, 1, [])]
    else:
        assert [
            w for _, w, _ in locality_groups(*EVERYWHERE, balancing=LocalityBalancing(rules), client_location=NEAR)
        ] == expected


@pytest.mark.parametrize(("enabled", "forced"), [(None, True), (True, True), (False, False)])
def test_zone_awareness_needs_no_outlier_detection(enabled: bool | None, forced: bool) -> None:
    setting = ZoneAwareLoadBalancerSetting(enabled=enabled)
    assert effective_locality(None, None, None, setting) == EffectiveLocality(setting, forced)


@pytest.mark.parametrize(("enabled", "effective"), [(None, True), (True, True), (False, False)])
def test_mesh_locality_setting_can_be_disabled(enabled: bool | None, effective: bool) -> None:
    setting = LocalityLoadBalancerSetting(enabled=enabled)
    assert effective_locality(None, None, setting, None) == EffectiveLocality(setting if effective else None)


def test_effective_locality_balancing() -> None:
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


# -- client location ---------------------------------------------------------------------------------------------------------


def client(**location: Any) -> OutboundFacet:
    return OutboundFacet(
        type=NodeType.SIDECAR, scope=ScopeFacet("a"), location=LocationFacet(**location), labels=frozenset({("v", "1")})
    )


def test_client_location_has_only_relevant_fields() -> None:
    located = client(locality=Locality("r", "z"), node="n", network="net")
    assert build_client_location(EndpointPolicy(), located, False) == build_client_location(
        EndpointPolicy(), client(), False
    )
    by_locality = EndpointPolicy(balancing=LocalityBalancing(by_locality=True))
    assert build_client_location(by_locality, located, False) == ClientLocationKey(
        locality=Locality("r", "z"), cluster_id="Kubernetes"
    )
    assert build_client_location(EndpointPolicy(node_local=True), located, False).node == "n"
    assert build_client_location(EndpointPolicy(), located, True).network == "net"


def test_client_label_values_for_failover_priority() -> None:
    priority = ("v", "v=9", "other", REGION, HOSTNAME)
    location = build_client_location(
        EndpointPolicy(balancing=LocalityBalancing(failover_priority=priority)),
        client(locality=Locality("r"), node="n"),
        False,
    )
    assert location.label_values == ("1", "9", "", "r", "n")
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


def test_remote_networks_are_reached_through_gateways() -> None:
    groups = locality_groups(
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
    assert groups == [(0, 16, ["10.0.0.1", "10.0.0.5", "10.0.0.6", "1.1.1.1", "1.1.1.2"])]


def test_client_without_network_uses_gateways() -> None:
    assert addresses(
        endpoint("10.0.0.1", network="home"),
        endpoint("10.0.0.2"),
        gateways=GATEWAYS,
        client_location=ClientLocationKey(),
    ) == ["10.0.0.2", "2.2.2.2"]


def test_unreachable_gateways_are_not_used() -> None:
    assert (
        addresses(
            endpoint("10.0.0.2", network="far"),
            gateways=GATEWAYS,
            client_location=ClientLocationKey(network="home", ipv4=False),
        )
        == []
    )
    silent = build_network_gateways([NetworkGateway("1.1.1.1", 0, "far", "K", 15008)])
    assert addresses(endpoint("10.0.0.2", network="far"), gateways=silent, client_location=HOME) == ["10.0.0.2"]


def test_sni_clusters_only_have_mesh_tls_endpoints() -> None:
    assert locality_groups(
        endpoint("10.0.0.1"),
        endpoint("10.0.0.2", tls_mode="disabled"),
        endpoint("10.0.0.3", "r", tls_mode=""),
        sni=True,
    ) == [
        (0, 1, ["10.0.0.1"]),
        (0, None, []),
    ]


# -- cluster policy ----------------------------------------------------------------------------------------------------------


def tls(mode: str, port: int = 0) -> TrafficPolicy | None:
    if not mode:
        return None
    settings = ClientTLSSettings(mode=mode)
    if not port:
        return TrafficPolicy(tls=settings)
    return TrafficPolicy(port_level_settings=(PortTrafficPolicy(port=PortSelector(number=port), tls=settings),))


@pytest.mark.parametrize(
    ("rule_policy", "subset_policy", "mtls"),
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
def test_rule_decides_mesh_tls(rule_policy: Any, subset_policy: Any, mtls: bool | None) -> None:
    rule = DestinationRule(host="x", traffic_policy=rule_policy)
    subset = Subset(name="v1", traffic_policy=subset_policy)
    assert _mtls(rule, subset, 80) is mtls
    if subset_policy is None:
        assert _mtls(rule, None, 80) is mtls
