"""Small derivations, tested exhaustively: destinations, placement, rule order and route kinds."""

from __future__ import annotations

import pytest

from pilot.config.gateway_api.gateway import AllowedRoutes, Listener, ListenerTLSConfig, RouteGroupKind
from pilot.config.networking.virtual_service import HTTPMatchRequest, HTTPRoute, StringMatch
from pilot.lib import labels as label
from pilot.mesh.gateway_api.listeners import supported_kinds
from pilot.mesh.lowering.gateway_api.http_rules import by_specificity
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.facets import LocationFacet
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.proxies import classify
from pilot.mesh.proxies.placement import Placement, placement
from pilot.mesh.registry.service_lookup import destination_ref
from testing.mesh.listeners import service
from testing.mesh.objects import make, world
from testing.mesh.world import proxy

HOST = "x.example"


def entry(namespace: str, exported: str = "'*'") -> dict[str, object]:
    return make(
        "ServiceEntry",
        "x",
        f"{{hosts: [{HOST}], ports: [{{number: 80, name: http}}], resolution: DNS, exportTo: [{exported}]}}",
        namespace,
    )


@pytest.mark.parametrize(
    ("owner", "viewer", "expected"),
    [("a", "a", "a"), ("a", "c", "b"), ("b", "c", "b"), ("b", "a", "b"), ("c", "a", "a"), ("c", "c", "b")],
)
def test_destination_is_that_of_the_owner_if_visible_to_the_router(owner: str, viewer: str, expected: str) -> None:
    db = world(entry("a", "."), entry("b")).mesh
    assert destination_ref(db, HOST, owner, viewer) == ServiceRef(HOST, expected)
    assert destination_ref(db, "none.example", owner, viewer) is None


def balanced(fields: str) -> dict[str, object]:
    policy = f"{{outlierDetection: {{}}, loadBalancer: {{simple: ROUND_ROBIN, localityLbSetting: {{{fields}}}}}}}"
    return make("DestinationRule", "r", f"{{host: {HOST}, trafficPolicy: {policy}}}")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            "failoverPriority: [kubernetes.io/hostname, zoo]",
            Placement(locality=True, node=True, labels=frozenset({"zoo"})),
        ),
        ("failoverPriority: [topology.kubernetes.io/zone]", Placement(locality=True)),
        (
            "failoverPriority: [topology.istio.io/network]",
            Placement(locality=True, network=True, labels=frozenset({label.NETWORK})),
        ),
        ("failoverPriority: [zoo]", Placement(locality=True, labels=frozenset({"zoo"}))),
    ],
)
def test_placement_required_by_failover_priority(fields: str, expected: Placement) -> None:
    assert placement(world(balanced(fields), mesh_config="{localityLbSetting: {enabled: false}}").mesh) == expected


@pytest.mark.parametrize(
    ("preference", "expected"),
    [
        ("PreferSameZone", Placement(locality=True, network=True, labels=frozenset({label.NETWORK}))),
        ("PreferSameNode", Placement(locality=True, node=True, network=True, labels=frozenset({label.NETWORK}))),
    ],
)
def test_placement_required_by_traffic_distribution(preference: str, expected: Placement) -> None:
    web = service("web", "[{name: http, port: 80}]")
    web["spec"]["trafficDistribution"] = preference
    assert placement(world(web, mesh_config="{localityLbSetting: {enabled: false}}").mesh) == expected


def test_placement_required_by_internal_traffic_policy() -> None:
    web = service("web", "[{name: http, port: 80}]")
    web["spec"]["internalTrafficPolicy"] = "Local"
    config = "{localityLbSetting: {enabled: false}}"
    assert placement(world(web, mesh_config=config).mesh) == Placement(node=True)
    assert placement(world(mesh_config=config).mesh) == Placement()


def test_rules_are_ordered_by_specificity() -> None:
    def rule(**fields: object) -> HTTPRoute:
        return HTTPRoute(match=(HTTPMatchRequest(**fields),))  # type: ignore[arg-type]

    present = StringMatch(regex=".*")
    ordered = [
        rule(uri=StringMatch(exact="/long")),
        rule(uri=StringMatch(exact="/a"), query_params={"q": present}),
        rule(uri=StringMatch(exact="/a")),
        rule(uri=StringMatch(prefix="/longer")),
        rule(uri=StringMatch(prefix="/b"), method=StringMatch(exact="GET")),
        rule(uri=StringMatch(prefix="/b"), headers={"h": present, "i": present}),
        rule(uri=StringMatch(prefix="/b"), headers={"h": present}, query_params={"q": present}),
        rule(uri=StringMatch(prefix="/b"), headers={"h": present}),
        rule(uri=StringMatch(prefix="/b"), query_params={"q": present, "r": present}),
        rule(uri=StringMatch(prefix="/b")),
        rule(uri=StringMatch(regex="/very.*long")),
        rule(uri=StringMatch(regex="/.*")),
        rule(method=StringMatch(exact="GET")),
        rule(),
        HTTPRoute(),
    ]
    keys = [by_specificity(each) for each in ordered]
    assert keys == sorted(set(keys))
    assert by_specificity(ordered[4]) == (0, -2, -2, 0, 0, 0)
    assert by_specificity(ordered[12]) == (0, 1, 0, 0, 0, 0)
    assert by_specificity(ordered[-1]) == (1,)


TERMINATES, PASSES = ListenerTLSConfig(), ListenerTLSConfig(mode="Passthrough")


@pytest.mark.parametrize(
    ("protocol", "tls", "allowed", "kinds", "is_all"),
    [
        ("HTTP", None, (), ["HTTPRoute", "GRPCRoute"], True),
        ("HTTPS", TERMINATES, (), ["HTTPRoute", "GRPCRoute"], True),
        ("HTTPS", TERMINATES, ("TCPRoute",), [], False),
        ("TCP", None, (), ["TCPRoute"], True),
        ("TLS", None, (), ["TLSRoute"], True),
        ("TLS", PASSES, (), ["TLSRoute"], True),
        ("TLS", PASSES, ("TLSRoute", "TCPRoute"), ["TLSRoute"], False),
        ("TLS", TERMINATES, (), ["TLSRoute", "TCPRoute"], True),
        ("TLS", TERMINATES, ("TCPRoute",), ["TCPRoute"], True),
        ("TCP", TERMINATES, ("TLSRoute",), [], False),
        ("UDP", None, (), [], True),
    ],
)
def test_supported_route_kinds_of_a_listener(
    protocol: str, tls: ListenerTLSConfig | None, allowed: tuple[str, ...], kinds: list[str], is_all: bool
) -> None:
    routes = AllowedRoutes(kinds=tuple(RouteGroupKind(kind=kind) for kind in allowed))
    supported, whole = supported_kinds(Listener(protocol=protocol, tls=tls, allowed_routes=routes))
    assert ([kind.name for kind in supported], whole) == (kinds, is_all)


def test_route_kind_of_another_group_is_not_supported() -> None:
    foreign, valid = (
        RouteGroupKind(group="other", kind="HTTPRoute"),
        RouteGroupKind(group="gateway.networking.k8s.io", kind="HTTPRoute"),
    )
    assert supported_kinds(Listener(protocol="HTTP", allowed_routes=AllowedRoutes(kinds=(foreign,)))) == ((), False)
    supported, whole = supported_kinds(Listener(protocol="HTTP", allowed_routes=AllowedRoutes(kinds=(foreign, valid))))
    assert ([kind.name for kind in supported], whole) == (["HTTPRoute"], False)


@pytest.mark.parametrize(
    "required", [Placement(), Placement(locality=True), Placement(node=True), Placement(network=True)], ids=str
)
def test_location_facet_has_only_the_required_placement(monkeypatch: pytest.MonkeyPatch, required: Placement) -> None:
    harness = world()
    node_id = harness.connect(
        proxy(
            "sidecar",
            "web-0",
            "a",
            "10.0.0.1",
            NODE_NAME="n1",
            NETWORK="net",
            CLUSTER_ID="c2",
            REQUESTED_NETWORK_VIEW="x,y",
        )
    )
    client = harness.mesh.proxies.peek(node_id)
    assert client is not None
    locality, network = Locality("r", "z", "s"), "net"
    monkeypatch.setattr(classify, "placement", lambda db: required)
    monkeypatch.setattr(classify, "proxy_locality", lambda db, node: locality)
    monkeypatch.setattr(classify, "proxy_network", lambda db, node: network)
    assert classify._location(harness.mesh, client, node_id) == LocationFacet(
        network=network if required.network else "",
        cluster_id="c2",
        locality=locality if required.locality else Locality(),
        node="n1" if required.node else "",
        ipv4=True,
        ipv6=False,
        networks=frozenset({"x", "y"}),
    )
